"""The HTTP transport on the same port as everything else."""

from __future__ import annotations

import base64
import gzip
import http.client
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import impala.dbapi
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from pyhive import hive

import tidegate
from tests.gateway.protocol.certificates import authority
from tests.gateway.protocol.gateway import Gateway, eventually, running_gateway
from tidegate.wire.service import ttypes
from tidegate_server.core.config import Config
from tidegate_server.gateway.auth.base import login_error

THRIFT = {"Content-Type": "application/x-thrift"}
SERVER = {"port": 0, "workers": 4, "disconnect_grace": 0.0, "login_timeout": 2.0}
KEY = ec.generate_private_key(ec.SECP256R1())


class Counting:
    """Takes a name as its password, and counts how often it is asked."""

    asked = 0

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take no options."""

    def authenticate(self, user: str, password: str) -> str:
        Counting.asked += 1
        if user != password:
            raise login_error()
        return user


def sections(folder: Path) -> dict[str, Any]:
    jwks = folder / "jwks.json"
    public = {**ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k"}
    jwks.write_text(f'{{"keys": [{public}]}}'.replace("'", '"'))
    return {
        "server": {**SERVER, "auth": "CUSTOM"},
        "login": {"custom": f"{__name__}:Counting"},
        "jwt": {"jwks": str(jwks), "issuer": "i", "audience": "tidegate"},
        "proxy": {"knox": {"users": ["ada"]}},
    }


@pytest.fixture(scope="module")
def password_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server that asks for passwords or tokens."""
    with running_gateway(Config(**sections(tmp_path_factory.mktemp("keys")))) as running:
        yield running


@pytest.fixture
def plain_connection(password_gateway: Gateway) -> Iterator[http.client.HTTPConnection]:
    with closing(
        http.client.HTTPConnection(password_gateway.host, password_gateway.port, timeout=10)
    ) as plain:
        yield plain


def connect(gateway: Gateway, **options: Any) -> tidegate.Connection:
    return tidegate.connect(host=gateway.host, port=gateway.port, transport="http", **options)


def basic(user: str, password: str) -> dict[str, str]:
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {**THRIFT, "Authorization": f"Basic {secret}"}


def bearer(**changes: Any) -> str:
    said = {"sub": "ada", "iss": "i", "aud": "tidegate", "exp": time.time() + 60, **changes}
    return jwt.encode(said, KEY, "ES256", headers={"kid": "k"})


def call(name: bytes = b"GetLog", body: bytes = b"\x00") -> bytes:
    return b"\x80\x01\x00\x01" + struct.pack(">i", len(name)) + name + b"\0\0\0\1" + body


OPEN = call(b"OpenSession", b"\x0c\x00\x01\x08\x00\x01\x00\x00\x00\x09\x00\x00")


def post(
    plain: http.client.HTTPConnection,
    headers: Mapping[str, str],
    body: bytes = OPEN,
    path: str = "/cliservice",
    method: str = "POST",
) -> tuple[int, bytes, http.client.HTTPResponse]:
    plain.request(method, path, body, dict(headers))
    response = plain.getresponse()
    return response.status, response.read(), response


def cookie(response: http.client.HTTPResponse) -> dict[str, str]:
    return {**THRIFT, "Cookie": response.headers["Set-Cookie"].partition(";")[0]}


