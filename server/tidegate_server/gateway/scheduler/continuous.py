"""Watches source versions so that changes become refresh requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.freshness.downstream import refreshed_with
from tidegate_server.gateway.scheduler.base import Ledger

log = logging.getLogger(__name__)

SourceVersions = Callable[[tuple[Source, ...]], Mapping[str, int]]
"""Returns the newest version by table id, at once: a ServerError when no engine is up.

Of a source without versions it is the fingerprint of its files; it is missing if there is none."""

EXCLUDE_OPTION = "materialized-table.trigger.exclude"

_MAX_BACKOFF = timedelta(seconds=60)


class Tables(Protocol):
    """A catalog, as far as the scheduler needs it."""

    def by_id(self, table_id: str) -> MaterializedTable | None: ...

    def find(self, name: TableName) -> MaterializedTable | None: ...

    def tables(
        self, catalog: str | None = None, schema: str | None = None
    ) -> tuple[MaterializedTable, ...]: ...

    def move(
        self, table_id: str, start: RefreshStatus, end: RefreshStatus, reason: str | None = None
    ) -> bool: ...


Observed = Mapping[tuple[str, str], int]
"""The version of each source by the table that reads it and the source's table id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """What is remembered of one table between polls; all but the backoff stands in the store."""

    definition_version: int | None = None
    vector: Observed | None = None
    """What the last refresh read; None before the first one."""
    epoch: int = 0
    """That refresh's epoch."""
    seen: Observed | None = None
    """What was seen before the last successful refresh began."""
    begun: Observed | None = None
    """What was seen before the refresh at work began; versions seen since then come next."""
    failures: int = 0
    started_at: datetime | None = None
    not_before: datetime | None = None


