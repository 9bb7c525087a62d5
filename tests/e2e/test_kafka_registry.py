"""Topics whose schemas are in a real registry, as tables of a catalog: `bin/test --full`."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

import pytest

import tidegate
from tests.support.fixtures.kafka import produce
from tests.support.fixtures.server import Server, StartServer, run_as
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches Kafka's broker and a registry"),
    pytest.mark.timeout(900),
]
MOMENT = "TIMESTAMP '2026-01-01 12:00:00.5'"


def _refused(server: Server, statement: str) -> str:
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, "carl", statement)
    return f"{caught.value} {caught.value.hint}"


def _register(registry: str, subject: str, schema: object) -> None:
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = Request(f"{registry}/subjects/{subject}/versions", body, headers)
    with urlopen(request) as answer:
        assert answer.status == 200


def test_topics_have_the_columns_of_their_schemas(
    start_server: StartServer, broker: str, apicurio: str
) -> None:
    server = start_server("--set=engine.kafka=true")
    server.wait_for_engine()

    def run(*texts: str) -> list[tuple[object, ...]]:
        return run_as(server, "carl", "SET TIME ZONE 'Asia/Tokyo'", *texts)

    def table(name: str, columns: str, topic: str, formats: str) -> None:
        run(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', "
            f"'properties.bootstrap.servers' = '{broker}', {formats})"
        )

    url = f"avro-confluent.url' = '{apicurio}'"
    value = f"'value.format' = 'avro-confluent', 'value.{url}"
    both = f"'key.format' = 'avro-confluent', 'key.{url}, 'key.fields' = 'id', {value}"
    table("first", "id INT, at TIMESTAMP_LTZ(3), price DECIMAL(8, 2)", "reg.orders", both)
    run(f"INSERT INTO first VALUES (1, {MOMENT}, 1.5), (2, NULL, NULL)")
    produce(broker, "reg.plain", ["a"])
    run(
        "CREATE CATALOG events WITH ('type' = 'kafka', "
        f"'properties.bootstrap.servers' = '{broker}', '{url})"
    )
    topic = "events.default.`reg.orders`"
    described = {row[0]: row[1] for row in run(f"DESCRIBE {topic}")}
    assert list(described) == ["id", "at", "price", "_kafka"]
    assert (described["at"], described["price"]) == ("timestamp", "decimal(8,2)")
    rows = "SELECT id, CAST(at AS STRING), CAST(price AS STRING) FROM {} ORDER BY id"
    before = run(rows.format(topic))
    assert before == [(1, "2026-01-01 12:00:00.5", "1.50"), (2, None, None)]
    assert run(f"SELECT sum(id) FROM {topic} WHERE _kafka.offset >= 0 AND id > 1") == [(2,)]
    raw = f"SELECT count(*) FROM {topic} WHERE substring(_kafka.value, 1, 1) = X'00'"
    assert run(raw) == [(2,)]
    # A table that follows, with records of a second schema, and one without a value.
    run(
        "CREATE MATERIALIZED TABLE totals FRESHNESS = INTERVAL '1' DAY AS "
        f"SELECT count(*) AS n, sum(id) AS ids, sum(price) AS price FROM {topic}"
    )
    refresh = "ALTER MATERIALIZED TABLE totals REFRESH"
    run(refresh)
    assert "NO_DATA" in str(run(refresh, "SHOW REFRESH HISTORY FOR totals LIMIT 1"))
    table("more", "id INT, note STRING, price DECIMAL(8, 2)", "reg.orders", both)
    run("INSERT INTO more VALUES (4, 'new', 2.5)")
    found = run(f"SELECT * EXCEPT (_kafka) FROM {topic} ORDER BY id")
    assert [row[0] for row in found] == [1, 2, 4]
    assert [row[0] for row in run(f"DESCRIBE {topic}")] == ["id", "note", "price", "_kafka"]
    run(refresh)
    assert str(run("SELECT * FROM totals")) == "[(3, 7, Decimal('4.00'))]"
    # Kinds of schemas.
    produce(broker, "reg.text", ["a"])
    _register(apicurio, "reg.text-value", "string")
    names = [row[0] for row in run("DESCRIBE events.default.`reg.text`")]
    assert names[:2] == ["key", "value"]
    assert run("SELECT CAST(value AS STRING) FROM events.default.`reg.plain`") == [("a",)]
    produce(broker, "reg.foreign", ["not Avro"])
    nested = {
        "type": "record",
        "name": "all",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
            {"name": "either", "type": ["null", "int", "string"], "doc": "one of them"},
            {"name": "more", "type": {"type": "map", "values": ["null", "long"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    _register(apicurio, "reg.foreign-value", nested)
    described = {row[0]: row[1:] for row in run("DESCRIBE events.default.`reg.foreign`")}
    assert described["kind"][0] == "string"
    assert described["either"] == ("struct<member0:int,member1:string>", "one of them")
    assert described["more"][0] == "map<string,bigint>"
    assert described["day"][0] == "date"
    text = _refused(server, "SELECT kind FROM events.default.`reg.foreign`")
    assert "does not begin with the id of a schema" in text
    assert run("SELECT CAST(_kafka.value AS STRING) FROM events.default.`reg.foreign`") == [
        ("not Avro",)
    ]
    assert "its tables are only read" in _refused(
        server, f"INSERT INTO {topic} SELECT * FROM {topic}"
    )
    # A registry that does not answer.
    gone = "'avro-confluent.url' = 'http://127.0.0.1:1'"
    options = f"'type' = 'kafka', 'properties.bootstrap.servers' = '{broker}', {gone}"
    run(f"CREATE CATALOG gone WITH ({options})")
    text = _refused(server, "SELECT * FROM gone.default.`reg.plain`")
    assert "the schema registry http://127.0.0.1:1 cannot be used" in text
    assert ("default", "reg.plain", False) in run("SHOW TABLES IN gone.default")
