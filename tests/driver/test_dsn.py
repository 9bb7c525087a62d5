"""Connection URLs."""

from __future__ import annotations

import pytest

import tidegate
from tidegate.dsn import ConnectOptions, parse_url


def test_a_short_native_url_takes_the_defaults() -> None:
    assert parse_url("tidegate://h") == ConnectOptions(host="h")


def test_a_native_url_tells_everything() -> None:
    url = "tidegate://a%40b:p%2Fw@h:1/s?auth=NOSASL&timeout=5&fetch_size=7&spark.x=1"
    assert parse_url(url) == ConnectOptions(
        host="h",
        port=1,
        user="a@b",
        password="p/w",
        auth="NOSASL",
        schema="s",
        timeout=5.0,
        fetch_size=7,
        settings={"spark.x": "1"},
    )


def test_a_jdbc_url_tells_everything() -> None:
    url = "jdbc:hive2://h:1/s;user=u;password=p=w;auth=noSasl;fetchSize=9?a=1;b=2#v=3"
    assert parse_url(url) == ConnectOptions(
        host="h",
        port=1,
        user="u",
        password="p=w",
        auth="NOSASL",
        schema="s",
        fetch_size=9,
        settings={"a": "1", "b": "2", "hivevar:v": "3"},
    )


@pytest.mark.parametrize("url", ["jdbc:hive2://h", "jdbc:hive2://h/", "jdbc:hive2://h:10000/;"])
def test_a_short_jdbc_url_takes_the_defaults(url: str) -> None:
    assert parse_url(url) == ConnectOptions(host="h")


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert parse_url("jdbc:hive2://[::1]:5/x").host == "::1"


@pytest.mark.parametrize(
    "url",
    ["mysql://h", "jdbc:hive2://", "jdbc:hive2://h:x/", "tidegate://h:x", "tidegate://h?timeout=x"],
)
def test_a_malformed_url_is_an_interface_error(url: str) -> None:
    with pytest.raises(tidegate.InterfaceError):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:hive2://h/;principal=hive/_HOST@R",
        "jdbc:hive2://h/;transportMode=http",
        "jdbc:hive2://h/;ssl=true",
        "jdbc:hive2://a:1,b:1/",
        "jdbc:hive2://h/;auth=delegationToken",
    ],
)
def test_what_the_driver_has_not_is_refused_by_name(url: str) -> None:
    with pytest.raises(tidegate.NotSupportedError):
        parse_url(url)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_url("tidegate://u:secret@h"))
