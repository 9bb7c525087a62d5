"""Sessions over Thrift: opening, sharing and closing them, and bad handles."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from thrift.transport.TTransport import TTransportException

from tests.gateway.protocol.gateway import (
    Gateway,
    eventually,
)
from tests.gateway.protocol.peer import CODES, Peer, V, open_peer
from tidegate.wire.service import (
    ttypes,
)


@pytest.mark.parametrize("asked", [0, 5, 9, 10])
def test_the_version_answered_is_the_one_asked_for(peer: Peer, asked: int) -> None:
    assert peer.open(asked).serverProtocolVersion == asked


def test_a_version_of_the_future_is_answered_with_v11(peer: Peer) -> None:
    assert peer.open(99).serverProtocolVersion == V.HIVE_CLI_SERVICE_PROTOCOL_V11


def test_the_configuration_answered_tells_fetch_size_and_format(peer: Peer) -> None:
    answered = peer.open(**{"tidegate.result.format": "arrow"}).configuration
    assert int(answered["hive.server2.thrift.resultset.default.fetch.size"]) > 0
    assert "hive.default.nulls.last" in answered
    assert answered["tidegate.result.format"] == "arrow"


def test_an_unknown_schema_fails_the_opening(peer: Peer) -> None:
    response = peer.open(**{"use:database": "nowhere"})
    assert (response.status.statusCode, response.status.sqlState) == (CODES.ERROR_STATUS, "42704")


def test_several_sessions_share_a_socket(peer: Peer) -> None:
    first, second = peer.session(), peer.session()
    peer.execute(first, "USE other_db")
    assert peer.client.CloseSession(ttypes.TCloseSessionReq(first)).status.statusCode == 0
    assert peer.execute(second, "SELECT 1").status.statusCode == 0


def test_a_session_is_used_from_another_socket(gateway: Gateway, peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    with open_peer(gateway) as other:
        assert other.fetch(operation).results.columns[0].i32Val.values == [1]


def test_a_bad_session_handle_says_so(peer: Peer) -> None:
    handle = ttypes.TSessionHandle(ttypes.THandleIdentifier(b"x" * 16, b"y" * 16))
    status = peer.execute(handle, "SELECT 1").status
    assert status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert "Invalid SessionHandle" in status.errorMessage
    assert "Invalid SessionHandle" in status.infoMessages[0]


def test_a_bad_operation_handle_says_so(peer: Peer) -> None:
    session = peer.session()
    operation = peer.execute(session, "SELECT 1").operationHandle
    operation.operationId.secret = bytes(16)
    for response in (peer.status(operation), peer.fetch(operation)):
        assert response.status.statusCode == CODES.INVALID_HANDLE_STATUS
        assert "Invalid OperationHandle" in response.status.infoMessages[0]


def test_closing_an_operation_twice_is_harmless(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    request = ttypes.TCloseOperationReq(operation)
    assert peer.client.CloseOperation(request).status.statusCode == 0
    assert peer.client.CloseOperation(request).status.statusCode == 0


def test_sessions_of_a_closed_socket_are_closed(gateway: Gateway) -> None:
    with open_peer(gateway) as peer:
        guid = peer.session().sessionId.guid
        assert guid in {s.handle.guid for s in gateway.sessions.sessions()}
    assert eventually(lambda: guid not in {s.handle.guid for s in gateway.sessions.sessions()})


def test_a_client_that_dies_in_a_synchronous_statement_leaves_nothing_behind(
    gateway: Gateway,
) -> None:
    with open_peer(gateway) as peer:
        session = peer.session()
        other_thread = threading.Thread(
            target=swallow_eof, args=(lambda: peer.execute(session, "WAIT FOR CANCEL"),)
        )
        other_thread.start()
        found = next(
            s for s in gateway.sessions.sessions() if s.handle.guid == session.sessionId.guid
        )
        assert eventually(lambda: found.idle_since() is None)
        peer._transport._TBufferedTransport__trans.handle.shutdown(socket.SHUT_RDWR)
        other_thread.join(10)
    assert eventually(lambda: found not in gateway.sessions.sessions())


def swallow_eof(call: Callable[[], Any]) -> None:
    with pytest.raises((EOFError, OSError, TTransportException)):
        call()


def test_warnings_about_the_settings_of_a_session_come_with_it(peer: Peer) -> None:
    opened = peer.open(**{"set:hiveconf:parallelism.default": "3"})
    assert opened.status.statusCode == CODES.SUCCESS_STATUS
    [message] = opened.status.infoMessages
    assert message.startswith("Warning: parallelism.default changes nothing here")
    assert peer.open().status.infoMessages is None
