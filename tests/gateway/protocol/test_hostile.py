"""Whatever bytes come, the port stays open for everybody else."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate
from tests.gateway.protocol.certificates import authority
from tests.gateway.protocol.gateway import Gateway, eventually, running_gateway
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection

pytestmark = pytest.mark.slow

PLAIN = b"\x01\x00\x00\x00\x05PLAIN"
DIGEST = b"\x01\x00\x00\x00\x0aDIGEST-MD5\x02\x00\x00\x00\x00"
LOGIN = PLAIN + b"\x02\x00\x00\x00\x08\x00ada\x00ada"
HTTP = b"POST /cliservice HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-thrift\r\n"
CALL = b"\x80\x01\x00\x01\x00\x00\x00\x0bOpenSession\x00\x00\x00\x01"
UNVERSIONED = b"\x00\x00\x00\x0bOpenSession\x01\x00\x00\x00\x01"
BEGINNINGS = (
    b"",
    UNVERSIONED,
    b"\x16\x03\x01",
    PLAIN,
    DIGEST,
    LOGIN,
    HTTP,
    CALL,
    LOGIN + b"\x00\x00\x00\x40",
)

SILENT = 3000
SILENCES = (b"", PLAIN, CALL, UNVERSIONED)
"""Beginnings after which a client has nothing to say; the server keeps waiting for the rest."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server with everything switched on."""
    issuer = authority(tmp_path_factory.mktemp("issuer"))
    config = Config(
        server={"port": 0, "workers": 2, "auth": "CUSTOM", "disconnect_grace": 0.0},
        # Room for the logins that a test sends all at once.
        login={"custom": "tests.gateway.protocol.test_http:Counting", "max_concurrent": 32},
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


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_clients_that_vanish_leave_nothing_behind(
    port: Gateway, beginning: bytes, reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        with socket.create_connection((port.host, port.port), timeout=10) as raw:
            raw.sendall(beginning)
            if reset:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert eventually(lambda: not list(port.sessions.sessions()))
    assert not [record for record in caplog.records if record.exc_info], "a bug, or a full disk"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open as many sockets as the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * SILENT:
        pytest.skip("the machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * SILENT), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_thousands_of_silent_clients_take_little_memory_and_no_turn() -> None:
    config = Config(server=ServerSection(port=0, login_timeout=5.0, disconnect_grace=0.0))
    with running_gateway(config) as gateway, ExitStack() as silent, ExitStack() as served:
        options = {"host": gateway.host, "port": gateway.port}
        before_them = served.enter_context(tidegate.connect(**options))
        memory = psutil.Process().memory_info().rss
        for number in range(SILENT):
            raw = silent.enter_context(socket.create_connection((gateway.host, gateway.port)))
            raw.sendall(SILENCES[number % len(SILENCES)])
        began = time.monotonic()
        before_them.ping()
        with tidegate.connect(**options) as beside_them:
            beside_them.ping()
        assert time.monotonic() - began < 2.0
        # Both ends of each are in this process.
        assert psutil.Process().memory_info().rss - memory < SILENT * 20_000
        assert eventually(lambda: gateway.connections() == 1, 40), "they were never turned out"
        before_them.ping()


def test_meanwhile_everybody_else_is_served(port: Gateway) -> None:
    with ExitStack() as silent:
        for number in range(200):
            raw = silent.enter_context(socket.create_connection((port.host, port.port)))
            raw.sendall(BEGINNINGS[number % len(BEGINNINGS)])
        for transport in ("binary", "http"):
            options = {"user": "ada", "password": "ada", "transport": transport}
            with tidegate.connect(host=port.host, port=port.port, **options) as connection:
                connection.ping()
