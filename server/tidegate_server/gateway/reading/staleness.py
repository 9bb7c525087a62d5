"""The greatest age of rows that a session may read: materialized-table.read.max-staleness."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import InlinedTable
from tidegate_server.core.model.clauses import Violation
from tidegate_server.core.model.names import DEFAULT_CATALOG, quote_identifier
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.versions import Source, SourceKind, is_streaming
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.core.refresh.waves import ancestors
from tidegate_server.gateway.authorization.requirements import require_for
from tidegate_server.gateway.authorization.rights import Action
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.freshness.staleness import Bound, Known, OnStale, as_of, is_whole
from tidegate_server.gateway.options import MAX_STALENESS_KEY, read_bound, spark_settings
from tidegate_server.gateway.reading.materialized import materialized
from tidegate_server.gateway.runs.failures import raise_failures
from tidegate_server.gateway.runs.orders import step_id
from tidegate_server.gateway.runs.waves import Step
from tidegate_server.gateway.scheduler.continuous import excluded_sources
from tidegate_server.gateway.spark_session import run

logger = logging.getLogger(__name__)

_CHOOSING = (Violation.DROP_ROW, Violation.QUARANTINE, Violation.FAIL)
_GATING = (Violation.HOLD, Violation.FAIL)
_RUNS = 200
_COMMITS = 1000

_Ages = dict[str, float | None]
"""Ages in seconds of the tables that are too old, by table id; None if the age is unknown."""


def enforce_max_staleness(
    surveyed: Callable[[], Surveyed], context: Context
) -> tuple[InlinedTable, ...]:
    """Ensure that a statement for Spark reads no rows older than its session allows.

    :param surveyed: has the engine analyze what the statement reads.
    :return: the tables whose queries it has to read instead of their rows.
    :raises ServerError: MT_TOO_STALE, the error of a failed refresh, ACCESS_DENIED to refresh, or
        NOT_SUPPORTED if it cannot be determined what the statement reads.
    """
    value = context.setting(MAX_STALENESS_KEY)
    if value is None:
        return ()
    bound = read_bound(MAX_STALENESS_KEY, value)
    tables = _read_by(surveyed(), bound, context)
    if not tables:
        return ()
    old = _too_old(tables, bound, context)
    if old and bound.on_stale is OnStale.REFRESH:
        _refresh([table for table in tables if table.id in old], bound, context)
        old = _too_old(tables, bound, context)
    if bound.on_stale is OnStale.INLINE:
        return _inline([table for table in tables if table.id in old], old, bound, context)
    _report_stale(tables, old, bound, context)
    return ()


def enforce_max_staleness_at(
    tables: Iterable[MaterializedTable], versions: Mapping[str, int], context: Context
) -> None:
    """Ensure that the versions chosen for tables, by table id, are no older than allowed.

    :raises ServerError: MT_TOO_STALE.
    """
    value = context.setting(MAX_STALENESS_KEY)
    if value is None:
        return
    bound, tables = read_bound(MAX_STALENESS_KEY, value), list(tables)
    _report_stale(tables, _too_old(tables, bound, context, versions), bound, context)


def _report_stale(
    tables: Iterable[MaterializedTable], old: _Ages, bound: Bound, context: Context
) -> None:
    """Warn of stale tables if the session serves them.

    :raises ServerError: MT_TOO_STALE otherwise.
    """
    for table in tables:
        if table.id not in old:
            continue
        reason = _reason(old[table.id], bound)
        if bound.on_stale is not OnStale.SERVE:
            raise error(Code.MT_TOO_STALE, table=table.name, reason=reason, key=MAX_STALENESS_KEY)
        context.warn(f"{table.name} is stale: {reason}.")


def _read_by(surveyed: Surveyed, bound: Bound, context: Context) -> list[MaterializedTable]:
    if surveyed.opaque and bound.on_stale is not OnStale.SERVE:
        what = f"A statement that cannot be judged before it runs, with {MAX_STALENESS_KEY},"
        hint = f"Run the statements in it one by one, or RESET {MAX_STALENESS_KEY}."
        raise error(Code.NOT_SUPPORTED, what=what, hint=hint)
    return list(materialized(surveyed.readings, context.services.catalog))


# ---- how old ---------------------------------------------------------------------------------


def _too_old(
    tables: Iterable[MaterializedTable],
    bound: Bound,
    context: Context,
    versions: Mapping[str, int] = MappingProxyType({}),
) -> _Ages:
    """Return the tables that are too old, at their newest version unless another one is given."""
    known = _gather_known(tables, context)
    # Most are fresh enough even if their sources changed right after they were read.
    at_most = replace(known, changed=lambda source, seen: None)
    limit = bound.limit.seconds
    suspects = [table for table in tables if not _within(limit, _age(table, at_most, versions))]
    ages = {table.id: _age(table, known, versions) for table in suspects}
    return {table_id: age for table_id, age in ages.items() if not _within(limit, age)}


def _old_above(
    tables: Iterable[MaterializedTable], bound: Bound, context: Context
) -> tuple[dict[str, MaterializedTable], _Ages]:
    """Return the upstream materialized tables by id, and which of them are too old."""
    above = {t.id: t for table in tables for t in _above(table, context)}
    return above, _too_old(above.values(), bound, context)


def _age(table: MaterializedTable, known: Known, versions: Mapping[str, int]) -> float | None:
    moment = as_of(table, known, versions.get(table.id))
    return None if moment is None else (known.now - moment).total_seconds()


def _within(limit: int, age: float | None) -> bool:
    return age is not None and age <= limit


def _gather_known(tables: Iterable[MaterializedTable], context: Context) -> Known:
    services = context.services
    everything = services.catalog.tables()
    along = {t.id: t for table in tables for t in (table, *_above(table, context))}
    sources = {
        source.table_id: source
        for table in along.values()
        for source in table.definition.sources
        if source.kind is SourceKind.VERSIONED
    }
    # The clock is read first: changes after this moment do not make anything older at it.
    now = services.clock.now()
    return Known(
        now=now,
        versions=services.waves.versions(tuple(sources.values())),
        tables={name.folded(): t for t in everything for name in (t.name, t.storage)},
        runs=lambda table_id: _whole_runs(table_id, context),
        changed=lambda source, seen: _time_of_change(source, seen, context),
        silent=lambda table: {source_id for _, source_id in excluded_sources(table)},
    )


def _above(table: MaterializedTable, context: Context) -> list[MaterializedTable]:
    return ancestors(table, context.services.catalog.find)


def _whole_runs(table_id: str, context: Context) -> tuple[RefreshRun, ...]:
    ledger = context.services.ledger
    runs = tuple(entry for entry in ledger.runs(table_id, _RUNS) if is_whole(entry))
    last = ledger.last_success(table_id)
    return runs if runs or last is None else (last,)


def _time_of_change(source: Source, seen: int, context: Context) -> datetime | None:
    """Return when the first version after ``seen`` was committed, from the source's history.

    Only Delta tables have one of their versions.
    """
    if source.name.catalog.lower() != DEFAULT_CATALOG:
        return None
    try:
        result = run(f"DESCRIBE HISTORY {source.name.quoted()} LIMIT {_COMMITS}", context)
    except ServerError as problem:
        if problem.code == Code.OPERATION_CANCELED.name:
            raise
        logger.info("the history of %s cannot be read: %s", source.name, problem)
        return None
    with closing(result):
        rows = [tuple(row.values()) for batch in result.batches(0) for row in batch.to_pylist()]
    names = result.schema.names()
    if not {"version", "timestamp"} <= set(names):
        return None
    version, timestamp = names.index("version"), names.index("timestamp")
    moments: dict[int, datetime] = {row[version]: row[timestamp] for row in rows}
    if seen + 1 not in moments:
        return None
    unseen = [moment for number, moment in moments.items() if number > seen]
    return min(m if m.tzinfo is not None else m.replace(tzinfo=UTC) for m in unseen)


def _reason(age: float | None, bound: Bound) -> str:
    if age is None:
        return "its age is unknown without a refresh of the whole table"
    limit = f"{bound.limit.value} {bound.limit.unit.name}"
    return f"it lacks changes of its sources made up to {age:.0f} s ago, and {limit} is allowed"


# ---- INLINE ----------------------------------------------------------------------------------


def _inline(
    tables: Iterable[MaterializedTable], old: _Ages, bound: Bound, context: Context
) -> tuple[InlinedTable, ...]:
    """Return tables, and the stale ones upstream of them, as queries.

    :raises ServerError: MT_TOO_STALE for one whose rows depend on more than its query.
    """
    mentioned = {table.id: table for table in tables}
    above, old_above = _old_above(mentioned.values(), bound, context)
    old = old_above | old
    found = []
    for table in (mentioned | above).values():
        if table.id not in old:
            continue
        dependency = _other_dependency(table.definition)
        if dependency is not None:
            reason = f"{_reason(old[table.id], bound)}, and its rows also depend on {dependency}"
            raise error(Code.MT_TOO_STALE, table=table.name, reason=reason, key=MAX_STALENESS_KEY)
        found.append(_as_query(table, mentioned=table.id in mentioned))
    if found:
        context.log(f"Reading the queries of {', '.join(str(each.name) for each in found)}")
    return tuple(found)


def _other_dependency(definition: Definition) -> str | None:
    """Return what else a table's rows depend on besides its query, if anything."""
    if is_streaming(definition.sources):
        return "a stream"
    if definition.derived:
        return "columns that are evaluated on read"
    if definition.immutable is not None:
        return "immutable rows"
    if any(each.violation in _CHOOSING for each in definition.expectations):
        return "expectations that choose among its rows"
    if any(each.violation in _GATING for each in definition.assertions):
        return "assertions about what is served"
    return None


