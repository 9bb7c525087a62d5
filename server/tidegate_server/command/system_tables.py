"""Publishes catalog and history as Delta tables that Spark can read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tidegate_server.catalog.base import CatalogReader
from tidegate_server.model.runs import RefreshRun
from tidegate_server.model.table import MaterializedTable
from tidegate_server.scheduler.base import Ledger

log = logging.getLogger(__name__)

SYSTEM_SCHEMA = "information_schema"

_HISTORY_ROWS = 10_000
_TIDY_EVERY = 50
_OLD_FILES_KEPT = timedelta(hours=1)
"""How long a query may go on reading a version that was replaced meanwhile."""
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
        ("logical_refresh_mode", pa.string()),
        ("refresh_mode", pa.string()),
        ("freshness", pa.string()),
        ("freshness_seconds", pa.int64()),
        ("partition_keys", pa.string()),
        ("primary_key", pa.string()),
        ("options", pa.string()),
        ("comment", pa.string()),
        ("owner", pa.string()),
        ("execution_target", pa.string()),
        ("location", pa.string()),
        ("definition_version", pa.int64()),
        ("original_query", pa.string()),
        ("expanded_query", pa.string()),
        ("created_at", _TIME),
    ]
)

_HISTORY = pa.schema(
    [
        ("refresh_id", pa.string()),
        ("table_id", pa.string()),
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("definition_version", pa.int64()),
        ("from_version", pa.int64()),
        ("to_version", pa.int64()),
        ("epoch", pa.int64()),
        ("trigger", pa.string()),
        ("action", pa.string()),
        ("strategy_reason_code", pa.string()),
        ("strategy_reason_text", pa.string()),
        ("partitions", pa.string()),
        ("schedule_time", _TIME),
        ("queued_at", _TIME),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        ("state", pa.string()),
        ("error_class", pa.string()),
        ("sqlstate", pa.string()),
        ("error_message", pa.string()),
        ("attempt", pa.int64()),
        ("sources", pa.string()),
        ("rows_written", pa.int64()),
        ("requested_by", pa.string()),
        ("server_id", pa.string()),
    ]
)

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
    ]
)


@dataclass(frozen=True, slots=True)
class _SystemTable:
    """One published table: its schema, what it is for, where its rows come from."""

    schema: pa.Schema
    comment: str
    rows: Callable[[], Sequence[Mapping[str, Any]]]


class SystemTables:
    """Writes the tables of ``information_schema``; each only when its content changed."""

    def __init__(self, catalog: CatalogReader, ledger: Ledger, directory: Path) -> None:
        """Take what is published and the directory the tables lie in."""
        self._catalog = catalog
        self._ledger = ledger
        self._directory = directory
        self._lock = threading.Lock()
        self._published: dict[str, pa.Table] = {}
        self._writes = 0
        self._tables: Mapping[str, _SystemTable] = {
            "materialized_tables": _SystemTable(
                _TABLES, "Definitions and status of all materialized tables", self._definitions
            ),
            "materialized_table_refresh_history": _SystemTable(
                _HISTORY, "Refresh runs of all materialized tables", self._history
            ),
            "materialized_table_lineage": _SystemTable(
                _LINEAGE, "Sources each materialized table reads directly", self._lineage
            ),
        }

    def locations(self) -> dict[str, str]:
        """Return the directory of each system table by its unqualified name."""
        return {name: str((self._directory / name).resolve()) for name in self._tables}

    def comments(self) -> dict[str, str]:
        """Return what each system table is for."""
        return {name: table.comment for name, table in self._tables.items()}

    def ensure(self) -> None:
        """Write an empty first version of each table that does not exist yet."""
        with self._lock:
            for name, table in self._tables.items():
                path = self._directory / name
                if not DeltaTable.is_deltatable(str(path)):
                    path.mkdir(parents=True, exist_ok=True)
                    self._write(path, table.schema.empty_table())

    def publish(self) -> None:
        """Bring every table up to date with store and catalog."""
        with self._lock:
            for name, table in self._tables.items():
                content = pa.Table.from_pylist(list(table.rows()), schema=table.schema)
                if content.equals(self._published.get(name)):
                    continue
                path = self._directory / name
                path.mkdir(parents=True, exist_ok=True)
                self._write(path, content)
                self._published[name] = content

    def _write(self, path: Path, content: pa.Table) -> None:
        write_deltalake(
            str(path),
            content,
            mode="overwrite",
            schema_mode="overwrite",
            configuration=_PROPERTIES,
        )
        self._writes += 1
        if self._writes % _TIDY_EVERY == 0:
            self._tidy()

    def _tidy(self) -> None:
        """Delete what only old versions need, so that the directories stay small."""
        for location in self.locations().values():
            if not DeltaTable.is_deltatable(location):
                continue
            table = DeltaTable(location)
            hours = int(_OLD_FILES_KEPT.total_seconds() // 3600)
            removed = table.vacuum(
                retention_hours=hours, dry_run=False, enforce_retention_duration=False
            )
            table.create_checkpoint()
            table.cleanup_metadata()
            log.debug("removed %s old files of %s", len(removed), location)

    def _definitions(self) -> list[dict[str, Any]]:
        return [_definition(table) for table in self._catalog.tables()]

    def _history(self) -> list[dict[str, Any]]:
        return [_run(run) for run in self._ledger.runs(limit=_HISTORY_ROWS)]

    def _lineage(self) -> list[dict[str, Any]]:
        return [edge for table in self._catalog.tables() for edge in _edges(table)]


def _definition(table: MaterializedTable) -> dict[str, Any]:
    return {
        **_named(table),
        "refresh_status": table.refresh_status.value,
        "status_reason": table.status_reason,
        "logical_refresh_mode": table.logical_refresh_mode.value,
        "refresh_mode": table.refresh_mode.value,
        "freshness": str(table.freshness),
        "freshness_seconds": table.freshness.seconds,
        "partition_keys": _json(table.partition_keys),
        "primary_key": None if table.primary_key is None else _json(table.primary_key),
        "options": _json(table.options),
        "comment": table.comment,
        "owner": table.owner,
        "execution_target": table.execution_target,
        "location": table.location,
        "definition_version": table.definition_version,
        "original_query": table.original_query,
        "expanded_query": table.expanded_query,
        "created_at": table.created_at,
    }


def _run(run: RefreshRun) -> dict[str, Any]:
    return {
        "refresh_id": run.refresh_id,
        "table_id": run.table_id,
        "table_catalog": run.table.catalog,
        "table_schema": run.table.schema,
        "table_name": run.table.table,
        "definition_version": run.definition_version,
        "from_version": run.from_version,
        "to_version": run.to_version,
        "epoch": run.epoch,
        "trigger": run.trigger.value,
        "action": None if run.action is None else run.action.value,
        "strategy_reason_code": run.reason_code,
        "strategy_reason_text": run.reason_text,
        "partitions": _json(run.partitions),
        "schedule_time": run.schedule_time,
        "queued_at": run.queued_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "state": run.state.value,
        "error_class": run.error_class,
        "sqlstate": run.sqlstate,
        "error_message": run.error_message,
        "attempt": run.attempt,
        "sources": _json(run.sources),
        "rows_written": run.metrics.rows_written,
        "requested_by": run.requested_by,
        "server_id": run.server_id,
    }


def _edges(table: MaterializedTable) -> list[dict[str, Any]]:
    return [
        {
            **_named(table),
            "source_catalog": source.name.catalog,
            "source_schema": source.name.schema,
            "source_name": source.name.table,
            "source_kind": source.kind.value,
            "source_table_id": source.table_id,
            "source_is_materialized_table": source.materialized_table,
        }
        for source in table.sources
    ]


def _named(table: MaterializedTable) -> dict[str, Any]:
    return {
        "table_id": table.id,
        "table_catalog": table.name.catalog,
        "table_schema": table.name.schema,
        "table_name": table.name.table,
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
