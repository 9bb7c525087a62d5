"""The Spark side of changing a definition: checks expressions, renames tables, manages views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import (
    DefinitionsFound,
    ExpressionsChecked,
    FoundDefinition,
    Inspected,
    Rewritten,
)
from tidegate_server.core.messages.requests import (
    CheckExpressions,
    DropView,
    InspectTable,
    PutView,
    RewriteNames,
    ViewColumn,
)
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    DEFAULT_SCHEMA,
    TableName,
    qualify,
    quote_identifier,
    quote_literal,
    quote_pairs,
)
from tidegate_server.core.model.types import Schema
from tidegate_server.core.sql.assertions import spark_condition
from tidegate_server.engine.definition.analyze import analyzed_plan
from tidegate_server.engine.query.determinism import time_dependent, unstable_parts
from tidegate_server.engine.query.immutable_region import check_region
from tidegate_server.engine.query.references import Edit, apply_edits, parse_query
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.session.sessions import Child, apply_settings
from tidegate_server.engine.storage.base import TableDescription, TableFormat, is_foreign
from tidegate_server.engine.storage.entries import entry_of
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.table_properties import (
    PROPERTY_DEFINITION,
    PROPERTY_ID,
    PROPERTY_QUARANTINE_OF,
)

_ASSERTION = "the assertion"
_NOT_PER_ROW: Mapping[str, str] = {
    "INVALID_WHERE_CONDITION": "it reads more than its own row",
    "_LEGACY_ERROR_TEMP_1034": "it reads more than its own row",  # window functions
    "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT": "it returns several rows for one",
}
"""Reasons, by Spark's error condition, why an expression in a WHERE is not valid for a column."""


def check_expressions(child: Child, request: CheckExpressions) -> ExpressionsChecked:
    """Analyze computed columns, a watermark and conditions over columns that need not exist.

    The query also has them in a WHERE, where Spark rejects everything that reads several rows.

    :raises ServerError: MT_COLUMN_EXPRESSION if one reads a table or uses a temporary function,
        MT_PREDICATE if the region would lose rows. Other exceptions of Spark pass through.
    """
    spark = child.spark
    nulls = ", ".join(
        f"CAST(NULL AS {column.type}) AS {quote_identifier(column.name)}"
        for column in request.columns
    )
    stored = f"(SELECT {nulls or '1'})"
    _check_references(spark, request)
    made = ", ".join(f"({text}\n) AS {quote_identifier(name)}" for name, text in request.computed)
    tests = " AND ".join(f"({text}\n) IS NOT NULL" for _, text in request.computed)
    below = f"SELECT *, {made} FROM {stored} WHERE {tests}" if made else f"SELECT * FROM {stored}"
    names = ", ".join(name for name, _ in request.computed)
    schema = result_schema(_analyze_expression(spark, below, names))
    if request.listed:
        below = f"SELECT {request.listed} FROM {stored}"
        schema = result_schema(spark.sql(below))
    watermark = ""
    if request.watermark:
        text = f"({request.watermark}\n)"
        test = f"SELECT {text} FROM ({below}) WHERE {text} IS NOT NULL"
        [found] = result_schema(_analyze_expression(spark, test, "the watermark"))
        watermark = found.type
    for text in request.conditions:
        test = f"SELECT 1 FROM ({below}) WHERE ({text}\n)"
        condition = _analyze_expression(spark, test, "the expectation")
        changing = time_dependent(unstable_parts(analyzed_plan(condition)))
        if request.stable and changing:
            reason = f"{', '.join(changing)} may give another result each time the rows are read"
            raise _expression_error("the expectation", reason)
    for text in request.assertions:
        _check_assertion(spark, text, stored)
    if request.region is not None:
        check_region(spark.sql(f"SELECT * FROM {stored}"), request.region)
    first = 0 if request.listed else len(request.columns)
    return ExpressionsChecked(computed=Schema(schema.columns[first:]), watermark=watermark)


def _analyze_expression(spark: SparkSession, sql: str, name: str) -> DataFrame:
    """Analyze a query with an expression in its WHERE.

    :raises ServerError: MT_COLUMN_EXPRESSION if it is not an expression over a single row.
    """
    try:
        return spark.sql(sql)
    except AnalysisException as caught:
        reason = _NOT_PER_ROW.get(str(caught.getCondition()))
        if reason is None:
            raise
        raise _expression_error(name, reason) from caught


