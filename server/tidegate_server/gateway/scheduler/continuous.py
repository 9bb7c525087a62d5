"""Turns changes of source versions into refresh requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.freshness.downstream import refreshed_with
from tidegate_server.gateway.scheduler.base import Ledger

logger = logging.getLogger(__name__)

SourceVersions = Callable[[tuple[Source, ...]], Mapping[str, int]]
"""Returns the newest version by table id; raises ServerError immediately if no engine is up.

A source without versions is represented by the fingerprint of its files, or omitted if there is
none."""

EXCLUDE_OPTION = "materialized-table.trigger.exclude"

_MAX_BACKOFF = timedelta(seconds=60)


class Tables(Protocol):
    """The part of a catalog that the scheduler needs."""

    def by_id(self, table_id: str) -> MaterializedTable | None: ...

    def find(self, name: TableName) -> MaterializedTable | None: ...

    def watched(self) -> tuple[MaterializedTable, ...]: ...

    def move(
        self, table_id: str, start: RefreshStatus, end: RefreshStatus, reason: str | None = None
    ) -> bool: ...


Observed = Mapping[tuple[str, str], int]
"""The version of each source by the table that reads it and the source's table id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """State of one table between polls; all of it except the backoff is also stored."""

    definition_version: int | None = None
    vector: Observed | None = None
    """The versions that the last refresh read; None before the first one."""
    epoch: int = 0
    """That refresh's epoch."""
    seen: Observed | None = None
    """The versions observed before the last successful refresh began."""
    begun: Observed | None = None
    """The versions observed before the running refresh began; later ones need another refresh."""
    failures: int = 0
    started_at: datetime | None = None
    not_before: datetime | None = None


