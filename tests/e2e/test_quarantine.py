"""Rows that expectations hold out, and keys that are checked, through the whole server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

import tidegate
from tests.support.fixtures.server import Server

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

CREATE = (
    "CREATE {} MATERIALIZED TABLE good (CONSTRAINT positive EXPECT (n > 0) ON VIOLATION QUARANTINE,"
    " CONSTRAINT small EXPECT (n < 100) ON VIOLATION QUARANTINE{})"
    " FRESHNESS = INTERVAL '1' DAY AS SELECT k, n FROM raw"
)


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a new schema, with a source."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as opened:
        opened.execute("CREATE SCHEMA held")
        opened.execute("USE held")
        opened.execute("CREATE TABLE raw (k STRING NOT NULL, n INT) USING delta")
        opened.execute("INSERT INTO raw VALUES ('a', 1), ('b', -2), ('c', 300), ('d', NULL)")
        yield opened
        for table in ("reader", "good", "better", "keyed"):
            opened.execute(f"DROP MATERIALIZED TABLE IF EXISTS {table}")
        opened.execute("DROP SCHEMA held CASCADE")


def rows(cursor: tidegate.Cursor, statement: str) -> list[tuple[object, ...]]:
    """Run a statement and return its rows in a fixed order."""
    cursor.execute(statement)
    return sorted(tuple(row) for row in cursor.fetchall())


def content(cursor: tidegate.Cursor, name: str = "good") -> set[object]:
    """Return the keys of the table and those in quarantine with what they break, in one set."""
    shown = {row[0] for row in rows(cursor, f"SELECT k, n FROM {name}")}
    held = rows(cursor, f"SELECT k, array_join(__violated, ',') FROM {name}__quarantine ORDER BY k")
    return {*shown, *held}


def refresh(cursor: tidegate.Cursor, name: str = "good") -> dict[str, object]:
    """Refresh and return the run as the history has it; the table is proved afterwards."""
    cursor.execute(f"ALTER MATERIALIZED TABLE {name} REFRESH INCREMENTAL")
    [proof] = rows(cursor, f"VERIFY MATERIALIZED TABLE {name}")
    assert proof[3] is True, proof
    cursor.execute(f"SHOW REFRESH HISTORY FOR {name} LIMIT 1")
    names = [column[0] for column in cursor.description or ()]
    [run] = cursor.fetchall()
    return dict(zip(names, run, strict=True))


def rejection(cursor: tidegate.Cursor, statement: str) -> str:
    with pytest.raises(tidegate.Error) as caught:
        cursor.execute(statement)
    return str(caught.value)


def test_rows_are_held_out_and_come_back(cursor: tidegate.Cursor) -> None:
    cursor.execute(CREATE.format("", ""))
    run = refresh(cursor)
    assert json.loads(str(run["expectations"])) == {"positive": 1, "small": 1}
    first = run["to_version"]
    assert content(cursor) == {"a", "d", ("b", "positive"), ("c", "small")}
    cursor.execute("UPDATE raw SET n = 2 WHERE k = 'b'")
    cursor.execute("DELETE FROM raw WHERE k = 'c'")
    cursor.execute("INSERT INTO raw VALUES ('e', -5), ('a', -1)")
    run = refresh(cursor)
    assert run["action"] == "INCREMENTAL"
    assert json.loads(str(run["expectations"])) == {"positive": 2, "small": 0}
    assert content(cursor) == {"a", "b", "d", ("a", "positive"), ("e", "positive")}
    cursor.execute(f"ALTER MATERIALIZED TABLE good ROLLBACK TO VERSION {first}")
    assert content(cursor) == {"a", "d", ("b", "positive"), ("c", "small")}
    cursor.execute("ALTER MATERIALIZED TABLE good RESUME")


def test_the_quarantine_belongs_to_its_table(cursor: tidegate.Cursor) -> None:
    cursor.execute(CREATE.format("", ""))
    refresh(cursor)
    assert "good__quarantine" in {row[1] for row in rows(cursor, "SHOW TABLES")}
    cursor.execute("DESCRIBE EXTENDED good")
    facts = {row[0]: row[1] for row in cursor.fetchall()}
    assert facts["quarantine"] == "spark_catalog.held.good__quarantine"
    for statement in (
        "INSERT INTO good__quarantine SELECT * FROM good__quarantine",
        "DELETE FROM good__quarantine",
        "DROP VIEW good__quarantine",
        "ALTER VIEW good__quarantine AS SELECT 1",
    ):
        message = rejection(cursor, statement)
        assert "MT_WRONG_KIND" in message, message
        assert "held.good" in message
    assert "ALREADY_EXISTS" in rejection(
        cursor, "CREATE MATERIALIZED TABLE good__quarantine AS SELECT * FROM raw"
    )
    cursor.execute("ALTER MATERIALIZED TABLE good RENAME TO better")
    assert content(cursor, "better") == {"a", "d", ("b", "positive"), ("c", "small")}
    cursor.execute("DROP MATERIALIZED TABLE better")
    assert {row[1] for row in rows(cursor, "SHOW TABLES")} == {"raw"}


def test_expectations_come_and_go(cursor: tidegate.Cursor) -> None:
    cursor.execute("CREATE MATERIALIZED TABLE good AS SELECT k, n FROM raw")
    refresh(cursor)
    cursor.execute(CREATE.format("OR ALTER", ", half AS n / 2"))
    assert content(cursor) == {"a", "d", ("b", "positive"), ("c", "small")}
    refresh(cursor)
    assert content(cursor) == {"a", "d", ("b", "positive"), ("c", "small")}
    cursor.execute("ALTER MATERIALIZED TABLE good DROP (half)")
    cursor.execute("ALTER MATERIALIZED TABLE good DROP CONSTRAINT positive")
    assert content(cursor) == {"a", "b", "d", ("c", "small")}
    cursor.execute("ALTER MATERIALIZED TABLE good DROP CONSTRAINT small")
    assert {row[0] for row in rows(cursor, "SELECT * FROM good")} == {"a", "b", "c", "d"}
    assert {row[1] for row in rows(cursor, "SHOW TABLES")} == {"good", "raw"}
    refresh(cursor)


def test_readers_see_only_what_is_in_the_table(cursor: tidegate.Cursor) -> None:
    cursor.execute(CREATE.format("", ""))
    cursor.execute(
        "CREATE MATERIALIZED TABLE reader FRESHNESS = INTERVAL '1' DAY AS"
        " SELECT 'in' AS side, count(*) AS c FROM good GROUP BY ALL"
        " UNION ALL SELECT 'out', count(*) FROM good__quarantine GROUP BY ALL"
    )
    cursor.execute("ALTER MATERIALIZED TABLE good REFRESH CASCADE")
    assert rows(cursor, "SELECT * FROM reader") == [("in", 2), ("out", 2)]
    cursor.execute("INSERT INTO raw VALUES ('e', -5), ('f', 5)")
    cursor.execute("ALTER MATERIALIZED TABLE good REFRESH CASCADE")
    assert rows(cursor, "SELECT * FROM reader") == [("in", 3), ("out", 3)]
    [proof] = rows(cursor, "VERIFY MATERIALIZED TABLE reader")
    assert proof[3] is True


def test_conditions_have_to_be_stable(cursor: tidegate.Cursor) -> None:
    for condition in ("n > rand()", "current_date() > DATE '2020-01-01'"):
        message = rejection(
            cursor,
            f"CREATE MATERIALIZED TABLE good (CONSTRAINT c EXPECT ({condition})"
            " ON VIOLATION QUARANTINE) AS SELECT k, n FROM raw",
        )
        assert "MT_COLUMN_EXPRESSION" in message
        assert "another result each time" in message


def test_keys_are_checked_and_rows_held_out_do_not_count(cursor: tidegate.Cursor) -> None:
    cursor.execute(
        "CREATE MATERIALIZED TABLE keyed (CONSTRAINT pk PRIMARY KEY (k) NOT ENFORCED,"
        " CONSTRAINT positive EXPECT (n > 0) ON VIOLATION QUARANTINE)"
        " WITH ('constraint.enforce' = 'fail') FRESHNESS = INTERVAL '1' DAY"
        " AS SELECT k, n FROM raw"
    )
    cursor.execute("INSERT INTO raw VALUES ('a', -7)")
    run = refresh(cursor, "keyed")
    assert json.loads(str(run["expectations"])) == {"positive": 2, "pk": 0}
    cursor.execute("INSERT INTO raw VALUES ('b', 5), ('a', -8)")
    assert refresh(cursor, "keyed")["action"] == "INCREMENTAL"
    cursor.execute("INSERT INTO raw VALUES ('b', 6)")
    for kind in ("INCREMENTAL", "FULL"):
        message = rejection(cursor, f"ALTER MATERIALIZED TABLE keyed REFRESH {kind}")
        assert "MT_PK_VIOLATED" in message
        assert '{"k":"b"}' in message
    assert len(rows(cursor, "SELECT * FROM keyed")) == 4
    cursor.execute("ALTER MATERIALIZED TABLE keyed SET ('constraint.enforce' = 'warn')")
    run = refresh(cursor, "keyed")
    assert json.loads(str(run["expectations"])) == {"positive": 0, "pk": 1}
