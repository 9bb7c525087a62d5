"""Kerberos tickets of a real KDC, from Java's client and from MIT's library."""

from __future__ import annotations

import base64
import http.client
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

import tidegate
from tests.gateway.auth.kdc import REALM, Realm, missing, running_kdc
from tests.gateway.protocol.addresses import own_address
from tests.gateway.protocol.certificates import authority
from tests.gateway.protocol.gateway import Gateway, rows_of, running_gateway
from tests.support.spark_settings import COMPILE_ONCE
from tidegate_server.core.config import Config
from tidegate_server.gateway.link.java import find_java

gssapi = pytest.importorskip("gssapi", reason="the extra kerberos is not installed")

SERVICE = f"hive/localhost@{REALM}"
THRIFT = {"Content-Type": "application/x-thrift"}
CALL = b"\x80\x01\x00\x01\x00\x00\x00\x06GetLog\x00\x00\x00\x01\x00"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """A running KDC, which this process's Kerberos library asks."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}; on Debian, krb5-kdc krb5-user")
    principals = ("hive/localhost", "ada", "portal/localhost")
    with (
        running_kdc(tmp_path_factory.mktemp("kdc"), *principals) as realm,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("KRB5_CONFIG", realm.configuration)
        patch.setenv("KRB5RCACHENAME", "none:")
        yield realm


@pytest.fixture(scope="module")
def kerberos_gateway(realm: Realm) -> Iterator[Gateway]:
    """A server that wants tickets."""
    config = Config(
        server={"port": 0, "workers": 4, "auth": "KERBEROS", "disconnect_grace": 0.0},
        kerberos={"keytab": realm.keytab("hive"), "realm": REALM},
        proxy={"portal": {"users": ["eva"]}},
    )
    with running_gateway(config) as running:
        running.answers["SELECT user"] = lambda context: rows_of(
            "who", "string", pa.array([context.session.user])
        )
        running.answers["SELECT much"] = lambda _: rows_of(
            "t", "string", pa.array(["x" * 1000] * 3000)
        )
        yield running


def client(realm: Realm, user: str = "ada") -> Any:
    """Return the context of a client that has a ticket."""
    credentials = gssapi.Credentials(
        name=gssapi.Name(f"{user}@{REALM}"),
        usage="initiate",
        store={"client_keytab": realm.keytab(user), "ccache": f"MEMORY:{user}"},
    )
    target = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
    return gssapi.SecurityContext(name=target, creds=credentials, usage="initiate")


# ---- Java ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java(realm: Realm) -> Iterator[Any]:
    """A Java machine logged in as ada."""
    jars = Path(pyspark.__file__).parent / "jars"
    [py4j] = jars.glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(py4j),
        classpath=str(jars / "*"),
        java_path=str(find_java().home / "bin" / "java"),
        javaopts=[COMPILE_ONCE, f"-Djava.security.krb5.conf={realm.configuration}"],
        die_on_exit=True,
    )
    hadoop = gateway.jvm.org.apache.hadoop
    configuration = hadoop.conf.Configuration()
    configuration.set("hadoop.security.authentication", "kerberos")
    hadoop.security.UserGroupInformation.setConfiguration(configuration)
    hadoop.security.UserGroupInformation.loginUserFromKeytab(f"ada@{REALM}", realm.keytab("ada"))
    gateway.jvm.Class.forName("org.apache.hive.jdbc.HiveDriver")
    yield gateway.jvm
    gateway.shutdown()


def who(java: Any, port: int, rest: str, sql: str = "SELECT user") -> list[str]:
    url = f"jdbc:hive2://localhost:{port}/;principal={SERVICE}{rest}"
    connection = java.java.sql.DriverManager.getConnection(url)
    rows = connection.createStatement().executeQuery(sql)
    found = []
    while rows.next():
        found.append(rows.getString(1))
    connection.close()
    return found


@pytest.mark.jdbc
@pytest.mark.parametrize("qop", ["", ";saslQop=auth", ";saslQop=auth-int", ";saslQop=auth-conf"])
def test_hives_jdbc_driver_logs_in(kerberos_gateway: Gateway, java: Any, qop: str) -> None:
    assert who(java, kerberos_gateway.port, qop) == ["ada"]
    assert who(java, kerberos_gateway.port, qop, "SELECT much") == ["x" * 1000] * 3000


@pytest.mark.jdbc
def test_hives_jdbc_driver_logs_in_over_http(kerberos_gateway: Gateway, java: Any) -> None:
    assert who(java, kerberos_gateway.port, ";transportMode=http;httpPath=cliservice") == ["ada"]


@pytest.mark.jdbc
def test_more_protection_can_be_asked_for(realm: Realm, java: Any) -> None:
    config = Config(
        server={"port": 0, "workers": 2, "auth": "KERBEROS"},
        kerberos={"keytab": realm.keytab("hive"), "realm": REALM, "qop": "auth-conf"},
    )
    with running_gateway(config) as strict:
        strict.answers["SELECT user"] = lambda _: rows_of("who", "string", pa.array(["x"]))
        assert who(java, strict.port, ";saslQop=auth-conf") == ["x"]
        with pytest.raises(Py4JJavaError):
            who(java, strict.port, ";saslQop=auth")


@pytest.mark.jdbc
def test_a_token_is_not_given_out_where_others_can_read_it(realm: Realm, java: Any) -> None:
    config = Config(
        server={"host": "0.0.0.0", "port": 0, "workers": 2, "auth": "KERBEROS"},
        kerberos={"keytab": realm.keytab("hive"), "realm": REALM},
    )
    with running_gateway(config) as gateway:
        url = f"jdbc:hive2://{own_address()}:{gateway.port}/;principal={SERVICE};saslQop="
        signed = java.java.sql.DriverManager.getConnection(f"{url}auth-int")
        with pytest.raises(Py4JJavaError, match="over an encrypted connection"):
            signed.getDelegationToken("ada", "ada")
        signed.close()
        encrypted = java.java.sql.DriverManager.getConnection(f"{url}auth-conf")
        assert encrypted.getDelegationToken("ada", "ada")
        encrypted.close()


# ---- the driver ----------------------------------------------------------------------------


@pytest.fixture
def ticket(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver find ada's keys as a user's ticket is found."""
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.keytab("ada"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/ada.ccache")


@pytest.mark.parametrize("transport", ["binary", "http"])
@pytest.mark.usefixtures("ticket")
def test_the_driver_logs_in(kerberos_gateway: Gateway, transport: str) -> None:
    url = f"tidegate://localhost:{kerberos_gateway.port}/?auth=KERBEROS&transport={transport}"
    with tidegate.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT user")
        assert cursor.fetchall() == [("ada",)]
        cursor.execute("SELECT much")
        assert len(cursor.fetchall()) == 3000


@pytest.mark.parametrize("qop", ["auth", "auth-int", "auth-conf"])
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.usefixtures("ticket")
def test_the_driver_takes_what_is_offered(
    realm: Realm, tmp_path: Path, qop: str, encrypted: bool
) -> None:
    issuer = authority(tmp_path / "issuer")
    config = Config(
        server={"port": 0, "workers": 2, "auth": "KERBEROS"},
        kerberos={"keytab": realm.keytab("hive"), "realm": REALM, "qop": qop},
        tls=issuer.server,
    )
    options: dict[str, Any] = {"ssl": True, "ca": issuer.file} if encrypted else {}
    with (
        running_gateway(config) as gateway,
        tidegate.connect("localhost", gateway.port, auth="KERBEROS", **options) as connection,
    ):
        connection.ping()


@pytest.mark.usefixtures("ticket")
def test_the_driver_tells_what_is_wrong_with_its_ticket(kerberos_gateway: Gateway) -> None:
    options: dict[str, Any] = {"auth": "KERBEROS", "principal": "nobody/_HOST"}
    for transport in ("binary", "http"):
        with pytest.raises(tidegate.OperationalError, match="Kerberos") as caught:
            tidegate.connect("localhost", kerberos_gateway.port, transport=transport, **options)
        assert caught.value.sqlstate == "28000"
        assert "kinit" in (caught.value.hint or "")


# ---- raw SASL messages ---------------------------------------------------------------------


class Conversation:
    """SASL's negotiation over a socket."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self.say(1, b"GSSAPI")

    def say(self, status: int, payload: bytes) -> None:
        self._raw.sendall(struct.pack(">Bi", status, len(payload)) + payload)

    def hear(self) -> tuple[int, bytes]:
        status, length = struct.unpack(">Bi", self._raw.recv(5, socket.MSG_WAITALL))
        return status, self._raw.recv(length, socket.MSG_WAITALL) if length else b""


def agree(realm: Realm, gateway: Gateway, choice: bytes, user: str = "ada") -> tuple[int, bytes]:
    context = client(realm, user)
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        talk = Conversation(raw)
        talk.say(2, context.step())
        _, token = talk.hear()
        context.step(token)
        talk.say(2, b"")
        _, offer = talk.hear()
        assert context.unwrap(offer).message[0] == 7
        talk.say(2, context.wrap(choice, False).message)
        return talk.hear()


def test_mits_library_logs_in(realm: Realm, kerberos_gateway: Gateway) -> None:
    assert agree(realm, kerberos_gateway, b"\x01\x00\xff\xff") == (5, b"")


@pytest.mark.parametrize("choice", [b"", b"\x01", b"\x00\x00\x00\x00", b"\x07\xff\xff\xff"])
def test_a_choice_that_is_none_is_refused(
    realm: Realm, kerberos_gateway: Gateway, choice: bytes
) -> None:
    status, text = agree(realm, kerberos_gateway, choice)
    assert status == 3
    assert b"security layer" in text


@pytest.mark.parametrize("token", [b"x", b"\x60" + b"\xff" * 100, b"\x00" * 5000])
def test_what_is_no_ticket_is_refused(kerberos_gateway: Gateway, token: bytes) -> None:
    with socket.create_connection(
        (kerberos_gateway.host, kerberos_gateway.port), timeout=10
    ) as raw:
        talk = Conversation(raw)
        talk.say(2, token)
        status, text = talk.hear()
    assert status == 3
    assert b"LOGIN_REFUSED" in text


def test_passwords_are_refused_with_a_hint(kerberos_gateway: Gateway) -> None:
    with socket.create_connection(
        (kerberos_gateway.host, kerberos_gateway.port), timeout=10
    ) as raw:
        raw.sendall(b"\x01\x00\x00\x00\x05PLAIN\x02\x00\x00\x00\x06\x00ada\x00x")
        assert b"Kerberos ticket" in raw.recv(1000)


# ---- HTTP ----------------------------------------------------------------------------------


def post(gateway: Gateway, token: bytes, path: str = "/cliservice") -> tuple[int, Any]:
    negotiate = {"Authorization": f"Negotiate {base64.b64encode(token).decode()}"}
    with closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain:
        plain.request("POST", path, CALL, {**THRIFT, **negotiate})
        response = plain.getresponse()
        response.read()
        return response.status, response.headers


def test_a_ticket_logs_in_over_http(realm: Realm, kerberos_gateway: Gateway) -> None:
    context = client(realm)
    status, headers = post(kerberos_gateway, context.step())
    assert status == 200
    assert headers["Set-Cookie"].startswith("hive.server2.auth=")
    scheme, _, proof = headers["WWW-Authenticate"].partition(" ")
    assert scheme == "Negotiate"
    context.step(base64.b64decode(proof))
    assert context.complete, "the server has proved itself too"


def test_a_service_is_known_by_its_first_part_and_may_have_a_rule(
    realm: Realm, kerberos_gateway: Gateway
) -> None:
    context = client_of_service(realm)
    assert post(kerberos_gateway, context.step(), "/cliservice?doAs=eva")[0] == 200
    assert (
        post(kerberos_gateway, client_of_service(realm).step(), "/cliservice?doAs=root")[0] == 403
    )


def client_of_service(realm: Realm) -> Any:
    credentials = gssapi.Credentials(
        name=gssapi.Name(f"portal/localhost@{REALM}", gssapi.NameType.kerberos_principal),
        usage="initiate",
        store={"client_keytab": realm.keytab("portal"), "ccache": "MEMORY:portal"},
    )
    target = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
    return gssapi.SecurityContext(name=target, creds=credentials, usage="initiate")


def test_what_is_no_ticket_is_refused_over_http(kerberos_gateway: Gateway) -> None:
    status, headers = post(kerberos_gateway, b"no ticket")
    assert (status, headers["WWW-Authenticate"]) == (401, "Negotiate")
