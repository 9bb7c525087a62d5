"""Age of a materialized table's content when it is read; pure.

Content is as of the moment before which it includes every change of its sources. Materialized
sources are resolved recursively: changes missing there are missing in all their consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from tidegate_server.core.model.freshness import Freshness, parse_duration
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import Source, SourceKind


class OnStale(Enum):
    """Action for a statement that would read stale rows."""

    SERVE = "SERVE"
    """It reads them, with a note in its log."""
    FAIL = "FAIL"
    REFRESH = "REFRESH"
    """The tables are refreshed first."""
    INLINE = "INLINE"
    """The tables' queries are read instead of their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The maximum age that a session allows, and the action beyond it."""

    limit: Freshness
    on_stale: OnStale = OnStale.FAIL


def parse_bound(text: str) -> Bound | None:
    """Parse a duration and optional action, as in ``10 min REFRESH``; None if invalid."""
    words = text.split()
    last = words[-1].upper() if words else ""
    on_stale = OnStale(last) if last in OnStale.__members__ else OnStale.FAIL
    limit = parse_duration(" ".join(words[:-1] if last in OnStale.__members__ else words))
    return None if limit is None else Bound(limit=limit, on_stale=on_stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Information about tables and their sources at one moment."""

    now: datetime
    versions: Mapping[str, int]
    """The newest version of each versioned source by table id."""
    tables: Mapping[TableName, MaterializedTable]
    """Materialized tables by the folded names used to read them."""
    runs: Callable[[str], Collection[RefreshRun]]
    """Refresh runs of a whole table, newest first."""
    changed: Callable[[Source, int], datetime | None]
    """Time of the first source change after a version; None if unknown."""
    silent: Callable[[MaterializedTable], Collection[str]]
    """Table ids of sources whose changes are ignored."""


def as_of(table: MaterializedTable, known: Known, version: int | None = None) -> datetime | None:
    """Return the time up to which a table includes the changes of its sources.

    :param version: the table version; defaults to the newest.
    :return: None if no refresh of the whole table is known.
    """
    run = _run_of(known.runs(table.id), version)
    if run is None:
        return None
    silent = known.silent(table)
    moments = [
        _shown_since(source, run, known)
        for source in table.definition.sources
        if source.table_id not in silent
    ]
    found = [moment for moment in moments if moment is not None]
    return min([known.now, *found]) if len(found) == len(moments) else None


def is_whole(run: RefreshRun) -> bool:
    """Say whether a run determines the age of the whole table."""
    return run.state is RunState.SUCCEEDED and run.action not in (None, Strategy.PARTITION)


def _run_of(runs: Collection[RefreshRun], version: int | None) -> RefreshRun | None:
    """Return the newest run that produced this version or an earlier one."""
    for run in runs:
        if version is None or (run.to_version is not None and run.to_version <= version):
            return run
    return None


def _shown_since(source: Source, run: RefreshRun, known: Known) -> datetime | None:
    """Return the time up to which a run includes changes of a source."""
    read_at = run.data_timestamp or run.started_at or run.queued_at
    seen, newest = run.sources.get(source.table_id), known.versions.get(source.table_id)
    if source.kind is not SourceKind.VERSIONED or seen is None or newest is None:
        return read_at
    above = known.tables.get(source.name.folded())
    if above is not None:
        return as_of(above, known, None if seen >= newest else seen)
    if seen == newest:
        return known.now
    # Either newer, or the table has gone back to an earlier version.
    return max(read_at, known.changed(source, seen) or read_at)
