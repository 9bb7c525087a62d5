"""Checks in threads, bounded in time and number; names, proxies, cookies, remembered secrets."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate_server.core.config_sections import LoginSection, ProxySection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth.base import (
    AuthenticatedUser,
    Identity,
    Peer,
    is_loopback,
)
from tidegate_server.gateway.auth.cookies import Cookies
from tidegate_server.gateway.auth.login_cache import SECONDS, LoginCache
from tidegate_server.gateway.auth.logins import Logins, is_usable_name
from tidegate_server.gateway.auth.proxies import Proxies

ADA = Identity(user="ada", method="PASSWORD")
HERE = Peer(address="127.0.0.1")


class FakeClock:
    """A clock that moves only when a test advances it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


class Answering:
    """An authenticator whose answers a test sets."""

    def __init__(self, work: Callable[[str, str], str]) -> None:
        self.authenticate = work


def code_of(work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(ServerError) as caught:
        asyncio.run(work)
    return caught.value.code


# ---- checks --------------------------------------------------------------------------------


def test_the_authenticator_says_how_the_user_is_called() -> None:
    logins = Logins(LoginSection())
    work = logins.check(Answering(lambda user, _: user.lower()), "CUSTOM", "Ada", "x")
    assert asyncio.run(work) == Identity(user="ada", method="CUSTOM")


def test_an_authenticator_may_report_groups() -> None:
    class WithGroups:
        def authenticate(self, user: str, password: str) -> AuthenticatedUser:
            groups = ("staff", "admins", " padded", "a" * 256)
            return AuthenticatedUser(user=user, groups=groups)

    work = Logins(LoginSection()).check(WithGroups(), "CUSTOM", "ada", "lovelace")
    expected = Identity(user="ada", method="CUSTOM", groups=("admins", "staff"))
    assert asyncio.run(work) == expected


def test_a_user_cannot_have_the_name_of_another_owner() -> None:
    assert not is_usable_name("unowned")
    assert not is_usable_name("ROLE admins")
    assert is_usable_name("role admins")


@pytest.mark.parametrize("user", ["", " ada", "ada ", "a\nb", "a\0b", "a" * 257])
def test_names_that_cannot_be_are_not_even_asked_about(user: str) -> None:
    asked: list[str] = []
    authenticator = Answering(lambda name, _: asked.append(name) or name)
    logins = Logins(LoginSection())
    assert code_of(logins.check(authenticator, "CUSTOM", user, "x")) == "LOGIN_REFUSED"
    assert asked == []


@pytest.mark.parametrize("user", ["ada", "ADA", "a b", "eva@example.org", "hive/host@REALM", "é"])
def test_names_that_can_be(user: str) -> None:
    assert is_usable_name(user)


def test_a_check_that_hangs_is_given_up() -> None:
    release = threading.Event()
    logins = Logins(LoginSection(timeout=0.05, max_concurrent=1))
    hanging = Answering(lambda user, _: str(release.wait(20)))
    assert code_of(logins.check(hanging, "CUSTOM", "ada", "x")) == "LOGIN_UNAVAILABLE"
    release.set()


def test_only_so_many_checks_may_wait() -> None:
    release = threading.Event()
    logins = Logins(LoginSection(timeout=10, max_concurrent=1))
    hanging = Answering(lambda user, _: str(release.wait(20)) and user)

    async def crowd() -> list[Any]:
        checks = [logins.check(hanging, "CUSTOM", "ada", "x") for _ in range(6)]
        tasks = [asyncio.create_task(check) for check in checks]
        refused = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        release.set()
        await asyncio.wait(tasks)
        return [len(refused[0]), *(task.exception() for task in tasks)]

    count, *problems = asyncio.run(crowd())
    codes = [problem.code for problem in problems if problem is not None]
    assert (count, codes) == (1, ["TOO_MANY"])


def test_what_an_authenticator_raises_reaches_neither_client_nor_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_to_check(user: str, password: str) -> str:
        raise RuntimeError(f"cannot check {password}")

    with caplog.at_level(logging.DEBUG), pytest.raises(ServerError) as caught:
        asyncio.run(
            Logins(LoginSection()).check(Answering(fail_to_check), "CUSTOM", "ada", "s3cret")
        )
    assert caught.value.code == "LOGIN_UNAVAILABLE"
    assert "RuntimeError" in caplog.text
    assert "s3cret" not in caplog.text + str(caught.value)


# ---- addresses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "::ffff:127.0.0.1"]
)
def test_loopback_is_private(host: str) -> None:
    assert is_loopback(host)
    assert Peer(address=host).private


