"""SQL that creates Delta tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tidegate_server.core.model.names import TableName, quote_identifier, quote_literal, quote_pairs
from tidegate_server.core.model.types import Schema
from tidegate_server.engine.storage.table_sql import column_sql

CHANGE_FEED = "delta.enableChangeDataFeed"
_FEED_NAMES = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_QUOTED_NAME = re.compile("`((?:[^`]|``)*)`")


def has_feed_names(names: Iterable[str]) -> bool:
    """Say whether columns have names that Delta reserves for the change feed."""
    return any(name.lower() in _FEED_NAMES for name in names)


def create_sql(
    name: TableName,
    schema: Schema,
    partition_keys: Sequence[str],
    comment: str | None,
    properties: Mapping[str, str],
    location: str | None = None,
) -> str:
    facts = dict(properties)
    nested = "".join(name for column in schema for name in _QUOTED_NAME.findall(column.type))
    if any(_NEEDS_MAPPING & set(name) for name in (nested, *schema.names())):
        facts["delta.columnMapping.mode"] = "name"
    if has_feed_names(schema.names()):
        facts[CHANGE_FEED] = "false"
    columns = ", ".join(column_sql(column) for column in schema)
    parts = [f"CREATE TABLE {name.quoted()} ({columns}) USING delta"]
    # Delta cannot store rows that have only partition columns.
    if 0 < len(partition_keys) < len(schema):
        parts.append(f"PARTITIONED BY ({', '.join(quote_identifier(k) for k in partition_keys)})")
    if comment is not None:
        parts.append(f"COMMENT {quote_literal(comment)}")
    if location is not None:
        parts.append(f"LOCATION {quote_literal(location)}")
    parts.append(f"TBLPROPERTIES ({quote_pairs(facts)})")
    return " ".join(parts)


def register_sql(name: TableName, location: str) -> str:
    return f"CREATE TABLE {name.quoted()} USING delta LOCATION {quote_literal(location)}"
