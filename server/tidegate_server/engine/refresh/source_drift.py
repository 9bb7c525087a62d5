"""Detects changes of sources since a query was defined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import TableName, visible_name
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.query.lineage import column_origins, source_columns, used_columns
from tidegate_server.engine.query.plans import Node
from tidegate_server.engine.storage.base import (
    TableFormat,
    VersionGoneError,
    is_foreign,
    is_path,
    table_sql,
)
from tidegate_server.engine.storage.entries import entry_of


def recorded_columns(order: RefreshOrder) -> Mapping[TableName, Schema]:
    """Return the columns that the sources had when the query was defined."""
    return {source.name.folded(): source.columns for source in order.sources}


def check_present(order: RefreshOrder, spark: SparkSession, format: TableFormat) -> None:
    """Check that every source named by the query itself exists.

    Tables read through views are not checked: the views may have been replaced.

    :raises ServerError: MT_SOURCE_NOT_FOUND, or MT_SOURCE_CHANGED if it no longer has versions.
    """
    for source in order.sources:
        if source.via:
            if entry_of(spark, source.via[0]) is None:
                raise _not_found(order, "view", source.via[0])
            continue
        if source.kind is SourceKind.PLAIN or format.sources.find(source.name) is not None:
            continue
        if is_foreign(source.name):
            continue  # Spark says that it does not exist, or it has no versions any more
        if is_path(source.name) or entry_of(spark, source.name) is None:
            raise _not_found(order, "table", source.name)
        raise _source_changed(order, source.name, "it has no versions any more")


@contextmanager
def explain_failures(order: RefreshOrder, spark: SparkSession) -> Iterator[None]:
    """Name the source at fault if Spark rejects a query.

    :raises ServerError: MT_SOURCE_NOT_FOUND or MT_SOURCE_CHANGED instead of Spark's error.
    """
    try:
        yield
    except VersionGoneError as failed:
        raise error(
            Code.MT_SOURCE_CHANGED,
            source=failed.name,
            table=visible_name(order.name),
            change=failed.reason,
        ) from failed
    except PySparkException as failed:
        blamed = next(_reasons(order, spark), None)
        if blamed is None:
            raise
        raise blamed from failed


def check_types(order: RefreshOrder, plan: Node) -> None:
    """Check that the columns the query uses have kept their types.

    :raises ServerError: MT_SOURCE_CHANGED naming the column.
    """
    used = used_columns(plan)
    for name, now in source_columns(plan).items():
        before = recorded_columns(order).get(name, Schema())
        for column in before:
            found = now.find(column.name)
            if found is None or found.type == column.type:
                continue
            nested = "struct<" in column.type and "struct<" in found.type
            if nested and not _is_passed(plan, name, column.name):
                continue  # a change in other fields does not affect those the query reads
            if column.name.lower() in used.get(name, frozenset()):
                raise _source_changed(
                    order, name, _type_change(column.name, column.type, found.type)
                )


def _is_passed(plan: Node, source: TableName, column: str) -> bool:
    names = [str(number) for number in range(len(plan.many("projectList")) or 1)]
    return any(
        origin.unchanged and (origin.source, origin.source_column) == (source, column)
        for origin in column_origins(plan, names)
    )


def _reasons(order: RefreshOrder, spark: SparkSession) -> Iterator[ServerError]:
    for source in order.sources:
        try:
            now = {
                field.name.lower(): field.dataType.simpleString()
                for field in spark.table(table_sql(source.name)).schema.fields
            }
        except PySparkException:
            yield _not_found(order, "table", source.name)
            continue
        for column in source.columns:
            if column.name.lower() not in now:
                yield _source_changed(order, source.name, f"column {column.name} is gone")
    for source in order.sources:
        retyped = _newly_typed(spark, source.name, source.columns)
        if retyped:
            yield _source_changed(order, source.name, retyped)


def _newly_typed(spark: SparkSession, name: TableName, before: Schema) -> str:
    for field in spark.table(table_sql(name)).schema.fields:
        column = before.find(field.name)
        now = field.dataType.simpleString()
        if column is not None and column.type != now:
            return _type_change(column.name, column.type, now)
    return ""


def _type_change(column: str, before: str, now: str) -> str:
    return f"column {column} was {before.upper()} and is {now.upper()} now"


def _not_found(order: RefreshOrder, kind: str, name: TableName) -> ServerError:
    return error(Code.MT_SOURCE_NOT_FOUND, kind=kind, source=name, table=visible_name(order.name))


def _source_changed(order: RefreshOrder, name: TableName, change: str) -> ServerError:
    return error(Code.MT_SOURCE_CHANGED, source=name, table=visible_name(order.name), change=change)
