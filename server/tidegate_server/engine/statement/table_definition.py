"""Finds the definition of a table that another one is created like."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.connectors.definition import definition_of
from tidegate_server.core.connectors.tables import connector_of
from tidegate_server.core.messages.answers import TableDefinitionFound
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.sql.external.plain_tables import KEY_PROPERTY
from tidegate_server.engine.query.connector_views import view_text
from tidegate_server.engine.query.references import canonical_name
from tidegate_server.engine.query.resolution import is_temporary_view
from tidegate_server.engine.results.projection import result_schema


def find_table_definition(spark: SparkSession, written: tuple[str, ...]) -> TableDefinitionFound:
    """Return the definition of a table or view.

    :raises pyspark.errors.AnalysisException: if there is none of this name.
    """
    parts = canonical_name(written)
    found = view_text(spark, parts)
    if found is not None and (connector := connector_of(*found)) is not None:
        return TableDefinitionFound(connector=connector, definition=definition_of(*found) or "")
    name = ".".join(map(quote_identifier, parts))
    columns = result_schema(spark.table(name))
    if found is not None or is_temporary_view(spark, parts):
        return TableDefinitionFound(columns=columns)
    keys = [each.name for each in spark.catalog.listColumns(name) if each.isPartition]
    return TableDefinitionFound(
        columns=columns, primary_key=_primary_key(spark, name), partition_keys=tuple(keys)
    )


def _primary_key(spark: SparkSession, name: str) -> tuple[str, ...]:
    """Return the columns of the primary key that a table records."""
    rows: list[Any] = spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
    recorded = {str(row["key"]): str(row["value"]) for row in rows}.get(KEY_PROPERTY, "")
    return tuple(each for each in recorded.split(", ") if each)
