"""Clients that other people wrote, against the running server with its engine."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.fixtures.server import Beeline, Server

pytestmark = pytest.mark.spark

TYPES = (
    "SELECT true AS b, CAST(1 AS tinyint) AS ti, CAST(2 AS smallint) AS si, 3 AS i, "
    "CAST(4 AS bigint) AS l, CAST(1.5 AS double) AS d, CAST(12.34 AS decimal(10,2)) AS dec, "
    "'text' AS s, DATE'2024-02-29' AS dt, TIMESTAMP'2024-02-29 12:34:56' AS ts, "
    "CAST(NULL AS string) AS nothing"
)


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """A schema of the test's own."""
    name = f"clients_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"CREATE SCHEMA {name}")
        yield name
        cursor.execute("SHOW MATERIALIZED TABLES IN " + name)
        for row in cursor.fetchall():
            cursor.execute(f"DROP MATERIALIZED TABLE {name}.{_table(row, name)}")
        cursor.execute(f"DROP SCHEMA {name} CASCADE")


def _table(row: Any, schema: str) -> str:
    return next(str(cell) for cell in row if cell not in (schema, "spark_catalog"))


# ---- beeline -------------------------------------------------------------------------------


@pytest.mark.jdbc
def test_beeline_prints_a_result(beeline: Beeline) -> None:
    assert beeline.rows("SELECT 1 AS one, 'a' AS letter") == [["one", "letter"], ["1", "a"]]


@pytest.mark.jdbc
def test_beeline_prints_every_type(beeline: Beeline) -> None:
    _, cells = beeline.rows(TYPES)
    assert cells[:9] == ["true", "1", "2", "3", "4", "1.5", "12.34", "text", "2024-02-29"]
    assert cells[9].startswith("2024-02-29 12:34:56")


@pytest.mark.jdbc
def test_beeline_reads_many_pages(beeline: Beeline) -> None:
    rows = beeline.rows("SELECT id FROM range(25000)")
    assert len(rows) == 25001
    assert {row[0] for row in rows[1:]} == {str(n) for n in range(25000)}


@pytest.mark.jdbc
def test_beeline_reports_an_error_with_its_code(beeline: Beeline) -> None:
    done = beeline.run("SELECT * FROM there_is_no_such_table")
    assert done.returncode != 0
    assert "TABLE_OR_VIEW_NOT_FOUND" in done.stderr


@pytest.mark.jdbc
def test_beeline_lives_through_a_materialized_table(beeline: Beeline, schema: str) -> None:
    rows = beeline.rows(
        f"USE {schema}",
        "CREATE TABLE src (id INT, v STRING) USING DELTA",
        "INSERT INTO src VALUES (1, 'a'), (2, 'b')",
        "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL "
        "AS SELECT id, upper(v) AS v FROM src",
        "ALTER MATERIALIZED TABLE mt REFRESH",
        "SELECT * FROM mt ORDER BY id",
    )
    assert rows[-3:] == [["id", "v"], ["1", "A"], ["2", "B"]]


@pytest.mark.jdbc
def test_beeline_lists_tables_and_columns(beeline: Beeline, schema: str) -> None:
    done = beeline.run(
        f"USE {schema}",
        "CREATE TABLE seen_by_beeline (id INT) USING DELTA",
        "!tables",
        "!columns seen_by_beeline",
    )
    assert done.returncode == 0, done.stderr
    assert "seen_by_beeline" in done.stdout


# ---- PyHive --------------------------------------------------------------------------------


@pytest.fixture
def pyhive(server: Server) -> Iterator[Any]:
    """A cursor of PyHive."""
    hive = pytest.importorskip("pyhive.hive")
    with (
        closing(hive.connect(host=server.host, port=server.port, username="tester")) as connection,
        closing(connection.cursor()) as cursor,
    ):
        yield cursor


def test_pyhive_reads_every_type(pyhive: Any) -> None:
    pyhive.execute(TYPES)
    (row,) = pyhive.fetchall()
    assert row[:8] == (True, 1, 2, 3, 4, 1.5, decimal.Decimal("12.34"), "text")
    assert row[8] == "2024-02-29"  # PyHive leaves dates as text
    assert row[9] == datetime.datetime.fromisoformat("2024-02-29T12:34:56")
    assert row[10] is None


def test_pyhive_describes_its_columns(pyhive: Any) -> None:
    pyhive.execute("SELECT 1 AS one, 'x' AS letter")
    assert [(column[0], column[1]) for column in pyhive.description] == [
        ("one", "INT_TYPE"),
        ("letter", "STRING_TYPE"),
    ]


def test_pyhive_binds_parameters(pyhive: Any) -> None:
    pyhive.execute("SELECT %(text)s AS t, %(number)s AS n", {"text": "it's", "number": 7})
    assert pyhive.fetchall() == [("it's", 7)]


