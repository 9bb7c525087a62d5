"""The command ``tidegate-server passwd``, which edits a password file."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Sequence
from pathlib import Path

from tidegate_server.gateway.auth.passwords import PasswordFileError, remove_user, set_password


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    options = _parser().parse_args(argv)
    try:
        if options.delete:
            remove_user(options.file, options.user)
        else:
            set_password(options.file, options.user, _password(options.user))
    except (PasswordFileError, OSError) as error:
        sys.stderr.write(f"tidegate-server passwd: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate-server passwd",
        description="Add a user to a password file, or change a user's password. A running server "
        "picks up the change. The password is prompted for, or read as one line if standard input "
        "is not a terminal.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file of login.password_file")
    parser.add_argument("user", metavar="USER")
    parser.add_argument("--delete", action="store_true", help="remove the user instead")
    return parser


def _password(user: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"Password of {user}: ")
    if getpass.getpass("Repeat: ") != first:
        raise PasswordFileError("the two passwords differ")
    return first
