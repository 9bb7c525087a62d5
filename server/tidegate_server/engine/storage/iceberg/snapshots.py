"""The history of an Iceberg table: which snapshots changed its rows; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tidegate_server.engine.storage.commit_metadata import parse_metadata

APPEND: Final = "append"
REPLACE: Final = "replace"
"""The operation of compactions, which change files but no row."""
EMPTY: Final = 0
"""The version of a table before its first snapshot; sequence numbers begin at 1."""
_NOTHING: Final = "null"
_UNKNOWN: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of an Iceberg table."""

    id: int
    number: int
    """Its sequence number, which is higher than those of all earlier snapshots of the table."""
    parent: int | None
    """The id of the snapshot before it, which may have expired."""
    schema_id: int | None
    operation: str
    added: int | None
    """How many data files it added, if the writer counted any."""
    files: int | None
    """How many data files the table has, if the writer counted them."""
    size: int | None = None
    """Their bytes, if the writer counted them."""
    made: datetime = _UNKNOWN
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of a refresh; empty for a snapshot by another writer."""


def parse_snapshots(text: str) -> tuple[Snapshot, ...]:
    """Read the lines of ``Snapshots.java``."""
    return tuple(_parse(*line.split("\t")) for line in text.splitlines())


def _parse(
    id: str,
    number: str,
    parent: str,
    schema_id: str,
    operation: str,
    added: str,
    files: str,
    size: str,
    made: str,
    metadata: str,
) -> Snapshot:
    return Snapshot(
        id=int(id),
        number=int(number),
        parent=_number(parent),
        schema_id=_number(schema_id),
        operation=operation,
        added=_number(added),
        files=_number(files),
        size=_number(size),
        made=datetime.fromtimestamp(int(made) / 1000, UTC),
        metadata=parse_metadata(metadata),
    )


def _number(text: str) -> int | None:
    return None if text == _NOTHING else int(text)


def keeps_rows(snapshot: Snapshot, parent: Snapshot | None) -> bool:
    """Say whether a table has the same rows in a snapshot and in the one before it.

    :param parent: None if it is not known.
    """
    if snapshot.operation == REPLACE:
        return True
    if snapshot.operation != APPEND or snapshot.added or snapshot.files is None or parent is None:
        return False
    return snapshot.files == parent.files  # nothing was appended, as streams do without new rows


def last_change(history: Sequence[Snapshot]) -> Snapshot:
    """Return the last snapshot that changed rows; the oldest one known to have the newest rows.

    :param history: the current snapshot and those before it, newest first, not empty.
    """
    for position, snapshot in enumerate(history):
        parent = history[position + 1] if position + 1 < len(history) else None
        if parent is None or not keeps_rows(snapshot, parent):
            return snapshot
    raise AssertionError("a table with a version has a snapshot")


def changes_between(
    history: Sequence[Snapshot], before: Snapshot | None, after: Snapshot
) -> tuple[Snapshot, ...] | None:
    """Return the snapshots that changed rows after one up to another, newest first.

    :param before: None for the empty table.
    :return: None if the snapshots between them are not known, or if the one is not based on the
        other.
    """
    found: list[Snapshot] = []
    ids = [snapshot.id for snapshot in history]
    start = ids.index(after.id) if after.id in ids else len(ids)
    for position in range(start, len(history)):
        snapshot = history[position]
        if before is not None and snapshot.id == before.id:
            return tuple(found)
        parent = history[position + 1] if position + 1 < len(history) else None
        if not keeps_rows(snapshot, parent):
            found.append(snapshot)
        if before is None and snapshot.parent is None:
            return tuple(found)
    return None