# ---- clients -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["cliservice", "/cliservice/"])
def test_the_driver_connects(gateway: Gateway, path: str) -> None:
    with (
        connect(gateway, user="eva", http_path=path) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        assert "eva" in {session.user for session in gateway.sessions.sessions()}


def test_the_driver_reads_a_large_result_and_cancels(gateway: Gateway) -> None:
    with connect(gateway) as connection, connection.cursor() as cursor:
        cursor.execute_async("WAIT FOR CANCEL")
        cursor.cancel()
        with pytest.raises(tidegate.OperationalError, match="canceled"):
            cursor.wait()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_pyhive_connects(password_gateway: Gateway) -> None:
    options = {"scheme": "http", "auth": "BASIC", "username": "ada", "password": "ada"}
    with closing(
        hive.connect(password_gateway.host, port=password_gateway.port, **options)
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_impyla_connects(password_gateway: Gateway) -> None:
    options = {"use_http_transport": True, "http_path": "cliservice", "auth_mechanism": "LDAP"}
    with closing(
        impala.dbapi.connect(
            password_gateway.host, password_gateway.port, user="ada", password="ada", **options
        )
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        cursor.close()


def test_a_session_outlives_its_connections(gateway: Gateway) -> None:
    first = connect(gateway, user="lasting")
    handle = first.session_handle
    first._line._channel.close()
    with connect(gateway) as second:
        request = ttypes.TGetInfoReq(handle, ttypes.TGetInfoType.CLI_SERVER_NAME)
        assert second.call("GetInfo", request).status.statusCode == 0
        second.call("CloseSession", ttypes.TCloseSessionReq(handle))
    assert eventually(
        lambda: "lasting" not in {session.user for session in gateway.sessions.sessions()}
    )


# ---- logging in ----------------------------------------------------------------------------


def test_a_password_is_checked_once_and_then_the_cookie_stands_for_it(
    password_gateway: Gateway,
) -> None:
    before = Counting.asked
    with connect(password_gateway, user="noor", password="noor") as connection:
        for _ in range(5):
            connection.ping()
        assert Counting.asked == before + 1
        assert connection._line._channel._inner._cookies  # type: ignore[attr-defined]


def test_a_client_that_knows_no_cookies_is_remembered(
    plain_connection: http.client.HTTPConnection,
) -> None:
    before = Counting.asked
    for _ in range(5):
        assert post(plain_connection, basic("max", "max"))[0] == 200
    assert Counting.asked == before + 1


def test_a_cookie_logs_in(plain_connection: http.client.HTTPConnection) -> None:
    _, _, response = post(plain_connection, basic("ada", "ada"))
    assert "HttpOnly" in response.headers["Set-Cookie"]
    assert "Secure" not in response.headers["Set-Cookie"]
    status, _, again = post(plain_connection, cookie(response))
    assert status == 200
    assert again.headers["Set-Cookie"] is None


def test_a_forged_cookie_does_not(plain_connection: http.client.HTTPConnection) -> None:
    given = cookie(post(plain_connection, basic("ada", "ada"))[2])
    name, _, value = given["Cookie"].partition("=")
    payload, _, signature = value.partition(".")
    for forged in (f"x{value}", payload, f"{payload}.{signature[::-1]}", "x", ""):
        assert post(plain_connection, {**THRIFT, "Cookie": f"a=b; {name}={forged}"})[0] == 401


def test_a_cookie_of_before_the_restart_is_worthless(tmp_path: Path) -> None:
    config = Config(**sections(tmp_path))
    with (
        running_gateway(config) as one,
        closing(http.client.HTTPConnection(one.host, one.port, timeout=10)) as plain,
    ):
        replayed = cookie(post(plain, basic("ada", "ada"))[2])
    with (
        running_gateway(config) as other,
        closing(http.client.HTTPConnection(other.host, other.port, timeout=10)) as plain,
    ):
        assert post(plain, replayed)[0] == 401


def test_the_driver_logs_in_again_when_its_cookie_is_refused(password_gateway: Gateway) -> None:
    with connect(password_gateway, user="ada", password="ada") as connection:
        inner: Any = connection._line._channel._inner
        inner._cookies = {"hive.server2.auth": "forged"}
        connection.ping()
        assert inner._cookies["hive.server2.auth"] != "forged"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "requires authentication"),
        (basic("ada", "wrong"), "password is wrong"),
        ({"Authorization": "Basic ???"}, "malformed"),
        ({"Authorization": "Basic \xe9"}, "malformed"),
        ({"Authorization": "Basic //8="}, "has no password"),
        ({"Authorization": "Basic YWRh"}, "has no password"),
        ({"Authorization": "Negotiate YWRh"}, "scheme is not supported"),
        ({"Authorization": "Bearer"}, "invalid"),
        ({"Authorization": "Bearer a.b.c"}, "invalid"),
        ({"Authorization": "Bearer \xe9"}, "invalid"),
    ],
)
def test_whoever_does_not_log_in_is_told_how(
    plain_connection: http.client.HTTPConnection, headers: Mapping[str, str], said: str
) -> None:
    status, body, response = post(plain_connection, {**THRIFT, **headers})
    assert status == 401
    assert said in body.decode()
    assert "SQLSTATE 28000" in body.decode()
    schemes = response.headers.get_all("WWW-Authenticate") or []
    assert [scheme.split()[0] for scheme in schemes] == ["Basic", "Bearer"]
    assert post(plain_connection, basic("ada", "ada"))[0] == 200, "the connection stays usable"


