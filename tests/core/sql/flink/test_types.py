"""Flink's types in Spark's spelling."""

from __future__ import annotations

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.flink.translate import translate_type


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ("INT", "INT"),
        ("integer", "INT"),
        ("TIMESTAMP(3)", "TIMESTAMP_NTZ"),
        ("timestamp", "TIMESTAMP_NTZ"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ"),
        ("STRING", "STRING"),
        ("VARCHAR", "STRING"),
        ("VARCHAR(2147483647)", "STRING"),
        ("VARCHAR(10)", "VARCHAR(10)"),
        ("CHAR", "CHAR(1)"),
        ("BYTES", "BINARY"),
        ("VARBINARY(3)", "BINARY"),
        ("DECIMAL", "DECIMAL"),
        ("NUMERIC(10)", "DECIMAL(10)"),
        ("DEC(10,2)", "DECIMAL(10, 2)"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("INTERVAL DAY(3) TO SECOND(3)", "INTERVAL DAY TO SECOND"),
        ("MAP<STRING, ARRAY<INT NOT NULL>>", "MAP<STRING, ARRAY<INT>>"),
        ("INT ARRAY", "ARRAY<INT>"),
        ("INT NOT NULL ARRAY NOT NULL", "ARRAY<INT>"),
        ("ROW(a INT, `b c` STRING)", "STRUCT<a: INT, `b c`: STRING>"),
        (
            "ROW<a INT, b ARRAY<ROW<c STRING NOT NULL 'it''s'>>>",
            "STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING NOT NULL COMMENT 'it''s'>>>",
        ),
    ],
)
def test_a_type_is_translated(flink: str, spark: str) -> None:
    assert translate_type(flink) == spark


@pytest.mark.parametrize(
    "flink",
    ["TIME", "TIME(3)", "MULTISET<INT>", "INT MULTISET", "TIMESTAMP(9)", "RAW('a', 'b')"]
    + ["TIMESTAMP WITH TIME ZONE", "foo", "ARRAY<INT", "DECIMAL(x)", "", "ROW<a>", "INT INT"],
)
def test_a_type_without_an_equivalent_is_refused(flink: str) -> None:
    with pytest.raises(ServerError) as caught:
        translate_type(flink)
    assert caught.value.line == 1
