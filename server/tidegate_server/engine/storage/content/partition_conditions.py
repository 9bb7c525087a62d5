"""Conditions that select the partitions of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.versions import PartitionSpec

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def partition_filter(
    partitions: Sequence[PartitionSpec], types: Mapping[str, T.DataType]
) -> Column:
    """Return the condition for partitions; values are compared as literals, not put into SQL."""

    def matches(spec: PartitionSpec) -> Column:
        return reduce(and_, (_equals(key, value, types) for key, value in spec.items()))

    return reduce(or_, (matches(spec) for spec in partitions))


def _equals(key: str, value: str, types: Mapping[str, T.DataType]) -> Column:
    column = F.col(quote_identifier(key))
    if value == _NULL_PARTITION:
        return column.isNull()
    return column == F.lit(value).cast(types[key.lower()])


def partition_predicate(
    partitions: Sequence[PartitionSpec], types: Mapping[str, T.DataType]
) -> str:
    def matches(spec: PartitionSpec) -> str:
        return " AND ".join(_equals_sql(key, value, types) for key, value in spec.items())

    return " OR ".join(f"({matches(spec)})" for spec in partitions)


def _equals_sql(key: str, value: str, types: Mapping[str, T.DataType]) -> str:
    column = quote_identifier(key)
    if value == _NULL_PARTITION:
        return f"{column} IS NULL"
    return f"{column} = CAST({quote_literal(value)} AS {types[key.lower()].simpleString()})"
