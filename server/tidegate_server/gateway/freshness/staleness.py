"""How old a materialized table's content is when it is read; pure.

The content is as of a moment when it shows every change made to its sources before. Sources that
are materialized tables themselves are looked through: what they do not show yet, nobody shows who
reads them.
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
    """What becomes of a statement that would read rows which are too old."""

    SERVE = "SERVE"
    """It reads them, and its log says so."""
    FAIL = "FAIL"
    REFRESH = "REFRESH"
    """The tables are refreshed first."""
    INLINE = "INLINE"
    """The tables' queries are read in the place of their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The greatest age a session allows, and what happens beyond it."""

    limit: Freshness
    on_stale: OnStale = OnStale.FAIL


def parse_bound(text: str) -> Bound | None:
    """Read a duration with an action behind it, as in ``10 min REFRESH``; None for others."""
    words = text.split()
    last = words[-1].upper() if words else ""
    on_stale = OnStale(last) if last in OnStale.__members__ else OnStale.FAIL
    limit = parse_duration(" ".join(words[:-1] if last in OnStale.__members__ else words))
    return None if limit is None else Bound(limit=limit, on_stale=on_stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of tables and their sources at one moment."""

    now: datetime
    versions: Mapping[str, int]
    """The newest version of each source by table id, where it has versions."""
    tables: Mapping[TableName, MaterializedTable]
    """Materialized tables by the folded names under which they are read."""
    runs: Callable[[str], Collection[RefreshRun]]
    """The runs of a table that concern its whole content, newest first."""
    changed: Callable[[Source, int], datetime | None]
    """When a source changed first after a version; None if that cannot be told."""
    silent: Callable[[MaterializedTable], Collection[str]]
    """The table ids of the sources whose changes do not count."""


def as_of(table: MaterializedTable, known: Known, version: int | None = None) -> datetime | None:
    """Return the moment up to which a table shows the changes of its sources.

    :param version: the version that is meant instead of the newest.
    :return: None if no refresh of the whole table tells.
    """
    run = _run_of(known.runs(table.id), version)
    if run is None:
        return None
    silent = known.silent(table)
    moments = [
        _shown_since(source, run, known)
        for source in table.sources
        if source.table_id not in silent
    ]
    found = [moment for moment in moments if moment is not None]
    return min([known.now, *found]) if len(found) == len(moments) else None


def is_whole(run: RefreshRun) -> bool:
    """Say whether a run tells how old all of a table's content is."""
    return run.state is RunState.SUCCEEDED and run.action not in (None, Strategy.PARTITION)


def _run_of(runs: Collection[RefreshRun], version: int | None) -> RefreshRun | None:
    """Return the newest run that left this version, or an earlier one, behind."""
    for run in runs:
        if version is None or (run.to_version is not None and run.to_version <= version):
            return run
    return None


def _shown_since(source: Source, run: RefreshRun, known: Known) -> datetime | None:
    """Return up to which moment a run shows one source."""
    read_at = run.data_timestamp or run.started_at or run.queued_at
    seen, newest = run.sources.get(source.table_id), known.versions.get(source.table_id)
    if source.kind is not SourceKind.VERSIONED or seen is None or newest is None:
        return read_at
    above = known.tables.get(source.name.folded())
    if above is not None:
        return as_of(above, known, None if seen >= newest else seen)
    if seen >= newest:
        return known.now
    return max(read_at, known.changed(source, seen) or read_at)
