"""Delegation tokens, on a real store."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stores import open_database
from tidegate_server.core.config_sections import LoginSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth.base import Identity
from tidegate_server.gateway.auth.token_store import SqlTokenStore
from tidegate_server.gateway.auth.tokens import DelegationTokens, decode_token, encode_token
from tidegate_server.gateway.store.database import Database

ADA = Identity(user="ada", method="LDAP")


class FakeClock:
    """A clock that moves only when a test advances it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def service(database: Database, clock: Any) -> DelegationTokens:
    ids = itertools.count()
    settings = LoginSection(token_lifetime=100.0, token_max_lifetime=250.0)
    return DelegationTokens(SqlTokenStore(database), clock, lambda: f"token-{next(ids)}", settings)


@pytest.fixture
def tokens(database: Database, clock: FakeClock) -> DelegationTokens:
    return service(database, clock)


def name_of(token: str) -> str:
    return base64.b64encode(decode_token(token)[0]).decode()


def good(tokens: DelegationTokens, token: str) -> bool:
    try:
        return tokens.look_up(name_of(token))[0] == Identity(user="ada", method="TOKEN")
    except ServerError as problem:
        assert problem.code == "LOGIN_REFUSED"
        return False


def test_a_token_stands_for_its_owner_for_its_lifetime(
    tokens: DelegationTokens, clock: FakeClock
) -> None:
    token = tokens.issue(ADA, "ada", "")
    assert good(tokens, token)
    clock.time += timedelta(seconds=99)
    assert good(tokens, token)
    clock.time += timedelta(seconds=1)
    assert not good(tokens, token)


def test_its_renewer_can_renew_it_up_to_its_last_day(
    tokens: DelegationTokens, clock: FakeClock
) -> None:
    token = tokens.issue(ADA, "ada", "scheduler")
    for _ in range(2):
        clock.time += timedelta(seconds=90)
        tokens.renew(token, "scheduler")
        assert good(tokens, token)
    clock.time += timedelta(seconds=69)
    assert good(tokens, token)
    clock.time += timedelta(seconds=1)
    assert not good(tokens, token)
    with pytest.raises(ServerError, match="expired"):
        tokens.renew(token, "scheduler")


@pytest.mark.parametrize("user", ["ada", "eva", ""])
def test_nobody_else_can_renew_it(tokens: DelegationTokens, user: str) -> None:
    for renewer in ("scheduler", ""):
        with pytest.raises(ServerError, match="Only the renewer"):
            tokens.renew(tokens.issue(ADA, "ada", renewer), user)


@pytest.mark.parametrize("user", ["ada", "scheduler", "knox"])
def test_it_can_be_cancelled_by_those_it_concerns(tokens: DelegationTokens, user: str) -> None:
    token = tokens.issue(Identity(user="knox", method="LDAP"), "ada", "scheduler")
    tokens.cancel(token, user)
    assert not good(tokens, token)


def test_it_can_be_cancelled_by_nobody_else(tokens: DelegationTokens) -> None:
    token = tokens.issue(ADA, "ada", "scheduler")
    with pytest.raises(ServerError, match="may not cancel"):
        tokens.cancel(token, "eva")
    assert good(tokens, token)


def test_a_token_gets_no_other_token(tokens: DelegationTokens) -> None:
    with pytest.raises(ServerError, match="cannot be used to get another"):
        tokens.issue(Identity(user="ada", method="TOKEN"), "ada", "")


def test_another_gateway_of_the_store_knows_it(
    database: Database, tokens: DelegationTokens, clock: FakeClock
) -> None:
    token = tokens.issue(ADA, "ada", "")
    other = service(database, clock)
    assert other.look_up(name_of(token)) == tokens.look_up(name_of(token))


def test_old_tokens_are_forgotten(
    database: Database, tokens: DelegationTokens, clock: FakeClock
) -> None:
    tokens.issue(ADA, "ada", "")
    clock.time += timedelta(seconds=251)
    tokens.issue(ADA, "ada", "")
    store = SqlTokenStore(database)
    assert store.find("token-0") is None
    assert store.find("token-1") is not None


def test_a_forged_token_is_worthless(tokens: DelegationTokens) -> None:
    identifier, secret = decode_token(tokens.issue(ADA, "ada", "ada"))
    forged = [
        encode_token(identifier, secret[:-1] + bytes((secret[-1] ^ 1,))),
        encode_token(b"token-7", secret),
        encode_token(b"\xff\xfe", secret),
        "",
        "é",
        "AAAA",
        "fw",
    ]
    for token in forged:
        for call in (tokens.renew, tokens.cancel):
            with pytest.raises(ServerError) as caught:
                call(token, "ada")
            assert caught.value.code == "LOGIN_REFUSED"


@pytest.mark.parametrize("name", ["", "x", "é", "dG9rZW4tNw==", "//79"])
def test_a_name_that_is_no_tokens_is_refused(tokens: DelegationTokens, name: str) -> None:
    with pytest.raises(ServerError, match="unknown, canceled or expired"):
        tokens.look_up(name)


def test_the_secret_is_not_in_the_store(database: Database, tokens: DelegationTokens) -> None:
    _, secret = decode_token(tokens.issue(ADA, "ada", ""))
    assert secret.hex() not in str(SqlTokenStore(database).find("token-0"))
