"""The data directory, and the mark that claims it before anything else is written there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sqlite3
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.permissions import restrict

MARK = "tidegate.json"
FORMAT_VERSION = 1

_KIND = "tidegate data directory"
_LOCK, _STORE = "gateway.lock", "store.db"
_ENGINES = frozenset({"warehouse", "metastore", "spool", "logs", "tmp", "engines"})
_GATEWAYS = frozenset({_LOCK, _STORE, f"{_STORE}-wal", f"{_STORE}-shm", "metastore.msgpack"})
AUDIT_DIRECTORY = "audit"
"""Directory of the audit log, within the data directory."""
_TABLES = frozenset({"warehouse", "system"})
"""Directories of tables, which other programs may read if the configuration says so."""
_OWN = _ENGINES | _GATEWAYS | {"system"}
"""Files that releases without marks put into a data directory."""
_OF_FILE_SYSTEMS = frozenset({"lost+found", ".snapshot", ".DS_Store"})
"""Files that file systems put into an otherwise empty directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The content of a data directory's mark."""

    version: int
    """The format of the directory; see :data:`FORMAT_VERSION`."""
    id: str
    """A UUID generated when the directory was marked."""


def claim(data: Path) -> Mark:
    """Return the mark of a data directory; give one to a directory that is new, empty or older.

    A directory that holds anything else is left exactly as it is. Claiming it again is harmless.

    :raises ServerError: DATA_DIRECTORY if it holds other files, is not a directory, was written by
        a newer release, or if its mark cannot be read.
    :raises OSError: if it cannot be created, read or written.
    """
    if data.exists() and not data.is_dir():
        raise _refusal(data, "it is a file")
    data.mkdir(parents=True, exist_ok=True)
    found = _read(data)
    if found is not None:
        return found
    strangers = _strangers(entry.name for entry in data.iterdir())
    if strangers and not _is_older(data):
        named = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        raise _refusal(data, f"it is not Tidegate's, and it is not empty: it holds {named}")
    _write(data, Mark(version=FORMAT_VERSION, id=str(uuid.uuid4())))
    written = _read(data)
    if written is None:
        raise _refusal(data, f"its mark {MARK} disappeared")
    return written


def restrict_access(data: Path, *, group_reads: bool) -> list[str]:
    """Take the rights of other users on a data directory, and on the files at its top.

    Files in subdirectories can no longer be reached then. With ``group_reads``, the group may read
    the tables, and nothing else.

    :return: a warning for each file that belongs to another user.
    """
    warnings = []
    files = (path for path in data.iterdir() if not path.is_dir())
    logs = (path for path in (data / "logs").glob("*") if path.is_file())
    shared = [data, *(data / name for name in _TABLES)]
    private = [*(data / name for name in (_ENGINES | {AUDIT_DIRECTORY}) - _TABLES), *files, *logs]
    for path in (*shared, *private):
        try:
            restrict(path, group_reads=group_reads and path in shared)
        except OSError as problem:
            mode = "o-rwx" if group_reads and path in shared else "go-rwx"
            warnings.append(
                f"{path} can be accessed by other users, and this one cannot change that "
                f"({problem.strerror}): chmod {mode} {shlex.quote(str(path))}"
            )
    return warnings


def open_to_engines(data: Path) -> None:
    """Let engines of other accounts, as members of the directory's group, work in it.

    They can read the system tables, and create schemas and their own working directories. They
    cannot rename or remove what another account created.

    :raises OSError: if a directory belongs to another user.
    """
    group = data.stat().st_gid
    for name, mode in (("warehouse", 0o1770), ("engines", 0o1770), ("system", 0o2750)):
        directory = data / name
        directory.mkdir(exist_ok=True)
        os.chown(directory, -1, group)
        directory.chmod(mode)


def _read(data: Path) -> Mark | None:
    try:
        text = (data / MARK).read_text("utf-8")
        content = json.loads(text)
        if content["kind"] != _KIND:
            raise ValueError(content["kind"])
        mark = Mark(version=int(content["version"]), id=str(content["id"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as problem:
        raise _refusal(data, f"its mark {MARK} cannot be read") from problem
    if mark.version > FORMAT_VERSION:
        raise error(
            Code.DATA_DIRECTORY,
            path=data,
            reason=f"it has format version {mark.version}, and this release knows versions up to "
            f"{FORMAT_VERSION}",
            hint="Run the newer release that wrote it.",
        )
    return mark


def _write(data: Path, mark: Mark) -> None:
    """Create the mark atomically, and only if there is none yet."""
    partial = data / f".{MARK}.{mark.id}"
    content = {"kind": _KIND, "version": mark.version, "id": mark.id}
    with partial.open("x", encoding="utf-8") as file:
        file.write(f"{json.dumps(content)}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        # Unlike a rename, a link never replaces the mark of a server that started just before.
        with contextlib.suppress(FileExistsError):
            (data / MARK).hardlink_to(partial)
    except OSError:
        # Some network file systems have no links; the gateway's lock, taken next, still protects.
        partial.replace(data / MARK)
    finally:
        partial.unlink(missing_ok=True)


def _strangers(names: Iterable[str]) -> list[str]:
    """Return the names that keep a directory from counting as empty."""
    begun = f".{MARK}."  # a first start that was killed
    return sorted(n for n in names if n not in _OF_FILE_SYSTEMS and not n.startswith(begun))


def _is_older(data: Path) -> bool:
    """Return whether a release without marks used the directory.

    A gateway left its lock, with its store or an engine's metastore, or with nothing but its
    own files; an engine without a gateway left its metastore and its log settings.
    """
    if not _is_lock(data / _LOCK):
        return _has_metastore(data) and (data / "logs" / "log4j2.properties").is_file()
    if _is_store(data / _STORE) or _has_metastore(data):
        return True
    return not _strangers(entry.name for entry in data.iterdir() if entry.name not in _OWN)


def _is_lock(path: Path) -> bool:
    """Return whether a file holds just a process id, or nothing."""
    if not path.is_file() or path.stat().st_size > 32:
        return False
    text = path.read_bytes().strip()
    return not text or text.isdigit()


def _has_metastore(data: Path) -> bool:
    derby = data / "metastore" / "service.properties"
    return derby.is_file() and (data / "warehouse").is_dir()


def _is_store(path: Path) -> bool:
    """Return whether a file is a SQLite database with the tables of a store."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            return False
    try:
        # mode=ro creates and changes neither the database nor its journal.
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as opened:
            rows = opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error:
        # A damaged store beside a lock: opening it reports the damage.
        return True
    return {"schema_version", "materialized_tables"} <= {name for (name,) in rows}


def _refusal(data: Path, reason: str) -> ServerError:
    hint = "Choose another directory with --data: an empty one, or one that does not exist yet."
    return error(Code.DATA_DIRECTORY, path=data, reason=reason, hint=hint)