class ContinuousWatcher:
    """Says which ACTIVATED tables are behind their sources: CONTINUOUS ones, and those ON UPDATE.

    An idle table is refreshed as soon as a source changes; changes that follow within a quarter of
    its freshness (at least a second), or within what AT MOST EVERY says, gather into the next
    refresh. What a table with FRESHNESS =
    DOWNSTREAM reads is watched for those that read it, with which it is refreshed.
    """

    def __init__(self, *, tables: Tables, ledger: Ledger, source_versions: SourceVersions) -> None:
        self._tables = tables
        self._ledger = ledger
        self._source_versions = source_versions
        self._lock = threading.Lock()
        self._watches: dict[str, _Watch] = {}
        self._listed: dict[str, tuple[datetime, int | None]] = {}
        """When the files of a source were looked at last, and their fingerprint."""
        self._asked: dict[str, Observed] = {}
        self._silence: str | None = None

    def due(self, now: datetime) -> tuple[RefreshRequest, ...]:
        """Return the refreshes to start now; each stays due until :meth:`started`."""
        tables = [table for table in self._tables.tables() if table.watched and table.kept_fresh]
        self._forget_others(tables)
        current = self._current(tables, now)
        if current is None:
            return ()
        requests = (self._request(table, self._pipeline(table), current, now) for table in tables)
        return tuple(request for request in requests if request is not None)

    def started(self, table_id: str, now: datetime) -> None:
        """Note that the refresh of a table was started."""
        with self._lock:
            watch = self._watches.get(table_id, _Watch())
            begun = self._asked.get(table_id)
            self._watches[table_id] = replace(watch, started_at=now, begun=begun)

    def finished(self, table_id: str, run: RefreshRun | None, now: datetime) -> None:
        """Note how a started refresh ended; None when it could not even be recorded."""
        with self._lock:
            watch = self._watches.get(table_id, _Watch())
            if run is not None and run.state is RunState.SUCCEEDED:
                watch = replace(
                    watch,
                    definition_version=run.definition_version,
                    vector=_read(run),
                    epoch=run.epoch or 0,
                    seen=watch.begun,
                    failures=0,
                    not_before=None,
                )
                for source in run.sources:
                    self._listed.pop(source, None)
            elif run is None or run.state is not RunState.SKIPPED:
                failures = watch.failures + 1
                watch = replace(watch, failures=failures, not_before=now + _backoff(failures))
            self._watches[table_id] = watch

    def newest(self, table: MaterializedTable) -> Mapping[str, int] | None:
        """Return the versions that a table's sources have now.

        None while that is not possible, for sources that only time tells to have changed, and for
        a table that is refreshed together with one it reads, which has yet to see what came.
        """
        if len(self._pipeline(table)) > 1:
            return None
        found = self._look({source.table_id: source for source in table.sources})
        plain = [s.table_id for s in table.sources if s.kind is not SourceKind.VERSIONED]
        return None if found is None or any(key not in found for key in plain) else found

    def _current(self, tables: list[MaterializedTable], now: datetime) -> Mapping[str, int] | None:
        """Return what the sources of tables are now; None while that is not possible.

        Files are listed as often as changes gather: that takes longer than to ask for a version.
        """
        every: dict[str, timedelta] = {}
        sources: dict[str, Source] = {}
        for table in tables:
            for entry in self._pipeline(table):
                silent = excluded(entry)
                for source in entry.sources:
                    key = source.table_id
                    if source.kind is SourceKind.VERSIONED:
                        sources[key] = source
                    elif source.kind is SourceKind.PLAIN and (entry.id, key) not in silent:
                        sources[key] = source
                        every[key] = min(table.gathering, every.get(key, table.gathering))
        listed = {key: seen for key, seen in self._listed.items() if key in every}
        rested = {key for key, (at, _) in listed.items() if now < at + every[key]}
        found = self._look({key: s for key, s in sources.items() if key not in rested})
        if found is None:
            return None
        self._listed = listed | {k: (now, found.get(k)) for k in every.keys() - rested}
        return {**found, **{k: seen for k in rested if (seen := listed[k][1]) is not None}}

    def _look(self, sources: Mapping[str, Source]) -> Mapping[str, int] | None:
        """Ask for all sources at once; None while that is not possible."""
        if not sources:
            return {}
        try:
            versions = self._source_versions(tuple(sources.values()))
        except ServerError as failure:
            if self._silence != failure.code:
                log.info("sources are not watched for now: %s", failure)
                self._silence = failure.code
            return None
        if self._silence is not None:
            log.info("sources are watched again")
            self._silence = None
        return versions

    def _pipeline(self, table: MaterializedTable) -> list[MaterializedTable]:
        """Return the tables that are refreshed together with one, sources first, and itself."""
        return [*refreshed_with(table, self._tables.find), table]

    def _request(
        self,
        table: MaterializedTable,
        pipeline: list[MaterializedTable],
        current: Mapping[str, int],
        now: datetime,
    ) -> RefreshRequest | None:
        watch = self._watch(table, pipeline)
        if watch.not_before is not None and now < watch.not_before:
            return None
        if watch.started_at is not None and now < watch.started_at + table.gathering:
            return None
        # A source that was dropped and created again has another id than in the definition: the one
        # that the last refresh read.
        read = watch.vector or {}
        observed = {
            (entry.id, key): current[key]
            for entry in pipeline
            for key in {s.table_id for s in entry.sources} | {k for i, k in read if i == entry.id}
            if key in current
        }
        if self._reason(table, pipeline, watch, observed, now) is None:
            return None
        # Another server, or a refresh by hand, may have been quicker than this memory.
        watch = self._reload(table, pipeline, watch)
        trigger = self._reason(table, pipeline, watch, observed, now)
        if trigger is None:
            return None
        with self._lock:
            self._asked[table.id] = observed
        return RefreshRequest(table_id=table.id, trigger=trigger, requested_by=table.owner)

    @staticmethod
    def _reason(
        table: MaterializedTable,
        pipeline: list[MaterializedTable],
        watch: _Watch,
        observed: Observed,
        now: datetime,
    ) -> Trigger | None:
        if watch.vector is None:
            return Trigger.INITIAL
        # After a change of the definition the last commit is no checkpoint any more.
        no_checkpoint = table.checkpoint_floor > 0 and watch.epoch <= table.checkpoint_floor
        if no_checkpoint or watch.definition_version != table.definition_version:
            return Trigger.EVOLUTION
        silent = {key for entry in pipeline for key in excluded(entry)}
        plain = {
            (entry.id, source.table_id)
            for entry in pipeline
            for source in entry.sources
            if source.kind is not SourceKind.VERSIONED
        }
        heard = _without(observed, silent)
        read = _without(watch.vector, silent)
        # Files may become again what they were when they were seen, others having been read since.
        seen = read if watch.seen is None else _without(watch.seen, silent | plain)
        files = {key: number for key, number in read.items() if key in plain}
        if heard not in (read, {**seen, **files}):
            return Trigger.UPSTREAM_CHANGE
        untold = plain - silent - observed.keys()
        rested = watch.started_at is None or now >= watch.started_at + table.freshness.duration
        return Trigger.UPSTREAM_CHANGE if untold and rested else None

    def _watch(self, table: MaterializedTable, pipeline: list[MaterializedTable]) -> _Watch:
        with self._lock:
            watch = self._watches.get(table.id)
        if watch is not None:
            return watch
        return self._reload(table, pipeline, _first_look(table, self._ledger))

    def _reload(
        self, table: MaterializedTable, pipeline: list[MaterializedTable], watch: _Watch
    ) -> _Watch:
        """Read from the history what the table, and those refreshed with it, read last."""
        last = self._ledger.last_success(table.id)
        vector: dict[tuple[str, str], int] = {}
        for entry in pipeline:
            run = last if entry is table else self._ledger.last_success(entry.id)
            vector.update(_read(run) if run is not None else {})
        with self._lock:
            if last is not None:
                watch = replace(
                    watch,
                    vector=vector,
                    epoch=last.epoch or 0,
                    definition_version=last.definition_version,
                )
            self._watches[table.id] = watch
        return watch

    def _forget_others(self, tables: Iterable[MaterializedTable]) -> None:
        """Drop the memory of tables that are gone or suspended; RESUME begins afresh."""
        ids = {table.id for table in tables}
        with self._lock:
            for table_id in self._watches.keys() - ids:
                del self._watches[table_id]
                self._asked.pop(table_id, None)


