"""A materialized table through a real server: nobody else writes, and its sources may change."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyhive import hive

import tidegate
from tests.support.fixtures.server import Server

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

CREATE = (
    "CREATE MATERIALIZED TABLE {} WITH ('materialized-table.initialize' = 'ON_CREATE') "
    "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM {}"
)


class Client:
    """One connection with a schema of its own."""

    def __init__(self, connection: tidegate.Connection) -> None:
        self._cursor = connection.cursor()
        self.schema = f"g{uuid.uuid4().hex[:8]}"
        self.run(f"CREATE SCHEMA {self.schema}", f"USE {self.schema}")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._cursor.execute(statement)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        self._cursor.execute(statement)
        return sorted((tuple(row) for row in self._cursor.fetchall()), key=repr)

    def failure(self, statement: str) -> str:
        with pytest.raises(tidegate.Error) as caught:
            self._cursor.execute(statement)
        return str(caught.value)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A schema with a source ``t`` and the materialized table ``m`` over it."""
    with closing(server.connect()) as connection:
        client = Client(connection)
        client.run(
            "CREATE TABLE t (k STRING, n INT) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "INSERT INTO t VALUES ('a', 1), ('b', 2)",
            CREATE.format("m", "t"),
        )
        yield client
        client.run("DROP MATERIALIZED TABLE IF EXISTS m", f"DROP SCHEMA {client.schema} CASCADE")


def test_a_client_cannot_write_past_the_definition(client: Client) -> None:
    place = client.rows("DESCRIBE DETAIL m")[0][4]
    client.run("CREATE TEMPORARY VIEW seen AS SELECT * FROM m")
    for statement in (
        "INSERT INTO m VALUES ('c', 3)",
        "DELETE FROM seen WHERE n = 1",
        f"UPDATE delta.`{place}` SET n = 0",
        f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT 1",
        "EXECUTE IMMEDIATE 'TRUNCATE TABLE m'",
        "EXECUTE IMMEDIATE 'DELETE FROM IDENTIFIER(?) WHERE n = ?' USING 'm', 1",
        "BEGIN IF 1 = 1 THEN EXECUTE IMMEDIATE 'DROP TABLE m'; END IF; END",
        "DROP TABLE m",
        f"DROP SCHEMA {client.schema} CASCADE",
    ):
        assert "[MT_WRONG_KIND]" in client.failure(statement)
    assert client.rows("SELECT * FROM m") == [("a", 1), ("b", 2)]


def test_a_copy_is_a_plain_table_and_the_original_is_left_alone(client: Client) -> None:
    client.run("CREATE TABLE copy SHALLOW CLONE m", "CREATE TABLE empty LIKE m USING delta")
    client.run("INSERT INTO copy VALUES ('c', 3)", "DELETE FROM copy WHERE n = 1")
    assert client.rows("SELECT * FROM copy") == [("b", 2), ("c", 3)]
    client.run("DROP TABLE empty", "DROP TABLE copy")
    assert client.rows("SELECT * FROM m") == [("a", 1), ("b", 2)]


def test_a_storage_is_listed_nowhere(client: Client) -> None:
    client.run("CREATE MATERIALIZED TABLE seen (w AS upper(k)) AS SELECT k FROM t")
    try:
        for statement in ("SHOW TABLES", f"SHOW TABLES IN {client.schema} LIKE '*seen*'"):
            assert [row[1] for row in client.rows(statement) if "seen" in str(row[1])] == ["seen"]
        listed = client.rows("SHOW TABLE EXTENDED LIKE '*seen*'")
        assert [row[1] for row in listed] == ["seen"]
    finally:
        client.run("DROP MATERIALIZED TABLE seen")


def test_a_cached_table_is_not_older_than_its_last_refresh(client: Client) -> None:
    client.run("CACHE TABLE m", "CACHE TABLE some AS SELECT k FROM m WHERE n > 1")
    for name, number in (("c", 3), ("d", 4)):
        client.run(f"INSERT INTO t VALUES ('{name}', {number})")
        client.run("ALTER MATERIALIZED TABLE m REFRESH")
        assert (name, number) in client.rows("SELECT * FROM m")
        assert (name,) in client.rows("SELECT * FROM some")
    client.run("UNCACHE TABLE some", "UNCACHE TABLE m")


def test_statements_in_texts_and_scripts_run_as_in_spark(client: Client) -> None:
    client.run(
        "DECLARE VARIABLE wanted INT DEFAULT 2",
        "DECLARE VARIABLE found STRING",
        "EXECUTE IMMEDIATE 'SELECT k FROM m WHERE n = ?' INTO found USING wanted",
    )
    assert client.rows("SELECT found") == [("b",)]
    assert client.rows("EXECUTE IMMEDIATE 'SELECT n FROM m WHERE k = :k' USING 'a' AS k") == [(1,)]
    client.run(
        "BEGIN DECLARE i INT DEFAULT 0; WHILE i < wanted DO INSERT INTO t VALUES ('s', i); "
        "SET i = i + 1; END WHILE; SET found = 'done'; END"
    )
    assert client.rows("SELECT found, n FROM t WHERE k = 's'") == [("done", 0), ("done", 1)]
    assert client.rows("BEGIN SELECT 1; SELECT count(*) FROM m; END") == [(2,)]


def test_hive_s_clients_read_what_an_immediate_statement_answers(
    client: Client, server: Server
) -> None:
    with closing(hive.connect(server.host, server.port)) as connection:
        cursor = connection.cursor()
        for statement in ("EXECUTE IMMEDIATE 'SELECT ?' USING 1", "BEGIN SELECT 1; END"):
            cursor.execute(statement)
            assert cursor.fetchall() == [(1,)]


def test_a_changed_source_is_told_and_old_data_is_served(client: Client) -> None:
    refresh = "ALTER MATERIALIZED TABLE m REFRESH"
    client.run("ALTER TABLE t ADD COLUMN extra INT", "INSERT INTO t VALUES ('c', 3, 4)", refresh)
    served = [("a", 1), ("b", 2), ("c", 3)]
    assert client.rows("SELECT * FROM m") == served
    client.run("ALTER TABLE t RENAME COLUMN n TO number")
    told = client.failure(refresh)
    assert "[MT_SOURCE_CHANGED]" in told
    assert f"{client.schema}.t of " in told
    assert "column n is gone" in told
    assert client.rows("SELECT * FROM m") == served
    client.run("DROP TABLE t")
    assert "[MT_SOURCE_NOT_FOUND]" in client.failure(refresh)
    assert client.rows("SELECT * FROM m") == served
    again = "CREATE TABLE t (k STRING, n INT) USING delta"
    client.run(again, "INSERT INTO t VALUES ('z', 9)", refresh)
    assert client.rows("SELECT * FROM m") == [("z", 9)]


def test_lineage_and_time_reach_the_catalog(client: Client) -> None:
    client.run("CREATE VIEW v AS SELECT k AS name, current_date AS day FROM t")
    client.run(CREATE.format("d", "v"))
    try:
        (first, *_) = client.rows("SELECT name, day FROM d")
        assert first[0] == "a"
        expanded = client.rows("SHOW CREATE MATERIALIZED TABLE d")[0][0]
        assert f"SELECT `name`, `day` FROM `spark_catalog`.`{client.schema}`.`v`" in str(expanded)
    finally:
        client.run("DROP MATERIALIZED TABLE d")
