"""VERIFY, time travel, rollback and expectations through the whole server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import tidegate
from tests.support.fixtures.server import Server, sorted_rows

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a new schema."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as opened:
        opened.execute("CREATE SCHEMA verified")
        opened.execute("USE verified")
        yield opened
        opened.execute("DROP MATERIALIZED TABLE IF EXISTS totals")
        opened.execute("DROP SCHEMA verified CASCADE")


def verify_version(cursor: tidegate.Cursor, version: int | None = None) -> int:
    """Verify a version, which must be right, and return its number."""
    which = "" if version is None else f" VERSION {version}"
    [(name, found, _, equal, missing, extra, sample, left_out)] = sorted_rows(
        cursor, f"VERIFY MATERIALIZED TABLE totals{which}"
    )
    assert name == "spark_catalog.verified.totals"
    assert (equal, missing, extra, sample, left_out) == (True, 0, 0, None, None)
    assert isinstance(found, int)
    return found


def test_versions_are_proved_and_restored(cursor: tidegate.Cursor) -> None:
    cursor.execute("CREATE TABLE orders (k STRING, n INT) USING delta")
    cursor.execute("INSERT INTO orders VALUES ('a', 1), ('b', 2), ('a', -9)")
    cursor.execute(
        "CREATE MATERIALIZED TABLE totals"
        " (CONSTRAINT good EXPECT (total > 0) ON VIOLATION DROP ROW)"
        " FRESHNESS = INTERVAL '1' DAY AS SELECT k, sum(n) AS total FROM orders GROUP BY k"
    )
    cursor.execute("ALTER MATERIALIZED TABLE totals REFRESH")
    assert sorted_rows(cursor, "SELECT * FROM totals") == [("b", 2)]
    first = verify_version(cursor)
    cursor.execute("INSERT INTO orders VALUES ('a', 20)")
    cursor.execute("ALTER MATERIALIZED TABLE totals REFRESH")
    assert sorted_rows(cursor, "SELECT * FROM totals") == [("a", 12), ("b", 2)]
    assert verify_version(cursor) > first
    assert verify_version(cursor, first) == first
    assert sorted_rows(cursor, f"SELECT * FROM totals VERSION AS OF {first}") == [("b", 2)]
    cursor.execute(f"ALTER MATERIALIZED TABLE totals ROLLBACK TO VERSION {first}")
    assert sorted_rows(cursor, "SELECT * FROM totals") == [("b", 2)]
    verify_version(cursor)
    cursor.execute("ALTER MATERIALIZED TABLE totals RESUME")
    cursor.execute("ALTER MATERIALIZED TABLE totals REFRESH")
    assert sorted_rows(cursor, "SELECT * FROM totals") == [("a", 12), ("b", 2)]
    with pytest.raises(tidegate.Error, match="MT_ROLLBACK_IMPOSSIBLE"):
        cursor.execute("ALTER MATERIALIZED TABLE totals ROLLBACK TO VERSION 99")
