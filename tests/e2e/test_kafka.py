"""A stream from a real broker, which Kafka's own jars run: `bin/test --full`."""

from __future__ import annotations

import pytest

import tidegate
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
    keyed = (
        "CREATE TABLE {} (k_id INT, text STRING, at TIMESTAMP(3), h MAP<STRING, BYTES> METADATA "
        "FROM 'headers', part INT METADATA FROM 'partition') WITH ('connector' = 'kafka', 'topic' "
        f"= 'sunk', 'properties.bootstrap.servers' = '{broker}', 'key.format' = 'json', "
        "'key.fields' = 'k_id', 'key.fields-prefix' = 'k_', 'value.fields-include' = 'EXCEPT_KEY', "
        "'value.format' = '{}')"
    )
    named_rows(
        server,
        keyed.format("sunk", "json"),
        keyed.format("csvs", "csv").replace("'sunk'", "'csvs'"),
        "INSERT INTO sunk VALUES (1, 'a', TIMESTAMP '2026-01-01 01:02:03.5', map('x', X'ff')), "
        "(2, NULL, NULL, NULL)",
        "INSERT INTO csvs BY NAME SELECT n AS k_id, 'it,s' AS text FROM topic",
    )
    with pytest.raises(tidegate.Error, match="does not support truncate"):
        named_rows(server, "INSERT OVERWRITE sunk VALUES (1, 'a', NULL, NULL)")
    rows = named_rows(server, "SELECT k_id, text, CAST(at AS STRING) AS at, h FROM sunk ORDER BY 1")
    assert rows[0] == {"k_id": 1, "text": "a", "at": "2026-01-01 01:02:03.5", "h": {"x": "/w=="}}
    assert rows[1] == {"k_id": 2, "text": None, "at": None, "h": None}
    named_rows(
        server,
        "CREATE TABLE timed (n INT, h MAP<STRING, BYTES> METADATA FROM 'headers', at TIMESTAMP "
        "METADATA FROM 'timestamp') WITH ('connector' = 'kafka', 'topic' = 'timed', 'format' = "
        f"'csv', 'properties.bootstrap.servers' = '{broker}')",
        "INSERT INTO timed VALUES (1, map('x', X'ff'), TIMESTAMP '2026-01-01 01:02:03.5'), "
        "(2, NULL, NULL)",
    )
    seen = "n, h, IF(at > now() - INTERVAL 1 HOUR, 'now', CAST(at AS STRING)) AS at"
    rows = named_rows(server, f"SELECT {seen} FROM timed ORDER BY n")
    assert rows[0] == {"n": 1, "h": {"x": "/w=="}, "at": "2026-01-01 01:02:03.5"}
    assert rows[1] == {"n": 2, "h": None, "at": "now"}
    rows = named_rows(server, "SELECT k_id, text, h FROM csvs ORDER BY k_id")
    assert rows == [{"k_id": n, "text": "it,s", "h": None} for n in range(5)]
    texts = (
        f"SELECT CAST(value AS STRING) FROM read_kafka(bootstrapServers => '{broker}', "
        "subscribePattern => '^n$', endingOffsets => 'latest')"
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
