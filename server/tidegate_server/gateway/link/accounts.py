"""The account of the operating system under which a user's engine runs."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_server.core.errors import Code, ServerError, error

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
"""Names of accounts: never an option of the launcher, a number or a path."""
_FIRST_PERSON = 1000
"""The lowest id of accounts of people; system accounts, such as postgres, have lower ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account of the operating system."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a process is started under an account."""

    account: Account
    prefix: tuple[str, ...]
    """The words before the command."""
    group_writes: bool
    """Whether the gateway reaches the account's files as a member of its group."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that describe the account."""
        name = self.account.name
        return {"HOME": self.account.home, "USER": name, "LOGNAME": name}


def launch_as(user: str, template: str, launcher: Sequence[str], data: Path) -> Launch:
    """Return how the engine of a user is started.

    :param template: the account's name with ``{user}`` in it.
    :param launcher: words with ``{account}`` in them.
    :param data: the data directory.
    :raises ServerError: ENGINE_ACCOUNT if there is no such account or it must not be used.
    """
    name = account_name(user, template)
    account = _find(user, name, may_be_system=name != user)
    _check_directory(user, account, data)
    privileged = os.geteuid() == 0
    if not privileged:
        _check_group(user, account, data)
    return Launch(
        account=account,
        prefix=tuple(word.replace("{account}", name) for word in launcher),
        group_writes=not privileged,
    )


def account_name(user: str, template: str) -> str:
    """Return the name of a user's account.

    :raises ServerError: ENGINE_ACCOUNT if it is no plain name of an account.
    """
    name = template.replace("{user}", user)
    # The user's name alone as well: a template must not turn any text into an account.
    if not (_PLAIN_NAME.fullmatch(user) and _PLAIN_NAME.fullmatch(name)):
        raise _refusal(user, name, "it is not a plain name of letters, digits and _ . -")
    return name


def _find(user: str, name: str, *, may_be_system: bool) -> Account:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise _refusal(user, name, "there is no such account") from None
    account = Account(name=name, uid=found.pw_uid, gid=found.pw_gid, home=found.pw_dir)
    if account.uid == 0:
        raise _refusal(user, name, "it is that of root")
    if account.uid == os.geteuid():
        raise _refusal(user, name, "it is the gateway's own")
    if account.uid < _FIRST_PERSON and not may_be_system:
        raise _refusal(user, name, f"it is a system account, with the id {account.uid}")
    return account


def _check_directory(user: str, account: Account, data: Path) -> None:
    group = data.stat().st_gid
    if group not in os.getgrouplist(account.name, account.gid):
        reason = f"it is not a member of {_group_name(group)}, the group of {data}"
        raise _refusal(user, account.name, reason)


def _check_group(user: str, account: Account, data: Path) -> None:
    """Check that the account's primary group is there for the account and the gateway alone."""
    group = _group_name(account.gid)
    if account.gid not in {os.getegid(), *os.getgroups()}:
        reason = f"the gateway is not a member of {group}, its primary group"
        raise _refusal(user, account.name, reason)
    if account.gid in (data.stat().st_gid, os.getegid()):
        raise _refusal(user, account.name, f"its primary group {group} is that of all engines")
    allowed = {account.name, pwd.getpwuid(os.geteuid()).pw_name}
    others = sorted(set(grp.getgrgid(account.gid).gr_mem) - allowed)
    if others:
        reason = f"its primary group {group} has other members: {', '.join(others)}"
        raise _refusal(user, account.name, reason)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _refusal(user: str, account: str, reason: str) -> ServerError:
    return error(Code.ENGINE_ACCOUNT, user=user, account=account, reason=reason)