def _check_assertion(spark: SparkSession, text: str, stored: str) -> None:
    """Analyze an assertion; the count makes Spark reject columns outside of aggregates."""
    frame = spark.sql(f"SELECT count(1), ({spark_condition(text, stored)}\n) FROM {stored}")
    kind = frame.schema.fields[1].dataType
    if not isinstance(kind, BooleanType):
        raise _expression_error(_ASSERTION, f"it is {kind.simpleString().upper()}, not BOOLEAN")


def rewrite_names(spark: SparkSession, request: RewriteNames) -> Rewritten:
    """Replace a table's name in queries with full names only."""
    return Rewritten(queries=tuple(_rename_table(spark, text, request) for text in request.queries))


def _rename_table(spark: SparkSession, text: str, request: RewriteNames) -> str | None:
    """Return the text with the new name, or None if it does not mention the old one.

    The old name remains as an alias, since it may qualify columns in the query.
    """
    query = parse_query(spark, text)
    old = request.name
    mentions = [r for r in query.references if _is_name_of(r.parts, old)]
    if not mentions or any(r.time_travel and not r.aliased for r in mentions):
        return None
    alias = f" AS {quote_identifier(old.table)}"
    edits = [
        Edit(
            r.start,
            r.end,
            ("SELECT * FROM " if r.statement else "")
            + request.new_name.quoted()
            + ("" if r.aliased or r.statement else alias),
        )
        for r in mentions
    ]
    edits += [
        Edit(c.start, c.end, f"{quote_identifier(old.table)}.{quote_identifier(c.parts[-1])}")
        for c in query.columns
        if _is_name_of(c.parts[:-1], old)
    ]
    return apply_edits(text, edits)


def _is_name_of(parts: Sequence[str], name: TableName) -> bool:
    if not 1 <= len(parts) <= 3:
        return False
    found = qualify(tuple(parts), DEFAULT_CATALOG, DEFAULT_SCHEMA)
    return found.folded() == name.folded()


def inspect(spark: SparkSession, request: InspectTable, format: TableFormat) -> Inspected:
    """Return format, columns and properties of a plain table."""
    entry = entry_of(spark, request.name)
    if entry is not None and entry.tableType().name() == "VIEW":
        return Inspected(format="view", materialized_id=_owner_id(entry))
    foreign = is_foreign(request.name)
    if entry is None and not foreign:
        return Inspected(format=None)
    state = format.find(request.name)
    if state is None:
        if entry is None:
            return Inspected(format=None)
        provider = entry.provider()
        return Inspected(format=str(provider.get()) if provider.isDefined() else "unknown")
    described = _describe(request.name, format)
    if described is None:
        return Inspected(format=None)
    return Inspected(
        format=format.name,
        schema=described.schema,
        partition_keys=described.partition_keys,
        comment=described.comment,
        location=described.location,
        properties=described.properties,
        materialized_id=state.materialized_id,
    )


def _describe(name: TableName, format: TableFormat) -> TableDescription | None:
    """Return the description of a table; None if another session has just dropped it."""
    try:
        return format.describe(name)
    except ServerError as caught:
        if caught.code != Code.MT_NOT_FOUND.name:
            raise
        return None


def find_definitions(spark: SparkSession, format: TableFormat) -> DefinitionsFound:
    """Read the definitions in all storage tables of the metastore."""
    session: Any = spark._jsparkSession
    jvm: Any = java(spark)
    catalog = session.sharedState().externalCatalog()
    strings = jvm.scala.jdk.javaapi.CollectionConverters.asJava
    found = []
    for schema in sorted(strings(catalog.listDatabases())):
        for table in sorted(strings(catalog.listTables(schema))):
            name = TableName(DEFAULT_CATALOG, str(schema), str(table))
            entry = entry_of(spark, name)
            if entry is None or entry.tableType().name() == "VIEW" or format.find(name) is None:
                continue
            described = _describe(name, format)
            if described is None:
                continue
            definition = described.properties.get(PROPERTY_DEFINITION)
            if definition is not None:
                found.append(
                    FoundDefinition(
                        storage=name,
                        table_id=described.properties.get(PROPERTY_ID, ""),
                        location=described.location,
                        definition=definition,
                    )
                )
    return DefinitionsFound(found=tuple(found))


