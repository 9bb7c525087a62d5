"""The format avro: schemas as Flink derives them, and values as Spark has them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tidegate_server.core.connectors.avro import avro_schema, stored_type
from tidegate_server.core.connectors.columns import ConnectorColumn
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement

FILES = "'connector' = 'filesystem', 'path' = '/in', 'format' = 'avro'"
SERVERS = "'topic' = 't', 'properties.bootstrap.servers' = 'b:1'"
RECORDS = f"'connector' = 'kafka', {SERVERS}, 'format' = 'avro'"
NULL = {"default": None}


def column(type: str, name: str = "a", *, nullable: bool = True) -> ConnectorColumn:
    return ConnectorColumn(name=name, type=type, nullable=nullable)


def query(columns: str, options: str, before: str = "") -> str:
    statement = parse(f"CREATE TABLE t ({columns}) {before} WITH ({options})")
    assert isinstance(statement, SparkStatement)
    return f"SELECT {statement.text.partition(' AS SELECT ')[2]}"


def sink(text: str) -> dict[str, Any]:
    found = re.match(r"SELECT /\* connector=[\w-]+ (\{.*?\}) \*/ ", text)
    assert found is not None
    read: dict[str, Any] = json.loads(found[1])
    return read


@pytest.mark.parametrize(
    ("type", "schema"),
    [
        ("BOOLEAN", "boolean"),
        ("SMALLINT", "int"),
        ("BIGINT", "long"),
        ("VARCHAR(3)", "string"),
        ("BINARY", "bytes"),
        ("DATE", {"type": "int", "logicalType": "date"}),
        ("TIMESTAMP_LTZ", {"type": "long", "logicalType": "timestamp-millis"}),
        ("TIMESTAMP", {"type": "long", "logicalType": "local-timestamp-millis"}),
        (
            "DECIMAL(10, 2)",
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        ),
        ("ARRAY<INT>", {"type": "array", "items": ["null", "int"]}),
        ("MAP<STRING, DOUBLE>", {"type": "map", "values": ["null", "double"]}),
        (
            "STRUCT<x: INT NOT NULL, `y`: STRUCT<z: FLOAT>>",
            {
                "type": "record",
                "name": "org.apache.flink.avro.generated.record_a",
                "fields": [
                    {"name": "x", "type": "int"},
                    {
                        "name": "y",
                        "type": [
                            "null",
                            {
                                "type": "record",
                                "name": "org.apache.flink.avro.generated.record_a_y",
                                "fields": [{"name": "z", "type": ["null", "float"], **NULL}],
                            },
                        ],
                        **NULL,
                    },
                ],
            },
        ),
    ],
)
def test_the_schema_is_derived_from_the_columns(type: str, schema: object) -> None:
    assert json.loads(avro_schema([column(type, nullable=False)])) == {
        "type": "record",
        "name": "org.apache.flink.avro.generated.record",
        "fields": [{"name": "a", "type": schema}],
    }
    [field] = json.loads(avro_schema([column(type)]))["fields"]
    assert field == {"name": "a", "type": ["null", schema], "default": None}


def test_a_value_has_a_type_of_its_own_in_avro() -> None:
    nested = "STRUCT<`a b`: ARRAY<SMALLINT>, c: MAP<VARCHAR(3), TIMESTAMP> NOT NULL COMMENT 'x'>"
    assert stored_type(nested) == "STRUCT<`a b`: ARRAY<INT>, `c`: MAP<STRING, TIMESTAMP_NTZ>>"
    assert stored_type("TIMESTAMP_LTZ") == "TIMESTAMP_LTZ"
    assert stored_type("DECIMAL(10, 2)") == "DECIMAL(10, 2)"


def test_times_without_a_zone_are_in_utc_in_files() -> None:
    columns = "id SMALLINT, at TIMESTAMP(3), there TIMESTAMP_LTZ(3), d INT"
    text = query(columns, FILES, "PARTITIONED BY (d)")
    assert "schema => '`id` INT, `at` TIMESTAMP_LTZ, `there` TIMESTAMP_LTZ, `d` INT'" in text
    shifted = "TIMESTAMP_NTZ '1970-01-01 00:00:00' + unix_micros(`at`) * INTERVAL '0.000001' SECOND"
    assert f"CAST({shifted} AS TIMESTAMP) AS `at`" in text
    found = sink(text)
    assert found["expressions"] == [
        "CAST(`id` AS INT) AS `id`",
        "from_utc_timestamp(CAST(`at` AS TIMESTAMP), current_timezone()) AS `at`",
        "CAST(`there` AS TIMESTAMP_LTZ) AS `there`",
        "`d` AS `d`",
    ]
    assert found["options"]["compression"] == "snappy"
    schema = json.loads(found["options"]["avroSchema"])
    assert [each["name"] for each in schema["fields"]] == ["id", "at", "there"]
    assert "local" not in found["options"]["avroSchema"]
    text = query(
        columns, f"{FILES}, 'avro.timestamp_mapping.legacy' = 'false', 'avro.codec' = 'null'"
    )
    assert "`at` TIMESTAMP_NTZ" in text
    found = sink(text)
    assert found["expressions"][1] == "CAST(`at` AS TIMESTAMP_NTZ) AS `at`"
    assert found["options"]["compression"] == "uncompressed"
    assert "local-timestamp-millis" in found["options"]["avroSchema"]


def test_records_have_no_null_in_the_key() -> None:
    options = f"'connector' = 'upsert-kafka', {SERVERS}, 'key.format' = 'avro', "
    text = query(
        "k_id INT, at TIMESTAMP, PRIMARY KEY (k_id) NOT ENFORCED",
        f"{options} 'value.format' = 'avro', 'key.fields-prefix' = 'k_', "
        "'value.fields-include' = 'EXCEPT_KEY'",
    )
    key = avro_schema([column("INT", "id", nullable=False)])
    value = avro_schema([column("TIMESTAMP", "at")])
    assert f"from_avro(key, '{key}', map('mode', 'FAILFAST')) AS _key" in text
    assert "CAST(_key.`id` AS INT) AS `k_id`" in text
    assert f"from_avro(value, '{value}', " in text
    assert sink(text)["expressions"] == [
        f"to_avro(named_struct('at', CAST(`at` AS TIMESTAMP_NTZ)), '{value}') AS value",
        f"to_avro(named_struct('id', CAST(`k_id` AS INT)), '{key}') AS key",
    ]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("`a b` INT", RECORDS, "a name in Avro has letters, digits and _ alone, unlike 'a b'"),
        ("a INTERVAL YEAR", RECORDS, "Avro has no type for INTERVAL YEAR"),
        ("a MAP<INT, INT>", FILES, "the keys of a map in Avro are of the type STRING"),
        ("a ROW<b TIMESTAMP(3)>", FILES, "the times in the column a would be read as moments"),
        ("a INT", f"{RECORDS}, 'avro.codec' = 'xz'", "avro.codec cannot be set: it is that of"),
        ("a INT", f"{RECORDS}, 'avro.encoding' = 'json'", "avro.encoding must be binary"),
        (
            "a INT",
            f"{FILES}, 'avro.codec' = 'gzip'",
            "avro.codec must be null or deflate or snappy or bzip2 or xz or zstandard",
        ),
        (
            "a INT",
            f"{RECORDS}, 'avro.timestamp_mapping.legacy' = 'false'",
            "records are the same with both mappings",
        ),
        ("a INT", f"{FILES}, 'avro.schema.url' = 'file:///x'", "avro.schema.url is not one of"),
    ],
)
def test_what_avro_cannot_have_is_rejected(columns: str, options: str, said: str) -> None:
    with pytest.raises(ServerError) as caught:
        query(columns, options)
    assert caught.value.code == "INVALID_CONNECTOR"
    assert said in caught.value.message


REGISTRY = f"'connector' = 'kafka', {SERVERS}, 'format' = 'avro-confluent'"
URL = "'avro-confluent.url' = 'http://registry:8081'"


def test_schemas_of_records_are_those_of_a_registry() -> None:
    text = query("id BIGINT, at TIMESTAMP(3), there TIMESTAMP_LTZ(3)", f"{REGISTRY}, {URL}")
    fields = "`id` BIGINT, `at` TIMESTAMP_NTZ, `there` TIMESTAMP_LTZ"
    parameters = (
        "valueSchemaRegistry => 'http://registry:8081', valueSubject => 't-value', "
        f"valueSchema => '{fields}'"
    )
    assert parameters in text
    assert "SELECT *, value_fields AS _value FROM read_kafka(" in text
    assert "CAST(_value.`at` AS TIMESTAMP) AS `at`" in text
    found = sink(text)
    assert found["options"]["valueSchemaRegistry"] == "http://registry:8081"
    assert found["options"]["valueSubject"] == "t-value"
    assert "local-" not in found["options"]["valueSchema"]
    assert "local-timestamp-millis" in found["expressions"][0]
    several = REGISTRY.replace("'t'", "'t;u'")
    assert "valueSubject => 't-value;u-value'" in query("id INT", f"{several}, {URL}")


def test_changes_have_schemas_of_a_registry_too() -> None:
    options = REGISTRY.replace("'avro-", "'debezium-avro-")
    url = "'debezium-avro-confluent.url' = 'http://r', 'debezium-avro-confluent.subject' = 's'"
    text = query("id SMALLINT, PRIMARY KEY (id) NOT ENFORCED", f"{options}, {url}")
    row = "STRUCT<`id` INT>"
    assert f"valueSchema => 'before {row}, after {row}, op STRING'" in text
    assert "SELECT *, value_fields AS _value FROM read_kafka(" in text
    assert "if(_value.op = 'd', _value.before, _value.after) AS _row" in text


def test_keys_have_a_registry_of_their_own() -> None:
    text = query(
        "k_id INT, a STRING, PRIMARY KEY (k_id) NOT ENFORCED",
        f"'connector' = 'upsert-kafka', {SERVERS}, 'key.format' = 'avro-confluent', "
        "'key.avro-confluent.url' = 'https://r/api', 'key.fields-prefix' = 'k_', "
        "'value.fields-include' = 'EXCEPT_KEY', 'value.format' = 'json'",
    )
    assert "keySubject => 't-key', keySchema => '`id` INT'" in text
    schema = json.loads(sink(text)["options"]["keySchema"])
    assert schema["fields"] == [{"name": "id", "type": "int"}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (REGISTRY, "avro-confluent.url is missing"),
        (f"{REGISTRY}, 'avro-confluent.url' = 'r:8081'", "must be one URL such as http://"),
        (f"{REGISTRY}, 'avro-confluent.url' = 'http://u:p@r'", "must be one URL such as http://"),
        (f"{REGISTRY}, 'avro-confluent.url' = 'http://r?x'", "must be one URL such as http://"),
        (
            f"{REGISTRY}, {URL}, 'avro-confluent.basic-auth.user-info' = 'u:p'",
            "the definition of a table is not secret",
        ),
        (f"{REGISTRY}, {URL}, 'avro-confluent.schema' = '\"int\"'", "derived from the columns"),
        (f"{REGISTRY}, {URL}, 'avro-confluent.subjct' = 'x'", "did you mean"),
        (
            REGISTRY.replace("'topic'", "'topic-pattern'") + f", {URL}",
            "avro-confluent.subject is missing: the topics are a pattern",
        ),
        (FILES.replace("'avro'", "'avro-confluent'"), "files of Avro contain their schema"),
    ],
)
def test_options_of_a_registry_are_checked(options: str, said: str) -> None:
    with pytest.raises(ServerError) as caught:
        query("a INT", options)
    assert said in caught.value.message