def _first_look(table: MaterializedTable, ledger: Ledger) -> _Watch:
    """Continue after a restart from what the history says."""
    failures = 0
    runs = ledger.runs(table.id, limit=10)
    for run in runs:
        if run.state is not RunState.FAILED:
            break
        failures += 1
    if not runs:
        return _Watch()
    ended = runs[0].finished_at or runs[0].queued_at
    return _Watch(
        failures=failures,
        # One that was skipped never began, and does not shorten the pause after the one before.
        started_at=next((run.started_at for run in runs if run.started_at is not None), None),
        not_before=ended + _backoff(failures) if failures else None,
    )


def _read(run: RefreshRun) -> Observed:
    return {(run.table_id, source): version for source, version in run.sources.items()}


def _without(observed: Observed, silent: set[tuple[str, str]]) -> Observed:
    return {key: version for key, version in observed.items() if key not in silent}


def excluded(table: MaterializedTable) -> set[tuple[str, str]]:
    """Return the sources whose changes do not start a refresh, each with the table's own id."""
    words = (table.options.get(EXCLUDE_OPTION) or "").lower().split(",")
    names = [tuple(word.strip().split(".")) for word in words if word.strip()]
    return {
        (table.id, source.table_id)
        for source in table.sources
        for name in names
        if tuple(str(source.name).lower().split("."))[-len(name) :] == name
    }


def _backoff(failures: int) -> timedelta:
    """Return how long a table rests after so many failures in a row: 1, 2, 4 … 60 seconds."""
    return min(_MAX_BACKOFF, timedelta(seconds=2 ** (min(failures, 10) - 1)))
