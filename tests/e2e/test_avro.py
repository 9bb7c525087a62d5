"""Records of Avro in a real broker, with schemas in a real registry: `bin/test --full`."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

import tidegate
from tests.support.fixtures.server import StartServer, run_as
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches Kafka's broker and a registry"),
    pytest.mark.timeout(900),
]
MOMENT = "TIMESTAMP '2026-01-01 12:00:00.5'"


def test_records_of_avro(start_server: StartServer, broker: str, apicurio: str) -> None:
    server = start_server("--set=engine.kafka=true")
    server.wait_for_engine()

    def run(*texts: str) -> list[tuple[object, ...]]:
        return run_as(server, "carl", "SET TIME ZONE 'Asia/Tokyo'", *texts)

    def refreshed(table: str) -> list[tuple[object, ...]]:
        return run(f"ALTER MATERIALIZED TABLE {table} REFRESH", f"SELECT * FROM {table} ORDER BY 1")

    def table(name: str, columns: str, topic: str, format: str, connector: str = "kafka") -> None:
        run(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = '{connector}', 'topic' = "
            f"'{topic}', 'properties.bootstrap.servers' = '{broker}', {format})"
        )

    # ---- without a registry -----------------------------------------------------------------
    table(
        "plain",
        "id INT, at TIMESTAMP(3), price DECIMAL(10, 2), part ROW<a SMALLINT, at TIMESTAMP(3)>, "
        "PRIMARY KEY (id) NOT ENFORCED",
        "plain",
        "'key.format' = 'avro', 'value.format' = 'avro'",
        "upsert-kafka",
    )
    part = f"named_struct('a', 1S, 'at', {MOMENT})"
    run(
        f"INSERT INTO plain VALUES (1, {MOMENT}, 1.5, {part}), (2, NULL, NULL, NULL)",
        "INSERT INTO plain (id, price) VALUES (2, 3)",
    )
    columns = "id, CAST(at AS STRING), CAST(price AS STRING), CAST(part AS STRING)"
    when = "2026-01-01 12:00:00.5"
    assert run(f"SELECT {columns} FROM plain ORDER BY id") == [
        (1, when, "1.50", f"{{1, {when}}}"),
        (2, None, "3.00", None),
    ]
    # ---- with one ---------------------------------------------------------------------------
    registry = f"'avro-confluent.url' = '{apicurio}'"
    confluent = f"'format' = 'avro-confluent', {registry}"
    table("old", "id INT, at TIMESTAMP(3), there TIMESTAMP_LTZ(3)", "orders", confluent)
    table("new", "note STRING, tags ARRAY<ROW<x INT>>, id BIGINT", "orders", confluent)
    run(
        f"INSERT INTO old VALUES (1, {MOMENT}, {MOMENT})",
        "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM new",
    )
    assert [row[2] for row in refreshed("m")] == [1]
    run("INSERT INTO new VALUES ('n', array(named_struct('x', 7)), 2)")
    assert run("SELECT id, note, tags.x[0] FROM new ORDER BY id") == [(1, None, None), (2, "n", 7)]
    assert run("SELECT id, CAST(at AS STRING), at = there FROM old ORDER BY id") == [
        (1, when, True),
        (2, None, None),
    ]
    assert len(refreshed("m")) == 2
    with urlopen(f"{apicurio}/subjects/orders-value/versions/1") as answer:
        schema = json.loads(json.load(answer)["schema"])
    assert schema["fields"][1]["type"][1]["logicalType"] == "timestamp-millis"
    # ---- changes ----------------------------------------------------------------------------
    row = "ROW<id INT NOT NULL, name STRING>"
    keyed = "'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY'"
    table(
        "envelopes",
        f"k STRING, before {row}, after {row}, op STRING, ts_ms BIGINT",
        "items",
        f"{keyed}, 'value.format' = 'avro-confluent', 'value.avro-confluent.url' = '{apicurio}'",
    )
    table(
        "items",
        "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED",
        "items",
        f"'format' = 'debezium-avro-confluent', 'debezium-avro-confluent.url' = '{apicurio}'",
    )
    event = "('{0}', {1}, {2}, '{3}', 0)"

    def item(number: int, name: str) -> str:
        return f"named_struct('id', {number}, 'name', '{name}')"

    run(
        "INSERT INTO envelopes VALUES "
        + ", ".join(event.format(n, "NULL", item(n, "a"), "c") for n in (1, 2, 3)),
        "CREATE MATERIALIZED TABLE i FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM items",
    )
    assert refreshed("i") == [(1, "a"), (2, "a"), (3, "a")]
    run(
        "INSERT INTO envelopes VALUES "
        + event.format(1, item(1, "a"), item(1, "b"), "u")
        + ", "
        + event.format(2, item(2, "a"), "NULL", "d")
    )
    assert refreshed("i") == run("SELECT * FROM items ORDER BY id") == [(1, "b"), (3, "a")]
    # ---- other registries -------------------------------------------------------------------
    with pytest.raises(tidegate.Error, match="SCHEMA_REGISTRY.*127.0.0.1:1 cannot be used"):
        table("gone", "id INT", "orders", confluent.replace(apicurio, "http://127.0.0.1:1"))
