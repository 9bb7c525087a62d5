from __future__ import annotations

import http.client
from contextlib import closing

import pytest

from tests.gateway.protocol.gateway import running_gateway
from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth.base import Peer
from tidegate_server.gateway.auth.forwarded import Forwarded

PROXY = Peer(address="10.0.0.7")
TRUSTED = Forwarded(["10.0.0.0/24", "::1"])


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, 10.0.0.9"], "192.0.2.1"),
        (["192.0.2.1", "10.0.0.9"], "192.0.2.1"),
        (["127.0.0.1, 192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1:51234"], "192.0.2.1"),
        (["[2001:db8::1]:443, ::1"], "2001:db8::1"),
        (["10.0.0.8"], "10.0.0.8"),
        (["nobody, 10.0.0.9"], "10.0.0.9"),
        (["192.0.2.1, nobody"], "10.0.0.7"),
        ([""], "10.0.0.7"),
        ([], "10.0.0.7"),
    ],
)
def test_the_client_is_the_last_one_that_is_no_trusted_proxy(
    headers: list[str], client: str
) -> None:
    assert TRUSTED.peer(PROXY, headers, None).address == client


def test_a_stranger_says_what_it_likes() -> None:
    stranger = Peer(address="192.0.2.9")
    assert TRUSTED.peer(stranger, ["127.0.0.1"], "https") == stranger
    assert Forwarded([]).peer(PROXY, ["127.0.0.1"], "https") == PROXY


@pytest.mark.parametrize(
    ("protocol", "encrypted"), [("https", True), ("http", False), (None, False)]
)
def test_the_proxy_tells_whether_nobody_listens(protocol: str | None, encrypted: bool) -> None:
    here = Peer(address="::1")
    assert TRUSTED.peer(here, ["192.0.2.1"], protocol).private is encrypted


def test_what_is_no_network_is_refused_at_the_start() -> None:
    with pytest.raises(ServerError, match=r"http\.trusted_proxies"):
        Forwarded(["proxy.example"])


@pytest.mark.parametrize(("protocol", "status"), [("https", 400), ("http", 401)])
def test_a_password_counts_only_if_the_way_to_the_proxy_was_private(
    protocol: str, status: int
) -> None:
    config = Config(
        server={"port": 0, "workers": 2, "auth": "CUSTOM"},
        login={"custom": "tests.gateway.protocol.test_http:Counting"},
        http={"trusted_proxies": ("127.0.0.1",)},
    )
    headers = {
        "Content-Type": "application/x-thrift",
        "Authorization": "Basic YWRhOmFkYQ==",
        "X-Forwarded-For": "192.0.2.1",
        "X-Forwarded-Proto": protocol,
    }
    with (
        running_gateway(config) as gateway,
        closing(http.client.HTTPConnection(gateway.host, gateway.port, timeout=10)) as plain,
    ):
        plain.request("POST", "/cliservice", b"no call", headers)
        assert plain.getresponse().status == status
