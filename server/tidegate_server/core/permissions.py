"""Permissions of files: what the server creates, and files with secrets that it is given."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from pathlib import Path

_GROUP = 0o070
_OTHERS = 0o007
_PRIVATE = stat.S_IRUSR | stat.S_IWUSR


def umask_for(*, group_reads: bool, group_writes: bool = False) -> int:
    """Return the umask of the server's processes."""
    if group_writes:
        return 0o007
    return 0o027 if group_reads else 0o077


def restrict(path: Path, *, group_reads: bool = False) -> None:
    """Take the rights of other users on one of the server's own files or directories.

    With ``group_reads`` a directory can be read by its group afterwards. Missing files are ignored.

    :raises OSError: if the file belongs to another user.
    """
    with contextlib.suppress(FileNotFoundError):
        found = path.stat().st_mode
        wanted = found & ~umask_for(group_reads=group_reads)
        if group_reads and stat.S_ISDIR(found):
            wanted |= stat.S_IRGRP | stat.S_IXGRP
        if wanted != found:
            path.chmod(stat.S_IMODE(wanted))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, replacing its content."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
    with open(handle, "wb") as file:
        file.write(content)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists.

    :raises OSError: if it cannot be created.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))


def private_opener(path: str, flags: int) -> int:
    """Open a file for :func:`open`, readable for its owner only if it is created."""
    return os.open(path, flags | os.O_CLOEXEC, _PRIVATE)


def exposure(path: Path) -> str | None:
    """Return why a file with a secret is not secret, with the command that helps; None if it is.

    As with PostgreSQL's keys, its group may read a file of root's: that is how service managers
    and Kubernetes pass secrets on.

    :raises OSError: if the file is missing.
    """
    found = path.stat()
    if found.st_mode & _OTHERS:
        who = "every user of the machine"
    elif found.st_mode & _GROUP and found.st_uid != 0:
        who = "its group"
    else:
        return None
    return f"{path} can be accessed by {who}: chmod 600 {shlex.quote(str(path))}"
