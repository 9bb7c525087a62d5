"""Logins against a real directory."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

import tidegate
from tests.gateway.auth.slapd import BASE, PEOPLE, DirectoryServer
from tests.gateway.protocol.gateway import running_gateway
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import LdapSection, ServerSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth.base import AuthenticatedUser
from tidegate_server.gateway.auth.directory import Directory

TEMPLATE = {"user_dn": f"uid={{user}},ou=people,{BASE}"}


@pytest.fixture
def search(tmp_path: Path) -> dict[str, Any]:
    """Settings of searching and binding."""
    password = tmp_path / "reader"
    password.write_text("may read\n")
    return {
        "base_dn": BASE,
        "bind_dn": f"cn=reader,{BASE}",
        "bind_password_file": str(password),
    }


@pytest.fixture(params=["template", "search"])
def settings(request: pytest.FixtureRequest, search: dict[str, Any]) -> dict[str, Any]:
    return TEMPLATE if request.param == "template" else search


def code_of(directory: Directory, user: str, password: str) -> str:
    with pytest.raises(ServerError) as caught:
        directory.authenticate(user, password)
    return caught.value.code


@pytest.mark.parametrize("user", ["ada", "eva,the (2nd)*"])
def test_the_right_password_lets_in(
    directory: DirectoryServer, settings: dict[str, Any], user: str
) -> None:
    checking = Directory(LdapSection(url=directory.url, **settings))
    assert checking.authenticate(user, PEOPLE[user]) == user


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("ada", "wrong"),
        ("ada", ""),
        ("nobody", "lovelace"),
        ("*", "lovelace"),
        ("a*", "lovelace"),
        ("ada)(uid=*", "lovelace"),
        ("ada,ou=people", "lovelace"),
        ("x,ou=others,dc=example,dc=org", "lovelace"),
        ("\\61da", "lovelace"),
        ("ada\\", "lovelace"),
    ],
)
def test_a_wrong_name_or_password_does_not(
    directory: DirectoryServer, settings: dict[str, Any], user: str, password: str
) -> None:
    checking = Directory(LdapSection(url=directory.url, **settings))
    assert code_of(checking, user, password) == "LOGIN_REFUSED"


def test_clients_log_in_with_it(directory: DirectoryServer) -> None:
    config = Config(
        server={"port": 0, "workers": 2, "auth": "LDAP"}, ldap={"url": directory.url, **TEMPLATE}
    )
    with running_gateway(config) as gateway:
        options: dict[str, Any] = {"host": gateway.host, "port": gateway.port, "user": "ada"}
        for transport in ("binary", "http"):
            with tidegate.connect(**options, password="lovelace", transport=transport) as good:
                good.ping()
            with pytest.raises(tidegate.OperationalError, match="password is wrong"):
                tidegate.connect(**options, password="wrong", transport=transport)


def test_two_entries_of_one_name_let_nobody_in(
    directory: DirectoryServer, search: dict[str, Any]
) -> None:
    checking = Directory(LdapSection(url=directory.url, **search))
    assert code_of(checking, "twin", "a") == "LOGIN_REFUSED"


def test_a_filter_may_ask_for_more(directory: DirectoryServer, search: dict[str, Any]) -> None:
    section = LdapSection(url=directory.url, user_filter="(&(uid={user})(sn=lovelace))", **search)
    assert code_of(Directory(section), "ada", "lovelace") == "LOGIN_REFUSED"


def test_an_account_that_cannot_search_is_the_servers_fault(
    directory: DirectoryServer, search: dict[str, Any]
) -> None:
    Path(search["bind_password_file"]).write_text("forgotten")
    checking = Directory(LdapSection(url=directory.url, **search))
    assert code_of(checking, "ada", "lovelace") == "LOGIN_UNAVAILABLE"


@pytest.mark.parametrize("way", ["ldaps", "start_tls"])
def test_the_connection_can_be_encrypted(
    directory: DirectoryServer, settings: dict[str, Any], way: str
) -> None:
    url = directory.secure_url if way == "ldaps" else directory.url
    section = LdapSection(url=url, start_tls=way != "ldaps", ca=str(directory.ca), **settings)
    assert Directory(section).authenticate("ada", "lovelace") == "ada"


def test_a_directory_with_another_certificate_gets_no_password(
    directory: DirectoryServer, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for url, start_tls in ((directory.secure_url, False), (directory.url, True)):
        section = LdapSection(url=url, start_tls=start_tls, ca=str(other), **TEMPLATE)
        assert code_of(Directory(section), "ada", "lovelace") == "LOGIN_UNAVAILABLE"


def test_a_directory_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taken: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: taken.append(silent.accept()[0]))
        accepting.start()
        url = f"ldap://127.0.0.1:{silent.getsockname()[1]}"
        checking = Directory(LdapSection(url=url, timeout=1, **TEMPLATE))
        assert code_of(checking, "ada", "lovelace") == "LOGIN_UNAVAILABLE"
        accepting.join()
        taken[0].close()


def test_a_directory_that_is_not_there_is_said_to_be_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    checking = Directory(LdapSection(url=f"ldap://127.0.0.1:{port}", **TEMPLATE))
    assert code_of(checking, "ada", "lovelace") == "LOGIN_UNAVAILABLE"


# ---- groups ----------------------------------------------------------------------------------

GROUPS_OF = {"ada": {"admins", "staff"}, "eva,the (2nd)*": {"staff"}}


@pytest.mark.parametrize("user", GROUPS_OF)
def test_the_groups_of_a_user_are_found(
    directory: DirectoryServer, search: dict[str, Any], user: str
) -> None:
    settings = {**search, "group_base_dn": f"ou=groups,{BASE}"}
    found = Directory(LdapSection(url=directory.url, **settings)).authenticate(user, PEOPLE[user])
    assert isinstance(found, AuthenticatedUser)
    assert (found.user, set(found.groups)) == (user, GROUPS_OF[user])


def test_a_filter_of_groups_may_name_the_user(
    directory: DirectoryServer, search: dict[str, Any]
) -> None:
    settings = {
        **search,
        "group_base_dn": f"ou=people,{BASE}",
        "group_filter": "(uid={user})",
        "group_attribute": "sn",
    }
    found = Directory(LdapSection(url=directory.url, **settings)).authenticate("ada", "lovelace")
    assert found == AuthenticatedUser(user="ada", groups=("ada",))


def test_groups_that_cannot_be_read_are_the_servers_fault(
    directory: DirectoryServer, search: dict[str, Any]
) -> None:
    settings = {**search, "group_base_dn": "ou=none,dc=example,dc=org"}
    checking = Directory(LdapSection(url=directory.url, **settings))
    assert code_of(checking, "ada", "lovelace") == "LOGIN_UNAVAILABLE"
    assert code_of(checking, "ada", "wrong") == "LOGIN_REFUSED"


def test_a_login_records_the_groups(directory: DirectoryServer, search: dict[str, Any]) -> None:
    config = Config(
        server=ServerSection(port=0, auth="LDAP"),
        ldap=LdapSection(url=directory.url, group_base_dn=f"ou=groups,{BASE}", **search),
    )
    with running_gateway(config) as gateway:
        settings: dict[str, Any] = {"host": gateway.host, "port": gateway.port}
        tidegate.connect(user="ada", password="lovelace", **settings).close()
        assert gateway.sessions._services.privileges.groups_of("ada") == {"admins", "staff"}
