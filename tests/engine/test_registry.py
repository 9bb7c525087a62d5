"""Records of Avro whose schemas are in a registry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.fixtures.registry import Registry
from tests.support.fixtures.spark import Lake
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.query.registry import decoded_columns, registry

pytestmark = pytest.mark.spark
WANTED = (
    "`id` BIGINT, `name` STRING, `at` TIMESTAMP_NTZ, `there` TIMESTAMP_LTZ, `day` DATE, "
    "`price` DECIMAL(12, 3), `tags` ARRAY<STRUCT<`Y`: INT, `X`: STRING>>, "
    "`more` MAP<STRING, BIGINT>"
)
FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": 'it\'s "new" \\ $x ${y}',
    "fields": [
        {"name": "unused", "type": "string"},
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "there", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SECOND = {
    "type": "record",
    "name": "Order2",
    "fields": [
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", "long"]},
        {"name": "there", "type": {"type": "long", "connect.name": "debezium.MicroTimestamp"}},
        {"name": "day", "type": ["null", "int"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
        {
            "name": "tags",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Tag",
                    "fields": [{"name": "X", "type": "string"}, {"name": "Y", "type": "int"}],
                },
            },
        },
        {"name": "more", "type": {"type": "map", "values": "int"}},
    ],
}
ROWS = (
    (
        "named_struct('unused', 'x', 'id', 7, 'at', TIMESTAMP '2026-01-01 01:02:03.004Z', "
        "'there', TIMESTAMP '2026-01-01 01:02:03.5Z')"
    ),
    (
        "named_struct('name', 'b', 'id', 8L, 'at', 1500L, 'there', 2500000L, 'day', 20, 'price', "
        "CAST(1.25 AS DECIMAL(8, 2)), 'tags', array(named_struct('X', 'x', 'Y', 5)), 'more', "
        "map('k', 3))"
    ),
)


def decode(lake: Lake, url: str, records: Sequence[str]) -> list[Any]:
    """Return the decoded fields of records, which are given as SQL expressions."""
    parameters = {"valueSchemaRegistry": url, "valueSubject": "o-value", "valueSchema": WANTED}
    [column] = decoded_columns(lake.session, parameters, asked=True)
    values = " UNION ALL ".join(f"SELECT {each} AS value" for each in records)
    lake.session.conf.set("spark.sql.session.timeZone", "UTC")
    text = f"SELECT to_json(value_fields) AS j FROM (SELECT {column} FROM ({values}))"
    return [
        None if row.j is None else json.loads(row.j) for row in lake.session.sql(text).collect()
    ]


def record(lake: Lake, found: Registry, schema: dict[str, Any], value: str) -> str:
    """Return SQL for a record, whose schema is registered."""
    text = json.dumps(schema)
    prefix = registry(lake.session).apply(found.url, "o-value", text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"concat({prefix}, to_avro({value}, '{quoted}'))"


def test_each_record_is_read_with_its_own_schema(lake: Lake, schema_registry: Registry) -> None:
    records = [
        record(lake, schema_registry, schema, value)
        for schema, value in zip((FIRST, SECOND), ROWS, strict=True)
    ]
    first, second, none = decode(lake, schema_registry.url, [*records, "CAST(NULL AS BINARY)"])
    assert first == {
        "id": 7,
        "at": "2026-01-01T01:02:03.004",
        "there": "2026-01-01T01:02:03.500Z",
    }
    assert second == {
        "name": "b",
        "id": 8,
        "at": "1970-01-01T00:00:01.500",
        "there": "1970-01-01T00:00:02.500Z",
        "day": "1970-01-21",
        "price": 1.25,
        "tags": [{"Y": 5, "X": "x"}],
        "more": {"k": 3},
    }
    assert none is None
    asked = len(schema_registry.requests)
    decode(lake, schema_registry.url, records)
    assert len(schema_registry.requests) == asked + 2  # the versions and the last of them
    schema_registry.subjects.clear()
    again = [record(lake, schema_registry, SECOND, ROWS[1])]
    assert decode(lake, schema_registry.url, again) == [second]  # a new subject of the name


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("X'0000000063'", "the schema 99 of a record is none of the subject o-value"),
        ("X'7b7d000000'", "the value of a record does not begin with the id of a schema"),
        ("X'00'", "the value of a record does not begin with the id of a schema"),
        ("X'0000000001'", "the schema 1 is of the type JSON instead of AVRO"),
        ("X'0000000002'", "the schema 2 refers to others, which are not read"),
    ],
)
def test_other_records_are_errors(
    lake: Lake, schema_registry: Registry, value: str, words: str
) -> None:
    schema_registry.register("o-value", "{}", schemaType="JSON")
    schema_registry.register("o-value", json.dumps(FIRST), references=[{"name": "shop.Item"}])
    with pytest.raises(Exception, match=words):
        decode(lake, schema_registry.url, [value])


def test_a_subject_may_not_be_there_yet(lake: Lake, schema_registry: Registry) -> None:
    assert decode(lake, schema_registry.url, ["CAST(NULL AS BINARY)"]) == [None]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "does not answer"),
        ("file:///etc/passwd", "it is not as http://host:port/path"),
        ("http://u:p@127.0.0.1:1", "it is not as http://host:port/path"),
        ("http://127.0.0.1:1/a/../b", "it is not as http://host:port/path"),
    ],
)
def test_a_registry_that_cannot_be_used(lake: Lake, url: str, words: str) -> None:
    with pytest.raises(Exception) as caught:
        decode(lake, url, ["CAST(NULL AS BINARY)"])
    found = to_server_error(caught.value)
    assert found.code == "SCHEMA_REGISTRY"
    assert words in found.message


def test_columns_have_types_before_a_registry_is_asked(lake: Lake) -> None:
    parameters = {
        "valueSchemaRegistry": "http://127.0.0.1:1",
        "valueSubject": "s",
        "valueSchema": "a VARCHAR(3)",
    }
    assert decoded_columns(lake.session, parameters, asked=False) == [
        "CAST(NULL AS STRUCT<a: STRING>) AS value_fields"
    ]
    del parameters["valueSubject"]
    with pytest.raises(Exception, match="valueSubject and valueSchema belong together"):
        decoded_columns(lake.session, parameters, asked=False)
