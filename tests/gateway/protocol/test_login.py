"""Authentication over the binary transport: who is accepted, and what the others are told."""

from __future__ import annotations

import gc
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import impala.dbapi
import impala.error
import pytest
from pyhive import hive
from thrift.transport.TTransport import TTransportException

import tidegate
from tests.gateway.protocol.gateway import Gateway, running_gateway
from tidegate.wire.service import ttypes
from tidegate_server.core.config import Config
from tidegate_server.gateway.auth.base import login_error
from tidegate_server.gateway.auth.tokens import decode_token, encode_token

PASSWORDS = {"ada": "lovelace", "superset": "s3cret", "slow": "x"}
SECTIONS: dict[str, Any] = {
    "server": {"port": 0, "workers": 4, "disconnect_grace": 30.0, "auth": "CUSTOM"},
    "login": {"custom": f"{__name__}:Table", "timeout": 0.5},
    "proxy": {"superset": {"users": ["eva"]}},
}


class Table:
    """Knows three users, one of whom takes too long."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take no options."""

    def authenticate(self, user: str, password: str) -> str:
        if user == "slow":
            time.sleep(1)
        if PASSWORDS.get(user) != password:
            raise login_error()
        return user


@pytest.fixture(scope="module")
def password_gateway() -> Iterator[Gateway]:
    """A server that asks for passwords."""
    with running_gateway(Config(**SECTIONS)) as running:
        yield running


def connect(gateway: Gateway, **options: Any) -> tidegate.Connection:
    return tidegate.connect(host=gateway.host, port=gateway.port, **options)


def users(gateway: Gateway) -> set[tuple[str, str]]:
    return {(session.real_user, session.user) for session in gateway.sessions.sessions()}


def exchange(gateway: Gateway, data: bytes) -> bytes:
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(data)
        received = b""
        while more := raw.recv(65536):
            received += more
        return received


def start(mechanism: bytes = b"PLAIN") -> bytes:
    return struct.pack(">Bi", 1, len(mechanism)) + mechanism


def response(payload: bytes) -> bytes:
    return struct.pack(">Bi", 2, len(payload)) + payload


# ---- the right password --------------------------------------------------------------------


def test_the_driver_logs_in(password_gateway: Gateway) -> None:
    with connect(password_gateway, user="ada", password="lovelace", auth="PASSWORD"):
        assert ("ada", "ada") in users(password_gateway)