def _as_query(table: MaterializedTable, *, mentioned: bool) -> InlinedTable:
    definition = table.definition
    names = [quote_identifier(column.name) for column in definition.schema.columns]
    cast = ", ".join(
        f"CAST({name} AS {column.type}) AS {name}"
        for name, column in zip(names, definition.schema.columns, strict=True)
    )
    # The line break keeps a comment at the query's end from swallowing the bracket.
    query = f"SELECT {cast} FROM ({definition.expanded_query}\n) AS q({', '.join(names)})"
    return InlinedTable(
        name=table.name.folded(),
        query=query,
        columns=definition.schema.names(),
        settings=spark_settings(definition.settings),
        mentioned=mentioned,
    )


# ---- REFRESH ---------------------------------------------------------------------------------


def _refresh(tables: Iterable[MaterializedTable], bound: Bound, context: Context) -> None:
    """Refresh tables, and the stale ones upstream of them, sources first."""
    services = context.services
    _, old = _old_above(tables, bound, context)
    wave: dict[str, MaterializedTable] = {}
    for table in tables:
        wave |= {t.id: t for t in _above(table, context) if t.id in old}
        wave[table.id] = table
    for table in wave.values():
        require_for(Action.REFRESH, table, context)
    steps = [
        _step(table, number, context)
        for number, table in enumerate(wave.values(), start=1)
        if table.state.status is not RefreshStatus.INITIALIZING
    ]
    if not steps:
        return
    context.log(f"Refreshing {', '.join(str(step.table.name) for step in steps)} before reading")
    services.waves.enqueue(steps)
    raise_failures(services.waves.run(steps))


def _step(table: MaterializedTable, number: int, context: Context) -> Step:
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.MANUAL,
        requested_by=context.session.user,
        refresh_id=step_id(context.operation_id, f"r{number}"),
    )
    return Step(table=table, request=request)
