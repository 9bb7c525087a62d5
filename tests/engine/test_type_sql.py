"""How types are written for Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.engine.storage.table_sql import type_sql


def struct(name: str, kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind)])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (T.DecimalType(10, 2), "decimal(10,2)"),
        (struct("a", T.LongType()), "struct<a:bigint>"),
        (struct("a b", T.LongType()), "struct<`a b`:bigint>"),
        (struct("a`b", T.LongType()), "struct<`a``b`:bigint>"),
        (struct("1", T.LongType()), "struct<`1`:bigint>"),
        (
            struct("ü", T.ArrayType(struct("-", T.DateType()))),
            "struct<`ü`:array<struct<`-`:date>>>",
        ),
        (T.MapType(T.StringType(), struct("a.b", T.DateType())), "map<string,struct<`a.b`:date>>"),
    ],
)
def test_names_of_fields_are_quoted_where_they_have_to_be(kind: T.DataType, text: str) -> None:
    assert type_sql(kind) == text
