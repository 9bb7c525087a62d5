"""Exact comparison of rows, bit by bit where Spark's own equality is coarser.

Spark groups and compares 0.0 and -0.0 as equal. A query may print them, so a change from one to the
other is a change of its result.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.model.names import quote_identifier
from tidegate_server.engine.storage.table_sql import type_sql

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
    """Say whether values of a type can be compared exactly, as those of VARIANT cannot."""
    match type:
        case T.ArrayType():
            return comparable(type.elementType)
        case T.MapType():
            return comparable(type.keyType) and comparable(type.valueType)
        case T.StructType():
            return all(comparable(field.dataType) for field in type.fields)
        case _:
            return isinstance(type, (T.FloatType, T.DoubleType, *_PLAIN))


def has_exact_values(type: T.DataType) -> bool:
    """Say whether equal values of a simple type are always identical bit by bit."""
    return isinstance(type, _PLAIN)


def sum_weights(frame: DataFrame) -> DataFrame:
    """Return each row once with the sum of its weights, without rows that sum to 0.

    Rows with a column that cannot be compared are returned unchanged.
    """
    fields = [field for field in frame.schema.fields if field.name != WEIGHT]
    if not all(comparable(field.dataType) for field in fields):
        return frame
    lost = [quote_column(field.name) for field in fields if not _restorable(field.dataType)]
    keyed = [
        f"{key_sql(quote_column(field.name), field.dataType)} AS {_KEY}{number}"
        for number, field in enumerate(fields)
    ]
    values = [_value(number, field) for number, field in enumerate(fields)]
    rows = frame.selectExpr(*keyed, WEIGHT, *lost)
    sums = rows.groupBy(*(f"{_KEY}{number}" for number in range(len(fields)))).agg(
        F.expr(f"sum({WEIGHT}) AS {WEIGHT}"),
        *(F.expr(f"any_value({column}) AS {column}") for column in lost),
    )
    return sums.where(f"{WEIGHT} <> 0").selectExpr(*values, WEIGHT)


def as_text(value: str, type: T.DataType) -> str:
    """Return SQL for a value as text; a timestamp as a number, since local time is ambiguous."""
    instant = isinstance(type, T.TimestampType)
    return f"CAST({f'unix_micros({value})' if instant else value} AS STRING)"


def from_text(text: str, type: T.DataType) -> str:
    """Return SQL for the value of a text made by :func:`as_text`; both are in SQL."""
    if isinstance(type, T.TimestampType):
        return f"timestamp_micros(CAST({text} AS BIGINT))"
    return f"CAST({text} AS {type_sql(type)})"


def text_sql(text: str) -> str:
    """Return SQL for a text, which means the same with every setting of Spark's parser."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def same(left: str, right: str, fields: Iterable[T.StructField]) -> Column:
    """Return the condition that two aliased rows are identical in all fields.

    Plain columns are compared directly, so that Delta can skip files.
    """

    def equal(field: T.StructField) -> str:
        keys = (key_sql(quote_column(field.name, alias), field.dataType) for alias in (left, right))
        return " <=> ".join(keys)

    return F.expr(" AND ".join(map(equal, fields)))


def quote_column(name: str, alias: str | None = None) -> str:
    """Return SQL for a column, with any characters in its name."""
    prefix = f"{alias}." if alias else ""
    return prefix + quote_identifier(name)


def column_named(name: str, alias: str | None = None) -> Column:
    """Return a column, with any characters in its name."""
    return F.col(quote_column(name, alias))


def is_plain(type: T.DataType) -> bool:
    """Say whether Spark's own equality of a type is exact."""
    match type:
        case T.ArrayType():
            return is_plain(type.elementType)
        case T.StructType():
            return all(is_plain(field.dataType) for field in type.fields)
        case _:
            return isinstance(type, _PLAIN)


def key_sql(value: str, type: T.DataType, depth: int = 0) -> str:
    """Return SQL for a key that Spark considers equal exactly when the values are identical.

    SQL, because it reaches the JVM in one call; building the same Column takes about ten.
    """
    if is_plain(type):
        return value
    element = f"__e{depth}"
    match type:
        case T.FloatType() | T.DoubleType():
            negative = f"{value} = 0 AND startswith(CAST({value} AS STRING), '-')"
            made = f"named_struct('v', {value}, 'n', {negative})"
        case T.ArrayType():
            return (
                f"transform({value}, {element} -> {key_sql(element, type.elementType, depth + 1)})"
            )
        case T.MapType():
            entry = T.StructType().add("key", type.keyType).add("value", type.valueType)
            key = key_sql(element, entry, depth + 1)
            return f"transform(map_entries({value}), {element} -> {key})"
        case T.StructType():
            parts = (
                f"'f{number}', {key_sql(f'({value}).{quote_column(f.name)}', f.dataType, depth)}"
                for number, f in enumerate(type.fields)
            )
            made = f"named_struct({', '.join(parts)})"
        case _:
            raise AssertionError(f"{type.simpleString()} is not comparable")
    return f"CASE WHEN {value} IS NOT NULL THEN {made} END"


def _restorable(type: T.DataType) -> bool:
    return is_plain(type) or isinstance(type, (T.FloatType, T.DoubleType))


def _value(number: int, field: T.StructField) -> str:
    """Undo ``key_sql`` where possible; grouping turned -0.0 into 0.0."""
    key, name = f"{_KEY}{number}", quote_column(field.name)
    if is_plain(field.dataType):
        return f"{key} AS {name}"
    if isinstance(field.dataType, (T.FloatType, T.DoubleType)):
        zero = f"CAST(-0.0D AS {field.dataType.simpleString()})"
        return f"CASE WHEN ({key}).n THEN {zero} ELSE ({key}).v END AS {name}"
    return name
