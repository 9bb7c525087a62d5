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


def test_a_native_url_tells_how_to_encrypt() -> None:
    url = "tidegate://h?ssl=true&ca=/ca.pem&cert=/c.pem&key=/k.pem&verify=false"
    assert parse_url(url) == ConnectOptions(
        host="h", ssl=True, ca="/ca.pem", cert="/c.pem", key="/k.pem", verify=False
    )


def test_a_native_url_tells_how_often_to_try_again() -> None:
    url = "tidegate://h?retries=2&retry_timeout=1.5"
    assert parse_url(url) == ConnectOptions(host="h", retries=2, retry_timeout=1.5)


def test_a_native_url_tells_of_http() -> None:
    url = "tidegate://h?transport=http&http_path=hive&token=t"
    options = parse_url(url)
    assert options == ConnectOptions(host="h", transport="http", http_path="hive", token="t")
    assert "'t'" not in repr(options)


def test_a_jdbc_url_tells_of_tls_and_http() -> None:
    url = "jdbc:hive2://h/;ssl=true;transportMode=HTTP;httpPath=hive;auth=jwt;jwt=t"
    assert parse_url(url) == ConnectOptions(
        host="h", ssl=True, transport="http", http_path="hive", token="t"
    )


def test_a_principal_asks_for_kerberos() -> None:
    assert parse_url("jdbc:hive2://h/;principal=hive/_HOST@R") == ConnectOptions(
        host="h", auth="KERBEROS", principal="hive/_HOST@R"
    )


@pytest.mark.parametrize(
    "url",
    [
        "tidegate://h?ssl=yes",
        "tidegate://h?ca=/ca.pem",
        "tidegate://h?retries=-1",
        "tidegate://h?retry_timeout=long",
        "tidegate://h?verify=false",
        "tidegate://h?transport=carrier-pigeon",
        "tidegate://h?token=t",
        "tidegate://h?auth=TOKEN",
        "tidegate://h?auth=TOKEN&token=t&transport=http",
        "jdbc:hive2://h/;transportMode=x",
    ],
)
def test_contradictions_are_interface_errors(url: str) -> None:
    with pytest.raises(tidegate.InterfaceError):
        parse_url(url)


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
        "jdbc:hive2://h/;ssl=true;sslTrustStore=/x.jks",
        "jdbc:hive2://h/;auth=delegationToken",
    ],
)
def test_what_the_driver_has_not_is_refused_by_name(url: str) -> None:
    with pytest.raises(tidegate.NotSupportedError):
        parse_url(url)


@pytest.mark.parametrize(
    "url", ["tidegate://u:p@a:1,[::1]:2,c/s?auth=LDAP", "jdbc:hive2://a:1,[::1]:2,c/s"]
)
def test_a_url_names_several_hosts(url: str) -> None:
    options = parse_url(url)
    assert options.schema == "s"
    found = [(each.host, each.port) for each in options.alternatives()]
    assert found == [("a", 1), ("::1", 2), ("c", 10000)]


def test_a_user_may_look_like_the_hosts() -> None:
    options = parse_url("tidegate://a,b:p@a,b/a,b?x=a,b")
    assert (options.user, options.password, options.host) == ("a,b", "p", "a,b")
    assert (options.schema, options.settings) == ("a,b", {"x": "a,b"})


@pytest.mark.parametrize("url", ["tidegate://a,b:x/", "tidegate://a,,b", "jdbc:hive2://a:1,b:x/"])
def test_each_of_several_hosts_is_checked(url: str) -> None:
    with pytest.raises(tidegate.InterfaceError):
        parse_url(url)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_url("tidegate://u:secret@h"))


def test_an_address_without_scheme_is_no_url() -> None:
    with pytest.raises(
        tidegate.InterfaceError, match=r"'db:10001' is not a URL: write tidegate://db:10001"
    ):
        parse_url("db:10001")
