"""SHOW CREATE TABLE for Delta tables, which Delta does not support."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from tidegate_server.core.model.names import qualify, quote_identifier, quote_literal
from tidegate_server.engine.query.references import parse_statement
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.statement.targets import is_path
from tidegate_server.engine.storage.delta.commits import newest_snapshot
from tidegate_server.engine.storage.entries import entry_of, provider_of
from tidegate_server.engine.storage.jvm import items, java, kind, scala_object

_SHOW_CREATE: Final = re.compile(r"\bshow\b.*\bcreate\b.*\btable\b", re.IGNORECASE | re.DOTALL)
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*")
_CONSTRAINT: Final = "delta.constraints."
_ASSIGNED: Final = (
    "delta.columnMapping.maxColumnId",
    "delta.rowTracking.materialized",
    "delta.inCommitTimestampEnablement",
    "clusteringColumns",
)
"""Prefixes of properties that Delta assigns to each table."""
_DEFAULT: Final = "CURRENT_DEFAULT"
_GENERATED: Final = "delta.generationExpression"
_IDENTITY: Final = "delta.identity."
_DEFAULTS_FEATURE: Final = "delta.feature.allowColumnDefaults"


def show_create_table(spark: SparkSession, text: str) -> DataFrame | None:
    """Return the answer to SHOW CREATE TABLE of a Delta table; None for any other statement."""
    if not _SHOW_CREATE.search(text):
        return None
    plan = parse_statement(spark, text)
    if kind(plan) != "ShowCreateTable" or plan.asSerde():
        return None
    if kind(plan.child()) != "UnresolvedTableOrView":
        return None
    parts = tuple(str(part) for part in items(plan.child().multipartIdentifier()))
    made = _create_statement(spark, parts)
    if made is None:
        return None
    # A column, not a literal in the query's text, where Spark would substitute variables.
    return spark.sql("SELECT 1").select(lit(made).alias("createtab_stmt"))


def _create_statement(spark: SparkSession, parts: tuple[str, ...]) -> str | None:
    """Return the statement that creates an equal Delta table; None for tables of other formats."""
    session: Any = spark._jsparkSession
    log: Any = java(spark).org.apache.spark.sql.delta.DeltaLog
    if is_path(parts):
        if parts[-2].lower() != "delta":
            return None
        found, name, external = log.forTable(session, parts[-1]), f"delta.`{parts[-1]}`", False
    else:
        if len(parts) > 3 or is_temporary_view(spark, parts):
            return None
        place = current_place(spark)
        full = qualify(parts, place.catalog, place.schema)
        entry = entry_of(spark, full)
        if entry is None or provider_of(entry) != "delta":
            return None
        found = log.forTable(session, entry.identifier())
        external = entry.tableType().name() != "MANAGED"
        name = ".".join(_quote_if_needed(part) for part in (full.catalog, full.schema, full.table))
    snapshot = newest_snapshot(java(spark), found)
    if int(snapshot.version()) < 0:
        return None
    return "\n".join(_clauses(spark, snapshot, name, external=external))


def _clauses(spark: SparkSession, snapshot: Any, name: str, *, external: bool) -> Iterator[str]:
    jvm: Any = java(spark)
    metadata = snapshot.metadata()
    utilities = scala_object(jvm, "org.apache.spark.sql.catalyst.util.CharVarcharUtils")
    fields = list(utilities.getRawSchema(metadata.schema()).fields())
    configuration = {str(pair._1()): str(pair._2()) for pair in _pairs(metadata.configuration())}
    columns = ",\n".join(f"  {_column(field)}" for field in fields)
    yield f"CREATE TABLE {name} (\n{columns})" if fields else f"CREATE TABLE {name}"
    yield "USING delta"
    partitions = [str(column) for column in items(metadata.partitionColumns())]
    clusters = _clustering(jvm, snapshot)
    if partitions:
        yield f"PARTITIONED BY ({', '.join(map(_quote_if_needed, partitions))})"
    elif clusters:
        yield f"CLUSTER BY ({', '.join(clusters)})"
    if external:
        yield f"LOCATION {quote_literal(str(snapshot.path().getParent().toString()))}"
    if metadata.description() is not None:
        yield f"COMMENT {quote_literal(str(metadata.description()))}"
    yield from _properties_clause(_table_properties(configuration, fields))
    yield from _constraints(configuration, name)


def _column(field: Any) -> str:
    known = field.metadata()
    parts = [_quote_if_needed(str(field.name())), str(field.dataType().sql())]
    if not field.nullable():
        parts.append("NOT NULL")
    if known.contains(_GENERATED):
        parts.append(f"GENERATED ALWAYS AS ({known.getString(_GENERATED)})")
    if known.contains(f"{_IDENTITY}start"):
        by = "BY DEFAULT" if known.getBoolean(f"{_IDENTITY}allowExplicitInsert") else "ALWAYS"
        start, step = (known.getLong(f"{_IDENTITY}{each}") for each in ("start", "step"))
        parts.append(f"GENERATED {by} AS IDENTITY (START WITH {start} INCREMENT BY {step})")
    if known.contains(_DEFAULT):
        parts.append(f"DEFAULT {known.getString(_DEFAULT)}")
    if field.getComment().isDefined():
        parts.append(f"COMMENT {quote_literal(str(field.getComment().get()))}")
    return " ".join(parts)


def _table_properties(configuration: Mapping[str, str], fields: Sequence[Any]) -> dict[str, str]:
    """Return the properties that an equal table needs."""
    shown = {
        key: value
        for key, value in configuration.items()
        if not key.startswith((*_ASSIGNED, _CONSTRAINT))
    }
    if any(field.metadata().contains(_DEFAULT) for field in fields):
        shown.setdefault(_DEFAULTS_FEATURE, "supported")
    return shown


def _properties_clause(properties: Mapping[str, str]) -> Iterator[str]:
    if properties:
        pairs = (
            f"  {quote_literal(k)} = {quote_literal(v)}" for k, v in sorted(properties.items())
        )
        yield "TBLPROPERTIES (\n" + ",\n".join(pairs) + ")"


def _constraints(configuration: Mapping[str, str], name: str) -> Iterator[str]:
    """Yield the CHECK constraints as comments, since Delta's CREATE TABLE does not accept them."""
    for key, condition in sorted(configuration.items()):
        if key.startswith(_CONSTRAINT):
            constraint = _quote_if_needed(key.removeprefix(_CONSTRAINT))
            line = " ".join(condition.split())
            yield f"-- ALTER TABLE {name} ADD CONSTRAINT {constraint} CHECK ({line});"


def _clustering(jvm: Any, snapshot: Any) -> list[str]:
    """Return the columns that a table is clustered by."""
    utilities = scala_object(
        jvm, "org.apache.spark.sql.delta.skipping.clustering.ClusteredTableUtils"
    )
    if not utilities.isSupported(snapshot.protocol()):
        return []
    columns = scala_object(
        jvm, "org.apache.spark.sql.delta.skipping.clustering.ClusteringColumnInfo"
    )
    return [str(each) for each in items(columns.extractLogicalNames(snapshot))]


def _pairs(found: Any) -> Iterator[Any]:
    return items(found.toSeq())


def _quote_if_needed(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)
