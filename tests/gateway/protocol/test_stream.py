"""Bytes on the connection: headers, frames, sizes, and requests that cannot be read."""

from __future__ import annotations

import socket
import struct

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol

from tests.gateway.protocol.gateway import (
    Gateway,
    running_gateway,
)
from tests.gateway.protocol.peer import CODES, Peer, open_peer
from tidegate.wire.service import (
    Client,
    TApplicationException,
    accelerated_protocol,
    ttypes,
)
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection


def exchange(gateway: Gateway, data: bytes, size: int = 65536) -> bytes:
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(data)
        received = b""
        while len(received) < size and (more := raw.recv(65536)):
            received += more
        return received


def bare_call(name: bytes, body: bytes, sequence: int = 1) -> bytes:
    head = b"\x80\x01\x00\x01" + struct.pack(">i", len(name)) + name
    return head + struct.pack(">i", sequence) + body


def test_headers_without_a_version_are_taken_as_hive_takes_them(gateway: Gateway) -> None:
    with open_peer(gateway) as peer:
        peer.client = Client(TBinaryProtocol(peer._transport, strictWrite=False))
        session = peer.session()
        operation = peer.execute(session, "SELECT 1").operationHandle
        # The same question again, and then one that needs another thread.
        assert [peer.status(operation).operationState for _ in range(3)] == [2, 2, 2]
        assert peer.fetch(operation).results.columns[0].i32Val.values == [1]


def test_a_large_request_without_a_version_is_closed_before_login(gateway: Gateway) -> None:
    head = struct.pack(">i", 11) + b"OpenSession\x01" + struct.pack(">i", 1)
    text = b"\x0c\x00\x01\x0b\x00\x02" + struct.pack(">i", 1 << 20)
    assert exchange(gateway, head + text) == b""


def test_an_unknown_call_leaves_the_connection_in_step(gateway: Gateway) -> None:
    with open_peer(gateway) as peer:
        transport = peer._transport
        transport.write(bare_call(b"GetLog", b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x01x\x00\x00"))
        transport.flush()
        protocol = accelerated_protocol(transport)
        name, kind, _ = protocol.readMessageBegin()
        problem = TApplicationException()
        problem.read(protocol)
        protocol.readMessageEnd()
        assert (name, kind, problem.type) == ("GetLog", 3, TApplicationException.UNKNOWN_METHOD)
        assert peer.open().status.statusCode == 0


def test_an_unreadable_request_leaves_the_connection_in_step(gateway: Gateway) -> None:
    with open_peer(gateway) as peer:
        transport = peer._transport
        transport.write(bare_call(b"OpenSession", b"\x00"))
        transport.flush()
        protocol = accelerated_protocol(transport)
        protocol.readMessageBegin()
        problem = TApplicationException()
        problem.read(protocol)
        assert problem.type == TApplicationException.PROTOCOL_ERROR
        assert peer.open().status.statusCode == 0


def test_a_request_without_its_handle_is_answered(peer: Peer) -> None:
    peer.client.send_GetInfo(ttypes.TGetInfoReq(ttypes.TSessionHandle(), 17))
    response = peer.client.recv_GetInfo()
    assert response.status.statusCode == CODES.INVALID_HANDLE_STATUS


def test_tls_is_refused_by_an_alert_where_there_is_none(gateway: Gateway) -> None:
    assert exchange(gateway, b"\x16\x03\x01\x02\x00", 7).startswith(b"\x15\x03")


@pytest.mark.parametrize("first", [b"hello", b"\x00\x00\x00\x05\x80\x01"])
def test_other_protocols_are_closed(gateway: Gateway, first: bytes) -> None:
    assert exchange(gateway, first) == b""


def test_a_large_request_before_login_is_closed(gateway: Gateway) -> None:
    start = bare_call(b"OpenSession", b"\x0c\x00\x01\x0b\x00\x02" + struct.pack(">i", 1 << 20))
    assert exchange(gateway, start) == b""


def test_a_large_request_in_a_session_is_taken(peer: Peer) -> None:
    session = peer.session()
    status = peer.execute(session, "SELECT " + "x" * 300_000).status
    assert "cannot run" in status.errorMessage


def test_an_unknown_mechanism_is_refused_with_a_sentence(gateway: Gateway) -> None:
    answer = exchange(gateway, b"\x01\x00\x00\x00\x06GSSAPI")
    assert answer[0] == 3
    assert b"PLAIN" in answer


def test_sasl_takes_a_message_in_several_frames(gateway: Gateway) -> None:
    call = bare_call(b"GetLog", b"\x00")
    frames = b"".join(struct.pack(">i", 1) + call[n : n + 1] for n in range(len(call)))
    login = b"\x01\x00\x00\x00\x05PLAIN" + b"\x02\x00\x00\x00\x06\x00eva\x00x"
    answer = exchange(gateway, login + frames, 20)
    assert answer[:5] == b"\x05\x00\x00\x00\x00"
    assert b"GetLog" in answer


def test_a_silent_connection_is_closed() -> None:
    section = ServerSection(port=0, login_timeout=0.2)
    with running_gateway(Config(server=section)) as gateway:
        assert exchange(gateway, b"\x80\x01") == b""
