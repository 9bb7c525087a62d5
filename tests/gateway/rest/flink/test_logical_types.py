"""Spark's types as the logical types of Flink."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.rest.flink.logical_types import columns_of, logical_type

STRING = {"type": "VARCHAR", "nullable": True, "length": 2147483647}
KEY = {**STRING, "nullable": False}
INT = {"type": "INTEGER", "nullable": True}


@pytest.mark.parametrize(
    ("spark", "flink"),
    [
        ("boolean", {"type": "BOOLEAN", "nullable": True}),
        ("tinyint", {"type": "TINYINT", "nullable": True}),
        ("smallint", {"type": "SMALLINT", "nullable": True}),
        ("int", INT),
        ("bigint", {"type": "BIGINT", "nullable": True}),
        ("float", {"type": "FLOAT", "nullable": True}),
        ("double", {"type": "DOUBLE", "nullable": True}),
        ("date", {"type": "DATE", "nullable": True}),
        ("decimal(10,2)", {"type": "DECIMAL", "nullable": True, "precision": 10, "scale": 2}),
        ("char(3)", {"type": "CHAR", "nullable": True, "length": 3}),
        ("varchar(9)", {"type": "VARCHAR", "nullable": True, "length": 9}),
        ("string", STRING),
        ("string collate UTF8_LCASE", STRING),
        ("void", STRING),
        ("variant", STRING),
        ("interval", STRING),
        ("binary", {"type": "VARBINARY", "nullable": True, "length": 2147483647}),
        (
            "timestamp",
            {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "nullable": True, "precision": 6},
        ),
        (
            "timestamp_ntz",
            {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "nullable": True, "precision": 6},
        ),
        (
            "interval day to second",
            {
                "type": "INTERVAL_DAY_TIME",
                "nullable": True,
                "precision": 6,
                "fractionalPrecision": 6,
                "resolution": "DAY_TO_SECOND",
            },
        ),
        (
            "interval year",
            {
                "type": "INTERVAL_YEAR_MONTH",
                "nullable": True,
                "precision": 4,
                "resolution": "YEAR_TO_MONTH",
            },
        ),
        ("array<int>", {"type": "ARRAY", "nullable": True, "elementType": INT}),
        (
            "map<int,string>",
            {"type": "MAP", "nullable": True, "keyType": KEY, "valueType": STRING},
        ),
        (
            "struct<`a b`: int, n: array<int> NOT NULL COMMENT 'x'>",
            {
                "type": "ROW",
                "nullable": True,
                "fields": [
                    {"name": "a b", "fieldType": INT},
                    {
                        "name": "n",
                        "fieldType": {"type": "ARRAY", "nullable": False, "elementType": INT},
                    },
                ],
            },
        ),
    ],
)
def test_each_type_has_its_counterpart(spark: str, flink: dict[str, Any]) -> None:
    assert logical_type(spark) == flink


def test_columns_keep_names_comments_and_what_may_be_null() -> None:
    schema = Schema((Column(name="Id", type="int", nullable=False, comment="the key"),))
    assert columns_of(schema) == [
        {"name": "Id", "logicalType": {**INT, "nullable": False}, "comment": "the key"}
    ]