def test_pyhive_logs_in(password_gateway: Gateway) -> None:
    options = {"username": "ada", "password": "lovelace", "auth": "LDAP"}
    with closing(
        hive.connect(password_gateway.host, port=password_gateway.port, **options)
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_impyla_logs_in(password_gateway: Gateway) -> None:
    options = {"user": "ada", "password": "lovelace", "auth_mechanism": "LDAP"}
    with closing(
        impala.dbapi.connect(password_gateway.host, password_gateway.port, **options)
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        cursor.close()


def test_the_name_in_the_request_counts_for_nothing(password_gateway: Gateway) -> None:
    with connect(password_gateway, user="ada", password="lovelace") as connection:
        request = ttypes.TOpenSessionReq(
            client_protocol=ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10,
            username="root",
            configuration={},
        )
        connection.call("OpenSession", request)
        assert "root" not in {name for pair in users(password_gateway) for name in pair}


# ---- a wrong one ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "password"), [("ada", "Lovelace!"), ("nobody", "lovelace"), ("ada\n", "lovelace")]
)
def test_a_wrong_password_is_told_with_its_sqlstate(
    password_gateway: Gateway, caplog: pytest.LogCaptureFixture, user: str, password: str
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(tidegate.OperationalError) as caught:
        connect(password_gateway, user=user, password=password)
    assert caught.value.sqlstate == "28000"
    assert "[LOGIN_REFUSED] The user name or the password is wrong." in str(caught.value)
    assert "SQLSTATE 28000" in str(caught.value)
    assert password not in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pyhive_and_impyla_are_told_too(password_gateway: Gateway) -> None:
    with pytest.raises(TTransportException, match="password is wrong"):
        hive.connect(
            password_gateway.host,
            port=password_gateway.port,
            username="ada",
            password="x",
            auth="LDAP",
        )
    options = {"user": "ada", "password": "x", "auth_mechanism": "LDAP"}
    with pytest.raises(TTransportException, match="password is wrong"):
        impala.dbapi.connect(password_gateway.host, password_gateway.port, **options).cursor()
    gc.collect()  # both forget to close the connection


def test_a_check_that_takes_too_long_is_no_hang(password_gateway: Gateway) -> None:
    with pytest.raises(tidegate.OperationalError, match="it took too long"):
        connect(password_gateway, user="slow", password="x")


# ---- the wrong mode ------------------------------------------------------------------------


def test_a_client_without_sasl_is_told_to_use_it(password_gateway: Gateway) -> None:
    with pytest.raises(tidegate.OperationalError, match="requires authentication") as caught:
        connect(password_gateway, auth="NOSASL")
    assert caught.value.sqlstate == "28000"
    connection = impala.dbapi.connect(
        password_gateway.host, password_gateway.port, auth_mechanism="NOSASL"
    )
    with pytest.raises(impala.error.HiveServer2Error, match="requires authentication"):
        connection.cursor()
    connection.close()


def test_a_client_with_sasl_is_told_to_leave_it() -> None:
    server = {"port": 0, "auth": "NOSASL"}
    with running_gateway(Config(server=server)) as gateway:
        with pytest.raises(tidegate.OperationalError, match="auth=noSasl"):
            connect(gateway)
        with connect(gateway, auth="NOSASL", user="eva"):
            assert users(gateway) == {("eva", "eva")}


@pytest.mark.parametrize("mechanism", [b"GSSAPI", b"\xff\xfe", b""])
def test_another_mechanism_is_refused_with_a_sentence(
    password_gateway: Gateway, mechanism: bytes
) -> None:
    answer = exchange(password_gateway, start(mechanism) + response(b"x" * 1000))
    assert answer[0] == 3
    assert b"Use PLAIN" in answer


# ---- acting as another ---------------------------------------------------------------------


def proxy(name: str) -> dict[str, Any]:
    return {"settings": {"hive.server2.proxy.user": name}}


def test_a_rule_lets_one_user_act_as_another(password_gateway: Gateway) -> None:
    with connect(password_gateway, user="superset", password="s3cret", **proxy("eva")):
        assert ("superset", "eva") in users(password_gateway)


@pytest.mark.parametrize(("user", "other"), [("ada", "eva"), ("superset", "root")])
def test_without_a_rule_it_is_refused(password_gateway: Gateway, user: str, other: str) -> None:
    with pytest.raises(tidegate.OperationalError, match="may not act as") as caught:
        connect(password_gateway, user=user, password=PASSWORDS[user], **proxy(other))
    assert (caught.value.code, caught.value.sqlstate) == ("PROXY_REFUSED", "28000")


def test_sasls_own_way_to_act_as_another_follows_the_same_rules(password_gateway: Gateway) -> None:
    refused_at_once = open_session_as(password_gateway, b"root\0ada\0lovelace")
    assert b"PROXY_REFUSED" in refused_at_once
    assert b"PROXY_REFUSED" not in open_session_as(password_gateway, b"eva\0superset\0s3cret")


def open_session_as(gateway: Gateway, plain: bytes) -> bytes:
    name, body = b"OpenSession", b"\x0c\x00\x01\x08\x00\x01\x00\x00\x00\x09\x00\x00"
    call = b"\x80\x01\x00\x01" + struct.pack(">i", len(name)) + name + b"\0\0\0\1" + body
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(start() + response(plain) + struct.pack(">i", len(call)) + call)
        assert raw.recv(5) == b"\x05\x00\x00\x00\x00"
        length = struct.unpack(">i", raw.recv(4, socket.MSG_WAITALL))[0]
        return raw.recv(length, socket.MSG_WAITALL)


@pytest.mark.parametrize("user", ["eva\nINFO forged", "x" * 300, " "])
def test_a_name_that_is_none_is_refused_even_where_nothing_is_checked(
    gateway: Gateway, user: str
) -> None:
    for auth in ("NONE", "NOSASL"):
        with pytest.raises(tidegate.OperationalError, match="is not a valid user name"):
            connect(gateway, user=user, auth=auth)
    with pytest.raises(tidegate.OperationalError, match="PROXY_REFUSED"):
        connect(gateway, user="eva", **proxy(user))


# ---- delegation tokens ---------------------------------------------------------------------


@pytest.fixture
def token(password_gateway: Gateway) -> str:
    """A token of ada's that superset may renew."""
    with connect(password_gateway, user="ada", password="lovelace") as connection:
        return connection.delegation_token(renewer="superset")


def test_a_token_logs_in_without_a_password(password_gateway: Gateway, token: str) -> None:
    with (
        connect(password_gateway, auth="TOKEN", token=token) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        assert ("ada", "ada") in users(password_gateway)


def test_a_token_is_renewed_and_cancelled(password_gateway: Gateway, token: str) -> None:
    with connect(password_gateway, user="superset", password="s3cret") as connection:
        connection.renew_delegation_token(token)
        connection.cancel_delegation_token(token)
        with pytest.raises(tidegate.OperationalError, match="unknown, canceled"):
            connection.renew_delegation_token(token)
    with pytest.raises(tidegate.OperationalError, match="unknown, canceled") as caught:
        connect(password_gateway, auth="TOKEN", token=token)
    assert caught.value.sqlstate == "28000"


def test_a_token_with_another_secret_is_refused(password_gateway: Gateway, token: str) -> None:
    identifier, secret = decode_token(token)
    forged = encode_token(identifier, bytes(len(secret)))
    with pytest.raises(tidegate.OperationalError, match="is wrong"):
        connect(password_gateway, auth="TOKEN", token=forged)


def test_a_token_for_somebody_else_needs_a_rule(password_gateway: Gateway) -> None:
    with connect(password_gateway, user="superset", password="s3cret") as connection:
        assert decode_token(connection.delegation_token(owner="eva"))
        with pytest.raises(tidegate.OperationalError, match="may not act as"):
            connection.delegation_token(owner="ada")


def test_where_nothing_is_checked_there_are_no_tokens(gateway: Gateway) -> None:
    with connect(gateway) as connection, pytest.raises(tidegate.NotSupportedError) as caught:
        connection.delegation_token()
    assert "server.auth" in str(caught.value) + str(caught.value.hint)
    with pytest.raises(tidegate.OperationalError, match="DIGEST-MD5 is not offered"):
        connect(gateway, auth="TOKEN", token=encode_token(b"a", b"b"))


def test_what_is_no_token_is_the_callers_mistake(password_gateway: Gateway) -> None:
    for text in ("", "x", "é", "////"):
        with pytest.raises(tidegate.InterfaceError):
            connect(password_gateway, auth="TOKEN", token=text)


# ---- handles of other users ----------------------------------------------------------------


def test_a_stolen_handle_is_of_no_use_to_another_user(password_gateway: Gateway) -> None:
    with (
        connect(password_gateway, user="ada", password="lovelace") as owner,
        connect(password_gateway, user="superset", password="s3cret") as thief,
    ):
        execute = ttypes.TExecuteStatementReq(owner.session_handle, "SELECT 1")
        operation = owner.call("ExecuteStatement", execute).operationHandle
        invalid = ttypes.TStatusCode.INVALID_HANDLE_STATUS
        for name, request in (
            ("ExecuteStatement", execute),
            ("GetOperationStatus", ttypes.TGetOperationStatusReq(operation)),
            ("FetchResults", ttypes.TFetchResultsReq(operation, maxRows=1)),
            ("CancelOperation", ttypes.TCancelOperationReq(operation)),
            ("CloseSession", ttypes.TCloseSessionReq(owner.session_handle)),
        ):
            assert thief.call(name, request).status.statusCode == invalid, name
        thief.call("CloseOperation", ttypes.TCloseOperationReq(operation))
        status = owner.call("GetOperationStatus", ttypes.TGetOperationStatusReq(operation))
        assert status.operationState == ttypes.TOperationState.FINISHED_STATE


def test_an_own_handle_works_on_another_connection(password_gateway: Gateway) -> None:
    with (
        connect(password_gateway, user="ada", password="lovelace") as first,
        connect(password_gateway, user="ada", password="lovelace") as second,
    ):
        request = ttypes.TGetInfoReq(first.session_handle, ttypes.TGetInfoType.CLI_SERVER_NAME)
        assert second.call("GetInfo", request).status.statusCode == 0


# ---- hostile input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\xff\xff\xff\xff",
        b"\x01\x7f\xff\xff\xff",
        start() + b"\x09\x00\x00\x00\x01x",
        start() + b"\x02\x80\x00\x00\x00",
        start() + b"\x02\x00\x10\x00\x00",
    ],
)
def test_frames_with_impossible_headers_end_the_connection(
    password_gateway: Gateway, data: bytes
) -> None:
    assert exchange(password_gateway, data) == b""


@pytest.mark.parametrize("payload", [b"", b"ada\0lovelace", b"\0a\0b\0c", b"\xff" * 100])
def test_a_response_that_is_none_is_told(password_gateway: Gateway, payload: bytes) -> None:
    assert b"3 parts in the PLAIN response" in exchange(
        password_gateway, start() + response(payload)
    )


def drip(data: bytes) -> Callable[[socket.socket], None]:
    def send(raw: socket.socket) -> None:
        for byte in data:
            raw.sendall(bytes([byte]))
            time.sleep(0.05)

    return send


@pytest.mark.parametrize(
    "data",
    [
        start() + response(b"\0ada\0lovelace") + struct.pack(">i", 60_000) + b"x" * 60_000,
        b"\x80\x01\x00\x01\x00\x00\x00\x0bOpenSession" + b"\x00" * 1000,
        b"POST /cliservice HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000,
        b"\x16\x03\x01\x02\x00\x01" + b"\x00" * 1000,
    ],
)
def test_bytes_that_come_one_by_one_last_no_longer_than_the_login_timeout(data: bytes) -> None:
    sections = {**SECTIONS, "server": {**SECTIONS["server"], "login_timeout": 0.5}}
    with (
        running_gateway(Config(**sections)) as gateway,
        socket.create_connection((gateway.host, gateway.port), timeout=10) as raw,
        pytest.raises(ConnectionError),
    ):
        drip(data)(raw)
