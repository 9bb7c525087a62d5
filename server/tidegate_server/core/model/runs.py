"""Records of refresh runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.open_enum import OpenEnum
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.versions import PartitionSpec


class Trigger(Enum):
    """Why a refresh was requested."""

    INITIAL = "INITIAL"
    SCHEDULED = "SCHEDULED"
    MANUAL = "MANUAL"
    CASCADE = "CASCADE"
    UPSTREAM_CHANGE = "UPSTREAM_CHANGE"
    EVOLUTION = "EVOLUTION"
    BACKFILL = "BACKFILL"
    REPAIR = "REPAIR"


class Strategy(Enum):
    """How one run works."""

    FULL = "FULL"
    PARTITION = "PARTITION"
    INCREMENTAL = "INCREMENTAL"
    NO_DATA = "NO_DATA"
    ROLLBACK = "ROLLBACK"
    PUBLISH = "PUBLISH"
    INGEST = "INGEST"


class ChangeMethod(OpenEnum):
    """How the change of a source was read; histories store the values."""

    UNCHANGED = "UNCHANGED"
    """No row changed."""
    APPENDED = "APPENDED"
    """Rows were only added: only the added files are read."""
    CHANGE_FEED = "CHANGE_FEED"
    """The change feed of the table is read."""
    DIFFERENCE = "DIFFERENCE"
    """The rows of replaced files are compared with those of the files that replaced them."""
    WHOLE = "WHOLE"
    """The change is unknown; every row may have changed."""
    FINGERPRINT = "FINGERPRINT"
    """The files of a source without versions are compared by a fingerprint."""
    ASSUMED = "ASSUMED"
    """Changes of a source without versions cannot be detected and are assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """One source's part in a refresh: its versions or fingerprints, and how its change was
    read."""

    source: str
    before: int | None
    after: int | None
    method: ChangeMethod
    rows: int | None = None
    snapshot: str | None = None
    """The id by which SQL names the version ``after``; None if by the version itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A rejected strategy and the reason; ``cost`` is in predicted seconds."""

    strategy: str
    reason_code: Reason
    reason_text: str
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The estimated amount of work of a refresh, from which its duration is predicted."""

    rows_read: int
    rows_written: int
    rows_changed: int = 0
    """Those rows read that belong to a source's change."""
    row_bytes: int = 40
    """Of a row read, in the columns used."""
    rows_grouped: int = 0
    """Those rows read that the query groups, sorts or numbers, if it is computed as a whole."""
    columns: int = 0
    """Those of the table."""
    lookups: int = 0
    """The operators whose rows are looked up by affected keys or compared."""
    rows_in_table: int = 0
    """Those of the table, which is searched for removed rows and in part written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An incremental refresh that was given up for a full one."""

    way: str
    """How the rows were to reach the table, as the cost model names it."""
    seconds: float
    work: Work | None = None
    """What it would have done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """Amounts read and written by a run; None if unknown."""

    rows_read: int | None = None
    rows_written: int | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    rows_copied: int | None = None
    bytes_written: int | None = None
    files_written: int | None = None
    affected_keys: int | None = None
    predicted_seconds: float | None = None
    full_seconds: float | None = None
    """Predicted duration of a full refresh."""
    work: Work | None = None
    """The estimate for a refresh of this kind."""
    attempt: Attempt | None = None
    expectations: Mapping[str, int] = field(default_factory=dict)
    """By name: rows that broke an expectation, key values that violate the key, and 1 for a broken
    assertion."""
    spark_job_ids: tuple[int, ...] = ()
    executor_ms: int | None = None
    peak_memory: int | None = None


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
    changes: tuple[SourceChange, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    metrics: RunMetrics = RunMetrics()
    wave_id: str | None = None
    """Shared by the refreshes of one cascade, which read one version of every source."""
    requested_action: str | None = None
    data_timestamp: datetime | None = None
    """The table holds every source change made before this moment."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_class: str | None = None
    sqlstate: str | None = None
    error_message: str | None = None
    attempt: int = 1
    execution_target: str | None = None
    """The engine that ran it, as tables name theirs; None if none did or it is not recorded."""

    @property
    def seconds(self) -> float | None:
        """The time from start to end; None before the end."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()
