"""A catalog whose tables are topics, those of a real broker in `bin/test --full`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.kafka import NULL, produce
from tests.support.fixtures.server import Server, StartServer, run_as
from tests.support.full_run import FULL

pytestmark = pytest.mark.spark

_CONFIG = """
[authorization]
enabled = true
administrators = ["root"]

[secrets]
jaas = 'x.PlainLoginModule required username="u" password="hush-of-kafka";'
"""


def _refused(server: Server, user: str, statement: str, *said: str) -> None:
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, statement)
    for each in said:
        assert each in f"{caught.value} {caught.value.hint}"


def test_the_client_of_kafka_has_to_be_loaded(server: Server) -> None:
    options = "'type' = 'kafka', 'properties.bootstrap.servers' = '127.0.0.1:1'"
    statement = f"CREATE CATALOG unloaded WITH ({options})"
    _refused(server, "root", statement, "INVALID_CATALOG", "engine.kafka = true")


@pytest.mark.skipif(not FULL, reason="fetches Kafka's broker")
def test_topics_are_tables(start_server: StartServer, broker: str, tmp_path: Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(_CONFIG)
    produce(broker, "orders", ['1|{"n": 1}', f"2|{NULL}", '1|{"n": 3}'], keyed=True)
    produce(broker, "web.clicks", ["a"])
    server = start_server("--set=engine.kafka=true", "--config", str(config))
    server.wait_for_engine()
    run_as(
        server,
        "root",
        f"CREATE CATALOG k WITH ('type' = 'kafka', 'properties.bootstrap.servers' = '{broker}', "
        "'properties.sasl.jaas.config' = '${secret:jaas}')",
        "GRANT USE CATALOG, MODIFY ON CATALOG k TO USER ann",
        "CREATE SCHEMA s",
        "GRANT USAGE, CREATE ON SCHEMA s TO USER ann",
    )
    topics = [("default", "orders", False), ("default", "web.clicks", False)]
    assert run_as(server, "ann", "SHOW TABLES IN k.default") == topics
    rows = (
        "SELECT CAST(key AS STRING), from_json(CAST(value AS STRING), 'n INT').n, topic, headers "
        "FROM k.default.orders ORDER BY partition, offset"
    )
    found = {(key, n) for key, n, *_ in run_as(server, "ann", rows)}
    assert found == {("1", 1), ("2", None), ("1", 3)}
    assert run_as(server, "ann", "USE k.default", "SELECT count(*) FROM `web.clicks`") == [(1,)]
    # A materialized table has a full refresh after new records, and none without.
    query = "SELECT CAST(key AS STRING) AS k, count(*) AS n FROM k.default.orders GROUP BY key"
    refresh = "ALTER MATERIALIZED TABLE s.totals REFRESH"
    daily = "FRESHNESS = INTERVAL '1' DAY"
    run_as(server, "ann", f"CREATE MATERIALIZED TABLE s.totals {daily} AS {query}", refresh)
    assert run_as(server, "ann", "SELECT * FROM s.totals ORDER BY k") == [("1", 2), ("2", 1)]
    [(_, info)] = run_as(server, "ann", refresh)
    assert info["action"] == "NO_DATA"
    produce(broker, "orders", ["2|x"], keyed=True)
    [(_, info)] = run_as(server, "ann", refresh)
    assert info["action"] == "FULL"
    assert run_as(server, "ann", "SELECT n FROM s.totals WHERE k = '2'") == [(2,)]
    # Tables of the connector, like one another: rows, and changes by the key.
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{broker}'"
    run_as(
        server,
        "root",
        "CREATE TABLE s.clicks (n INT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK "
        f"FOR at AS at - INTERVAL '5' SECOND) WITH ({kafka}, 'topic' = 'orders', "
        "'format' = 'json', 'json.ignore-parse-errors' = 'true')",
        "CREATE TABLE s.changes (PRIMARY KEY (n) NOT ENFORCED) WITH ('topic' = 'changes', 'format' "
        f"= 'debezium-json', {kafka}) LIKE s.clicks (EXCLUDING OPTIONS EXCLUDING WATERMARKS)",
        f"CREATE MATERIALIZED TABLE s.taken {daily} AS SELECT n FROM s.clicks WHERE at IS NOT NULL",
        f"CREATE MATERIALIZED TABLE s.applied {daily} AS SELECT n, at FROM s.changes",
        "ALTER MATERIALIZED TABLE s.taken REFRESH",
    )
    assert run_as(server, "root", "SELECT n FROM s.taken ORDER BY n") == [(1,), (3,)]
    joined = "SELECT count(*) AS n FROM s.clicks JOIN s.changes USING (n)"
    for query, found in ((joined, "several"), ("SELECT sum(n) AS n FROM s.clicks", "an aggregate")):
        statement = f"CREATE MATERIALIZED TABLE s.never {daily} AS {query}"
        _refused(server, "root", statement, "MT_STREAM_QUERY", found, "ingest the rows unchanged")
    # Rights, secrets, and what there is not.
    _refused(server, "bob", rows, "bob needs USE CATALOG on catalog k")
    for statement in (
        "DESCRIBE EXTENDED k.default.orders",
        "SHOW CREATE TABLE k.default.orders",
        "SHOW TBLPROPERTIES k.default.orders",
        "EXPLAIN EXTENDED SELECT * FROM k.default.orders",
        "DESCRIBE CATALOG EXTENDED k",
    ):
        assert "hush" not in str(run_as(server, "ann", statement)), statement
    written = "INSERT INTO k.default.orders (value) SELECT X'01'"
    _refused(server, "ann", written, "does not allow insertion", "'connector' = 'kafka'")
    _refused(server, "ann", "CREATE TABLE k.default.t (a INT)", "CATALOG_METHOD", "create_table")
    _refused(server, "ann", "DROP TABLE k.default.orders", "CATALOG_METHOD")
    _refused(server, "ann", "SELECT * FROM k.default.nothing", "TABLE_OR_VIEW_NOT_FOUND")
    unreachable = "'type' = 'kafka', 'properties.bootstrap.servers' = '127.0.0.1:1'"
    run_as(server, "root", f"CREATE CATALOG gone WITH ({unreachable})")
    _refused(server, "root", "SHOW TABLES IN gone.default", "no broker at 127.0.0.1:1 answered")
