"""Rows told apart exactly, bit by bit where Spark's own equality is coarser.

Spark groups and compares 0.0 and -0.0 as equal. A query may print them, so that a change from one
to the other is a change of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.model.names import quote_identifier

WEIGHT = "__weight"

_KEY = "__key_"
_PLAIN = (
    T.StringType,
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
    T.NullType,
)


def comparable(type: T.DataType) -> bool:
    """Say whether values of a type can be told apart exactly; those of VARIANT cannot."""
    match type:
        case T.ArrayType():
            return comparable(type.elementType)
        case T.MapType():
            return comparable(type.keyType) and comparable(type.valueType)
        case T.StructType():
            return all(comparable(field.dataType) for field in type.fields)
        case _:
            return isinstance(type, (T.FloatType, T.DoubleType, *_PLAIN))


def summed(frame: DataFrame) -> DataFrame:
    """Return each row once with the sum of its weights, rows that sum to 0 left out.

    Rows with a column that cannot be compared come back as they are.
    """
    fields = [field for field in frame.schema.fields if field.name != WEIGHT]
    if not all(comparable(field.dataType) for field in fields):
        return frame
    keys = [
        exact_key(named(field.name), field.dataType).alias(f"{_KEY}{number}")
        for number, field in enumerate(fields)
    ]
    values = [_value(number, field) for number, field in enumerate(fields)]
    kept = [
        F.any_value(named(field.name)).alias(field.name)
        for field in fields
        if not _restorable(field.dataType)
    ]
    sums = frame.groupBy(*keys).agg(F.sum(WEIGHT).alias(WEIGHT), *kept)
    return sums.where(F.col(WEIGHT) != 0).select(*values, WEIGHT)


def same(left: str, right: str, fields: Iterable[T.StructField]) -> Column:
    """Return the condition that two aliased rows are the same in all fields.

    Plain columns are compared as they are, so that files can be skipped.
    """

    def equal(field: T.StructField) -> Column:
        a, b = (named(field.name, alias) for alias in (left, right))
        if is_plain(field.dataType):
            return a.eqNullSafe(b)
        keys = exact_key(a, field.dataType), exact_key(b, field.dataType)
        return keys[0].eqNullSafe(keys[1])

    return reduce(and_, (equal(field) for field in fields))


def named(name: str, alias: str | None = None) -> Column:
    """Return the column of a name, whatever characters are in it."""
    prefix = f"{alias}." if alias else ""
    return F.col(prefix + quote_identifier(name))


def is_plain(type: T.DataType) -> bool:
    """Say whether Spark's own equality of a type is exact."""
    match type:
        case T.ArrayType():
            return is_plain(type.elementType)
        case T.StructType():
            return all(is_plain(field.dataType) for field in type.fields)
        case _:
            return isinstance(type, _PLAIN)


def exact_key(column: Column, type: T.DataType) -> Column:
    """Return what is equal, in Spark's sense, just when the column is exactly equal."""
    if is_plain(type):
        return column
    match type:
        case T.FloatType() | T.DoubleType():
            return F.when(
                column.isNotNull(), F.struct(column.alias("v"), _negative_zero(column).alias("n"))
            )
        case T.ArrayType():
            return F.transform(column, _keys_of(type.elementType))
        case T.MapType():
            entry = T.StructType().add("key", type.keyType).add("value", type.valueType)
            return F.transform(F.map_entries(column), _keys_of(entry))
        case T.StructType():
            parts = (
                exact_key(column.getField(f.name), f.dataType).alias(f"f{number}")
                for number, f in enumerate(type.fields)
            )
            return F.when(column.isNotNull(), F.struct(*parts))
        case _:
            raise AssertionError(f"{type.simpleString()} is not comparable")


def _keys_of(type: T.DataType) -> Callable[[Column], Column]:
    return lambda element: exact_key(element, type)


def _negative_zero(column: Column) -> Column:
    return (column == 0) & column.cast("string").startswith("-")


def _restorable(type: T.DataType) -> bool:
    return is_plain(type) or isinstance(type, (T.FloatType, T.DoubleType))


def _value(number: int, field: T.StructField) -> Column:
    """Undo ``exact_key`` where that is possible; grouping turned -0.0 into 0.0."""
    key = F.col(f"{_KEY}{number}")
    if is_plain(field.dataType):
        return key.alias(field.name)
    if isinstance(field.dataType, (T.FloatType, T.DoubleType)):
        value, negative = key.getField("v"), key.getField("n")
        zero = F.lit(-0.0).cast(field.dataType)
        return F.when(negative, zero).otherwise(value).alias(field.name)
    return named(field.name)
