"""Every table of the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.types import TypeDecorator

from tidegate_server.core.jobs import JobInsert
from tidegate_server.core.messages.decoding import prepare_decoding
from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartMode,
    Watermark,
)
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import Rejection, RunMetrics, SourceChange
from tidegate_server.core.model.table import (
    ColumnOrigin,
    DerivedColumn,
    HeldVersion,
    PrimaryKey,
)
from tidegate_server.core.model.types import Schema
from tidegate_server.core.refresh.maintenance import ContentCompared, FilesRemoved, FilesRewritten
from tidegate_server.gateway.store.stored_table import StoredRollback, StoredTable


class UtcTimestamp(TypeDecorator[datetime]):
    """An aware UTC datetime; SQLite stores no zone, so it is removed and added again."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Json(TypeDecorator[Any]):
    """A value of one Python type, stored as JSON text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        prepare_decoding(kind)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else msgspec.json.decode(value, type=self.kind)


metadata = MetaData()

_ID = String(64)
_NAME = String(255)
_WORD = String(64)
_KEY = String(1100)

schema_version = Table(
    "schema_version",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

materialized_tables = Table(
    "materialized_tables",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("catalog_name", _NAME, nullable=False),
    Column("schema_name", _NAME, nullable=False),
    Column("table_name", _NAME, nullable=False),
    Column("folded_catalog", _NAME, nullable=False),
    Column("folded_schema", _NAME, nullable=False),
    Column("folded_table", _NAME, nullable=False),
    Column("columns", Json(Schema), nullable=False),
    Column("original_query", Text, nullable=False),
    Column("expanded_query", Text, nullable=False),
    Column("freshness_value", Integer, nullable=False),
    Column("freshness_unit", _WORD, nullable=False),
    Column("logical_refresh_mode", _WORD, nullable=False),
    Column("refresh_mode", _WORD, nullable=False),
    Column("refresh_status", _WORD, nullable=False),
    Column("status_reason", Text),
    Column("owner", _NAME, nullable=False),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("location", Text, nullable=False),
    Column("comment", Text),
    Column("options", Json(dict[str, str]), nullable=False),
    Column("partition_keys", Json(tuple[str, ...]), nullable=False),
    Column("primary_key", Json(PrimaryKey | None)),
    Column("settings", Json(dict[str, str]), nullable=False),
    Column("execution_target", _WORD, nullable=False),
    Column("definition_version", Integer, nullable=False),
    Column("storage_table", Json(TableName | None)),
    Column("declared", Boolean, nullable=False, server_default=false()),
    Column("derived", Json(tuple[DerivedColumn, ...]), nullable=False, server_default="[]"),
    Column("persisted_metadata", Json(dict[str, str]), nullable=False, server_default="{}"),
    Column("watermark", Json(Watermark | None)),
    Column("distribution", Json(Distribution | None)),
    Column("start_mode", Json(StartMode | None)),
    Column("downstream", Boolean, nullable=False, server_default=false()),
    Column("on_update", Json(OnUpdate | None)),
    Column("execute_as", Text),
    Column("expectations", Json(tuple[Expectation, ...]), nullable=False, server_default="[]"),
    Column("assertions", Json(tuple[Assertion, ...]), nullable=False, server_default="[]"),
    Column("immutable", Text),
    Column("backfilled_from", Json(TableName | None)),
    Column("lineage", Json(tuple[ColumnOrigin, ...]), nullable=False, server_default="[]"),
    Column("resume_options", Json(dict[str, str]), nullable=False, server_default="{}"),
    Column("checkpoint_floor", BigInteger, nullable=False, server_default="0"),
    Column("defined_by", _NAME),
    Column("defined_at", UtcTimestamp),
    Column("restored_from", Integer),
    Column("leaving", Boolean, nullable=False, server_default=false()),
    Column("swapping", Boolean, nullable=False, server_default=false()),
    Column("dropping", Boolean, nullable=False, server_default=false()),
    Column("held", Json(HeldVersion | None)),
    Column("rolling_back", Json(StoredRollback | None)),
    UniqueConstraint("folded_catalog", "folded_schema", "folded_table", name="uq_table_name"),
)

sources = Table(
    "sources",
    metadata,
    Column(
        "materialized_table_id",
        _ID,
        ForeignKey("materialized_tables.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("catalog_name", _NAME, nullable=False),
    Column("schema_name", _NAME, nullable=False),
    Column("table_name", _NAME, nullable=False),
    Column("folded_catalog", _NAME, nullable=False),
    Column("folded_schema", _NAME, nullable=False),
    Column("folded_table", _NAME, nullable=False),
    Column("kind", _WORD, nullable=False),
    Column("table_id", _NAME, nullable=False),
    Column("materialized_table", Boolean, nullable=False),
    Column("via", Json(tuple[TableName, ...]), nullable=False, server_default="[]"),
    Column("columns", Json(Schema | None)),
    Index("ix_sources_name", "folded_catalog", "folded_schema", "folded_table"),
)

definition_versions = Table(
    "definition_versions",
    metadata,
    Column(
        "table_id",
        _ID,
        ForeignKey("materialized_tables.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("definition_version", Integer, primary_key=True, autoincrement=False),
    Column("definition", Json(StoredTable), nullable=False),
)

workflows = Table(
    "workflows",
    metadata,
    Column("table_id", _ID, primary_key=True),
    Column("mode", _WORD, nullable=False),
    Column("freshness_seconds", Integer, nullable=False),
    Column("cron", _NAME),
    Column("timezone", _NAME, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("next_fire", UtcTimestamp),
    Column("failures", Integer, nullable=False, server_default="0"),
    Index("ix_workflows_due", "active", "next_fire"),
)

fires = Table(
    "fires",
    metadata,
    Column("table_id", _ID, primary_key=True),
    Column("schedule_time", UtcTimestamp, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("due_at", UtcTimestamp, nullable=False),
    Column("owner", _NAME),
    Column("expires_at", UtcTimestamp),
)

cancel_requests = Table("cancel_requests", metadata, Column("refresh_id", _ID, primary_key=True))

leases = Table(
    "leases",
    metadata,
    Column("table_id", _ID, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", _NAME),
    Column("expires_at", UtcTimestamp),
)

refresh_runs = Table(
    "refresh_runs",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("refresh_id", _ID, nullable=False, unique=True),
    Column("table_id", _ID, nullable=False),
    Column("catalog_name", _NAME, nullable=False),
    Column("schema_name", _NAME, nullable=False),
    Column("table_name", _NAME, nullable=False),
    Column("definition_version", Integer, nullable=False),
    Column("trigger_kind", _WORD, nullable=False),
    Column("state", _WORD, nullable=False),
    Column("queued_at", UtcTimestamp, nullable=False),
    Column("requested_by", _NAME, nullable=False),
    Column("server_id", _NAME, nullable=False),
    Column("epoch", BigInteger),
    Column("schedule_time", UtcTimestamp),
    Column("partitions", Json(tuple[Mapping[str, str], ...]), nullable=False),
    Column("action", _WORD),
    Column("reason_code", _WORD),
    Column("reason_text", Text),
    Column("from_version", BigInteger),
    Column("to_version", BigInteger),
    Column("sources", Json(dict[str, int]), nullable=False),
    Column("changes", Json(tuple[SourceChange, ...]), nullable=False, server_default="[]"),
    Column("rejected", Json(tuple[Rejection, ...]), nullable=False, server_default="[]"),
    Column("metrics", Json(RunMetrics), nullable=False, server_default="{}"),
    Column("wave_id", _ID),
    Column("requested_action", _WORD),
    Column("data_timestamp", UtcTimestamp),
    Column("started_at", UtcTimestamp),
    Column("finished_at", UtcTimestamp),
    Column("error_class", _NAME),
    Column("sqlstate", _WORD),
    Column("error_message", Text),
    Column("attempt", Integer, nullable=False),
    Column("execution_target", _NAME),
    Index("ix_runs_table", "table_id", "sequence"),
    Index("ix_runs_state", "state"),
)

lag_breaches = Table(
    "lag_breaches",
    metadata,
    Column("table_id", _ID, primary_key=True),
    Column("since", UtcTimestamp, nullable=False),
)

maintenance_runs = Table(
    "upkeep_runs",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("upkeep_id", _ID, nullable=False, unique=True),
    Column("table_id", _ID, nullable=False),
    Column("catalog_name", _NAME, nullable=False),
    Column("schema_name", _NAME, nullable=False),
    Column("table_name", _NAME, nullable=False),
    Column("server_id", _NAME, nullable=False),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("finished_at", UtcTimestamp, nullable=False),
    Column("rewritten", Json(FilesRewritten)),
    Column("files_left", BigInteger),
    Column("removed", Json(FilesRemoved)),
    Column("removed_before", UtcTimestamp),
    Column("compared", Json(ContentCompared)),
    Column("error_class", _NAME),
    Column("error_message", Text),
    Index("ix_upkeep_table", "table_id", "sequence"),
)

grants = Table(
    "grants",
    metadata,
    Column("grantee_kind", _WORD, primary_key=True),
    Column("grantee", _NAME, primary_key=True),
    Column("privilege", _WORD, primary_key=True),
    Column("object_kind", _WORD, primary_key=True),
    Column("object_key", _KEY, primary_key=True),
    Column("holder_kind", _WORD, primary_key=True),
    Column("holder", _NAME, primary_key=True),
    Column("grantable", Boolean, nullable=False),
    Column("granted_by", _NAME, nullable=False),
    Column("granted_at", UtcTimestamp, nullable=False),
    Index("ix_grants_object", "object_kind", "object_key"),
)

roles = Table(
    "roles",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("created_by", _NAME, nullable=False),
    Column("created_at", UtcTimestamp, nullable=False),
)

role_members = Table(
    "role_members",
    metadata,
    Column("role", _NAME, primary_key=True),
    Column("member_kind", _WORD, primary_key=True),
    Column("member", _NAME, primary_key=True),
    Column("granted_by", _NAME, nullable=False),
    Column("granted_at", UtcTimestamp, nullable=False),
)

user_groups = Table(
    "user_groups",
    metadata,
    Column("user_name", _NAME, primary_key=True),
    Column("group_name", _NAME, primary_key=True),
)

function_owners = Table(
    "function_owners",
    metadata,
    Column("catalog_name", _NAME, primary_key=True),
    Column("schema_name", _NAME, primary_key=True),
    Column("function_name", _NAME, primary_key=True),
    Column("owner", _NAME, nullable=False),
)

external_objects = Table(
    "external_objects",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("kind", _WORD, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("type", _WORD, nullable=False),
    Column("options", Json(dict[str, str]), nullable=False),
    Column("secrets", Json(dict[str, str]), nullable=False),
    Column("owner", _NAME, nullable=False),
    Column("comment", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    UniqueConstraint("kind", "name"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("owner", _NAME, nullable=False),
    Column("inserts", Json(tuple[JobInsert, ...]), nullable=False),
    Column("statements", Json(tuple[str, ...])),
    Column("settings", Json(dict[str, str]), nullable=False),
    Column("interval", Float, nullable=False),
    Column("state", _WORD, nullable=False),
    Column("reason", Text),
    Column("rows", BigInteger),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("ended_at", UtcTimestamp),
)

delegation_tokens = Table(
    "delegation_tokens",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("owner", _NAME, nullable=False),
    Column("renewer", _NAME, nullable=False),
    Column("issuer", _NAME, nullable=False),
    Column("issued_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp, nullable=False),
    Column("max_date", UtcTimestamp, nullable=False),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("purpose", _WORD, primary_key=True),
    Column("key", String(128), nullable=False),
)
