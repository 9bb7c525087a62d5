"""TLS on the same port as everything else."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import impala.dbapi
import pyarrow as pa
import pytest
import sqlalchemy as sa

import tidegate
from tests.gateway.protocol.addresses import own_address
from tests.gateway.protocol.certificates import Authority, authority
from tests.gateway.protocol.gateway import Gateway, rows_of, running_gateway
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import TlsSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.protocol.tls import load_certificates

SERVER = {"port": 0, "workers": 4, "disconnect_grace": 0.0}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def tls_gateway(issuer: Authority) -> Iterator[Gateway]:
    """A server that offers TLS."""
    with running_gateway(Config(server=SERVER, tls=issuer.server)) as running:
        yield running


def connect(gateway: Gateway, **options: Any) -> tidegate.Connection:
    return tidegate.connect(host=gateway.host, port=gateway.port, **options)


def answers(connection: tidegate.Connection) -> bool:
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return bool(cursor.fetchall() == [(1,)])


def server_certificate(gateway: Gateway) -> bytes:
    """Return the certificate that the server shows now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((gateway.host, gateway.port), timeout=10) as raw,
        context.wrap_socket(raw) as encrypted,
    ):
        found = encrypted.getpeercert(binary_form=True)
        assert found is not None
        return found


@pytest.mark.parametrize("auth", ["NONE", "NOSASL"])
@pytest.mark.parametrize("transport", ["binary", "http"])
def test_the_driver_connects(
    tls_gateway: Gateway, issuer: Authority, auth: str, transport: str
) -> None:
    options = {"ssl": True, "ca": issuer.file, "auth": auth, "transport": transport}
    assert answers(connect(tls_gateway, **options))


def test_a_url_says_it_all(tls_gateway: Gateway, issuer: Authority) -> None:
    url = f"tidegate://eva@localhost:{tls_gateway.port}/?ssl=true&ca={issuer.file}"
    assert answers(tidegate.connect(url))
    for text in ("SELECT version()", "SELECT current_database()"):
        tls_gateway.answers[text] = lambda _: rows_of("x", "string", pa.array(["4.1.4"]))
    apart = {"ssl": True, "ca": issuer.file}
    for engine in (
        sa.create_engine(url),
        sa.create_engine(f"tidegate://eva@localhost:{tls_gateway.port}/", connect_args=apart),
    ):
        with engine.connect() as connection:
            assert connection.execute(sa.text("SELECT 1")).all() == [(1,)]
        engine.dispose()


def test_a_context_of_ones_own_is_used(tls_gateway: Gateway, issuer: Authority) -> None:
    assert answers(connect(tls_gateway, ssl=ssl.create_default_context(cafile=issuer.file)))


