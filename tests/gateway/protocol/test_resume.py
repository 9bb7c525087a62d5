"""Sessions and statements that survive lost connections, with the driver and without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import tidegate
from tests.gateway.protocol.gateway import Gateway, rows_of, running_gateway
from tests.gateway.protocol.peer import CODES, Peer, numbers
from tests.support.cutting_proxy import CuttingProxy, Where, cutting_proxy
from tests.support.waiting import wait_until
from tidegate.wire.service import ttypes
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.gateway.context import Context

KEY = "tidegate.statement.id"
ABSOLUTE = ttypes.TFetchOrientation.FETCH_ABSOLUTE
ROWS = 20_000


class Statements:
    """Counts how often each statement ran."""

    def __init__(self, gateway: Gateway) -> None:
        self.runs: list[str] = []
        gateway.answers["SELECT many"] = self._many
        gateway.answers["INSERT"] = self._insert
        gateway.answers["SLOW"] = self._slow
        self.go_on = threading.Event()

    def _many(self, context: Context) -> Result:
        self.runs.append("SELECT many")
        return rows_of("n", "bigint", pa.array(range(ROWS), pa.int64()))

    def _insert(self, context: Context) -> Result:
        self.runs.append("INSERT")
        context.log("inserted")
        return nothing()

    def _slow(self, context: Context) -> Result:
        self.runs.append("SLOW")
        assert self.go_on.wait(30)
        return nothing()


@pytest.fixture(scope="module")
def kept() -> Iterator[Gateway]:
    """A gateway that keeps the sessions of lost connections."""
    with running_gateway(Config(server=ServerSection(port=0, workers=4))) as gateway:
        yield gateway


@contextmanager
def connected(
    proxy: CuttingProxy, **arguments: Any
) -> Iterator[tuple[tidegate.Connection[Any], tidegate.Cursor[Any]]]:
    with (
        tidegate.connect("127.0.0.1", proxy.port, fetch_size=3_000, **arguments) as connection,
        connection.cursor() as cursor,
    ):
        yield connection, cursor


CALLS = [
    ("ExecuteStatement", 1),
    ("GetOperationStatus", 1),
    ("GetResultSetMetadata", 1),
    ("FetchResults", 1),
    ("FetchResults", 3),
    ("FetchResults", 7),
]


@pytest.mark.parametrize("where", Where)
@pytest.mark.parametrize(("call", "nth"), CALLS)
@pytest.mark.parametrize("arrow", [True, False])
def test_no_row_is_lost_or_doubled(
    kept: Gateway, where: Where, call: str, nth: int, arrow: bool
) -> None:
    statements = Statements(kept)
    settings = {} if arrow else {"tidegate.result.format": "thrift"}
    with cutting_proxy(kept.port) as proxy, connected(proxy, settings=settings) as (_, cursor):
        proxy.cut(call, where, nth=nth)
        rows = cursor.execute("SELECT many").fetchall()
        assert proxy.cuts == 1
    assert rows == [(n,) for n in range(ROWS)]
    assert statements.runs == ["SELECT many"]


@pytest.mark.parametrize("where", Where)
def test_every_page_survives_a_cut_of_its_own(kept: Gateway, where: Where) -> None:
    Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy) as (_, cursor):
        cursor.execute("SELECT many")
        seen: list[int] = []
        for _ in range(7):
            proxy.cut("FetchResults", where)
            seen += [n for (n,) in cursor.fetchmany(3_000)]
        assert cursor.fetchall() == []
        assert proxy.cuts == 7
    assert seen == list(range(ROWS))


@pytest.mark.parametrize("where", Where)
@pytest.mark.parametrize("call", ["ExecuteStatement", "GetOperationStatus", "CloseOperation"])
def test_a_statement_runs_once(kept: Gateway, where: Where, call: str) -> None:
    statements = Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy) as (connection, cursor):
        proxy.cut(call, where)
        for _ in range(2):
            cursor.execute("INSERT")
        assert proxy.cuts == 1
        assert connection.is_alive()
    assert statements.runs == ["INSERT"] * 2


@pytest.mark.parametrize("where", Where)
def test_log_lines_arrive_once(kept: Gateway, where: Where) -> None:
    Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy) as (_, cursor):
        proxy.cut("FetchResults", where)
        cursor.execute_async("INSERT")
        lines = list(cursor.logs())
        assert proxy.cuts == 1
    assert [line for line in lines if "inserted" in line] == ["INFO  : inserted"]


@pytest.mark.parametrize("where", Where)
def test_a_connection_over_http_is_resumed_too(kept: Gateway, where: Where) -> None:
    statements = Statements(kept)
    with (
        cutting_proxy(kept.port) as proxy,
        connected(proxy, transport="http") as (_, cursor),
    ):
        proxy.cut("ExecuteStatement", where)
        assert len(cursor.execute("SELECT many").fetchall()) == ROWS
        assert proxy.cuts == 1
    assert statements.runs == ["SELECT many"]


def test_another_host_of_the_same_gateway_is_used(kept: Gateway) -> None:
    statements = Statements(kept)
    with cutting_proxy(kept.port) as first, cutting_proxy(kept.port) as second:
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        with tidegate.connect(hosts) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT many")
            first.refuse()
            assert len(cursor.fetchall()) == ROWS
            assert f":{second.port}" in repr(connection)
            assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    assert statements.runs == ["SELECT many"]


def test_a_host_that_does_not_know_the_session_is_not_used(kept: Gateway) -> None:
    statements = Statements(kept)
    config = Config(server=ServerSection(port=0, workers=2))
    with running_gateway(config) as other, cutting_proxy(kept.port) as proxy:
        hosts = f"127.0.0.1:{proxy.port},127.0.0.1:{other.port}"
        with tidegate.connect(hosts, retries=2) as connection, connection.cursor() as cursor:
            proxy.cut("ExecuteStatement", Where.BETWEEN)
            cursor.execute("INSERT")
            assert statements.runs == ["INSERT"]
            proxy.refuse()
            with pytest.raises(tidegate.OperationalError, match="2 attempts within") as caught:
                cursor.execute("INSERT")
            assert caught.value.sqlstate == "08006"
            assert connection.closed
        assert not list(other.sessions.sessions())


def test_a_session_that_is_gone_is_not_waited_for(kept: Gateway) -> None:
    Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy, retries=1000) as (connection, cursor):
        for session in kept.sessions.sessions():
            kept.sessions.close(session)
        proxy.cut("ExecuteStatement", Where.BETWEEN)
        started = time.monotonic()
        with pytest.raises(tidegate.OperationalError, match="no longer knows") as caught:
            cursor.execute("INSERT")
        assert "may or may not have run" in (caught.value.hint or "")
        assert time.monotonic() - started < 5
        assert connection.closed


def test_the_budget_bounds_attempts_and_seconds(kept: Gateway) -> None:
    Statements(kept)
    with cutting_proxy(kept.port) as proxy:
        for budget, words in (
            ({"retries": 3}, r"3 attempts within \d\.\d s"),
            ({"retries": 1000, "retry_timeout": 0.5}, r"[1-4] attempts? within \d\.\d s"),
        ):
            with connected(proxy, **budget) as (_, cursor):
                proxy.cut("GetInfo", Where.BETWEEN, times=1000)
                proxy.cut("ExecuteStatement", Where.BETWEEN)
                with pytest.raises(tidegate.OperationalError, match=words) as caught:
                    cursor.execute("INSERT")
                assert "no session" in str(caught.value)


def test_without_retries_a_lost_connection_is_an_error_at_once(kept: Gateway) -> None:
    statements = Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy, retries=0) as (connection, cursor):
        proxy.cut("ExecuteStatement", Where.BETWEEN)
        with pytest.raises(tidegate.OperationalError, match="connection lost"):
            cursor.execute("INSERT")
        assert connection.closed
        assert proxy.connections == 1
    # The server got the statement, and runs it without the client.
    wait_until(lambda: statements.runs == ["INSERT"], "the statement did not run")


def test_a_reply_later_than_the_timeout_is_not_waited_for_again(kept: Gateway) -> None:
    statements = Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy, timeout=0.3) as (connection, cursor):
        with pytest.raises(tidegate.OperationalError, match="no reply came in time"):
            cursor.execute("SLOW")
        assert connection.closed
        assert proxy.connections == 1
    statements.go_on.set()


def test_closing_ends_the_attempts_of_another_thread(kept: Gateway) -> None:
    Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy, retries=1000) as (connection, cursor):
        cursor.execute("INSERT")
        proxy.refuse()
        failures: list[Exception] = []

        def ping() -> None:
            try:
                connection.ping()
            except tidegate.Error as error:
                failures.append(error)

        thread = threading.Thread(target=ping)
        thread.start()
        time.sleep(0.3)
        connection.abort()
        thread.join(5)
        assert not thread.is_alive()
        assert len(failures) == 1


def test_threads_that_lose_one_connection_share_the_next(kept: Gateway) -> None:
    Statements(kept)
    with cutting_proxy(kept.port) as proxy, connected(proxy) as (connection, _):
        proxy.cut("ExecuteStatement", Where.WITHIN, nth=3)
        found: list[int] = []

        def run() -> None:
            with connection.cursor() as cursor:
                found.append(len(cursor.execute("SELECT many").fetchall()))

        threads = [threading.Thread(target=run) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert found == [ROWS] * 5
        assert proxy.connections == 2


# The protocol itself.


def test_a_repeated_statement_is_the_same_operation(kept: Gateway) -> None:
    statements = Statements(kept)
    peer = Peer(kept)
    session = peer.session()

    def insert(session: Any, statement_id: str) -> Any:
        return peer.execute(session, "INSERT", confOverlay={KEY: statement_id}).operationHandle

    first = insert(session, "a")
    assert insert(session, "a") == first
    assert insert(session, "b") != first
    assert insert(peer.session(), "a") != first
    assert statements.runs == ["INSERT"] * 3
    overlay = {KEY: "a"}
    changed = peer.execute(session, "SELECT 1", confOverlay=overlay)
    assert "statement id" in changed.status.errorMessage
    peer.client.CloseOperation(ttypes.TCloseOperationReq(first))
    # A request that was under way for long must not run when the client has gone on.
    late = peer.execute(session, "INSERT", confOverlay=overlay)
    assert late.status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert statements.runs == ["INSERT"] * 3
    peer.close()


@pytest.mark.parametrize("statement_id", ["", "x" * 65])
def test_an_unusable_statement_id_is_refused(kept: Gateway, statement_id: str) -> None:
    peer = Peer(kept)
    answer = peer.execute(peer.session(), "SELECT 1", confOverlay={KEY: statement_id})
    assert answer.status.statusCode == CODES.ERROR_STATUS
    peer.close()


def test_rows_are_fetched_from_any_place(kept: Gateway) -> None:
    kept.answers["SELECT five"] = numbers(5)
    peer = Peer(kept)
    operation = peer.execute(peer.session(), "SELECT five").operationHandle
    for start in (0, 2, 2, 4, 1, 5, 9, 0):
        request = ttypes.TFetchResultsReq(operation, ABSOLUTE, 2, startRow=start)
        page = peer.client.FetchResults(request)
        assert page.results.startRowOffset == start
        assert page.results.columns[0].i64Val.values == list(range(5))[start : start + 2]
    for row in (None, -1):
        request = ttypes.TFetchResultsReq(operation, ABSOLUTE, 2, startRow=row)
        assert peer.client.FetchResults(request).status.sqlState == "HY106"
    peer.close()