def put_view(spark: SparkSession, request: PutView) -> None:
    """Create or replace the view over a storage table.

    :raises pyspark.errors.PySparkException: TABLE_OR_VIEW_ALREADY_EXISTS if the name is used for
        something else.
    """
    session = spark.newSession()
    apply_settings(session, request.settings)
    session.sql(f"USE {quote_identifier(request.name.schema)}")
    owned = _owner_id(entry_of(session, request.name)) == request.table_id
    session.sql(view_sql(request, replacing=owned))


def drop_view(spark: SparkSession, request: DropView) -> None:
    """Drop the view if it belongs to this materialized table."""
    if _owner_id(entry_of(spark, request.name)) == request.table_id:
        spark.sql(f"DROP VIEW {request.name.quoted()}")


def view_sql(request: PutView, *, replacing: bool) -> str:
    """Return the statement that creates a view; it hides columns that its storage gets later."""
    listed = ", ".join(_view_column(column) for column in request.columns)
    shown = ", ".join(
        quote_identifier(column.name)
        if column.expression is None or column.metadata
        else f"({column.expression}\n) AS {quote_identifier(column.name)}"
        for column in request.columns
    )
    comment = f" COMMENT {quote_literal(request.comment)}" if request.comment is not None else ""
    words = "CREATE OR REPLACE VIEW" if replacing else "CREATE VIEW"
    properties = {PROPERTY_ID: request.table_id}
    if request.quarantine_of is not None:
        properties[PROPERTY_QUARANTINE_OF] = str(request.quarantine_of)
    rows = f"{request.storage.quoted()}{_row_condition(request)}"
    return (
        f"{words} {request.name.quoted()} ({listed}){comment} "
        f"TBLPROPERTIES ({quote_pairs(properties)}) "
        f"AS SELECT {shown} FROM (SELECT {_inner_columns(request.columns)} FROM {rows})"
    )


def _row_condition(request: PutView) -> str:
    """Return the WHERE clause for rows that meet all expectations, or for quarantined rows."""
    if not request.quarantining:
        return ""
    met = " AND ".join(f"NOT {each.broken}" for each in request.quarantining)
    return f" WHERE {met}" if request.quarantine_of is None else f" WHERE NOT ({met})"


def _inner_columns(columns: Sequence[ViewColumn]) -> str:
    """Return the select list below the expressions: stored columns and file metadata."""
    stored = [quote_identifier(column.name) for column in columns if column.expression is None]
    facts = [
        f"{column.expression} AS {quote_identifier(column.name)}"
        for column in columns
        if column.metadata
    ]
    return ", ".join([*stored, *facts])


def _view_column(column: ViewColumn) -> str:
    comment = f" COMMENT {quote_literal(column.comment)}" if column.comment else ""
    return f"{quote_identifier(column.name)}{comment}"


def _owner_id(entry: Any) -> str | None:
    if entry is None or entry.tableType().name() != "VIEW":
        return None
    found = entry.properties().get(PROPERTY_ID)
    return str(found.get()) if found.isDefined() else None


def _check_references(spark: SparkSession, request: CheckExpressions) -> None:
    """Reject expressions that use more than the row itself and permanent functions."""
    session: Any = spark._jsparkSession
    listed = session.sessionState().catalog().listTemporaryFunctions()
    temporary = {str(listed.apply(i).funcName()).lower() for i in range(listed.size())}
    texts = [*request.computed, *(("the watermark", text) for text in (request.watermark,) if text)]
    texts += [("the expectation", text) for text in request.conditions]
    texts += [(_ASSERTION, text) for text in request.assertions]
    texts += [("the immutable region", text) for text in (request.region,) if text is not None]
    for name, text in texts:
        query = parse_query(spark, f"SELECT ({text}\n) AS x")
        if query.references:
            raise _expression_error(name, "it reads a table")
        if used := sorted(temporary & query.functions):
            raise _expression_error(name, f"{used[0]} is a temporary function")


def _expression_error(name: str, reason: str) -> ServerError:
    asserted = (
        "It may compare aggregates of the table's columns, row_count, and previous(...) of these."
    )
    plain = "It may use the columns of its own row and permanent functions."
    return error(
        Code.MT_COLUMN_EXPRESSION,
        name=name,
        reason=reason,
        hint=asserted if name == _ASSERTION else plain,
    )