def test_impyla_connects(tls_gateway: Gateway, issuer: Authority) -> None:
    options = {"use_ssl": True, "ca_cert": issuer.file, "auth_mechanism": "PLAIN"}
    with closing(
        impala.dbapi.connect("localhost", tls_gateway.port, user="eva", password="x", **options)
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        cursor.close()


def test_unencrypted_connections_still_work(tls_gateway: Gateway) -> None:
    assert answers(connect(tls_gateway))


def test_many_encrypted_connections_at_once(tls_gateway: Gateway, issuer: Authority) -> None:
    done: list[bool] = []

    def talk() -> None:
        done.append(answers(connect(tls_gateway, ssl=True, ca=issuer.file)))

    threads = [threading.Thread(target=talk) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 20


# ---- what is not trusted -------------------------------------------------------------------


def test_an_unknown_authority_is_not_trusted(tls_gateway: Gateway, tmp_path: Path) -> None:
    other = authority(tmp_path / "other")
    for options in ({}, {"ca": other.file}):
        with pytest.raises(tidegate.OperationalError, match="not trusted") as caught:
            connect(tls_gateway, ssl=True, **options)
        assert caught.value.sqlstate == "08001"
        assert "ca=" in (caught.value.hint or "")


def test_the_check_can_be_left_out(tls_gateway: Gateway) -> None:
    assert answers(connect(tls_gateway, ssl=True, verify=False))


def test_another_hosts_certificate_is_not_trusted(tmp_path: Path) -> None:
    issuer = authority(tmp_path / "issuer")
    issuer.issue("gateway.example")
    with (
        running_gateway(Config(server=SERVER, tls=issuer.server)) as gateway,
        pytest.raises(tidegate.OperationalError, match="not trusted"),
    ):
        connect(gateway, ssl=True, ca=issuer.file)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_are_refused(tls_gateway: Gateway, issuer: Authority) -> None:
    context = ssl.create_default_context(cafile=issuer.file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(tidegate.OperationalError, match="cannot agree on TLS"):
        connect(tls_gateway, ssl=context)


def test_a_server_without_tls_says_so(gateway: Gateway) -> None:
    with pytest.raises(tidegate.OperationalError, match="cannot agree on TLS") as caught:
        connect(gateway, ssl=True, verify=False)
    assert "ssl=true" in (caught.value.hint or "")


@pytest.mark.parametrize("file", ["/nowhere/ca.pem", __file__])
def test_files_that_are_no_certificates_are_named(tls_gateway: Gateway, file: str) -> None:
    with pytest.raises(tidegate.InterfaceError, match="TLS files are invalid") as caught:
        connect(tls_gateway, ssl=True, ca=file)
    assert file in str(caught.value)


# ---- the server's choices ------------------------------------------------------------------


def test_a_certificate_that_is_exchanged_is_shown_without_a_restart(tmp_path: Path) -> None:
    issuer = authority(tmp_path / "issuer")
    with running_gateway(Config(server=SERVER, tls=issuer.server)) as gateway:
        standing = connect(gateway, ssl=True, ca=issuer.file)
        first = server_certificate(gateway)
        issuer.issue("127.0.0.1")
        assert server_certificate(gateway) != first
        assert answers(standing)


def test_a_damaged_certificate_leaves_the_old_one_in_place(tmp_path: Path) -> None:
    issuer = authority(tmp_path / "issuer")
    with running_gateway(Config(server=SERVER, tls=issuer.server)) as gateway:
        first = server_certificate(gateway)
        Path(issuer.server["certificate"]).write_text("half of it")
        assert server_certificate(gateway) == first
        Path(issuer.server["certificate"]).unlink()
        assert server_certificate(gateway) == first
        issuer.issue("127.0.0.1")
        assert server_certificate(gateway) != first


@pytest.fixture(scope="module")
def strict(issuer: Authority) -> Iterator[Gateway]:
    """A server that takes nothing without TLS and asks for the client's certificate."""
    tls = {
        **issuer.server,
        "require": True,
        "client_ca": issuer.file,
        "client_certificates": "required",
    }
    with running_gateway(Config(server=SERVER, tls=tls)) as running:
        yield running


def test_a_client_with_a_certificate_comes_in(strict: Gateway, issuer: Authority) -> None:
    assert answers(connect(strict, ssl=True, ca=issuer.file, **issuer.issue_to_client()))


def test_a_client_without_a_certificate_does_not(
    strict: Gateway, issuer: Authority, tmp_path: Path
) -> None:
    with pytest.raises(tidegate.OperationalError):
        connect(strict, ssl=True, ca=issuer.file)
    strangers = authority(tmp_path / "other").issue_to_client()
    with pytest.raises(tidegate.OperationalError):
        connect(strict, ssl=True, ca=issuer.file, **strangers)


@pytest.mark.parametrize(
    "options", [{}, {"auth": "NOSASL"}, {"transport": "http"}], ids=["sasl", "bare", "http"]
)
def test_a_client_without_tls_is_told_to_use_it(strict: Gateway, options: dict[str, Any]) -> None:
    with pytest.raises(
        tidegate.OperationalError, match="only accepts encrypted connections"
    ) as caught:
        connect(strict, **options)
    assert caught.value.sqlstate == "28000"


def test_passwords_from_another_machine_need_tls(issuer: Authority) -> None:
    config = Config(
        server={**SERVER, "host": "0.0.0.0", "auth": "CUSTOM"},
        login={"custom": "tests.gateway.protocol.test_http:Counting"},
        tls=issuer.server,
    )
    login: dict[str, Any] = {"user": "ada", "password": "ada"}
    with running_gateway(config) as gateway:
        where = own_address(), gateway.port
        for transport in ("binary", "http"):
            with pytest.raises(tidegate.OperationalError, match="over an encrypted connection"):
                tidegate.connect(*where, **login, transport=transport)
            options = {"transport": transport, "ssl": True, "verify": False}
            assert answers(tidegate.connect(*where, **login, **options))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"require": True}, "tls.certificate is not set"),
        ({"certificate": "/nowhere/server.pem"}, "/nowhere/server.pem"),
        ({"certificate": __file__}, "PEM"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ServerError) as caught:
        load_certificates(TlsSection(**section))
    assert caught.value.code == "TLS_CONFIGURATION"
    assert said in str(caught.value)


# ---- hostile input -------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b"", b"\x03\x01", b"\x03\x01\xff\xff" + b"x" * 70_000])
def test_a_handshake_that_is_none_ends(
    tls_gateway: Gateway, issuer: Authority, rest: bytes
) -> None:
    with (
        socket.create_connection((tls_gateway.host, tls_gateway.port), timeout=10) as raw,
        contextlib.suppress(OSError),  # the server may hang up while this still speaks
    ):
        raw.sendall(b"\x16" + rest)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            continue
    assert answers(connect(tls_gateway, ssl=True, ca=issuer.file))
