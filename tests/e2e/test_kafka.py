"""A stream from a real broker, which Kafka's own jars run: `bin/test --full`."""

from __future__ import annotations

import pytest

from tests.support.fixtures.kafka import produce
from tests.support.fixtures.server import StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches Kafka's broker"),
]


def test_a_topic_is_taken_in_across_a_restart(start_server: StartServer, broker: str) -> None:
    kafka = "--set=engine.kafka=true"
    produce(broker, "n", range(5))
    server = start_server(kafka)
    server.wait_for_engine()
    query = (
        "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM STREAM read_kafka("
        f"bootstrapServers => '{broker}', subscribe => 'n', startingOffsets => 'earliest')"
    )
    named_rows(
        server,
        "CREATE TABLE topic (n INT, part INT METADATA FROM 'partition', place BIGINT METADATA FROM "
        "'offset', at TIMESTAMP METADATA FROM 'timestamp') WITH ('connector' = 'kafka', 'topic' = "
        f"'n', 'properties.bootstrap.servers' = '{broker}', 'format' = 'csv')",
        "CREATE MATERIALIZED TABLE numbers FRESHNESS = INTERVAL '1' DAY AS SELECT n FROM topic",
        "ALTER MATERIALIZED TABLE numbers REFRESH",
        "CREATE TABLE copied (n INT) USING delta",
        "SET 'execution.checkpointing.interval' = '1 s'",
        f"INSERT INTO copied {query}",
    )
    [found] = named_rows(
        server,
        "SELECT count(n) AS ns, min(place) AS first, bool_and(at > now() - INTERVAL 1 HOUR) AS new"
        " FROM topic WHERE part IN (0, 1)",
    )
    assert found == {"ns": 5, "first": 0, "new": True}
    texts = (
        f"SELECT CAST(value AS STRING) FROM read_kafka(bootstrapServers => '{broker}', "
        "subscribePattern => 'n', endingOffsets => 'latest')"
    )
    assert len(named_rows(server, texts)) == 5
    copied = "SELECT n FROM copied ORDER BY n"
    wait_until(lambda: len(named_rows(server, copied)) == 5, "the job did not begin")
    server.stop()
    produce(broker, "n", range(5, 9))
    server = start_server(kafka)
    server.wait_for_engine()
    for _ in range(2):
        named_rows(server, "ALTER MATERIALIZED TABLE numbers REFRESH")
        rows = named_rows(server, "SELECT n FROM numbers ORDER BY n")
        assert [row["n"] for row in rows] == list(range(9))
    [last] = named_rows(server, "SHOW REFRESH HISTORY FOR numbers LIMIT 1")
    assert last["action"] == "NO_DATA"
    wait_until(lambda: len(named_rows(server, copied)) >= 9, "the job did not go on")
    assert [row["n"] for row in named_rows(server, copied)] == list(range(9))
