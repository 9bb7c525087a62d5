"""Definition versions, chains that are suspended, and the way back to a plain table, for real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import tidegate
from tests.support.fixtures.server import Server, sorted_rows

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

ALTER = "ALTER MATERIALIZED TABLE"
DAY = "FRESHNESS = INTERVAL '1' DAY"


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a new schema."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as opened:
        opened.execute("CREATE SCHEMA defined")
        opened.execute("USE defined")
        yield opened
        for (table,) in sorted_rows(opened, "SHOW MATERIALIZED TABLES FROM defined"):
            opened.execute(f"DROP MATERIALIZED TABLE defined.{table}")
        opened.execute("DROP SCHEMA defined CASCADE")


def test_a_definition_goes_back_and_a_table_becomes_plain(cursor: tidegate.Cursor) -> None:
    cursor.execute("CREATE TABLE orders (k STRING, n INT) USING delta")
    cursor.execute("INSERT INTO orders VALUES ('a', 1), ('b', 2)")
    declared = "(n BIGINT COMMENT 'count', k STRING, loud AS upper(k))"
    query = "SELECT k, n FROM orders -- all"
    cursor.execute(f"CREATE MATERIALIZED TABLE daily {declared} {DAY} AS {query}")
    cursor.execute(
        f"CREATE MATERIALIZED TABLE per_key {DAY} AS SELECT k, sum(n) AS n FROM daily GROUP BY k"
    )
    _goes_back(cursor, query)
    _goes_back_with_its_data(cursor)
    _suspends_the_chain(cursor)
    _becomes_plain(cursor)


def _goes_back(cursor: tidegate.Cursor, query: str) -> None:
    before = sorted_rows(cursor, "SHOW CREATE MATERIALIZED TABLE daily")
    cursor.execute(f"{ALTER} daily AS SELECT k, n FROM orders WHERE n > 1")
    cursor.execute(f"{ALTER} daily REFRESH CASCADE")
    assert sorted_rows(cursor, "SELECT * FROM per_key") == [("b", 2)]
    cursor.execute("USE default")
    cursor.execute(f"{ALTER} defined.daily ROLLBACK DEFINITION TO VERSION 1")
    cursor.execute("USE defined")
    assert sorted_rows(cursor, "SHOW CREATE MATERIALIZED TABLE daily") == before
    cursor.execute(f"{ALTER} daily REFRESH CASCADE")
    assert sorted_rows(cursor, "SELECT n, k, loud FROM daily") == [(1, "a", "A"), (2, "b", "B")]
    assert sorted_rows(cursor, "SELECT * FROM per_key") == [("a", 1), ("b", 2)]
    versions = sorted_rows(cursor, "SHOW VERSIONS daily DEFINITION")
    assert [(row[0], row[3]) for row in versions] == [(1, None), (2, None), (3, 1)]
    assert versions[0][5] == versions[2][5] == query
    told = sorted_rows(
        cursor,
        "SELECT definition_version, in_force, changes LIKE '%QUERY%' "
        "FROM information_schema.materialized_table_definitions "
        "WHERE table_schema = 'defined' AND table_name = 'daily'",
    )
    assert told == [(1, False, None), (2, False, True), (3, True, True)]


def _goes_back_with_its_data(cursor: tidegate.Cursor) -> None:
    before = sorted_rows(cursor, "SHOW CREATE MATERIALIZED TABLE daily")
    made = {row[3]: row[0] for row in sorted_rows(cursor, "SHOW VERSIONS daily")}
    cursor.execute(f"{ALTER} daily ROLLBACK TO VERSION {made[2]} BOTH")
    assert sorted_rows(cursor, "SELECT n, k FROM daily") == [(2, "b")]
    [(text,)] = sorted_rows(cursor, "SHOW CREATE MATERIALIZED TABLE daily")
    assert "n > 1" in str(text)
    cursor.execute(f"{ALTER} daily ROLLBACK TO VERSION {made[3]} BOTH")
    assert sorted_rows(cursor, "SHOW CREATE MATERIALIZED TABLE daily") == before
    cursor.execute(f"{ALTER} daily RESUME")
    cursor.execute(f"{ALTER} daily REFRESH")
    assert sorted_rows(cursor, "SELECT n, k FROM daily") == [(1, "a"), (2, "b")]


def _suspends_the_chain(cursor: tidegate.Cursor) -> None:
    names = ["spark_catalog.defined.daily", "spark_catalog.defined.per_key"]
    cursor.execute(f"{ALTER} daily SUSPEND CASCADE")
    assert [tuple(row) for row in cursor.fetchall()] == [(name, "SUSPENDED") for name in names]
    cursor.execute(f"{ALTER} daily RESUME CASCADE")
    assert [tuple(row) for row in cursor.fetchall()] == [(name, "RESUMED") for name in names]


def _becomes_plain(cursor: tidegate.Cursor) -> None:
    with pytest.raises(tidegate.Error, match="NOT_SUPPORTED"):
        cursor.execute(f"{ALTER} daily CONVERT TO TABLE")
    cursor.execute(f"{ALTER} daily DROP loud")
    cursor.execute(f"{ALTER} per_key REFRESH")
    cursor.execute(f"{ALTER} daily CONVERT TO TABLE")
    properties = dict(sorted_rows(cursor, "SHOW TBLPROPERTIES daily"))
    # By it DROP TABLE knows that the directory goes with the table.
    assert [key for key in properties if str(key).startswith("tidegate")] == ["tidegate.place"]
    assert sorted_rows(cursor, "SHOW MATERIALIZED TABLES") == [("per_key",)]
    cursor.execute("INSERT INTO daily (n, k) VALUES (5, 'a')")
    cursor.execute(f"{ALTER} per_key REFRESH")
    assert sorted_rows(cursor, "SELECT * FROM per_key") == [("a", 6), ("b", 2)]
    [(sources,)] = sorted_rows(
        cursor,
        "SELECT sources FROM information_schema.materialized_table_refresh_history "
        "WHERE table_schema = 'defined' AND table_name = 'per_key' ORDER BY epoch DESC LIMIT 1",
    )
    assert "APPENDED" in str(sources)  # it saw the very rows that came, not another table
    cursor.execute(f"{ALTER} per_key AS SELECT k, sum(n) AS n FROM defined.daily GROUP BY k")
    cursor.execute("DROP TABLE daily")
