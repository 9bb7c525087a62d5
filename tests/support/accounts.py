"""Accounts of the operating system for tests, and what they need to run an engine."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate_server.gateway.link.java import find_java

_PROGRAMS = ("useradd", "userdel", "usermod", "groupadd", "groupdel", "setpriv", "unshare")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts of users that have one group in common."""

    prefix: str
    group: str

    @property
    def template(self) -> str:
        """The value of ``engine.account``."""
        return f"{self.prefix}{{user}}"

    def of(self, user: str) -> str:
        """Return the account of a user."""
        return f"{self.prefix}{user}"


@contextmanager
def unix_accounts(*users: str) -> Iterator[Accounts]:
    """Create an account, each with a group of its own, for some users; remove them at the end."""
    if os.geteuid() != 0:
        pytest.skip("only root can create accounts")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    mark = secrets.token_hex(3)
    accounts = Accounts(prefix=f"tg{mark}-", group=f"tg{mark}")
    run("groupadd", accounts.group)
    made: list[str] = []
    try:
        for user in users:
            name = accounts.of(user)
            run("useradd", "--user-group", "--no-create-home", "--groups", accounts.group, name)
            made.append(name)
        yield accounts
    finally:
        for name in made:
            run("userdel", name)
        run("groupdel", accounts.group)


_UNDER = ("--regid={0}", "--reuid={0}", "--init-groups")
PLAIN = ("setpriv", *(word.format("{account}") for word in _UNDER))
"""Starts a command under an account; for a gateway of root."""
UNPRIVILEGED = (*PLAIN, "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs")
"""The same for a gateway with capabilities, which the command does not get."""


def launcher_of_root(folder: Path) -> Sequence[str]:
    """Return words that start a command under ``{account}``; the folder gets what they need."""
    return [*_reaching_python(folder), *PLAIN, "--"]


def python_under(account: str, folder: Path) -> Path:
    """Return a program that is Python under an account that may change to others."""
    capabilities = "+setuid,+setgid"
    words = [*_reaching_python(folder), "setpriv", *(word.format(account) for word in _UNDER)]
    words += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "--", sys.executable]
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return program


def _reaching_python(folder: Path) -> Sequence[str]:
    """Return words before a command; with them every account can reach Python and Java.

    Where these are in root's home, for example, the command gets a view of the file system of its
    own.
    """
    needed = [Path(sys.executable).resolve(), Path(sys.prefix), _ROOT, find_java().home.resolve()]
    blocked = _blocked(needed)
    if not blocked:
        return []
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip(f"other accounts cannot enter {', '.join(map(str, blocked))}")
    script = folder / "enter"
    script.write_text("\n".join(_opening(blocked, folder)) + '\nexec "$@"\n')
    return ["unshare", "--mount", "sh", str(script)]


def _blocked(paths: Sequence[Path]) -> dict[Path, set[str]]:
    """Return the directories that others may not enter on the way to paths, and what is needed."""
    found: dict[Path, set[str]] = defaultdict(set)
    for path in paths:
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & stat.S_IXOTH:
                found[parent].add(path.relative_to(parent).parts[0])
                break
    return found


def _opening(blocked: dict[Path, set[str]], folder: Path) -> Iterator[str]:
    """Yield commands that replace directories by ones with the needed entries alone."""
    yield "set -e"
    for number, (directory, entries) in enumerate(blocked.items()):
        aside = folder / f"aside-{number}"
        aside.mkdir(exist_ok=True)
        yield f"mount --bind {shlex.quote(str(directory))} {shlex.quote(str(aside))}"
        yield f"mount -t tmpfs -o mode=0755 tmpfs {shlex.quote(str(directory))}"
        for entry in entries:
            place = shlex.quote(str(directory / entry))
            yield f"mkdir {place}"
            yield f"mount --bind {shlex.quote(str(aside / entry))} {place}"


def run(*command: str) -> None:
    """Run a program; fail with what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
