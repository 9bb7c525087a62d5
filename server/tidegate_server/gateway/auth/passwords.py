"""A password file: one user with an argon2 hash per line."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.base import login_error

logger = logging.getLogger(__name__)

# OWASP's recommended costs; each running check takes that much memory (19 MiB).
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 << 10, parallelism=1)


class PasswordFileError(Exception):
    """The file is invalid; the text names the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The file as it was when it was read."""

    stamp: tuple[int, int, int]
    hashes: Mapping[str, str] = field(repr=False)


class PasswordFile:
    """Checks passwords against a file, which is read again whenever it changes."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        :raises PasswordFileError: if it cannot be read.
        """
        self._path = path
        self._lock = threading.Lock()
        # Verified for unknown users, so that they take as long as known ones.
        self._nobody = _HASHER.hash(secrets.token_hex())
        self._loaded = _load(path)

    def authenticate(self, user: str, password: str) -> str:
        stored = self._hashes().get(user)
        try:
            _HASHER.verify(stored or self._nobody, password)
        except VerifyMismatchError:
            raise login_error() from None
        except (VerificationError, InvalidHashError) as problem:
            logger.error("The hash of user %s in %s is damaged", user, self._path)
            raise error(Code.LOGIN_UNAVAILABLE, reason="the user's entry is damaged") from problem
        if stored is None:
            raise login_error()
        return user

    def _hashes(self) -> Mapping[str, str]:
        with self._lock:
            try:
                if _stamp(self._path) != self._loaded.stamp:
                    self._loaded = _load(self._path)
            except (OSError, PasswordFileError) as problem:
                # Removed users must not log in with the old content while the file is repaired.
                logger.error("The password file cannot be read: %s", problem)
                raise error(
                    Code.LOGIN_UNAVAILABLE, reason="the password file cannot be read"
                ) from problem
            return self._loaded.hashes


def read_users(path: Path) -> dict[str, str]:
    """Return the hashes of a password file by user.

    :raises PasswordFileError: if it cannot be read.
    """
    hashes: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, stored = line.rstrip().partition(":")
        if not colon or not user or not stored.startswith("$argon2"):
            raise PasswordFileError(f"{path}, line {number}: expected USER:$argon2…")
        if user in hashes:
            raise PasswordFileError(f"{path}, line {number}: duplicate entry for {user}")
        hashes[user] = stored
    return hashes


def set_password(path: Path, user: str, password: str) -> None:
    """Write a user's hash to a password file, creating the file if needed.

    :raises PasswordFileError: if the file is damaged, or the name or the password invalid.
    """
    if not user or user != user.strip() or user.startswith("#") or not _plain(user):
        raise PasswordFileError(f"{user!r} cannot be a user's name")
    if not password:
        raise PasswordFileError("the password is empty")
    _replace(path, {**_existing(path), user: _HASHER.hash(password)})


def remove_user(path: Path, user: str) -> None:
    """Remove a user from a password file.

    :raises PasswordFileError: if the file is damaged or has no such user.
    """
    users = _existing(path)
    if users.pop(user, None) is None:
        raise PasswordFileError(f"{path} has no user {user}")
    _replace(path, users)


def _plain(user: str) -> bool:
    return ":" not in user and user.isprintable()


def _existing(path: Path) -> dict[str, str]:
    return read_users(path) if path.exists() else {}


def _replace(path: Path, users: Mapping[str, str]) -> None:
    """Replace the file atomically, so that no reader sees a partial one."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            output.writelines(f"{user}:{stored}\n" for user, stored in sorted(users.items()))
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o777)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _load(path: Path) -> _Loaded:
    try:
        stamp = _stamp(path)
    except OSError as problem:
        raise PasswordFileError(f"{path} cannot be read: {problem.strerror}") from problem
    return _Loaded(stamp, read_users(path))


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as problem:
        raise PasswordFileError(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise PasswordFileError(f"{path} is not text in UTF-8") from problem
