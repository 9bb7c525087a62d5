"""Pages of results: offsets, orientation, size and format."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from tests.gateway.protocol.gateway import (
    Gateway,
    rows_of,
    running_gateway,
)
from tests.gateway.protocol.peer import CODES, Peer, V, numbers, open_peer
from tidegate.wire.service import (
    ttypes,
)
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection


def test_pages_tell_their_offset_and_whether_more_follows(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["SELECT five"] = numbers(5)
    operation = peer.execute(peer.session(), "SELECT five").operationHandle
    pages = [peer.fetch(operation, 2) for _ in range(4)]
    assert [p.results.columns[0].i64Val.values for p in pages] == [[0, 1], [2, 3], [4], []]
    assert [p.results.startRowOffset for p in pages] == [0, 2, 4, 5]
    assert [p.hasMoreRows for p in pages] == [True, True, False, False]
    again = peer.fetch(operation, 2, orientation=ttypes.TFetchOrientation.FETCH_FIRST)
    assert again.results.columns[0].i64Val.values == [0, 1]


@pytest.mark.parametrize("version", [V.HIVE_CLI_SERVICE_PROTOCOL_V1, 4])
def test_old_protocols_read_on_by_asking_for_the_first_page(
    gateway: Gateway, peer: Peer, version: int
) -> None:
    gateway.answers["SELECT many"] = numbers(20_000)
    operation = peer.execute(peer.session(version), "SELECT many").operationHandle
    first = ttypes.TFetchOrientation.FETCH_FIRST

    def drain() -> list[int]:
        got: list[int] = []
        while True:
            page = peer.fetch(operation, 3_000, orientation=first)
            assert page.results.startRowOffset == len(got)
            got += [row.colVals[0].i64Val.value for row in page.results.rows]
            if not page.hasMoreRows:
                return got

    assert drain() == list(range(20_000))
    # After the last page it begins again, as the words say.
    assert drain() == list(range(20_000))


def test_newer_protocols_get_the_first_page_when_they_ask_for_it(
    gateway: Gateway, peer: Peer
) -> None:
    gateway.answers["SELECT five"] = numbers(5)
    session = peer.session(V.HIVE_CLI_SERVICE_PROTOCOL_V6)
    operation = peer.execute(session, "SELECT five").operationHandle
    first = ttypes.TFetchOrientation.FETCH_FIRST
    for _ in range(2):
        page = peer.fetch(operation, 2, orientation=first)
        assert page.results.columns[0].i64Val.values == [0, 1]


def test_an_unsupported_orientation_is_refused(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    last = peer.fetch(operation, orientation=ttypes.TFetchOrientation.FETCH_LAST)
    assert (last.status.statusCode, last.status.sqlState) == (CODES.ERROR_STATUS, "HY106")


def test_parallel_fetches_over_several_sockets_get_each_row_once(gateway: Gateway) -> None:
    gateway.answers["SELECT many"] = numbers(5000)
    got: list[int] = []

    def drain(operation: Any) -> None:
        with open_peer(gateway) as peer:
            while (page := peer.fetch(operation, 37).results).columns[0].i64Val.values:
                values = page.columns[0].i64Val.values
                assert values[0] == page.startRowOffset
                got.extend(values)

    with open_peer(gateway) as peer:
        operation = peer.execute(peer.session(), "SELECT many").operationHandle
        threads = [threading.Thread(target=drain, args=(operation,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == list(range(5000))


def test_replies_are_cut_by_bytes() -> None:
    section = ServerSection(port=0, max_reply_bytes=64 << 10, disconnect_grace=0.0)
    with running_gateway(Config(server=section)) as gateway, open_peer(gateway) as peer:
        texts = pa.array(["x" * 1000] * 200)
        gateway.answers["SELECT wide"] = lambda _: rows_of("s", "string", texts)
        operation = peer.execute(peer.session(), "SELECT wide").operationHandle
        page = peer.fetch(operation, 200)
        assert page.hasMoreRows
        assert 50 < len(page.results.columns[0].stringVal.values) <= 65


def test_arrow_sessions_get_streams(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["SELECT five"] = numbers(5)
    session = peer.session(**{"tidegate.result.format": "arrow"})
    operation = peer.execute(session, "SELECT five").operationHandle
    (column,) = peer.fetch(operation).results.columns
    (stream,) = column.binaryVal.values
    assert pa.ipc.open_stream(stream).read_all().to_pydict() == {"n": [0, 1, 2, 3, 4]}
    assert [c.binaryVal.values for c in peer.fetch(operation).results.columns] == [[]]


def test_old_protocols_get_rows(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["SELECT texts"] = lambda _: rows_of("s", "string", pa.array(["a", None]))
    session = peer.session(V.HIVE_CLI_SERVICE_PROTOCOL_V5)
    results = peer.fetch(peer.execute(session, "SELECT texts").operationHandle).results
    assert [row.colVals[0].stringVal.value for row in results.rows] == ["a", None]
