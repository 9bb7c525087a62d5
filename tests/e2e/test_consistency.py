"""Several tables read at versions that agree, while refreshes run and when one is ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

import tidegate
from tests.support.fixtures.server import Run, Server, last_rows
from tests.support.full_run import FULL

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

CASCADES = 1_000 if FULL else 4
READERS = 3 if FULL else 2
SNAPSHOT = "SET 'materialized-table.read.consistency' = 'SNAPSHOT'"
LATEST = "SET 'materialized-table.read.consistency' = 'LATEST'"
BOTH = "SELECT (SELECT sum(amount) FROM dwd), (SELECT sum(total) FROM dws)"
DEFINITIONS = (
    "CREATE MATERIALIZED TABLE dwd FRESHNESS = INTERVAL '1' DAY AS SELECT k, amount FROM ods",
    """CREATE MATERIALIZED TABLE dws FRESHNESS = INTERVAL '1' DAY
    AS SELECT k, sum(amount) AS total FROM dwd GROUP BY k""",
)


@pytest.fixture
def run(server: Server) -> Iterator[Run]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        execute = partial(last_rows, cursor)
        execute(
            "CREATE SCHEMA agreeing",
            "USE agreeing",
            "CREATE TABLE ods (k INT, amount BIGINT) USING DELTA",
            "INSERT INTO ods VALUES (1, 10), (2, 20)",
            *DEFINITIONS,
            "ALTER MATERIALIZED TABLE dwd REFRESH CASCADE",
        )
        try:
            yield execute
        finally:
            execute(LATEST)
            for table in ("beside", "dws", "dwd"):
                execute(f"DROP MATERIALIZED TABLE IF EXISTS agreeing.{table}")
            execute("DROP SCHEMA agreeing CASCADE")


def test_a_table_that_is_ahead_is_read_as_its_consumers_know_it(run: Run) -> None:
    run(
        "CREATE VIEW seen AS SELECT d.k, d.amount, s.total FROM dwd d JOIN dws s USING (k)",
        "CREATE FUNCTION amounts() RETURNS BIGINT RETURN (SELECT sum(amount) FROM agreeing.dwd)",
        "CREATE TEMPORARY VIEW mine AS SELECT * FROM dwd",
        "CREATE TABLE copied (n BIGINT) USING DELTA",
        "CREATE TABLE another (n BIGINT) USING DELTA",
        "INSERT INTO another VALUES (1)",
        "INSERT INTO ods VALUES (1, 5)",
        "ALTER MATERIALIZED TABLE dwd REFRESH",
    )
    assert run(BOTH) == [(35, 30)], "without the option the tables are torn"
    run(SNAPSHOT)
    assert run(BOTH) == [(30, 30)]
    assert run("SELECT sum(amount) FROM dwd") == [(35,)], "one table alone is read at its newest"
    assert sorted(run("SELECT * FROM seen")) == [(1, 10, 10), (2, 20, 20)]
    assert run(
        "WITH w AS (SELECT sum(total) AS x FROM dws) SELECT x - sum(amount) FROM dwd, w GROUP BY x"
    ) == [(0,)]
    assert run(
        "SELECT agreeing.dwd.amount FROM agreeing.dwd "
        "WHERE k IN (SELECT k FROM dws WHERE total = 10)"
    ) == [(10,)]
    assert run("TABLE dws UNION ALL SELECT * FROM dwd ORDER BY 1, 2")[0] == (1, 10)
    # What dws is made of is read beside it at the version that dws knows, other tables as they are.
    assert run(
        "SELECT (SELECT sum(amount) FROM ods), (SELECT sum(total) FROM dws), n FROM another"
    ) == [(30, 30, 1)]
    # Twice the same table is one version of it.
    assert run("SELECT count(*) FROM dwd a JOIN dwd b USING (k)") == [(5,)]
    # Versions that the query chooses itself stay as they are.
    newest = max(row[0] for row in run("DESCRIBE HISTORY dwd"))
    assert run(
        f"SELECT (SELECT sum(amount) FROM dwd VERSION AS OF {newest}), sum(total) FROM dws"
    ) == [(35, 30)]
    for statement in (
        "INSERT INTO copied SELECT sum(amount) FROM dwd JOIN dws USING (k)",
        "EXECUTE IMMEDIATE 'SELECT count(*) FROM dwd JOIN dws USING (k)'",
        "SELECT amounts(), sum(total) FROM dws",
        "SELECT count(*) FROM mine JOIN dws USING (k)",
    ):
        with pytest.raises(tidegate.NotSupportedError, match="SNAPSHOT"):
            run(statement)
    mistake = "SELECT k, nope FROM dwd JOIN dws USING (k)"
    told = []
    for setting in (LATEST, SNAPSHOT):
        run(setting)
        with pytest.raises(tidegate.ProgrammingError) as caught:
            run(mistake)
        told.append((caught.value.line, caught.value.column))
    assert told[0] == told[1] != (None, None)
    run(
        "INSERT INTO copied SELECT sum(amount) FROM dwd",
        "EXPLAIN SELECT * FROM dwd JOIN dws USING (k)",
    )
    run("ALTER MATERIALIZED TABLE dws REFRESH")
    assert run(BOTH) == [(35, 35)]
    run(LATEST)
    assert run("SELECT n FROM copied") == [(35,)]


def test_changes_that_do_not_matter_do_not_part_tables(run: Run) -> None:
    run(
        "CREATE MATERIALIZED TABLE beside FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT s.k, o.amount FROM dws s JOIN ods o ON s.k = o.k",
        "ALTER MATERIALIZED TABLE beside REFRESH",
        "INSERT INTO ods VALUES (3, 0)",
        "DELETE FROM ods WHERE k = 3",
        "ALTER MATERIALIZED TABLE dwd REFRESH CASCADE",
        "OPTIMIZE ods",
        SNAPSHOT,
    )
    assert run(
        "SELECT sum(d.amount), sum(s.total), sum(b.amount) "
        "FROM dwd d JOIN dws s USING (k) JOIN beside b USING (k)"
    ) == [(30, 30, 30)]
    run("INSERT INTO ods VALUES (1, 1)", "ALTER MATERIALIZED TABLE dwd REFRESH CASCADE")
    assert run(BOTH) == [(31, 31)]


def test_what_cannot_be_given_is_refused(run: Run) -> None:
    run(
        "CREATE MATERIALIZED TABLE beside FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT count(*) AS n FROM ods",
        SNAPSHOT,
    )
    with pytest.raises(tidegate.Error, match="MT_SNAPSHOT_UNAVAILABLE.*no version is known"):
        run("SELECT * FROM dwd, beside")
    run("INSERT INTO ods VALUES (1, 5)", "ALTER MATERIALIZED TABLE beside REFRESH")
    with pytest.raises(tidegate.Error, match="MT_SNAPSHOT_UNAVAILABLE.*different versions of"):
        run("SELECT * FROM dwd, beside")
    run("ALTER MATERIALIZED TABLE dwd REFRESH")
    assert run("SELECT n, sum(amount) FROM dwd, beside GROUP BY n") == [(3, 35)]
    # The version of ods that dws knows loses its files.
    run(
        "DELETE FROM ods WHERE k = 2",
        "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
        "VACUUM ods RETAIN 0 HOURS",
    )
    with pytest.raises(tidegate.Error, match="MT_SNAPSHOT_UNAVAILABLE.*removed"):
        run("SELECT * FROM ods JOIN dws USING (k)")


def test_readers_of_running_cascades_see_equal_sums(run: Run, server: Server) -> None:
    done = threading.Event()

    def read() -> int:
        seen = set()
        with (
            closing(server.connect(schema="agreeing")) as connection,
            closing(connection.cursor()) as cursor,
        ):
            last_rows(cursor, SNAPSHOT)
            while not done.is_set():
                [(detail, total)] = last_rows(cursor, BOTH)
                assert detail == total
                seen.add(detail)
        return len(seen)

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(read) for _ in range(READERS)]
        try:
            for number in range(CASCADES):
                run(
                    f"INSERT INTO ods VALUES ({number % 3}, {number + 1})",
                    "ALTER MATERIALIZED TABLE dwd REFRESH CASCADE",
                )
        finally:
            done.set()
        assert all(reader.result() > 1 for reader in readers)
    run(SNAPSHOT)
    total = 30 + CASCADES * (CASCADES + 1) // 2
    assert run(BOTH) == [(total, total)]
