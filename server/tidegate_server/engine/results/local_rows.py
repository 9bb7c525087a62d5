"""Reads rows that Spark's optimizer has already computed, without a job."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidegate_server.engine.storage.jvm import items, java, kind

_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 << 20
_CONSTANTS = 16
"""Maximum number of columns to check; each takes calls to the JVM."""


def constant_rows(frame: DataFrame, schema: pa.Schema, time_zone: str) -> pa.Table | None:
    """Return the row of a ``SELECT`` of literals only; None for any other plan.

    Such a plan skips the optimizer, which would take most of the statement's time. Connection
    pools run ``SELECT 1`` each time they hand out a connection.
    """
    plan = frame._jdf.queryExecution().commandExecuted()
    if kind(plan) != "Project" or len(schema) > _CONSTANTS or not _is_constant(plan):
        return None
    jvm: Any = java(frame.sparkSession)
    return _arrow_table(jvm, _local_data(jvm, plan), frame, schema, time_zone)


def _is_constant(project: Any) -> bool:
    return kind(project.child()).startswith("OneRowRelation") and all(
        kind(column) == "Alias" and kind(column.child()) == "Literal"
        for column in items(project.projectList())
    )


def local_rows(frame: DataFrame, schema: pa.Schema, time_zone: str) -> pa.Table | None:
    """Return the rows of constants, VALUES and commands; None for a plan that needs a job.

    Spark's own converter in the JVM makes the Arrow data, as in ``DataFrame.toArrow``.
    """
    jvm: Any = java(frame.sparkSession)
    rows = _local_data(jvm, frame._jdf.queryExecution().optimizedPlan())
    return _arrow_table(jvm, rows, frame, schema, time_zone)


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table of the same columns with the names and types of a schema."""
    return table.rename_columns(schema.names).cast(schema)


def _arrow_table(
    jvm: Any, rows: Any | None, frame: DataFrame, schema: pa.Schema, time_zone: str
) -> pa.Table | None:
    if rows is None:
        return None
    converters = _singleton(jvm, "org.apache.spark.sql.execution.arrow.ArrowConverters$")
    streams = converters.toBatchWithSchemaIterator(
        rows.iterator(), frame._jdf.schema(), _BATCH_ROWS, _BATCH_BYTES, time_zone, False, False
    )
    tables = []
    while streams.hasNext():
        tables.append(pa.ipc.open_stream(streams.next()).read_all())
    return with_schema(pa.concat_tables(tables), schema) if tables else schema.empty_table()


def _local_data(jvm: Any, plan: Any) -> Any | None:
    """Return the Seq of internal rows that a plan holds, or holds below one projection."""
    if kind(plan) == "Project":
        child = _local_relation(jvm, plan.child())
        if child is None:
            return None
        # The same rule by which the optimizer folds a projection of VALUES.
        rule = _singleton(jvm, "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$")
        plan = rule.apply(plan.withNewChildren(_empty_seq(jvm).prepended(child)))
        return plan.data() if kind(plan) == "LocalRelation" else None
    relation = _local_relation(jvm, plan)
    return None if relation is None else relation.data()


def _local_relation(jvm: Any, plan: Any) -> Any | None:
    """Return the relation of constant rows that is equivalent to a leaf; None for other plans."""
    make = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation
    not_streaming, stream = False, jvm.scala.Option.empty()
    match kind(plan):
        case "LocalRelation":
            return plan
        case "CommandResult":
            return make(plan.output(), plan.rows(), not_streaming, stream)
        case name if name.startswith("OneRowRelation"):
            row = jvm.org.apache.spark.sql.catalyst.InternalRow.empty()
            nothing = _empty_seq(jvm)
            return make(nothing, nothing.prepended(row), not_streaming, stream)
        case _:
            return None


def _empty_seq(jvm: Any) -> Any:
    return _singleton(jvm, "scala.collection.immutable.Nil$")


def _singleton(jvm: Any, name: str) -> Any:
    """Return a Scala object, whose class name ends in ``$``."""
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "MODULE$")
