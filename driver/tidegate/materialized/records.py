"""What the server says about materialized tables, as frozen records.

Fields have the names of the columns and properties that they are read from. Those that an older
server does not know are None; what a newer one adds is left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from tidegate.materialized.statements import joined

T = TypeVar("T")
Row = Mapping[str, Any]

_READ: Final = "read"
_MOMENT: Final = "%Y-%m-%d %H:%M:%S UTC"


def _moment(text: str) -> datetime:
    return datetime.strptime(text, _MOMENT).replace(tzinfo=UTC)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


def _parsed(value: Any) -> Any:
    """Read JSON; a MAP has been read by then if the server sends no Arrow."""
    return json.loads(value) if isinstance(value, str) else value


def _list(value: Any) -> tuple[Any, ...]:
    return tuple(_parsed(value))


def _text_time() -> Any:
    return field(default=None, metadata={_READ: _moment})


def _text_names() -> Any:
    return field(default=(), metadata={_READ: _names})


def _json_map() -> Any:
    return field(default_factory=dict, metadata={_READ: _parsed})


def _json_list() -> Any:
    return field(default=(), metadata={_READ: _list})


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedTableSummary:
    """A row of ``SHOW MATERIALIZED TABLES EXTENDED``."""

    name: str
    schema: str
    refresh_mode: str
    """FULL or CONTINUOUS."""
    refresh_status: str
    """INITIALIZING, ACTIVATED or SUSPENDED."""
    freshness: str
    """Such as ``1 HOUR``, or ``DOWNSTREAM (1 HOUR)``."""
    last_refresh: str | None = None
    """State and time of the newest refresh."""
    actual_lag: str | None = None
    """Such as ``12 s``, or ``at most 12 s``."""
    held_version: str | None = None

    @property
    def full_name(self) -> str:
        """Schema and name, each in backticks: a name for any statement."""
        return joined(self.schema, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a materialized table."""

    name: str
    type: str
    """As Spark writes it, such as ``decimal(12,2)``."""
    nullable: bool
    comment: str | None = None
    stored: bool = True
    """False for computed columns and virtual ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedTable:
    """The properties of ``DESCRIBE MATERIALIZED TABLE EXTENDED``; times are in UTC."""

    catalog: str
    schema: str
    table: str
    columns: tuple[TableColumn, ...] = field(
        default=(),
        metadata={_READ: lambda found: tuple(record(TableColumn, each) for each in found)},
    )
    owner: str | None = None
    created_at: datetime | None = _text_time()
    location: str | None = None
    comment: str | None = None
    primary_key: tuple[str, ...] = _text_names()
    partition_keys: tuple[str, ...] = _text_names()
    options: Mapping[str, str] = _json_map()
    derived_columns: str | None = None
    watermark: str | None = None
    distribution: str | None = None
    start_mode: str | None = None
    expectations: str | None = None
    assertions: str | None = None
    quarantine: str | None = None
    immutable: str | None = None
    backfilled_from: str | None = None
    logical_refresh_mode: str | None = None
    """The mode that was asked for: FULL, CONTINUOUS or AUTOMATIC."""
    refresh_mode: str
    """The mode in use: FULL or CONTINUOUS."""
    refresh_status: str
    """INITIALIZING, ACTIVATED or SUSPENDED."""
    status_reason: str | None = None
    held_version: str | None = None
    refresh_handler: str | None = None
    execution_target: str | None = None
    """The engine that refreshes it."""
    freshness: str
    """Such as ``1 HOUR``, or ``DOWNSTREAM (1 HOUR)``."""
    refresh_trigger: str | None = None
    execute_as: str | None = None
    cron: str | None = None
    timezone: str | None = None
    next_refresh: datetime | None = _text_time()
    last_success: datetime | None = _text_time()
    data_timestamp: datetime | None = _text_time()
    """The table contains every change of its sources that was made before."""
    actual_lag: str | None = None
    lag_cause: str | None = None
    continuous_strategy: str | None = None
    definition_version: int = field(default=1, metadata={_READ: int})
    original_query: str
    expanded_query: str | None = None

    @property
    def full_name(self) -> str:
        """Catalog, schema and name, each in backticks: a name for any statement."""
        return joined(self.catalog, self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """A refresh that ``REFRESH`` ran, or with ``wait=False`` began."""

    job_id: str
    """The ``refresh_id`` of the history."""
    table: str
    """The full name: a cascade refreshes several tables."""
    state: str
    """SUCCEEDED, or QUEUED without waiting."""
    action: str | None = None
    """What was done: FULL, PARTITION, INCREMENTAL or NO_DATA; None while it is not known."""
    cluster_info: Mapping[str, str] = _json_map()
    """The server and the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """A row of ``SHOW REFRESH HISTORY``; times are in UTC, counts None where they are unknown."""

    refresh_id: str
    catalog: str
    database: str
    table: str
    definition_version: int | None = None
    from_version: int | None = None
    to_version: int | None = None
    epoch: int | None = None
    wave_id: str | None = None
    """Shared by the refreshes of one cascade."""
    trigger: str
    requested_action: str | None = None
    action: str | None = None
    strategy_reason_code: str | None = None
    strategy_reason_text: str | None = None
    partitions: tuple[Mapping[str, str], ...] = _json_list()
    schedule_time: datetime | None = None
    data_timestamp: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    state: str
    error_class: str | None = None
    sqlstate: str | None = None
    error_message: str | None = None
    attempt: int | None = None
    sources: tuple[Mapping[str, Any], ...] = _json_list()
    rows_read: int | None = None
    rows_written: int | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    rows_copied: int | None = None
    bytes: int | None = None
    files: int | None = None
    expectations: Mapping[str, int] = _json_map()
    spark_job_ids: tuple[int, ...] = _json_list()
    executor_ms: int | None = None
    peak_memory: int | None = None
    requested_by: str | None = None
    server_id: str | None = None
    execution_target: str | None = None
    affected_keys: int | None = None
    seconds: float | None = None
    predicted_seconds: float | None = None
    predicted_full_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanceledRefresh:
    """A refresh that ``CANCEL REFRESH`` stopped."""

    job_id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """``table`` reads ``source``, whose ``kind`` is TABLE, MATERIALIZED_TABLE or STREAM."""

    table: str
    source: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineageEdge:
    """A column depends on one of a source; ``kind`` is UNCHANGED or COMPUTED."""

    table: str
    column: str
    source: str
    source_column: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How a version of a table compares with its query."""

    table: str
    version: int
    epoch: int | None = None
    equal: bool
    """Whether both have the same rows, each equally often."""
    missing_rows: int
    extra_rows: int
    sample: tuple[Mapping[str, Any], ...] = _json_list()
    """Up to five of the rows that differ."""
    left_out: str | None = None
    """The condition of the rows that were not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a table is behind its sources, in seconds."""

    catalog: str
    database: str
    table: str
    target_seconds: float
    """What FRESHNESS allows."""
    lag_seconds: float | None = None
    """None before the first refresh."""
    exact: bool
    """False if ``lag_seconds`` is an upper bound."""
    breached: bool
    cause: str | None = None
    causes: Mapping[str, float] = _json_map()
    within_target: float | None = None
    """Share of the last 24 hours, from 0 to 1, with a lag within the target."""
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    longest_seconds: float | None = None
    data_timestamp: datetime | None = None


def record(kind: type[T], row: Row) -> T:
    """Return a row as a record; NULL leaves a field at its default."""
    values = {}
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = row.get(each.name)
        if value is not None:
            read: Callable[[Any], Any] | None = each.metadata.get(_READ)
            values[each.name] = value if read is None else read(value)
    return kind(**values)


def read_description(row: Row) -> MaterializedTable:
    """Return the table that a row of ``DESCRIBE … AS JSON`` describes."""
    return record(MaterializedTable, json.loads(row["json_metadata"]))


def read_refreshed(row: Row) -> Refreshed:
    """Return the refresh that a row of ``REFRESH`` is about."""
    info = _parsed(row["cluster info"])
    own = {key: info.pop(key, None) or None for key in ("table", "state", "action")}
    return record(Refreshed, {"job_id": row["job id"], **own, "cluster_info": info})


def read_canceled(row: Row) -> CanceledRefresh:
    """Return the refresh that a row of ``CANCEL REFRESH`` is about."""
    return CanceledRefresh(job_id=row["job id"], state=row["state"])
