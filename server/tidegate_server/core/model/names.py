"""Qualified names of tables and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

DEFAULT_CATALOG = "spark_catalog"
DEFAULT_SCHEMA = "default"
STORAGE_PREFIX = "__tidegate_"
QUARANTINE_SUFFIX = "__quarantine"


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function's name; built-in and temporary functions have no schema."""

    name: str
    schema: str | None = None


def quote_identifier(name: str) -> str:
    """Return ``name`` as a Spark identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def quote_literal(text: str) -> str:
    """Return ``text`` as a Spark string literal whose value is exactly ``text``."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_pairs(given: Mapping[str, str]) -> str:
    """Return options or properties in SQL, as OPTIONS, WITH and TBLPROPERTIES list them."""
    return ", ".join(f"{quote_literal(k)} = {quote_literal(v)}" for k, v in given.items())


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's full name; Spark's metastore folds unquoted and quoted names to lower case."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"

    def quoted(self) -> str:
        """Return the name in SQL, every part in backticks."""
        return ".".join(quote_identifier(part) for part in (self.catalog, self.schema, self.table))

    @property
    def is_foreign(self) -> bool:
        """Whether it is in another catalog than the session catalog."""
        return self.catalog.lower() not in ("", DEFAULT_CATALOG)

    def folded(self) -> TableName:
        """Return the name in lower case, as the metastore stores and compares it."""
        return TableName(self.catalog.lower(), self.schema.lower(), self.table.lower())


def storage_name(name: TableName) -> TableName:
    """Return the table that stores the rows if ``name`` is a view."""
    return replace(name, table=STORAGE_PREFIX + name.table)


def quarantine_name(name: TableName) -> TableName:
    """Return the view of a materialized table's quarantined rows."""
    return replace(name, table=name.table + QUARANTINE_SUFFIX)


def visible_name(name: TableName) -> TableName:
    """Return the name users see: the view over a storage table, else ``name`` itself."""
    return replace(name, table=name.table.removeprefix(STORAGE_PREFIX))


def qualify(parts: tuple[str, ...], catalog: str, schema: str) -> TableName:
    """Complete a name of one to three parts with the session's current catalog and schema.

    :raises ValueError: if there are no parts or more than three.
    """
    match parts:
        case (table,):
            return TableName(catalog, schema, table)
        case (given_schema, table):
            return TableName(catalog, given_schema, table)
        case (given_catalog, given_schema, table):
            return TableName(given_catalog, given_schema, table)
        case _:
            raise ValueError(f"a table name has one to three parts, not {len(parts)}")


SYSTEM_SCHEMA = "information_schema"
AUDIT_LOG = "audit_log"
"""The table of that schema that only administrators may read."""
