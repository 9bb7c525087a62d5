"""The requests and answers of the REST interface, as JSON with names in camelCase."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.runs import lag
from tidegate_server.gateway.scheduler.base import Workflow


class Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A JSON object."""


class ColumnBody(Body, frozen=True):
    """One column of a table."""

    name: str
    type: str
    nullable: bool
    comment: str | None


class TableBody(Body, frozen=True):
    """A materialized table in a list."""

    id: str
    catalog: str
    schema: str
    name: str
    owner: str
    refresh_mode: str
    refresh_status: str
    status_reason: str | None
    held_version: str | None
    freshness: str
    definition_version: int


class TableDetailBody(TableBody, frozen=True):
    """A materialized table with its definition."""

    comment: str | None
    columns: tuple[ColumnBody, ...]
    partition_keys: tuple[str, ...]
    primary_key: tuple[str, ...]
    options: Mapping[str, str]
    original_query: str
    expanded_query: str
    created_at: datetime
    cron: str | None
    timezone: str | None
    next_refresh: datetime | None
    last_refresh: RefreshBody | None


class RefreshBody(Body, frozen=True):
    """One refresh run; ``state`` shows whether it has finished."""

    id: str
    table_id: str
    table: str
    trigger: str
    state: str
    action: str | None
    reason_code: str | None
    reason_text: str | None
    requested_by: str
    schedule_time: datetime | None
    partitions: tuple[Mapping[str, str], ...]
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    rows_written: int | None
    from_version: int | None
    to_version: int | None
    error_code: str | None
    sqlstate: str | None
    error_message: str | None


class TableListBody(Body, frozen=True):
    """Materialized tables, by name."""

    materialized_tables: tuple[TableBody, ...]


class RefreshListBody(Body, frozen=True):
    """Runs, newest first."""

    refreshes: tuple[RefreshBody, ...]


class RefreshCommandBody(Body, frozen=True):
    """What to refresh; without a body, the whole table as far as needed."""

    is_periodic: bool = False
    schedule_time: str | None = None
    static_partitions: Mapping[str, str] = {}
    dynamic_options: Mapping[str, str] = {}
    execution_config: Mapping[str, str] = {}


class StartedBody(Body, frozen=True):
    """A refresh that was started; its outcome is at ``/v1/refreshes/{refreshId}``."""

    refresh_id: str


class StatusBody(Body, frozen=True):
    """Whether the gateway is healthy, which parts are missing, and known problems."""

    status: str
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class ErrorsBody(Body, frozen=True):
    """The error of a call of Flink's interface; Flink's clients read no other fields."""

    errors: tuple[str, ...]


class ProblemBody(Body, frozen=True):
    """An error (RFC 9457), with Tidegate's code and SQLSTATE."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    sqlstate: str
    hint: str


def table_body(table: MaterializedTable) -> TableBody:
    """Return a table for a list."""
    return TableBody(**_head(table))


def detail_body(
    table: MaterializedTable, workflow: Workflow | None, last: RefreshRun | None
) -> TableDetailBody:
    """Return a table with its definition, its schedule and its last run."""
    definition = table.definition
    firing = workflow is not None and workflow.active
    return TableDetailBody(
        **_head(table),
        comment=definition.comment,
        columns=_columns(definition.schema),
        partition_keys=definition.partition_keys,
        primary_key=definition.primary_key.columns if definition.primary_key else (),
        options=definition.options,
        original_query=definition.original_query,
        expanded_query=definition.expanded_query,
        created_at=table.created_at,
        cron=workflow.cron if workflow else None,
        timezone=workflow.timezone if workflow and workflow.cron else None,
        next_refresh=workflow.next_fire if workflow and firing else None,
        last_refresh=refresh_body(last) if last else None,
    )


def refresh_body(run: RefreshRun) -> RefreshBody:
    """Return the record of a run."""
    return RefreshBody(
        id=run.refresh_id,
        table_id=run.table_id,
        table=str(run.table),
        trigger=run.trigger.value,
        state=run.state.value,
        action=run.action.value if run.action else None,
        reason_code=run.reason_code,
        reason_text=run.reason_text,
        requested_by=run.requested_by,
        schedule_time=run.schedule_time,
        partitions=run.partitions,
        queued_at=run.queued_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        rows_written=run.metrics.rows_written,
        from_version=run.from_version,
        to_version=run.to_version,
        error_code=run.error_class,
        sqlstate=run.sqlstate,
        error_message=run.error_message,
    )


def _head(table: MaterializedTable) -> dict[str, Any]:
    definition = table.definition
    return {
        "id": table.id,
        "catalog": table.name.catalog,
        "schema": table.name.schema,
        "name": table.name.table,
        "owner": table.owner,
        "refresh_mode": definition.refresh_mode.value,
        "refresh_status": table.state.status.value,
        "status_reason": table.state.status_reason,
        "held_version": lag.held_since(table),
        "freshness": f"{definition.freshness.value} {definition.freshness.unit.name}",
        "definition_version": definition.version,
    }


def _columns(schema: Schema) -> tuple[ColumnBody, ...]:
    return tuple(
        ColumnBody(name=c.name, type=c.type, nullable=c.nullable, comment=c.comment) for c in schema
    )
