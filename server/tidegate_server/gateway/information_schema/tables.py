"""Publishes catalog and history as Delta tables that Spark can read."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.names import AUDIT_LOG, quote_identifier
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.table import Definition, MaterializedTable, RefreshMode
from tidegate_server.core.refresh.maintenance import MaintenanceRun, RowPart
from tidegate_server.core.sql.redact import redact
from tidegate_server.core.sql.render import render_distribution, render_start_mode, render_trigger
from tidegate_server.gateway.audit import rows as audit_rows
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.definition import history
from tidegate_server.gateway.information_schema.history import HistoryCopy
from tidegate_server.gateway.information_schema.partitions import COLUMNS as PARTITION_COLUMNS
from tidegate_server.gateway.information_schema.partitions import Calendar, partition_rows
from tidegate_server.gateway.runs.columns import HISTORY, RunColumn, table_of
from tidegate_server.gateway.runs.lag import LAG, measure
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.scheduler.cron import read_timezone
from tidegate_server.gateway.scheduler.lateness import read_lateness

T = TypeVar("T")

logger = logging.getLogger(__name__)


_HISTORY_ROWS = 10_000
_LAG_TABLE = "materialized_table_lag"
_PARTITION_TABLE = "materialized_table_partitions"
_PARTITION_RUNS = 2000
"""Number of runs of one table that are searched for its partitions."""
_DEFINITION_TABLE = "materialized_table_definitions"
_MAINTENANCE_TABLE = "materialized_table_upkeep"
_ON_DEMAND = (_LAG_TABLE, _PARTITION_TABLE, _DEFINITION_TABLE, _MAINTENANCE_TABLE, AUDIT_LOG)
"""Tables that are expensive to fill: published only for statements that name them."""
_TIDY_EVERY = 50
_OLD_FILES_KEPT = timedelta(hours=1)
"""How long a query may keep reading a version after it was replaced."""
_PROPERTIES: Mapping[str, str | None] = {"delta.logRetentionDuration": "interval 1 hours"}

_TIME = pa.timestamp("us", tz="UTC")

_TABLES = pa.schema(
    [
        ("table_id", pa.string()),
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("refresh_status", pa.string()),
        ("status_reason", pa.string()),
        ("held_version", pa.string()),
        ("logical_refresh_mode", pa.string()),
        ("refresh_mode", pa.string()),
        ("freshness", pa.string()),
        ("freshness_seconds", pa.int64()),
        ("refresh_trigger", pa.string()),
        ("execute_as", pa.string()),
        ("partition_keys", pa.string()),
        ("primary_key", pa.string()),
        ("options", pa.string()),
        ("comment", pa.string()),
        ("owner", pa.string()),
        ("execution_target", pa.string()),
        ("location", pa.string()),
        ("definition_version", pa.int64()),
        ("derived_columns", pa.string()),
        ("watermark", pa.string()),
        ("distribution", pa.string()),
        ("start_mode", pa.string()),
        ("expectations", pa.string()),
        ("assertions", pa.string()),
        ("immutable", pa.string()),
        ("backfilled_from", pa.string()),
        ("original_query", pa.string()),
        ("expanded_query", pa.string()),
        ("created_at", _TIME),
    ]
)

_KEYS: tuple[RunColumn, ...] = (
    RunColumn("table_id", "string", pa.string(), lambda run: run.table_id),
    RunColumn("table_catalog", "string", pa.string(), lambda run: run.table.catalog),
    RunColumn("table_schema", "string", pa.string(), lambda run: run.table.schema),
    RunColumn("table_name", "string", pa.string(), lambda run: run.table.table),
)
"""Columns of the history that SHOW REFRESH HISTORY lacks: the keys for joins."""

_LINEAGE = pa.schema(
    [
        ("table_id", pa.string()),
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("source_catalog", pa.string()),
        ("source_schema", pa.string()),
        ("source_name", pa.string()),
        ("source_kind", pa.string()),
        ("source_table_id", pa.string()),
        ("source_is_materialized_table", pa.bool_()),
        ("via", pa.string()),
    ]
)

_COLUMN_LINEAGE = pa.schema(
    [
        ("table_id", pa.string()),
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("column_name", pa.string()),
        ("source_catalog", pa.string()),
        ("source_schema", pa.string()),
        ("source_name", pa.string()),
        ("source_column", pa.string()),
        ("unchanged", pa.bool_()),
    ]
)

_EXPECTATIONS = pa.schema(
    [
        ("table_id", pa.string()),
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("expectation", pa.string()),
        ("condition", pa.string()),
        ("on_violation", pa.string()),
        ("broken_rows", pa.int64()),
        ("refresh_id", pa.string()),
        ("finished_at", _TIME),
    ]
)

_PARTITIONS = pa.schema([*((c.name, c.arrow) for c in _KEYS), *PARTITION_COLUMNS])

_DEFINITIONS = pa.schema(
    [*((c.name, c.arrow) for c in _KEYS), ("in_force", pa.bool_()), *history.ARROW]
)

_MAINTENANCE = pa.schema(
    [
        ("upkeep_id", pa.string()),
        ("table_id", pa.string()),
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        ("files_rewritten", pa.int64()),
        ("files_written", pa.int64()),
        ("files_left", pa.int64()),
        ("files_removed", pa.int64()),
        ("bytes_removed", pa.int64()),
        ("removed_before", _TIME),
        ("verified_version", pa.int64()),
        ("verified_part", pa.string()),
        ("missing_rows", pa.int64()),
        ("extra_rows", pa.int64()),
        ("error_class", pa.string()),
        ("error_message", pa.string()),
        ("server_id", pa.string()),
    ]
)

_LAG = pa.schema([(name, kind) for name, _, kind, _ in LAG] + [(c.name, c.arrow) for c in _KEYS])


SCHEMAS: Mapping[str, pa.Schema] = {
    "materialized_tables": _TABLES,
    "materialized_table_refresh_history": table_of((*HISTORY, *_KEYS), ()).schema,
    "materialized_table_lineage": _LINEAGE,
    "materialized_table_column_lineage": _COLUMN_LINEAGE,
    "materialized_table_expectations": _EXPECTATIONS,
    _PARTITION_TABLE: _PARTITIONS,
    _DEFINITION_TABLE: _DEFINITIONS,
    _LAG_TABLE: _LAG,
    _MAINTENANCE_TABLE: _MAINTENANCE,
    AUDIT_LOG: audit_rows.SCHEMA,
}
"""The system tables and their columns."""


@dataclass(frozen=True, slots=True)
class _SystemTable:
    """One published table: its comment, and a function that returns its content.

    The function gets all materialized tables.
    """

    comment: str
    content: Callable[[Sequence[MaterializedTable]], pa.Table]
    is_private: bool = False
    """Whether only administrators may read it."""


class SystemTables:
    """Writes the tables of ``information_schema``, each only when its content changes."""

    def __init__(
        self,
        catalog: CatalogReader,
        ledger: Ledger,
        clock: Clock,
        directory: Path,
        private: Path,
        timezone: Callable[[MaterializedTable], str] = lambda table: "UTC",
        maintenance_runs: Callable[[int], Sequence[MaintenanceRun]] = lambda most: (),
        audit_log: Callable[[], pa.Table] = audit_rows.SCHEMA.empty_table,
    ) -> None:
        """Take the sources of the content and the directory of the tables.

        :param private: the directory of the tables that only administrators may read.
        :param timezone: returns the time zone of a table's partition dates.
        :param maintenance_runs: returns the newest maintenance runs, up to a number.
        :param audit_log: returns the newest rows of the audit log.
        """
        self._timezone = timezone
        self._catalog = catalog
        self._ledger = ledger
        self._maintenance_runs = maintenance_runs
        self._clock = clock
        self._directory = directory
        self._private = private
        self._published: dict[str, pa.Table] = {}
        self._writes: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._newest: dict[str, int] = {}
        """Which call of :meth:`publish` was the last to bring each table up to date."""
        self._history = HistoryCopy(ledger, (*HISTORY, *_KEYS), _HISTORY_ROWS)
        self._tables: Mapping[str, _SystemTable] = {
            "materialized_tables": _SystemTable(
                "Definitions and status of all materialized tables", self._definitions
            ),
            "materialized_table_refresh_history": _SystemTable(
                "Refresh runs of all materialized tables", lambda _: self._history.table()
            ),
            "materialized_table_lineage": _SystemTable(
                "Sources each materialized table reads directly", self._lineage
            ),
            "materialized_table_column_lineage": _SystemTable(
                "Source columns each column of a materialized table is made from",
                self._column_lineage,
            ),
            "materialized_table_expectations": _SystemTable(
                "Expectations of materialized tables and how the last refresh met them",
                self._expectations,
            ),
            _PARTITION_TABLE: _SystemTable(
                "When each partition of a materialized table was last refreshed", self._partitions
            ),
            _DEFINITION_TABLE: _SystemTable(
                "Every version of each materialized table's definition", self._definition_versions
            ),
            _LAG_TABLE: _SystemTable(
                "How far each materialized table lags behind its sources", self._lag
            ),
            _MAINTENANCE_TABLE: _SystemTable(
                "How each materialized table was looked after", lambda _: self._maintenance()
            ),
            AUDIT_LOG: _SystemTable(
                "Who did what on which objects; for administrators",
                lambda _: audit_log(),
                is_private=True,
            ),
        }

        self._locks = {name: threading.Lock() for name in self._tables}
        """One for each table, so that none has to wait for one that takes long."""

    def locations(self) -> dict[str, str]:
        """Return the directory of each system table, by unqualified name."""
        return {name: str(self._path(name).resolve()) for name in self._tables}

    def comments(self) -> dict[str, str]:
        """Return the comment of each system table, by unqualified name."""
        return {name: table.comment for name, table in self._tables.items()}

    def ensure(self) -> None:
        """Write an empty first version of each missing table."""
        for name, lock in self._locks.items():
            with lock:
                if not DeltaTable.is_deltatable(str(self._path(name))):
                    self._write(name, SCHEMAS[name].empty_table())

    def publish(self, text: str = " ".join(_ON_DEMAND), *, administers: bool = True) -> None:
        """Update the tables from store and catalog, for a statement that reads them.

        Expensive tables are only updated if ``text`` names them: the lag changes every moment, and
        there may be many partitions. Private ones are only updated for administrators.
        """
        number = next(self._numbers)
        tables = self._catalog.tables()  # once: to decode the definitions takes longest
        for name, table in self._tables.items():
            if name in _ON_DEMAND and name not in text.lower():
                continue
            if table.is_private and not administers:
                continue
            with self._locks[name]:
                if self._newest.get(name, 0) > number:
                    continue  # another call has read the tables later
                content = table.content(tables)
                before = self._published.get(name)
                if not (content is before or content.equals(before)):
                    self._write(name, content)
                    if not table.is_private:  # its content is large, and always new
                        self._published[name] = content
                self._newest[name] = number

    def _path(self, name: str) -> Path:
        folder = self._private if self._tables[name].is_private else self._directory
        return folder / name

    def _write(self, name: str, content: pa.Table) -> None:
        path = self._path(name)
        if self._tables[name].is_private:
            # The server's umask may let a group read.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        write_deltalake(
            str(path),
            content,
            mode="overwrite",
            schema_mode="overwrite",
            configuration=_PROPERTIES,
        )
        self._writes[name] += 1
        if self._writes[name] % _TIDY_EVERY == 0:
            _tidy(path)

    def _definitions(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        rows = [_definition_row(table) for table in tables]
        return pa.Table.from_pylist(rows, schema=_TABLES)

    def _lineage(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        rows = [edge for table in tables for edge in _edges(table)]
        return pa.Table.from_pylist(rows, schema=_LINEAGE)

    def _column_lineage(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        rows = [edge for table in tables for edge in _column_edges(table)]
        return pa.Table.from_pylist(rows, schema=_COLUMN_LINEAGE)

    def _expectations(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        rows = [
            row
            for table in tables
            if table.definition.constraints or table.enforced_key
            for row in _expectation_rows(table, self._ledger.last_success(table.id))
        ]
        return pa.Table.from_pylist(rows, schema=_EXPECTATIONS)

    def _partitions(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        rows = [
            {**_table_columns(table), **row}
            for table in tables
            if table.definition.partition_keys
            for row in partition_rows(
                self._ledger.runs(table.id, limit=_PARTITION_RUNS), self._calendar(table)
            )
        ]
        return pa.Table.from_pylist(rows, schema=_PARTITIONS)

    def _maintenance(self) -> pa.Table:
        rows = [_maintenance_row(run) for run in self._maintenance_runs(_HISTORY_ROWS)]
        return pa.Table.from_pylist(rows, schema=_MAINTENANCE)

    def _calendar(self, table: MaterializedTable) -> Calendar:
        return Calendar(
            now=self._clock.now(),
            zone=read_timezone(self._timezone(table).strip()),
            formatters=table.definition.date_formatters(),
            lateness=read_lateness(table.definition.options),
        )

    def _definition_versions(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        replaced: dict[str, list[MaterializedTable]] = defaultdict(list)
        for definition in self._catalog.replaced_definitions():
            replaced[definition.id].append(definition)
        rows = [
            {**_table_columns(table), "in_force": v.definition_version == table.definition.version}
            | dict(zip(history.ARROW.names, v.row(), strict=True))
            for table in tables
            for v in history.describe_versions([*replaced[table.id], table])
        ]
        return pa.Table.from_pylist(rows, schema=_DEFINITIONS)

    def _lag(self, tables: Sequence[MaterializedTable]) -> pa.Table:
        now = self._clock.now()
        reports = [measure(table, self._ledger, now) for table in tables]
        rows = [{name: read(report) for name, _, _, read in LAG} for report in reports]
        keyed = [row | _table_columns(table) for row, table in zip(rows, tables, strict=True)]
        return pa.Table.from_pylist(keyed, schema=_LAG)


def _tidy(path: Path) -> None:
    """Delete files that only old versions of a table need, so that its directory stays small."""
    table = DeltaTable(str(path))
    hours = int(_OLD_FILES_KEPT.total_seconds() // 3600)
    removed = table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    table.cleanup_metadata()
    logger.debug("removed %s old files of %s", len(removed), path)


def _definition_row(table: MaterializedTable) -> dict[str, Any]:
    definition, state = table.definition, table.state
    return {
        **_table_columns(table),
        "refresh_status": state.status.value,
        "status_reason": state.status_reason,
        "held_version": None if state.held is None else _json(state.held),
        "logical_refresh_mode": definition.logical_refresh_mode.value,
        "refresh_mode": definition.refresh_mode.value,
        "freshness": "DOWNSTREAM" if definition.downstream else str(definition.freshness),
        "freshness_seconds": definition.freshness.seconds,
        "refresh_trigger": _trigger(definition),
        "execute_as": table.executor,
        "partition_keys": _json(definition.partition_keys),
        "primary_key": None if definition.primary_key is None else _json(definition.primary_key),
        "options": redact(_json(definition.options)),
        "comment": definition.comment,
        "owner": table.owner,
        "execution_target": table.execution_target,
        "location": table.location,
        "definition_version": definition.version,
        "derived_columns": _json([column.name for column in definition.derived]),
        "watermark": None if definition.watermark is None else _json(definition.watermark),
        "distribution": _render(render_distribution, definition.distribution),
        "start_mode": _render(render_start_mode, definition.start_mode),
        "expectations": _json(definition.expectations),
        "assertions": _json(definition.assertions),
        "immutable": definition.immutable,
        "backfilled_from": _render(str, definition.backfilled_from),
        "original_query": redact(definition.original_query),
        "expanded_query": redact(definition.expanded_query),
        "created_at": table.created_at,
    }


def _trigger(definition: Definition) -> str | None:
    if definition.refresh_mode is RefreshMode.CONTINUOUS:
        return None
    return render_trigger(definition.on_update)


def _edges(table: MaterializedTable) -> list[dict[str, Any]]:
    return [
        {
            **_table_columns(table),
            "source_catalog": source.name.catalog,
            "source_schema": source.name.schema,
            "source_name": source.name.table,
            "source_kind": source.kind.value,
            "source_table_id": source.table_id,
            "source_is_materialized_table": source.materialized_table,
            "via": _json([str(view) for view in source.via]),
        }
        for source in table.definition.sources
    ]


def _column_edges(table: MaterializedTable) -> list[dict[str, Any]]:
    return [
        {
            **_table_columns(table),
            "column_name": origin.column,
            "source_catalog": origin.source.catalog,
            "source_schema": origin.source.schema,
            "source_name": origin.source.table,
            "source_column": origin.source_column,
            "unchanged": origin.unchanged,
        }
        for origin in table.definition.lineage
    ]


def _maintenance_row(run: MaintenanceRun) -> dict[str, Any]:
    rewritten, removed, compared = run.rewritten, run.removed, run.compared
    return {
        "upkeep_id": run.maintenance_id,
        "table_id": run.table_id,
        "table_catalog": run.table.catalog,
        "table_schema": run.table.schema,
        "table_name": run.table.table,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "files_rewritten": None if rewritten is None else rewritten.removed,
        "files_written": None if rewritten is None else rewritten.added,
        "files_left": run.files_left,
        "files_removed": None if removed is None else removed.files,
        "bytes_removed": None if removed is None else removed.size,
        "removed_before": run.removed_before,
        "verified_version": None if compared is None else compared.version,
        "verified_part": None if compared is None else _part(compared.part),
        "missing_rows": None if compared is None else compared.missing_rows,
        "extra_rows": None if compared is None else compared.extra_rows,
        "error_class": run.error_class,
        "error_message": run.error_message,
        "server_id": run.server_id,
    }


def _part(part: RowPart | None) -> str | None:
    return None if part is None else f"{part.number + 1} of {part.of}"


def _expectation_rows(table: MaterializedTable, run: RefreshRun | None) -> list[dict[str, Any]]:
    constraints = table.definition.constraints
    expected = [(each.name, each.condition, each.violation) for each in constraints]
    if key := table.enforced_key:
        columns = ", ".join(map(quote_identifier, key.columns))
        expected.append((key.name, f"PRIMARY KEY ({columns})", key.violation))
    return [
        {
            **_table_columns(table),
            "expectation": name,
            "condition": condition,
            "on_violation": violation.value,
            "broken_rows": run.metrics.expectations.get(name) if run else None,
            "refresh_id": run.refresh_id if run else None,
            "finished_at": run.finished_at if run else None,
        }
        for name, condition, violation in expected
    ]


def _table_columns(table: MaterializedTable) -> dict[str, Any]:
    return {
        "table_id": table.id,
        "table_catalog": table.name.catalog,
        "table_schema": table.name.schema,
        "table_name": table.name.table,
    }


def _render(render: Callable[[T], str], clause: T | None) -> str | None:
    return None if clause is None else render(clause)


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
