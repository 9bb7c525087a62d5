"""Replaces the current time in a query by a given one, the same in every part of the query."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.storage.jvm import frame_of, is_instance, items, java, kind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bind_time(frame: DataFrame, moment: datetime) -> DataFrame:
    """Return the frame with ``moment`` instead of ``current_timestamp`` and similar functions.

    Columns keep their names and types; a query that does not read the time is returned unchanged.
    """
    spark = frame.sparkSession
    jdf: Any = frame._jdf
    binding = _Binding(spark, moment)
    plan = jdf.queryExecution().analyzed()
    if not binding.reads_time(plan):
        return frame
    return frame_of(spark, binding.bind_plan(plan))


class _Binding:
    """Rebuilds the parts of a plan that read the time."""

    def __init__(self, spark: SparkSession, moment: datetime) -> None:
        jvm: Any = java(spark)
        self._jvm = jvm
        since = moment.astimezone(UTC) - _EPOCH
        seconds = since.days * 86400 + since.seconds
        self._instant = jvm.java.time.Instant.ofEpochSecond(seconds, since.microseconds * 1000)
        self._pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()

    def reads_time(self, tree: Any) -> bool:
        """Say whether anything in a plan or expression reads the time or the session."""
        return bool(tree.containsPattern(self._pattern))

    def bind_plan(self, node: Any) -> Any:
        """Return an operator with the time bound in itself and its inputs."""
        if not self.reads_time(node):
            return node
        below = [self.bind_plan(child) for child in items(node.children())]
        rebuilt = node.withNewChildren(self._seq(below)) if below else node
        if not any(self.reads_time(expression) for expression in items(rebuilt.expressions())):
            return rebuilt
        arguments = rebuilt.productIterator()
        values = []
        while arguments.hasNext():
            values.append(self._bind_argument(arguments.next()))
        return rebuilt.makeCopy(self._array(values))

    def bind_expression(self, node: Any) -> Any:
        """Return an expression with the time bound in it."""
        if not self.reads_time(node):
            return node
        value = _VALUES.get(kind(node))
        if value is not None:
            literal = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal
            return literal.create(value(self._instant, node), node.dataType())
        if is_instance(self._jvm, node, "org.apache.spark.sql.catalyst.expressions.PlanExpression"):
            node = node.withNewPlan(self.bind_plan(node.plan()))
        children = [self.bind_expression(child) for child in items(node.children())]
        return node.withNewChildren(self._seq(children)) if children else node

    def _bind_argument(self, value: Any) -> Any:
        """Rebuild a constructor argument: an expression, several, or any other value."""
        if not hasattr(value, "getClass"):
            return value
        if is_instance(self._jvm, value, "org.apache.spark.sql.catalyst.expressions.Expression"):
            return self.bind_expression(value)
        if is_instance(self._jvm, value, "scala.collection.immutable.Seq"):
            return self._seq([self._bind_argument(item) for item in items(value)])
        if is_instance(self._jvm, value, "scala.Some"):
            return self._jvm.scala.Option.apply(self._bind_argument(value.get()))
        return value

    def _seq(self, values: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(values)

    def _array(self, values: list[Any]) -> Any:
        array = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("java.lang.Object"), len(values)
        )
        for place, value in enumerate(values):
            array[place] = value
        return array


def _at_zone(instant: Any, node: Any) -> Any:
    return instant.atZone(node.zoneId())


_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "CurrentTimestamp": lambda instant, _: instant,
    "Now": lambda instant, _: instant,
    "CurrentDate": lambda instant, node: _at_zone(instant, node).toLocalDate(),
    "LocalTimestamp": lambda instant, node: _at_zone(instant, node).toLocalDateTime(),
    "CurrentTime": lambda instant, node: _at_zone(instant, node).toLocalTime(),
}