def test_pyhive_polls_an_asynchronous_statement(pyhive: Any) -> None:
    from TCLIService.ttypes import TOperationState

    pyhive.execute("SELECT count(*) FROM range(1000)", async_=True)
    running = (TOperationState.INITIALIZED_STATE, TOperationState.RUNNING_STATE)
    while pyhive.poll().operationState in running:
        pass
    assert pyhive.fetchall() == [(1000,)]


def test_superset_draws_its_progress_from_the_log(pyhive: Any) -> None:
    """Superset reads these lines while the statement runs; its own expressions are these."""
    values = "SELECT hash(id, rand()) AS value FROM range(0, 400000000, 1, 16)"
    pyhive.execute(f"SELECT max(value) > 0 FROM ({values})", async_=True)
    seen: list[str] = []
    while pyhive.poll().operationState < 2:  # INITIALIZED and RUNNING are its unfinished states
        seen += pyhive.fetch_logs()
    seen += pyhive.fetch_logs()
    assert pyhive.fetchall() == [(True,)]
    started, *seen, _ = seen
    assert "Executing command" in started
    assert re.match(r".*INFO.*Total jobs = (?P<max_jobs>[0-9]+)", seen[0])
    launching = ".*INFO.*Launching Job (?P<job_number>[0-9]+) out of (?P<max_jobs>[0-9]+)"
    assert re.match(launching, seen[1])
    stage = r".*INFO.*Stage-([0-9]+).*map = (?P<map>[0-9]+)%.*reduce = (?P<reduce>[0-9]+)%.*"
    percents = [int(found["map"]) for line in seen if (found := re.match(stage, line))]
    assert percents == sorted(set(percents))
    assert percents[-1] == 100
    assert len(percents) > 2
    assert not [line for line in seen if "Tracking URL = " in line]  # Spark's UI is off


def test_pyhive_reads_many_pages(pyhive: Any) -> None:
    pyhive.execute("SELECT id FROM range(25000)")
    assert sorted(row[0] for row in pyhive) == list(range(25000))


def test_pyhive_raises_on_an_error(pyhive: Any) -> None:
    from pyhive import exc

    with pytest.raises(exc.OperationalError, match="there_is_no_such_table"):
        pyhive.execute("SELECT * FROM there_is_no_such_table")


def test_pyhive_uses_materialized_tables(pyhive: Any, schema: str) -> None:
    pyhive.execute(f"CREATE TABLE {schema}.src (id INT) USING DELTA")
    pyhive.execute(f"INSERT INTO {schema}.src VALUES (1), (2)")
    pyhive.execute(
        f"CREATE MATERIALIZED TABLE {schema}.mt FRESHNESS = INTERVAL '1' HOUR "
        f"REFRESH_MODE = FULL AS SELECT count(*) AS n FROM {schema}.src"
    )
    pyhive.execute(f"ALTER MATERIALIZED TABLE {schema}.mt REFRESH")
    pyhive.execute(f"SELECT n FROM {schema}.mt")
    assert pyhive.fetchall() == [(2,)]


# ---- impyla --------------------------------------------------------------------------------


@pytest.fixture
def impyla(server: Server) -> Iterator[Any]:
    """A cursor of impyla."""
    dbapi = pytest.importorskip("impala.dbapi")
    with (
        closing(
            dbapi.connect(
                host=server.host, port=server.port, auth_mechanism="PLAIN", user="t", password="x"
            )
        ) as connection,
        closing(connection.cursor()) as cursor,
    ):
        yield cursor


def test_impyla_reads_every_type(impyla: Any) -> None:
    impyla.execute(TYPES)
    (row,) = impyla.fetchall()
    assert row[:6] == (True, 1, 2, 3, 4, 1.5)
    assert decimal.Decimal(row[6]) == decimal.Decimal("12.34")
    assert row[7] == "text"
    assert row[10] is None


def test_impyla_reads_many_pages(impyla: Any) -> None:
    impyla.execute("SELECT id FROM range(25000)")
    assert sorted(row[0] for row in impyla) == list(range(25000))


def test_impyla_lists_tables_and_schema(impyla: Any, schema: str) -> None:
    impyla.execute(f"CREATE TABLE {schema}.seen (id INT, v STRING) USING DELTA")
    impyla.get_tables(database_name=schema)
    assert "seen" in {cell for row in impyla.fetchall() for cell in row}
    assert [column[0] for column in impyla.get_table_schema("seen", schema)] == ["id", "v"]


def test_impyla_raises_on_an_error(impyla: Any) -> None:
    from impala import error

    with pytest.raises(error.OperationalError, match="there_is_no_such_table"):
        impyla.execute("SELECT * FROM there_is_no_such_table")
