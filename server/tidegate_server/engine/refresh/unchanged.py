"""Detects refreshes with nothing to do without analyzing their query again."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.request import Recompute, RefreshOrder, RefreshPlan
from tidegate_server.core.refresh.waves import forward
from tidegate_server.engine.planning.planner import plan_refresh
from tidegate_server.engine.query.resolution import Tables, fingerprint_of
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.commit_record import RecordedRefresh
from tidegate_server.engine.storage.jvm import java

_MOST = 10_000
_QUALIFIED_CALL = re.compile(r"\.\s*(?:`(?:[^`]|``)+`|\w+)\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """An analyzed query with the newest versions of its dependencies."""

    definition: tuple[object, ...]
    newest: Mapping[TableName, tuple[str, int]]
    """Table id and version, by the source's name."""
    files: Mapping[TableName, tuple[str, int]]
    """Table id and fingerprint of sources without versions."""
    fingerprint: str


@dataclass(slots=True)
class AnalyzedQueries:
    """The queries of this process's last refreshes, by table id.

    Only queries over versioned tables or fingerprinted files, with built-in functions only, are
    remembered: others may change their meaning without any table changing.
    """

    _seen: dict[str, _Seen] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def remember(
        self, order: RefreshOrder, fingerprint: str | None, tables: Tables, spark: SparkSession
    ) -> None:
        """Remember the query of ``order``; its ``fingerprint`` is None if unstable."""
        with self._lock:
            self._seen.pop(order.table_id, None)
            if fingerprint is None or not _depends_on_versions_alone(order, tables, spark):
                return
            if len(self._seen) >= _MOST:
                self._seen.pop(next(iter(self._seen)))
            self._seen[order.table_id] = _Seen(
                definition=_definition(order),
                newest={
                    tables.written[n]: (s.table_id, s.newest) for n, s in tables.states.items()
                },
                files={
                    (source := tables.sources[name]).name: (source.table_id, found)
                    for name, found in tables.fingerprints.items()
                },
                fingerprint=fingerprint,
            )

    def nothing_to_do(
        self, order: RefreshOrder, task: Recompute, spark: SparkSession, format: TableFormat
    ) -> tuple[RefreshPlan, RecordedRefresh] | None:
        """Return the NO_DATA plan and the last refresh; None if that is not certain."""
        with self._lock:
            seen = self._seen.get(order.table_id)
        if seen is None or seen.definition != _definition(order):
            return None
        return _still(seen, order, task, spark, format)


def _still(
    seen: _Seen,
    order: RefreshOrder,
    task: Recompute,
    spark: SparkSession,
    format: TableFormat,
) -> tuple[RefreshPlan, RecordedRefresh] | None:
    last = format.last_commit(order.name, order.table_id)
    if last is None or last.refresh_id == order.refresh_id or last.epoch >= order.epoch:
        return None
    vector: dict[str, int] = {}
    snapshots: dict[str, str] = {}
    for name, newest in seen.newest.items():
        state = format.sources.find(name)
        if state is None or (state.table_id, state.newest) != newest:
            return None
        if state.commit not in (None, last.record.source_commits.get(state.table_id, state.commit)):
            return None
        vector[state.table_id] = state.version
        commit = state.commit
        snapshot = None if commit is None else format.sources.snapshot_id(name, commit)
        if snapshot is not None:
            snapshots[state.table_id] = snapshot
    for name, (table_id, known) in seen.files.items():
        if fingerprint_of(spark, name) != known:
            return None
        vector[table_id] = known
    wanted = forward(task.vector or {}, last.record.vector)
    if any(wanted.get(table_id, version) != version for table_id, version in vector.items()):
        return None
    plan = plan_refresh(
        order, task, vector, last, fingerprint=seen.fingerprint, snapshots=snapshots
    )
    return (plan, last) if plan.strategy is Strategy.NO_DATA else None


def _definition(order: RefreshOrder) -> tuple[object, ...]:
    settings = tuple(sorted(order.settings.items()))
    return order.definition_version, order.expanded_query, order.columns, order.sources, settings


def _depends_on_versions_alone(order: RefreshOrder, tables: Tables, spark: SparkSession) -> bool:
    stream = any(source.kind is SourceKind.STREAM for source in order.sources)
    views = any(source.via for source in (*tables.sources.values(), *order.sources))
    if (
        stream
        or tables.has_untracked_source()
        or views
        or tables.travelled
        or tables.temporary
        or tables.wanted
    ):
        return False
    if _QUALIFIED_CALL.search(order.expanded_query):
        return False
    return all(_is_built_in(spark, name) for name in tables.functions)


def _is_built_in(spark: SparkSession, name: str) -> bool:
    session: Any = spark._jsparkSession
    jvm: Any = java(spark)
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    return bool(session.sessionState().catalog().isBuiltinFunction(identifier))
