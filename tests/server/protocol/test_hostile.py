"""Whatever bytes come, the port stays open for everybody else."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate
from tests.server.protocol.certificates import authority
from tests.server.protocol.gateway import Gateway, eventually, running_gateway
from tidegate_server.config import Config

PLAIN = b"\x01\x00\x00\x00\x05PLAIN"
DIGEST = b"\x01\x00\x00\x00\x0aDIGEST-MD5\x02\x00\x00\x00\x00"
LOGIN = PLAIN + b"\x02\x00\x00\x00\x08\x00ada\x00ada"
HTTP = b"POST /cliservice HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-thrift\r\n"
CALL = b"\x80\x01\x00\x01\x00\x00\x00\x0bOpenSession\x00\x00\x00\x01"
BEGINNINGS = (b"", b"\x16\x03\x01", PLAIN, DIGEST, LOGIN, HTTP, CALL, LOGIN + b"\x00\x00\x00\x40")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server with everything switched on."""
    issuer = authority(tmp_path_factory.mktemp("issuer"))
    config = Config(
        server={"port": 0, "workers": 2, "auth": "CUSTOM", "disconnect_grace": 0.0},
        # Room for the logins that a test sends all at once.
        login={"custom": "tests.server.protocol.test_http:Counting", "max_concurrent": 32},
        tls=issuer.server,
    )
    with running_gateway(config) as running:
        yield running


def send(gateway: Gateway, data: bytes) -> None:
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        # The server may hang up while this still speaks.
        with contextlib.suppress(ConnectionError):
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while raw.recv(65536):
                continue


@given(st.sampled_from(BEGINNINGS), st.binary(max_size=400))
def test_any_bytes_end_in_an_answer_or_a_closed_connection(
    port: Gateway, beginning: bytes, rest: bytes
) -> None:
    send(port, beginning + rest)


@given(st.sampled_from([LOGIN, b""]), st.integers(0, len(CALL) + 40), st.integers(0, 255))
def test_one_wrong_byte_does_no_harm(port: Gateway, login: bytes, place: int, value: int) -> None:
    call = bytearray(CALL + b"\x0c\x00\x01\x08\x00\x01\x00\x00\x00\x09\x00\x00")
    if place < len(call):
        call[place] = value
    frame = struct.pack(">i", len(call)) if login else b""
    send(port, login + frame + bytes(call))


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_clients_that_vanish_leave_nothing_behind(port: Gateway, beginning: bytes) -> None:
    for _ in range(20):
        with socket.create_connection((port.host, port.port), timeout=10) as raw:
            raw.sendall(beginning)
            # A reset instead of an orderly end.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert eventually(lambda: not list(port.sessions.sessions()))


def test_meanwhile_everybody_else_is_served(port: Gateway) -> None:
    with ExitStack() as silent:
        for number in range(200):
            raw = silent.enter_context(socket.create_connection((port.host, port.port)))
            raw.sendall(BEGINNINGS[number % len(BEGINNINGS)])
        for transport in ("binary", "http"):
            options = {"user": "ada", "password": "ada", "transport": transport}
            with tidegate.connect(host=port.host, port=port.port, **options) as connection:
                connection.ping()
