"""SHOW of materialized tables: definitions, lineage, lag, refresh history, versions, engines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import pyarrow as pa

from tidegate_server.core.config_sections import mode_of
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import Ping
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Column, Schema, text_schema
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.sql.patterns import like_pattern
from tidegate_server.core.sql.render import render_create
from tidegate_server.core.sql.statements import (
    ShowCreateMaterializedTable,
    ShowLineage,
    ShowMaterializedTables,
    ShowRefreshHistory,
    ShowVersions,
)
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import history, resolve
from tidegate_server.gateway.definition.statement import creating
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.memory import MemoryState
from tidegate_server.gateway.link.targets import Target, read_target
from tidegate_server.gateway.runs import lag
from tidegate_server.gateway.runs.columns import HISTORY, VERSIONS, RunColumn, text_column
from tidegate_server.gateway.runs.lag import LAG

_NAMES = text_schema("name")
_EXTENDED = text_schema(
    "name",
    "schema",
    "refresh_mode",
    "refresh_status",
    "freshness",
    "last_refresh",
    "actual_lag",
    "held_version",
)


# ---- SHOW MATERIALIZED TABLES ----------------------------------------------------------------


def show_tables(statement: ShowMaterializedTables, context: Context) -> Result:
    """List the materialized tables of a schema by name.

    :raises ServerError: SCHEMA_NOT_FOUND if the engine is up and knows no schema of that name,
        NOT_SUPPORTED for a catalog that is not the metastore's.
    """
    catalog, schema = resolve.schema_name(statement.schema, context)
    resolve.check_catalog(catalog, context)
    fits = _filter(statement)
    listed = context.services.catalog.tables(catalog, schema)
    if statement.schema and not listed:
        resolve.check_schema(catalog, schema, context)
    found = [table for table in listed if fits(table.name.table)]
    found.sort(key=lambda table: table.name.table)
    if not statement.extended:
        return RowsResult(_NAMES, [(table.name.table,) for table in found])
    return RowsResult(_EXTENDED, [_extended_row(table, context) for table in found])


def _extended_row(table: MaterializedTable, context: Context) -> tuple[str | None, ...]:
    services = context.services
    last = services.ledger.runs(table.id, limit=1)
    return (
        table.name.table,
        table.name.schema,
        table.definition.refresh_mode.value,
        table.state.status.value,
        lag.freshness(table.definition),
        f"{last[0].state.value} at {lag.moment(last[0].queued_at)}" if last else None,
        lag.lag(lag.present_at(table, services.ledger, services.clock.now())),
        lag.held_since(table),
    )


def _filter(statement: ShowMaterializedTables) -> Callable[[str], bool]:
    if statement.pattern is None:
        return lambda name: True
    pattern = like_pattern(statement.pattern, ignore_case=statement.ignore_case)
    return lambda name: (pattern.fullmatch(name) is not None) is not statement.negated


# ---- SHOW CREATE -----------------------------------------------------------------------------


def show_create(statement: ShowCreateMaterializedTable, context: Context) -> Result:
    """Return a statement that creates an equal table."""
    table = resolve.materialized_table(statement.name, context)
    creation = creating(table, or_alter=statement.or_alter)
    text = render_create(creation, start_note=_evaluate(table))
    return RowsResult(text_schema("createtab_stmt"), [(text,)])


def _evaluate(table: MaterializedTable) -> str | None:
    """Return a note on the time a relative start mode evaluated to."""
    mode = table.definition.start_mode
    if mode is None or mode.interval is None:
        return None
    start = table.created_at - mode.interval.duration
    return f"Evaluated to FROM_TIMESTAMP(TIMESTAMP '{start:%Y-%m-%d %H:%M:%S}') at execution"


# ---- SHOW LINEAGE ----------------------------------------------------------------------------


def _kind(source: Source) -> str:
    if source.kind is SourceKind.STREAM:
        return "STREAM"
    return "MATERIALIZED_TABLE" if source.materialized_table else "TABLE"


def show_lineage(statement: ShowLineage, context: Context) -> Result:
    """List a materialized table's sources and consumers, by table or by column."""
    table = resolve.materialized_table(statement.name, context)
    consumers = context.services.catalog.consumers(table.name)
    if statement.columns:
        return _column_lineage(table, consumers)
    edges = [
        (
            str(table.name),
            str(source.name),
            _kind(source),
        )
        for source in table.definition.sources
    ]
    edges += [(str(consumer.name), str(table.name), "MATERIALIZED_TABLE") for consumer in consumers]
    return RowsResult(text_schema("table", "source", "kind"), sorted(edges))


def _column_lineage(table: MaterializedTable, consumers: tuple[MaterializedTable, ...]) -> Result:
    rows = {
        (
            str(reader.name),
            origin.column,
            str(origin.source),
            origin.source_column,
            "UNCHANGED" if origin.unchanged else "COMPUTED",
        )
        for reader in (table, *consumers)
        for origin in reader.definition.lineage
        if reader is table or origin.source.folded() == table.name.folded()
    }
    schema = text_schema("table", "column", "source", "source_column", "kind")
    return RowsResult(schema, sorted(rows))


# ---- SHOW LAG --------------------------------------------------------------------------------


def show_lag(context: Context) -> Result:
    """List how far every materialized table lags behind its sources, and why."""
    services = context.services
    tables = sorted(services.catalog.tables(), key=lambda table: table.name)
    now = services.clock.now()
    reports = [lag.measure(table, services.ledger, now) for table in tables]
    rows = [tuple(read(report) for *_, read in LAG) for report in reports]
    schema = Schema(tuple(Column(name=name, type=kind) for name, kind, *_ in LAG))
    return RowsResult(schema, rows, types=tuple(kind for _, _, kind, _ in LAG))