def test_the_driver_tells_of_a_refused_login(password_gateway: Gateway) -> None:
    with pytest.raises(tidegate.OperationalError, match="password is wrong") as caught:
        connect(password_gateway, user="ada", password="wrong")
    assert caught.value.sqlstate == "28000"


def test_a_token_logs_in(password_gateway: Gateway) -> None:
    with connect(password_gateway, token=bearer()):
        assert "ada" in {session.real_user for session in password_gateway.sessions.sessions()}


@pytest.mark.parametrize("changes", [{"aud": "another"}, {"exp": 1}, {"iss": "another"}])
def test_a_token_for_something_else_does_not(
    password_gateway: Gateway, changes: dict[str, Any]
) -> None:
    with pytest.raises(tidegate.OperationalError, match="token is invalid") as caught:
        connect(password_gateway, token=bearer(**changes))
    assert caught.value.sqlstate == "28000"


def test_where_nothing_is_checked_nothing_is_asked(gateway: Gateway) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        status, _, response = post(plain, THRIFT)
    assert (status, response.headers["Set-Cookie"]) == (200, None)


def test_a_cookie_over_tls_is_for_tls_alone(tmp_path: Path) -> None:
    issuer = authority(tmp_path / "issuer")
    with running_gateway(Config(**sections(tmp_path), tls=issuer.server)) as gateway:
        context = ssl.create_default_context(cafile=issuer.file)
        with closing(
            http.client.HTTPSConnection("localhost", gateway.port, timeout=10, context=context)
        ) as secured:
            response = post(secured, basic("ada", "ada"))[2]
    assert "Secure" in response.headers["Set-Cookie"]


# ---- acting as another ---------------------------------------------------------------------


def test_a_gateway_in_front_may_act_for_its_users(
    password_gateway: Gateway, plain_connection: http.client.HTTPConnection
) -> None:
    status, _, _ = post(plain_connection, basic("knox", "knox"), path="/cliservice?doAs=ada")
    assert status == 200
    assert ("knox", "ada") in {
        (session.real_user, session.user) for session in password_gateway.sessions.sessions()
    }


@pytest.mark.parametrize(("user", "other"), [("knox", "root"), ("eva", "ada")])
def test_nobody_else_may(
    plain_connection: http.client.HTTPConnection, user: str, other: str
) -> None:
    status, body, _ = post(plain_connection, basic(user, user), path=f"/cliservice/?doAs={other}")
    assert status == 403
    assert b"PROXY_REFUSED" in body


# ---- what is not a call ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_answered_shortly(gateway: Gateway, method: str) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        status, body, response = post(plain, {}, b"", method=method)
        assert (status, response.headers["Allow"]) == (405, "POST")
        assert body == b"" if method == "HEAD" else b"transportMode=http" in body
        assert post(plain, THRIFT)[0] == 200


@pytest.mark.parametrize("path", ["/", "/other", "/cliservice/x", "/cliservices", "*"])
def test_other_paths_lead_nowhere(gateway: Gateway, path: str) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        status, body, _ = post(plain, THRIFT, path=path)
    assert status == 404
    assert b"/cliservice" in body


def test_the_path_can_be_another() -> None:
    with running_gateway(Config(server=SERVER, http={"path": "/hive/thrift/"})) as gateway:
        with connect(gateway, http_path="hive/thrift") as connection:
            connection.ping()
        with pytest.raises(tidegate.OperationalError, match="/hive/thrift"):
            connect(gateway)


def test_another_content_type_is_refused(gateway: Gateway) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        assert post(plain, {"Content-Type": "text/plain"})[0] == 415
        assert post(plain, {"Content-Type": "application/vnd.apache.thrift.binary"})[0] == 200
        assert post(plain, {})[0] == 415


def test_a_packed_body_is_refused_with_what_is_taken(gateway: Gateway) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        packed = gzip.compress(OPEN)
        status, text, reply = post(plain, {**THRIFT, "Content-Encoding": "gzip"}, packed)
        assert (status, reply.headers["Accept-Encoding"]) == (415, "identity")
        assert b"gzip" in text
        wanted = {**THRIFT, "Content-Encoding": "identity", "Accept-Encoding": "gzip, deflate"}
        status, _, reply = post(plain, wanted)
        assert (status, reply.headers["Content-Encoding"]) == (200, None)


