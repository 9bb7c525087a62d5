"""What Spark's analyzer says of a definition query, and the query with full names."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.projection import result_schema
from tidegate_server.engine.references import ParsedQuery
from tidegate_server.engine.sessions import Child
from tidegate_server.engine.sources import Tables
from tidegate_server.link.messages import Analysis
from tidegate_server.model.names import quote_identifier
from tidegate_server.model.types import Schema
from tidegate_server.storage.base import TableFormat


def analyze(child: Child, text: str, format: TableFormat) -> Analysis:
    """Analyze a query without running it.

    The user's text is analyzed first, so that errors speak of it and not of our rewriting.

    :raises ServerError: MT_QUERY_UNSUPPORTED for what cannot be refreshed outside this session.
    """
    query_text = text.strip().rstrip(";").rstrip()
    spark = child.spark
    catalog, current_schema = child.current()
    tables = Tables(spark, format)
    query, qualified = tables.qualified(query_text, catalog, current_schema)
    schema = result_schema(_unrun(spark, query_text))
    expanded = _with_fixed_columns(qualified, schema) if query.open_columns else qualified
    temporary = sorted(tables.temporary) + _temporary_functions(spark, query)
    if not temporary:
        # What a refresh will run has to be analyzed here, where the author sees the error.
        _unrun(spark, tables.pinned(expanded, catalog, current_schema))
    return Analysis(
        schema=schema,
        expanded_query=expanded,
        sources=tuple(tables.sources[name] for name in sorted(tables.sources)),
        temporary_objects=tuple(temporary),
    )


def _unrun(spark: SparkSession, text: str) -> DataFrame:
    """Return the frame of a query, which Spark analyzes and does not run."""
    return spark.sql(text)


def _with_fixed_columns(text: str, schema: Schema) -> str:
    """Select the star's columns by name, so that later columns of sources do not come along."""
    names = schema.names()
    if len({name.lower() for name in names}) < len(names):
        return text
    columns = ", ".join(quote_identifier(name) for name in names)
    # The line break keeps a comment at the text's end from swallowing the bracket.
    return f"SELECT {columns} FROM ({text}\n)"


def _temporary_functions(spark: SparkSession, query: ParsedQuery) -> list[str]:
    session: Any = spark._jsparkSession
    listed = session.sessionState().catalog().listTemporaryFunctions()
    names = {str(listed.apply(i).funcName()).lower() for i in range(listed.size())}
    return [f"function {name}" for name in sorted(names & query.functions)]
