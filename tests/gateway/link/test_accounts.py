"""Which account of the system an engine may run under."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.link.accounts import account_name, launch_as

LAUNCHER = ("sudo", "-n", "-u", "{account}", "--")
HOSTILE = [
    "-u",
    "--reuid=0",
    "#0",
    "0",
    "1000",
    "",
    "ann bob",
    "ann\n",
    "../ann",
    "ann/",
    "ann@EXAMPLE.ORG",
    "ännchen",
    "{account}",
    "$(id)",
    "a" * 33,
]


@pytest.mark.parametrize("user", HOSTILE)
@pytest.mark.parametrize("template", ["{user}", "tg_{user}"])
def test_only_plain_names_become_accounts(user: str, template: str) -> None:
    with pytest.raises(ServerError) as caught:
        account_name(user, template)
    assert caught.value.code == "ENGINE_ACCOUNT"


def test_a_template_makes_the_name() -> None:
    assert account_name("ann", "{user}") == "ann"
    assert account_name("ann.b-c", "tg_{user}") == "tg_ann.b-c"


def test_a_name_that_a_template_makes_too_long_is_refused() -> None:
    with pytest.raises(ServerError):
        account_name("a" * 31, "tg_{user}")


def test_an_unknown_account_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="there is no such account"):
        launch_as("nobody-of-this-name", "{user}", LAUNCHER, tmp_path)


def test_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="root|the gateway's own"):
        launch_as("root", "{user}", LAUNCHER, tmp_path)


def test_a_system_account_is_refused_to_a_user_of_its_name(tmp_path: Path) -> None:
    system = next(each for each in pwd.getpwall() if 0 < each.pw_uid < 1000)
    if system.pw_uid == os.geteuid():
        pytest.skip("the tests run under a system account")
    with pytest.raises(ServerError, match="it is a system account"):
        launch_as(system.pw_name, "{user}", LAUNCHER, tmp_path)


def test_an_account_must_be_able_to_read_the_data_directory(tmp_path: Path) -> None:
    system = next(each for each in pwd.getpwall() if 0 < each.pw_uid < 1000)
    mine = tmp_path.stat().st_gid
    if system.pw_uid == os.geteuid() or mine in os.getgrouplist(system.pw_name, system.pw_gid):
        pytest.skip("no account of this machine is a stranger to the directory")
    # A template may make system accounts: they are made for engines then.
    head, tail = system.pw_name[0], system.pw_name[1:]
    with pytest.raises(ServerError, match="it is not a member of"):
        launch_as(tail, f"{head}{{user}}", LAUNCHER, tmp_path)