@pytest.mark.parametrize("host", ["10.0.0.1", "::", "0.0.0.0", "", "fe80::1%eth0", "gateway"])
def test_another_address_is_private_only_with_tls(host: str) -> None:
    assert not Peer(address=host).private
    assert Peer(address=host, encrypted=True).private


# ---- proxies -------------------------------------------------------------------------------


RULES = Proxies(
    {
        "superset": ProxySection(users=("*",), hosts=("10.0.0.0/8", "127.0.0.1")),
        "knox": ProxySection(users=("ada", "eva")),
        "idle": ProxySection(),
    }
)


@pytest.mark.parametrize(
    ("user", "other", "address"),
    [
        ("superset", "anybody", "10.1.2.3"),
        ("superset", "anybody", "::ffff:10.1.2.3"),
        ("knox", "ada", "192.168.7.7"),
        ("idle", "idle", "8.8.8.8"),
        ("ada", "", "8.8.8.8"),
    ],
)
def test_a_rule_allows(user: str, other: str, address: str) -> None:
    who = Identity(user=user, method="LDAP")
    assert RULES.effective_user(who, other, Peer(address=address)) == (other or user)


@pytest.mark.parametrize(
    ("user", "other", "address"),
    [
        ("superset", "anybody", "192.168.1.1"),
        ("superset", " ada", "10.1.2.3"),
        ("knox", "root", "192.168.7.7"),
        ("knox", "ADA", "192.168.7.7"),
        ("idle", "ada", "127.0.0.1"),
        ("ada", "eva", "127.0.0.1"),
        ("ada", "*", "127.0.0.1"),
    ],
)
def test_without_a_rule_nobody_acts_as_another(user: str, other: str, address: str) -> None:
    with pytest.raises(ServerError) as caught:
        RULES.effective_user(Identity(user=user, method="LDAP"), other, Peer(address=address))
    assert (caught.value.code, caught.value.sqlstate) == ("PROXY_REFUSED", "28000")


def test_a_name_that_was_only_said_may_as_well_be_another() -> None:
    said = Identity(user="ada", method="NONE", proven=False)
    assert RULES.effective_user(said, "eva", HERE) == "eva"
    with pytest.raises(ServerError, match="PROXY_REFUSED"):
        RULES.effective_user(said, "eva\nINFO forged", HERE)


def test_a_rule_for_no_network_is_refused_at_the_start() -> None:
    with pytest.raises(ServerError, match=r"proxy\.knox\.hosts"):
        Proxies({"knox": ProxySection(users=("*",), hosts=("gateway.example",))})


# ---- cookies -------------------------------------------------------------------------------


def test_a_cookie_stands_for_its_user_until_it_is_old() -> None:
    clock = FakeClock()
    cookies = Cookies(60.0, clock)
    value = cookies.value(ADA)
    assert cookies.read(value) == ADA
    clock.time += timedelta(seconds=59)
    assert cookies.read(value) == ADA
    clock.time += timedelta(seconds=1)
    assert cookies.read(value) is None


def test_a_cookie_that_was_changed_is_worthless() -> None:
    cookies = Cookies(60.0, FakeClock())
    value = cookies.value(ADA)
    payload, _, signature = value.partition(".")
    eva, _, _ = cookies.value(Identity(user="eva", method="PASSWORD")).partition(".")
    for forged in (f"{eva}.{signature}", payload, f"{payload}.", ".", "", "é.é", f"x{value}"):
        assert cookies.read(forged) is None


def test_a_cookie_of_another_process_is_worthless() -> None:
    clock = FakeClock()
    assert Cookies(60.0, clock).read(Cookies(60.0, clock).value(ADA)) is None


def test_a_cookie_is_sent_so_that_pages_cannot_read_it() -> None:
    header = Cookies(60.0, FakeClock()).header(ADA, path="/cliservice", secure=True)
    attributes = {part.strip() for part in header.split(";")[1:]}
    expected = {"Max-Age=60", "Path=/cliservice", "HttpOnly", "SameSite=Strict", "Secure"}
    assert header.startswith("hive.server2.auth=")
    assert attributes == expected


# ---- remembered secrets --------------------------------------------------------------------


def test_a_secret_is_remembered_for_a_minute() -> None:
    clock = FakeClock()
    remembered = LoginCache(clock)
    remembered.keep(b"ada:secret", ADA)
    assert remembered.find(b"ada:secret") == ADA
    assert remembered.find(b"ada:Secret") is None
    assert "secret" not in repr(vars(remembered))
    clock.time += timedelta(seconds=SECONDS)
    assert remembered.find(b"ada:secret") is None


def test_only_so_many_secrets_are_remembered() -> None:
    remembered = LoginCache(FakeClock())
    for number in range(1001):
        remembered.keep(str(number).encode(), ADA)
    assert remembered.find(b"0") is None
    assert remembered.find(b"1000") == ADA