_LIMIT = 1000  # rows without a LIMIT
_SEARCHED = 10_000  # runs searched for failures
_FAILURES = frozenset({RunState.FAILED, RunState.ABANDONED, RunState.UPSTREAM_FAILED})


def show_history(statement: ShowRefreshHistory, context: Context) -> Result:
    """List refresh runs, newest first."""
    table_id = None
    if statement.name is not None:
        table_id = resolve.materialized_table(statement.name, context).id
    limit = _LIMIT if statement.limit is None else statement.limit
    searched = max(limit, _SEARCHED) if statement.errors else limit
    runs = context.services.ledger.runs(table_id, limit=searched)
    if statement.errors:
        runs = tuple(run for run in runs if run.state in _FAILURES)[:limit]
    return _run_rows(HISTORY, runs)


def show_versions(statement: ShowVersions, context: Context) -> Result:
    """List the versions of a table's data made by refreshes, or of its definition.

    Newest first.
    """
    table = resolve.materialized_table(statement.name, context)
    if statement.definition:
        return history.show(table, context.services.catalog)
    known = history.versions(table, context.services.catalog)
    queries = {entry.definition.version: entry.definition.original_query for entry in known}
    query = text_column("query", lambda run: queries.get(run.definition_version))
    return _run_rows(
        (*VERSIONS, query), context.services.ledger.commits(table.id, history.DATA_VERSIONS)
    )


def _run_rows(columns: Sequence[RunColumn], runs: Sequence[RefreshRun]) -> Result:
    schema = Schema(tuple(Column(name=c.name, type=c.type) for c in columns))
    rows = [tuple(column.read(run) for column in columns) for run in runs]
    return RowsResult(schema, rows, types=tuple(column.arrow for column in columns))


_OWNER: Final = re.compile(r"^Owner: .*$", re.MULTILINE)


def with_owners(result: Result, catalog: CatalogReader) -> Result:
    """Put the owners of materialized tables into the result of SHOW TABLE EXTENDED.

    In the metastore the tables belong to the user of the server process.
    """
    owners = {(t.name.schema.lower(), t.name.table.lower()): t.owner for t in catalog.tables()}
    batches = list(result.batches(0))
    if not owners or not batches:
        return result
    with closing(result):
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    shown = []
    for schema, table, is_temporary, information in rows:
        owner = None if is_temporary else owners.get((schema.lower(), table.lower()))
        if owner is not None:
            information = _OWNER.sub(partial(_line, owner), information, count=1)
        shown.append((schema, table, is_temporary, information))
    return RowsResult(result.schema, shown, types=tuple(batches[0].schema.types))


def _line(owner: str, _: re.Match[str]) -> str:
    return f"Owner: {owner}"


# ---- SHOW ENGINES ------------------------------------------------------------------------------


_ENGINES = Schema(
    (
        Column(name="engine", type="string"),
        Column(name="cluster_id", type="string", nullable=True),
        Column(name="execution_mode", type="string"),
        Column(name="master", type="string"),
        Column(name="status", type="string"),
        Column(name="tables", type="bigint"),
        Column(name="restarts", type="bigint"),
        Column(name="message", type="string", nullable=True),
    )
)
_OWN = ""
"""The name of the gateway's own engine, which ``execution.engine`` does not choose."""

Row = tuple[str, str | None, str, str, str, int, int, str | None]


def show_engines(context: Context) -> Result:
    """List the gateway's own engine and those that tables can choose, with their applications."""
    tables = Counter(
        read_target(table.execution_target) for table in context.services.catalog.tables()
    )
    rows = [_own_row(tables, context), *_other_rows(tables, context)]
    kinds = tuple(pa.int64() if c.type == "bigint" else pa.string() for c in _ENGINES)
    return RowsResult(_ENGINES, rows, types=kinds)


def _own_row(tables: Counter[Target], context: Context) -> Row:
    services = context.services
    master = services.config.engine.master
    engine = services.engine
    count = sum(number for target, number in tables.items() if not target.engine)
    restarts = engine.generation - 1
    memory = None if services.memory is None else services.memory.state
    problem = _why_not_up(engine)
    status, message = _status(problem is None, problem, memory)
    return (_OWN, None, mode_of(master), master, status, count, restarts, message)


def _why_not_up(engine: Engine) -> str | None:
    """Return why the gateway's own engine is not up; None if it is."""
    if engine.ready:
        return None
    try:
        engine.call(Ping(), wait=0)
    except ServerError as problem:
        return problem.message
    return None


def _other_rows(tables: Counter[Target], context: Context) -> Iterator[Row]:
    """Yield a row for each section, or for each application that is up or that a table has."""
    for name, section in sorted(context.services.config.engines.items()):
        pool = context.services.target_engines[name]
        up, memory = pool.up(), pool.memory()
        known = {target for target in tables if target.engine == name}
        known.update(Target(section.mode, *key.split("/", 1)) for key in up)
        if not section.application:
            known.add(Target(section.mode, name))
        for target in sorted(known, key=str):
            key = target.key
            engine = pool.of(key)
            status, message = _status(key in up, engine.starting, memory.get(key))
            yield (
                name,
                target.cluster or None,
                section.mode,
                section.master,
                status,
                tables[target],
                engine.restarts,
                message,
            )


def _status(up: bool, starting: str | None, memory: MemoryState | None) -> tuple[str, str | None]:
    """Return the status of an engine, and why it does no work."""
    if not up:
        return ("DOWN", None) if starting is None else ("STARTING", starting)
    waits = None if memory is None else memory.starvation
    return ("UP", None) if waits is None else ("WAITING", waits)
