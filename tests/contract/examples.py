"""Definitions and runs that tests vary."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import (
    Definition,
    LogicalRefreshMode,
    MaterializedTable,
    PipelineState,
    PrimaryKey,
    RefreshMode,
)
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import Source, SourceKind

NOON = datetime(2024, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)


def name(table: str, schema: str = "d") -> TableName:
    return TableName("spark_catalog", schema, table)


def source(table: str, table_id: str, kind: SourceKind = SourceKind.VERSIONED) -> Source:
    return Source(name=name(table), kind=kind, table_id=table_id)


def table(**changes: Any) -> MaterializedTable:
    """Return a FULL ACTIVATED table over ``ev``, varied by :func:`vary`."""
    base = MaterializedTable(
        id="t-1",
        name=name("Daily"),
        owner="ana",
        created_at=NOON,
        location="file:/warehouse/daily",
        definition=Definition(
            schema=Schema(
                (
                    Column(name="Ds", type="string", nullable=False, comment="the day"),
                    Column(name="total", type="decimal(10,2)"),
                )
            ),
            original_query="SELECT ds AS Ds, sum(amount) AS total FROM ev GROUP BY ds -- süß",
            expanded_query="SELECT ...",
            sources=(source("ev", "delta-ev"), source("users", "delta-users", SourceKind.PLAIN)),
            freshness=Freshness(1, TimeUnit.HOUR),
            logical_refresh_mode=LogicalRefreshMode.AUTOMATIC,
            refresh_mode=RefreshMode.FULL,
            comment="it's 100%",
            options={"partition.fields.Ds.date-formatter": "yyyy-MM-dd"},
            settings={"spark.sql.shuffle.partitions": "7"},
            primary_key=PrimaryKey(name="pk", columns=("Ds",)),
            partition_keys=("Ds",),
        ),
        state=PipelineState(status=RefreshStatus.ACTIVATED),
    )
    return vary(base, **changes)


def vary(table: MaterializedTable, **changes: Any) -> MaterializedTable:
    """Return a table with some fields changed: its own, its definition's or its state's."""
    definition = {f.name: changes.pop(f.name) for f in fields(Definition) if f.name in changes}
    state = {f.name: changes.pop(f.name) for f in fields(PipelineState) if f.name in changes}
    return replace(
        table,
        definition=replace(table.definition, **definition),
        state=replace(table.state, **state),
        **changes,
    )


def run(**changes: Any) -> RefreshRun:
    """Return a queued run of :func:`table` with some fields changed."""
    base = RefreshRun(
        refresh_id="r-1",
        table_id="t-1",
        table=name("Daily"),
        definition_version=1,
        trigger=Trigger.MANUAL,
        state=RunState.QUEUED,
        queued_at=NOON,
        requested_by="ana",
        server_id="server-1",
    )
    return replace(base, **changes)