def test_a_body_may_come_in_chunks(gateway: Gateway) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in OPEN) + b"0\r\nTrailer: x\r\n\r\n"
    whole = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    last = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(OPEN) + OPEN
    assert exchange(gateway, whole + last).count(b"HTTP/1.1 200 ") == 2


def test_the_older_http_is_answered_and_closed(gateway: Gateway) -> None:
    head = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Content-Length: %d\r\n\r\n" % len(OPEN)
    answer = exchange(gateway, head + OPEN)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in answer


@pytest.mark.parametrize("body", [b"", b"\x80", b"hello", call()[:-1], b"\x80\x01" + b"\xff" * 20])
def test_a_body_that_is_no_call_is_refused(gateway: Gateway, body: bytes) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        assert post(plain, THRIFT, body)[0] == 400
        assert post(plain, THRIFT)[0] == 200


def test_an_unknown_call_is_answered_as_such(gateway: Gateway) -> None:
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        status, body, response = post(plain, THRIFT, call(b"GetLog"))
    assert (status, response.headers["Content-Type"]) == (200, "application/x-thrift")
    assert b"Invalid method name" in body


def test_the_xsrf_header_can_be_asked_for() -> None:
    with (
        running_gateway(Config(server=SERVER, http={"xsrf_header": True})) as gateway,
        closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain,
    ):
        assert post(plain, THRIFT)[0] == 403
        assert post(plain, {**THRIFT, "X-XSRF-HEADER": "true"})[0] == 200
        with connect(gateway) as connection:
            connection.ping()


# ---- hostile input -------------------------------------------------------------------------


def exchange(gateway: Gateway, data: bytes) -> bytes:
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(data)
        received = b""
        while more := raw.recv(65536):
            received += more
        return received


HEAD = b"POST /cliservice HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-thrift\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST nonsense\r\n\r\n", b"400"),
        (b"POST /cliservice HTTP/1.1\r\n\r\n", b"400"),
        (HEAD + b"X: " + b"y" * 70_000, b"431"),
        (HEAD + b"X: y\r\n" * 20_000, b"431"),
        (HEAD + b"Content-Length: -1\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
def test_what_is_no_http_is_answered_and_closed(
    gateway: Gateway, data: bytes, status: bytes
) -> None:
    answer = exchange(gateway, data)
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
    assert b"Connection: close" in answer


def test_a_body_that_is_too_large_is_refused() -> None:
    server = {**SERVER, "max_request_bytes": 4096}
    with running_gateway(Config(server=server)) as gateway:
        head = HEAD + b"Connection: close\r\n"
        sized = exchange(gateway, head + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000)
        chunks = (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 2 + b"0\r\n\r\n"
        chunked = exchange(gateway, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    for answer in (sized, chunked):
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_before_the_login_no_large_body_is_read(password_gateway: Gateway) -> None:
    answer = exchange(
        password_gateway, HEAD + b"Content-Length: 1000000000\r\n\r\n" + b"x" * 100_000
    )
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"Connection: close" in answer


def test_a_large_body_after_the_login_is_taken(password_gateway: Gateway) -> None:
    with (
        connect(password_gateway, user="ada", password="ada") as connection,
        connection.cursor() as cursor,
        pytest.raises(tidegate.ProgrammingError, match="cannot run"),
    ):
        cursor.execute("SELECT " + "x" * 300_000)


def test_a_client_that_waits_for_a_go_ahead_gets_it(gateway: Gateway) -> None:
    head = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(OPEN)
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(head)
        assert raw.recv(100).startswith(b"HTTP/1.1 100 ")
        raw.sendall(OPEN)
        assert raw.recv(100).startswith(b"HTTP/1.1 200 ")


def test_requests_in_a_row_without_waiting_are_answered_in_order(gateway: Gateway) -> None:
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(call()) + call()
    last = request.replace(b"Host: x", b"Host: x\r\nConnection: close")
    answer = exchange(gateway, request * 4 + last)
    assert answer.count(b"HTTP/1.1 200 ") == 5


def test_an_idle_connection_is_closed() -> None:
    with (
        running_gateway(Config(server=SERVER, http={"idle_timeout": 0.2})) as gateway,
        socket.create_connection((gateway.host, gateway.port), timeout=10) as raw,
    ):
        raw.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(call()) + call())
        received = b""
        while more := raw.recv(65536):
            received += more
        assert received.startswith(b"HTTP/1.1 200 ")
