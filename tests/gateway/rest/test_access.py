"""Who is let in to the HTTP port."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx2 as httpx
import pytest
import trustme
from starlette.datastructures import Headers

from tests.contract.examples import table
from tests.gateway.rest.parts import Rest, rest_over_sqlite
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection, TlsSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.rest.access import check_exposure, refusal
from tidegate_server.gateway.rest.listener import HttpListener

TABLES = "/v1/materialized-tables"


def config(**server: object) -> Config:
    return Config(server=ServerSection(**server))  # type: ignore[arg-type]


def refusal_message(settings: Config, path: str = TABLES, **headers: str) -> str | None:
    given = {"host": "127.0.0.1:10002", **headers}
    problem = refusal(settings, path, Headers(given))
    return problem and problem.message


def test_without_token_and_logins_everybody_on_this_machine_is_let_in() -> None:
    assert refusal_message(config()) is None


def test_a_token_is_asked_for_when_there_is_one() -> None:
    settings = config(http_token="s3cret")
    assert refusal_message(settings, authorization="Bearer s3cret") is None
    for wrong in ("Bearer other", "Bearer ", "s3cret", "Basic s3cret"):
        assert refusal_message(settings, authorization=wrong) == "A bearer token is required."
    assert refusal_message(settings) == "A bearer token is required."
    assert refusal_message(settings, path="/metrics") == "A bearer token is required."


def test_health_is_told_to_everybody() -> None:
    for path in ("/health/live", "/health/ready"):
        assert refusal_message(config(http_token="s3cret"), path=path) is None


def test_where_logins_are_checked_a_port_without_token_tells_only_its_health() -> None:
    settings = config(auth="PASSWORD")
    assert "no token" in (refusal_message(settings) or "")
    assert refusal_message(settings, path="/health/live") is None


def test_pages_of_other_origins_are_refused() -> None:
    assert "evil" in (refusal_message(config(), origin="https://evil.example") or "")
    assert refusal_message(config(), origin="http://127.0.0.1:10002") is None


def test_another_name_for_this_machine_is_refused() -> None:
    assert "rebound" in (refusal_message(config(), host="rebound.example:10002") or "")
    assert refusal_message(config(), host="localhost:10002") is None
    assert refusal_message(config(), host="[::1]:10002") is None


@pytest.mark.parametrize(
    ("server", "code"),
    [
        ({"host": "0.0.0.0"}, "INSECURE_ADDRESS"),
        ({"host": "0.0.0.0", "http_port": -1}, None),
        ({"host": "0.0.0.0", "insecure": True}, None),
        ({"host": "0.0.0.0", "auth": "PASSWORD"}, None),
        ({"host": "0.0.0.0", "http_token": "t"}, "INSECURE_PASSWORDS"),
        ({"host": "0.0.0.0", "http_token": "t", "plaintext_passwords": True}, None),
        ({"host": "127.0.0.1"}, None),
    ],
)
def test_open_addresses_follow_the_rule_of_the_thrift_port(
    server: dict[str, object], code: str | None
) -> None:
    try:
        check_exposure(config(**server))
    except ServerError as refused:
        assert refused.code == code
    else:
        assert code is None


def test_a_token_may_travel_where_it_is_encrypted() -> None:
    server = ServerSection(host="0.0.0.0", http_token="t")
    check_exposure(Config(server=server, tls=TlsSection(certificate="c.pem", key="k.pem")))


@pytest.mark.parametrize(
    ("server", "port"),
    [
        ({}, 10002),
        ({"port": 10009}, 10011),
        ({"port": 0}, 0),
        ({"port": 65535}, 0),
        ({"port": 10009, "http_port": 10002}, 10002),
        ({"http_port": -1}, None),
    ],
)
def test_the_port_follows_the_thrift_port_unless_it_is_set(
    server: dict[str, object], port: int | None
) -> None:
    assert config(**server).server.rest_port == port


def test_refused_calls_are_counted_and_carry_a_challenge(tmp_path: Path) -> None:
    with rest_over_sqlite(tmp_path, config=config(http_token="s3cret")) as rest:
        answer = rest.client().get(TABLES)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["code"] == "LOGIN_REFUSED"
        assert rest.client(Authorization="Bearer s3cret").get(TABLES).status_code == 200
        counted = rest.services.metrics.text().decode()
        assert 'tidegate_authentication_failures_total{port="http"} 1.0' in counted


def listener(rest: Rest) -> HttpListener:
    return HttpListener(rest.config, rest.app())


def test_the_port_listens_until_it_is_stopped(rest: Rest) -> None:
    serving = listener(rest)
    url = f"http://127.0.0.1:{serving.start(0)}"
    try:
        with httpx.Client(base_url=url) as client:
            assert client.get("/health/live").json()["status"] == "ok"
            assert client.get(f"{TABLES}/t-1").json()["name"] == table().name.table
    finally:
        serving.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health/live")


def test_a_port_in_use_is_named(rest: Rest) -> None:
    first, second = listener(rest), listener(rest)
    port = first.start(0)
    try:
        with pytest.raises(OSError, match="in use") as refused:
            second.start(port)
        assert refused.value.filename == f"127.0.0.1:{port}"
    finally:
        first.stop()
        second.stop()


def test_with_a_certificate_the_port_speaks_https(rest: Rest, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    tls = TlsSection(certificate=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"))
    rest.config = Config(tls=tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    serving = listener(rest)
    url = f"127.0.0.1:{serving.start(0)}/health/live"
    try:
        assert httpx.get(f"https://{url}", verify=trusting).json()["status"] == "ok"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{url}")
    finally:
        serving.stop()
