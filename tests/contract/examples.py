"""Definitions and runs that tests vary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import (
    LogicalRefreshMode,
    MaterializedTable,
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
    """Return a FULL ACTIVATED table over ``ev`` with some fields changed."""
    base = MaterializedTable(
        id="t-1",
        name=name("Daily"),
        schema=Schema(
            (
                Column(name="Ds", type="string", nullable=False, comment="the day"),
                Column(name="total", type="decimal(10,2)"),
            )
        ),
        original_query="SELECT ds AS Ds, sum(amount) AS total FROM ev GROUP BY ds -- süß",
        expanded_query="SELECT ...",
        freshness=Freshness(1, TimeUnit.HOUR),
        logical_refresh_mode=LogicalRefreshMode.AUTOMATIC,
        refresh_mode=RefreshMode.FULL,
        refresh_status=RefreshStatus.ACTIVATED,
        owner="ana",
        created_at=NOON,
        location="file:/warehouse/daily",
        comment="it's 100%",
        options={"partition.fields.Ds.date-formatter": "yyyy-MM-dd"},
        partition_keys=("Ds",),
        primary_key=PrimaryKey(name="pk", columns=("Ds",)),
        sources=(source("ev", "delta-ev"), source("users", "delta-users", SourceKind.PLAIN)),
        settings={"spark.sql.shuffle.partitions": "7"},
    )
    return replace(base, **changes)


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