class ContinuousWatcher:
    """Finds ACTIVATED tables, CONTINUOUS or ON UPDATE, whose sources have changed.

    An idle table is refreshed as soon as a source changes. Further changes within a quarter of its
    freshness (at least a second), or within AT MOST EVERY, are collected for the next refresh. The
    sources of a table with FRESHNESS = DOWNSTREAM are watched on behalf of the tables that read it,
    since it is refreshed with them.
    """

    def __init__(self, *, tables: Tables, ledger: Ledger, source_versions: SourceVersions) -> None:
        self._tables = tables
        self._ledger = ledger
        self._source_versions = source_versions
        self._lock = threading.Lock()
        self._watches: dict[str, _Watch] = {}
        self._listed: dict[str, tuple[datetime, int | None]] = {}
        """When the files of a source were last listed, and their fingerprint; the same of tables in
    other catalogs, with their versions."""
        self._observed: dict[str, Observed] = {}
        self._last_failure: str | None = None

    def due(self, now: datetime) -> tuple[RefreshRequest, ...]:
        """Return the refreshes to start now; each stays due until :meth:`record_start`."""
        tables = [each for each in self._tables.watched() if each.state.kept_fresh]
        self._forget_others(tables)
        current = self._current_versions(tables, now)
        if current is None:
            return ()
        requests = (self._request(table, self._pipeline(table), current, now) for table in tables)
        return tuple(request for request in requests if request is not None)

    def record_start(self, table_id: str, now: datetime) -> None:
        """Record that the refresh of a table has started."""
        with self._lock:
            watch = self._watches.get(table_id, _Watch())
            begun = self._observed.get(table_id)
            self._watches[table_id] = replace(watch, started_at=now, begun=begun)

    def record_end(self, table_id: str, run: RefreshRun | None, now: datetime) -> None:
        """Record how a refresh ended; ``run`` is None if not even its record could be stored."""
        with self._lock:
            watch = self._watches.get(table_id, _Watch())
            if run is not None and run.state is RunState.SUCCEEDED:
                watch = replace(
                    watch,
                    definition_version=run.definition_version,
                    vector=_versions_read(run),
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

    def newest_versions(self, table: MaterializedTable) -> Mapping[str, int] | None:
        """Return the current versions of a table's sources, or None if they are not known.

        They are not known while no engine is up, for sources whose changes cannot be detected, and
        for a table that is refreshed together with one it reads: that one is yet to be refreshed.
        """
        if len(self._pipeline(table)) > 1:
            return None
        sources = table.definition.sources
        found = self._ask_versions({source.table_id: source for source in sources})
        plain = [s.table_id for s in sources if s.kind is not SourceKind.VERSIONED]
        return None if found is None or any(key not in found for key in plain) else found

    def _current_versions(
        self, tables: list[MaterializedTable], now: datetime
    ) -> Mapping[str, int] | None:
        """Return the current versions of the sources of all tables; None while no engine is up.

        Files are listed, and other catalogs asked, only once per collection period: that takes
        longer than reading a version of Delta.
        """
        every: dict[str, timedelta] = {}
        sources: dict[str, Source] = {}
        for table in tables:
            gathering = table.definition.gathering
            for entry in self._pipeline(table):
                excluded = excluded_sources(entry)
                for source in entry.definition.sources:
                    key = source.table_id
                    own = source.name.catalog.lower() in ("", DEFAULT_CATALOG)
                    if source.kind is SourceKind.VERSIONED and own:
                        sources[key] = source
                    elif source.kind is not SourceKind.STREAM and (entry.id, key) not in excluded:
                        sources[key] = source
                        every[key] = min(gathering, every.get(key, gathering))
        listed = {key: seen for key, seen in self._listed.items() if key in every}
        recent = {key for key, (at, _) in listed.items() if now < at + every[key]}
        found = self._ask_versions({key: s for key, s in sources.items() if key not in recent})
        if found is None:
            return None
        self._listed = listed | {k: (now, found.get(k)) for k in every.keys() - recent}
        return {**found, **{k: seen for k in recent if (seen := listed[k][1]) is not None}}

    def _ask_versions(self, sources: Mapping[str, Source]) -> Mapping[str, int] | None:
        """Ask for all sources in one request; None while no engine is up."""
        if not sources:
            return {}
        try:
            versions = self._source_versions(tuple(sources.values()))
        except ServerError as error:
            if self._last_failure != error.code:
                logger.info("sources are not watched for now: %s", error)
                self._last_failure = error.code
            return None
        if self._last_failure is not None:
            logger.info("sources are watched again")
            self._last_failure = None
        return versions

    def _pipeline(self, table: MaterializedTable) -> list[MaterializedTable]:
        """Return the tables that are refreshed together with a table, sources first, and itself."""
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
        if watch.started_at is not None and now < watch.started_at + table.definition.gathering:
            return None
        # A source that was dropped and created again no longer has the id in the definition, but
        # the one that the last refresh read.
        read = watch.vector or {}
        observed = {
            (entry.id, key): current[key]
            for entry in pipeline
            for key in {s.table_id for s in entry.definition.sources}
            | {k for i, k in read if i == entry.id}
            if key in current
        }
        if self._trigger(table, pipeline, watch, observed, now) is None:
            return None
        # Another server or a manual refresh may have been faster: check against the history.
        watch = self._reload(table, pipeline, watch)
        trigger = self._trigger(table, pipeline, watch, observed, now)
        if trigger is None:
            return None
        with self._lock:
            self._observed[table.id] = observed
        return RefreshRequest(table_id=table.id, trigger=trigger, requested_by=table.owner)

    @staticmethod
    def _trigger(
        table: MaterializedTable,
        pipeline: list[MaterializedTable],
        watch: _Watch,
        observed: Observed,
        now: datetime,
    ) -> Trigger | None:
        if watch.vector is None:
            return Trigger.INITIAL
        # After a change of the definition the last commit is no longer a checkpoint.
        floor = table.state.checkpoint_floor
        no_checkpoint = floor > 0 and watch.epoch <= floor
        if no_checkpoint or watch.definition_version != table.definition.version:
            return Trigger.EVOLUTION
        excluded = {key for entry in pipeline for key in excluded_sources(entry)}
        plain = {
            (entry.id, source.table_id)
            for entry in pipeline
            for source in entry.definition.sources
            if source.kind is not SourceKind.VERSIONED
        }
        current = _without_sources(observed, excluded)
        read = _without_sources(watch.vector, excluded)
        # Files may return to the state they had when observed, after a refresh read another one.
        seen = read if watch.seen is None else _without_sources(watch.seen, excluded | plain)
        files = {key: number for key, number in read.items() if key in plain}
        if current not in (read, {**seen, **files}):
            return Trigger.UPSTREAM_CHANGE
        undetectable = plain - excluded - observed.keys()
        pause = table.definition.freshness.duration
        pause_over = watch.started_at is None or now >= watch.started_at + pause
        return Trigger.UPSTREAM_CHANGE if undetectable and pause_over else None

    def _watch(self, table: MaterializedTable, pipeline: list[MaterializedTable]) -> _Watch:
        with self._lock:
            watch = self._watches.get(table.id)
        if watch is not None:
            return watch
        return self._reload(table, pipeline, _initial_watch(table, self._ledger))

    def _reload(
        self, table: MaterializedTable, pipeline: list[MaterializedTable], watch: _Watch
    ) -> _Watch:
        """Read from the history which versions the pipeline's last refreshes read."""
        last = self._ledger.last_success(table.id)
        vector: dict[tuple[str, str], int] = {}
        for entry in pipeline:
            run = last if entry is table else self._ledger.last_success(entry.id)
            vector.update(_versions_read(run) if run is not None else {})
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
        """Drop the state of tables that are gone or suspended; RESUME starts from the history."""
        ids = {table.id for table in tables}
        with self._lock:
            for table_id in self._watches.keys() - ids:
                del self._watches[table_id]
                self._observed.pop(table_id, None)


def _initial_watch(table: MaterializedTable, ledger: Ledger) -> _Watch:
    """Restore a table's state from the history after a restart."""
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
        # A skipped run never began, so it must not change the pause after the run before it.
        started_at=next((run.started_at for run in runs if run.started_at is not None), None),
        not_before=ended + _backoff(failures) if failures else None,
    )


def _versions_read(run: RefreshRun) -> Observed:
    return {(run.table_id, source): version for source, version in run.sources.items()}


def _without_sources(observed: Observed, excluded: set[tuple[str, str]]) -> Observed:
    return {key: version for key, version in observed.items() if key not in excluded}


def excluded_sources(table: MaterializedTable) -> set[tuple[str, str]]:
    """Return the sources whose changes do not start a refresh, each with the table's id."""
    words = (table.definition.options.get(EXCLUDE_OPTION) or "").lower().split(",")
    names = [tuple(word.strip().split(".")) for word in words if word.strip()]
    return {
        (table.id, source.table_id)
        for source in table.definition.sources
        for name in names
        if tuple(str(source.name).lower().split("."))[-len(name) :] == name
    }


def _backoff(failures: int) -> timedelta:
    """Return the pause after so many failures in a row: 1, 2, 4 … 60 seconds."""
    return min(_MAX_BACKOFF, timedelta(seconds=2 ** (min(failures, 10) - 1)))
