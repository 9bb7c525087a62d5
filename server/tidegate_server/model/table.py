"""The definition of a materialized table, as the catalog keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidegate_server.model.freshness import Freshness
from tidegate_server.model.names import TableName
from tidegate_server.model.states import RefreshStatus
from tidegate_server.model.types import Schema
from tidegate_server.model.versions import Source


class LogicalRefreshMode(Enum):
    """What the user asked for."""

    AUTOMATIC = "AUTOMATIC"
    FULL = "FULL"
    CONTINUOUS = "CONTINUOUS"


class RefreshMode(Enum):
    """What is done: a scheduled workflow (FULL) or the watching of sources (CONTINUOUS)."""

    FULL = "FULL"
    CONTINUOUS = "CONTINUOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKey:
    """A declared key; NOT ENFORCED, as in Flink."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedTable:
    """A table whose content a query defines and the server keeps fresh.

    Fields follow Flink's ``CatalogMaterializedTable``. ``original_query`` is the user's text after
    AS, byte for byte; ``expanded_query`` is the same query with every table name qualified and the
    output columns fixed, and is what refreshes run.
    """

    id: str
    name: TableName
    schema: Schema
    original_query: str
    expanded_query: str
    freshness: Freshness
    logical_refresh_mode: LogicalRefreshMode
    refresh_mode: RefreshMode
    refresh_status: RefreshStatus
    owner: str
    created_at: datetime
    location: str = ""
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()
    primary_key: PrimaryKey | None = None
    sources: tuple[Source, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    execution_target: str = "embedded"
    status_reason: str | None = None
    definition_version: int = 1

    def date_formatters(self) -> dict[str, str]:
        """Return the Java date pattern of each partition column that has one."""
        prefix, suffix = "partition.fields.", ".date-formatter"
        return {
            key.removeprefix(prefix).removesuffix(suffix): pattern
            for key, pattern in self.options.items()
            if key.startswith(prefix) and key.endswith(suffix)
        }
