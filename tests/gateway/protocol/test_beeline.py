"""Beeline over every transport, logging in; the statements need no Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.gateway.protocol.certificates import Authority, authority
from tests.gateway.protocol.gateway import Gateway, rows_of, running_gateway
from tests.support.fixtures.server import Beeline
from tests.support.spark_settings import COMPILE_ONCE
from tidegate_server.core.config import Config
from tidegate_server.gateway.auth.passwords import set_password
from tidegate_server.gateway.link.java import find_java

pytestmark = pytest.mark.jdbc

STORE = "trustStorePassword=changeit"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that Java knows from a trust store beside its certificate."""
    issuer = authority(tmp_path_factory.mktemp("issuer"))
    keytool = find_java().home / "bin" / "keytool"
    command = [str(keytool), "-importcert", "-noprompt", "-alias", "ca", "-storepass", "changeit"]
    command += ["-file", issuer.file, "-keystore", str(issuer.folder / "trust.jks")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return issuer


@pytest.fixture(scope="module")
def password_gateway(issuer: Authority) -> Iterator[Gateway]:
    """A server with a password file and TLS."""
    users = issuer.folder / "users"
    set_password(users, "ada", "lovelace")
    config = Config(
        server={"port": 0, "workers": 4, "auth": "PASSWORD"},
        login={"password_file": str(users)},
        tls=issuer.server,
        proxy={"ada": {"users": ["eva"]}},
    )
    with running_gateway(config) as running:
        running.answers["SELECT user"] = lambda context: rows_of(
            "who", "string", pa.array([context.session.user])
        )
        yield running


def beeline(gateway: Gateway, home: Path, rest: str) -> Beeline:
    return Beeline(home, f"jdbc:hive2://localhost:{gateway.port}/{rest}")


def log_in(
    gateway: Gateway, home: Path, rest: str, password: str = "lovelace"
) -> subprocess.CompletedProcess[str]:
    options = ("--silent=true", "-p", password)
    return beeline(gateway, home, rest).run("SELECT user", options=options, user="ada")


@pytest.mark.parametrize(
    "rest",
    [
        "",
        ";transportMode=http;httpPath=cliservice",
        ";ssl=true;sslTrustStore={store};" + STORE,
        ";ssl=true;sslTrustStore={store};" + STORE + ";transportMode=http;httpPath=cliservice",
    ],
    ids=["binary", "http", "tls", "https"],
)
def test_beeline_logs_in(
    password_gateway: Gateway, issuer: Authority, tmp_path: Path, rest: str
) -> None:
    done = log_in(password_gateway, tmp_path, rest.format(store=issuer.folder / "trust.jks"))
    assert done.stdout.splitlines() == ["who", "ada"], done.stderr


@pytest.mark.parametrize("rest", ["", ";transportMode=http;httpPath=cliservice"])
def test_beeline_with_a_wrong_password_is_refused(
    password_gateway: Gateway, tmp_path: Path, rest: str
) -> None:
    done = log_in(password_gateway, tmp_path, rest, password="wrong")
    assert done.returncode != 0
    assert "password is wrong" in done.stderr or "401" in done.stderr


def test_beeline_prints_warnings_and_notes(password_gateway: Gateway, tmp_path: Path) -> None:
    plain = beeline(password_gateway, tmp_path, ";ssl=false")
    done = plain.run("WARN", options=("-p", "lovelace"), user="ada")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "WARN  : the ice is thin" in lines
    assert "INFO  : nothing was changed" in lines


def test_beeline_acts_as_another_user(password_gateway: Gateway, tmp_path: Path) -> None:
    done = log_in(password_gateway, tmp_path, ";hive.server2.proxy.user=eva")
    assert done.stdout.splitlines() == ["who", "eva"], done.stderr


@pytest.fixture
def java() -> Iterator[Any]:
    """A Java machine with Hive's JDBC driver."""
    jars = Path(pyspark.__file__).parent / "jars"
    [py4j] = jars.glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(py4j),
        classpath=str(jars / "*"),
        # Hadoop asks for a realm whenever it is asked for anything, though there is no Kerberos.
        javaopts=[
            COMPILE_ONCE,
            "-Djava.security.krb5.realm=NONE",
            "-Djava.security.krb5.kdc=127.0.0.1",
        ],
        java_path=str(find_java().home / "bin" / "java"),
        die_on_exit=True,
    )
    yield gateway.jvm
    gateway.shutdown()


def test_hives_jdbc_driver_gets_a_delegation_token_and_logs_in_with_it(
    password_gateway: Gateway, java: Any
) -> None:
    url = f"jdbc:hive2://localhost:{password_gateway.port}/"
    java.Class.forName("org.apache.hive.jdbc.HiveDriver")
    first = java.java.sql.DriverManager.getConnection(url, "ada", "lovelace")
    text = first.getDelegationToken("ada", "ada")
    first.renewDelegationToken(text)
    token = java.org.apache.hadoop.security.token.Token()
    token.decodeFromUrlString(text)
    token.setService(java.org.apache.hadoop.io.Text("hiveserver2ClientToken"))
    java.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addToken(token)
    second = java.java.sql.DriverManager.getConnection(f"{url};auth=delegationToken")
    rows = second.createStatement().executeQuery("SELECT user")
    assert rows.next()
    assert rows.getString(1) == "ada"
    second.close()
    first.cancelDelegationToken(text)
    first.close()
    with pytest.raises(Py4JJavaError, match="unknown, canceled or expired"):
        java.java.sql.DriverManager.getConnection(f"{url};auth=delegationToken")


def test_beeline_in_the_wrong_mode_ends_with_a_sentence(
    password_gateway: Gateway, gateway: Gateway, issuer: Authority, tmp_path: Path
) -> None:
    done = log_in(password_gateway, tmp_path, ";auth=noSasl")
    assert "This server requires authentication" in done.stderr
    store = issuer.folder / "trust.jks"
    done = log_in(gateway, tmp_path, f";ssl=true;sslTrustStore={store};{STORE}")
    assert "handshake_failure" in done.stderr
