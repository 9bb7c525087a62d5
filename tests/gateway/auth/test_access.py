"""The door as the configuration describes it."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clock import SystemClock
from tidegate_server.gateway.auth.access import Access, build_access, check_exposure
from tidegate_server.gateway.auth.base import Identity, Peer
from tidegate_server.gateway.auth.passwords import set_password

HERE, THERE = Peer(address="127.0.0.1"), Peer(address="10.0.0.7")


class Reversed:
    """Takes the name backwards as its password."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._suffix = options.get("suffix", "")

    def authenticate(self, user: str, password: str) -> str:
        assert password == user[::-1]
        return user + self._suffix


class Useless:
    """Is no authenticator."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take the options."""


CUSTOM = f"{__name__}:Reversed"


def access(**sections: Any) -> Access:
    return build_access(Config(**sections), SystemClock())


def login(door: Access, user: str, password: str, peer: Peer = HERE) -> Identity:
    return asyncio.run(door.with_password(user, password, peer))


@pytest.mark.parametrize("method", ["NONE", "NOSASL"])
def test_without_a_check_everybody_is_who_they_say(method: str) -> None:
    who = login(access(server={"auth": method}), "anybody", "", THERE)
    assert who == Identity(user="anybody", method=method, proven=False)


def test_a_password_file_is_asked(tmp_path: Path) -> None:
    set_password(tmp_path / "users", "ada", "lovelace")
    door = access(server={"auth": "PASSWORD"}, login={"password_file": str(tmp_path / "users")})
    assert login(door, "ada", "lovelace") == Identity(user="ada", method="PASSWORD")
    with pytest.raises(ServerError, match="wrong"):
        login(door, "ada", "wrong")


def test_a_custom_authenticator_gets_its_options() -> None:
    section = {"custom": CUSTOM, "custom_options": {"suffix": "@example.org"}}
    door = access(server={"auth": "CUSTOM"}, login=section)
    assert login(door, "ada", "ada"[::-1]).user == "ada@example.org"


def test_a_custom_authenticator_comes_from_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "doors-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: doors\nVersion: 1\n")
    offered = f"[tidegate.authenticators]\nreversed = {CUSTOM}\n"
    (information / "entry_points.txt").write_text(offered)
    monkeypatch.syspath_prepend(tmp_path)
    door = access(server={"auth": "CUSTOM"}, login={"custom": "reversed"})
    assert login(door, "eva", "ave").user == "eva"


@pytest.mark.parametrize("peer", [HERE, Peer(address="10.0.0.7", encrypted=True)])
def test_passwords_are_taken_where_nobody_listens(peer: Peer) -> None:
    door = access(server={"auth": "CUSTOM"}, login={"custom": CUSTOM})
    assert login(door, "ada", "ada", peer).user == "ada"


def test_passwords_in_the_clear_are_refused_unless_that_is_allowed() -> None:
    section = {"custom": CUSTOM}
    with pytest.raises(ServerError, match="encrypted connection"):
        login(access(server={"auth": "CUSTOM"}, login=section), "ada", "ada", THERE)
    door = access(server={"auth": "CUSTOM", "plaintext_passwords": True}, login=section)
    assert login(door, "ada", "ada", THERE).user == "ada"


def test_a_server_for_tokens_takes_no_passwords(tmp_path: Path) -> None:
    section = {"jwks": str(tmp_path / "keys"), "issuer": "i", "audience": "a"}
    with pytest.raises(ServerError, match="does not accept passwords"):
        login(access(server={"auth": "JWT"}, jwt=section), "ada", "x")


def test_a_server_without_keys_takes_no_tokens() -> None:
    with pytest.raises(ServerError, match="does not accept bearer tokens"):
        asyncio.run(access().with_bearer("x", HERE))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"server": {"auth": "PASSWORD"}}, "login.password_file is invalid: it is not set"),
        (
            {"server": {"auth": "PASSWORD"}, "login": {"password_file": "/nowhere/users"}},
            "/nowhere/users cannot be read",
        ),
        ({"server": {"auth": "LDAP"}}, "ldap.url is invalid"),
        ({"server": {"auth": "LDAP"}, "ldap": {"url": "ldaps://d"}}, "ldap.user_dn or ldap.base"),
        (
            {"server": {"auth": "LDAP"}, "ldap": {"url": "ldaps://d", "user_dn": "uid=x"}},
            "does not contain {user}",
        ),
        (
            {"server": {"auth": "LDAP"}, "ldap": {"url": "ldap://d", "user_dn": "uid={user}"}},
            "passwords would be sent to it unencrypted",
        ),
        ({"server": {"auth": "CUSTOM"}}, "login.custom is invalid: it is not set"),
        ({"server": {"auth": "CUSTOM"}, "login": {"custom": "x"}}, "tidegate.authenticators"),
        ({"server": {"auth": "CUSTOM"}, "login": {"custom": "no.mod:X"}}, "cannot be loaded"),
        ({"server": {"auth": "CUSTOM"}, "login": {"custom": f"{__name__}:X"}}, "cannot be loaded"),
        (
            {"server": {"auth": "CUSTOM"}, "login": {"custom": f"{__name__}:Useless"}},
            "without a method authenticate",
        ),
        ({"server": {"auth": "JWT"}}, "jwt.jwks is invalid: it is not set"),
        ({"server": {"auth": "KERBEROS"}}, "kerberos.keytab is invalid: it is not set"),
        (
            {"server": {"auth": "KERBEROS"}, "kerberos": {"keytab": "/etc/x"}},
            "kerberos.realm is invalid: it is not set",
        ),
        ({"jwt": {"jwks": "keys.json"}}, "jwt.audience is invalid"),
        ({"jwt": {"jwks": "keys.json", "audience": "a"}}, "jwt.issuer is invalid"),
        ({"jwt": {"jwks": "http://keys.example/"}}, "keys could be replaced in transit"),
    ],
)
def test_what_is_missing_is_said_at_the_start(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ServerError) as caught:
        access(**sections)
    assert caught.value.code == "LOGIN_CONFIGURATION"
    assert said in caught.value.message


def test_the_examples_of_the_manual_are_accepted(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 6
    for example in examples:
        given = re.sub(r'\bfile = "[^"]+"', f'file = "{secret}"', example)
        Config(**tomllib.loads(given))


# ---- the address ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_a_loopback_address_needs_no_authentication(host: str) -> None:
    check_exposure(Config(server={"host": host}))


@pytest.mark.parametrize("method", ["NONE", "NOSASL"])
@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.5", "gateway.example"])
def test_another_address_without_authentication_is_refused(host: str, method: str) -> None:
    with pytest.raises(ServerError, match="INSECURE_ADDRESS"):
        check_exposure(Config(server={"host": host, "auth": method}))


def test_another_address_can_be_allowed() -> None:
    check_exposure(Config(server={"host": "0.0.0.0", "insecure": True}))


def test_another_address_with_passwords_needs_tls() -> None:
    server = {"host": "0.0.0.0", "auth": "LDAP"}
    with pytest.raises(ServerError, match="INSECURE_PASSWORDS"):
        check_exposure(Config(server={**server, "insecure": True}))
    check_exposure(Config(server=server, tls={"certificate": "server.pem"}))
    check_exposure(Config(server={**server, "plaintext_passwords": True}))


def test_tickets_may_be_read_by_anybody() -> None:
    check_exposure(Config(server={"host": "0.0.0.0", "auth": "KERBEROS"}))
