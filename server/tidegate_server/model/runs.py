"""The record of bringing a materialized table up to date once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidegate_server.model.names import TableName
from tidegate_server.model.states import RunState
from tidegate_server.model.versions import PartitionSpec


class Trigger(Enum):
    """Why a refresh was asked for."""

    INITIAL = "INITIAL"
    SCHEDULED = "SCHEDULED"
    MANUAL = "MANUAL"
    CASCADE = "CASCADE"
    UPSTREAM_CHANGE = "UPSTREAM_CHANGE"
    EVOLUTION = "EVOLUTION"
    BACKFILL = "BACKFILL"


class Strategy(Enum):
    """How one run works."""

    FULL = "FULL"
    PARTITION = "PARTITION"
    INCREMENTAL = "INCREMENTAL"
    NO_DATA = "NO_DATA"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRun:
    """One row of the refresh history; times are aware UTC."""

    refresh_id: str
    table_id: str
    table: TableName
    definition_version: int
    trigger: Trigger
    state: RunState
    queued_at: datetime
    requested_by: str
    server_id: str
    epoch: int | None = None
    schedule_time: datetime | None = None
    partitions: tuple[PartitionSpec, ...] = ()
    action: Strategy | None = None
    reason_code: str | None = None
    reason_text: str | None = None
    from_version: int | None = None
    to_version: int | None = None
    sources: Mapping[str, int] = field(default_factory=dict)
    rows_written: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_class: str | None = None
    sqlstate: str | None = None
    error_message: str | None = None
    attempt: int = 1
