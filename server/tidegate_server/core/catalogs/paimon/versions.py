"""The states of a Paimon table: its snapshots, which have ascending numbers."""

from __future__ import annotations

from typing import Any, Final

from tidegate_server.core.catalogs.base import CatalogError
from tidegate_server.core.catalogs.rows import EMPTY, TableVersion

_KEEP_ROWS: Final = frozenset({"COMPACT", "ANALYZE"})
"""Kinds of commits that change no row."""
_BACK: Final = 1000
"""How many snapshots are looked back at most."""
_PAST: Final = {"scan.native-plan.enabled": "false", "read.native.enabled": "false"}
_SELECTORS: Final = (
    *("scan.version", "scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.timestamp"),
    *("scan.timestamp-millis", "scan.mode", "scan.file-creation-time-millis"),
    *("scan.creation-time-millis", "incremental-between-timestamp", "scan.fallback-branch"),
)


def version_of(table: Any, version: str | None, millis: int | None) -> TableVersion:
    """Return a state of a table; raises CatalogError if there is none."""
    snapshot = change = _snapshot(table, version, millis)
    if version is None and millis is None:
        change = _last_change(table, snapshot)
    return TableVersion(
        table_id=_identity(table),
        version=EMPTY if change is None else int(change.id),
        newest=EMPTY if snapshot is None else int(snapshot.id),
        commit=f"{'' if change is None else _commit(change)}@{table.table_schema.id}",
    )


def at_version(table: Any, version: int) -> Any:
    """Return a table that reads one of its snapshots, with the columns that it has today."""
    options = {
        **{key: None for key in _SELECTORS if key in table.table_schema.options},
        **_PAST,
        "scan.snapshot-id": str(version),
    }
    return table.copy_without_time_travel(options)


def require_snapshot(table: Any, version: int) -> Any:
    """Return a snapshot; raises CatalogError if it has expired."""
    found = table.snapshot_manager().get_snapshot_by_id(version)
    if found is None:
        raise CatalogError(f"there is no snapshot {version} of {table.identifier} any more")
    return found


def _snapshot(table: Any, version: str | None, millis: int | None) -> Any:
    if version is not None:
        if version.isdecimal():
            if int(version) == EMPTY:
                return None
            return require_snapshot(table, int(version))
        tag = table.tag_manager().get(version)
        if tag is None:
            raise CatalogError(f"there is no snapshot and no tag {version} of {table.identifier}")
        return require_snapshot(table, int(tag.id))
    manager = table.snapshot_manager()
    if millis is None:
        return manager.get_latest_snapshot()
    found = manager.earlier_or_equal_time_mills(millis)
    if found is None:
        raise CatalogError(f"there is no snapshot of {table.identifier} as old as that")
    return found


def _last_change(table: Any, snapshot: Any) -> Any:
    """Return the last snapshot that may have changed rows, up to one; the oldest that is known."""
    if snapshot is None or not _compacts_equally(table):
        return snapshot
    manager, found = table.snapshot_manager(), snapshot
    for _ in range(_BACK):
        if found.commit_kind not in _KEEP_ROWS:
            break
        before = manager.get_snapshot_by_id(found.id - 1)
        if before is None:
            break
        found = before
    return found


def _compacts_equally(table: Any) -> bool:
    """Say whether compactions never change what is read.

    With deletion vectors, and for other merge engines, reads leave out files that are not compacted
    yet.
    """
    if not table.is_primary_key_table:
        return True
    options = table.table_schema.options
    last_row_counts = options.get("merge-engine", "deduplicate").lower() == "deduplicate"
    return bool(last_row_counts and options.get("deletion-vectors.enabled") != "true")


def _identity(table: Any) -> str:
    """Return what another table of the same name does not have: when it was created."""
    first = table.schema_manager.get_schema(0)
    return f"{'' if first is None else first.time_millis}"


def _commit(snapshot: Any) -> str:
    unique = getattr(snapshot, "uuid", None)
    written = f"{snapshot.commit_user}-{snapshot.commit_identifier}-{snapshot.time_millis}"
    return f"{snapshot.id}-{unique or written}"
