"""Every form of REFRESH against real tables: what changes, what does not, what the history says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

import tidegate
from tests.support.fixtures.server import Rows, Run, Server, last_rows

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture
def run(server: Server) -> Iterator[Run]:
    """Execute statements in a new schema; returns the rows of the last one."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        execute = partial(last_rows, cursor)
        execute("CREATE SCHEMA forms", "USE forms", *_SETUP)
        try:
            yield execute
        finally:
            for table in ("top", "endless", "right_side", "left_side", "mt"):
                execute(f"DROP MATERIALIZED TABLE IF EXISTS forms.{table}")
            execute("DROP SCHEMA forms CASCADE")


_SETUP = (
    "CREATE TABLE ev (ds STRING, n INT) USING DELTA",
    "INSERT INTO ev VALUES ('2024-01-01', 1), ('2024-01-02', 2), ('2024-01-03', 3)",
    """CREATE MATERIALIZED TABLE mt PARTITIONED BY (ds)
    WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd')
    FRESHNESS = INTERVAL '1' DAY AS SELECT ds, n FROM ev""",
    "ALTER MATERIALIZED TABLE mt REFRESH",
)
_ALL = "SELECT ds, n FROM mt ORDER BY ds"


def state(info: object) -> object:
    assert isinstance(info, dict)
    return info["state"]


def history(run: Run, columns: str, table: str = "mt") -> Rows:
    return run(
        f"SELECT {columns} FROM information_schema.materialized_table_refresh_history "
        f"WHERE table_schema = 'forms' AND table_name = '{table}' ORDER BY queued_at DESC"
    )


def test_where_replaces_exactly_the_rows_that_fulfil_it(run: Run) -> None:
    run("UPDATE ev SET n = n * 10", "ALTER MATERIALIZED TABLE mt REFRESH WHERE n >= 2 AND n <= 20")
    assert sorted(run(_ALL)) == [("2024-01-01", 1), ("2024-01-01", 10), ("2024-01-02", 20)]


def test_conditions_that_cannot_choose_rows_change_nothing(run: Run) -> None:
    for predicate, code in (
        ("nope > 1", "UNRESOLVED_COLUMN"),
        ("n IN (SELECT n FROM forms.ev)", "MT_PREDICATE"),
        ("rand() > 0.5", "MT_PREDICATE"),
        ("n", "DATATYPE_MISMATCH"),
        ("n > 1) OR (1 = 1", "PARSE_SYNTAX"),
    ):
        with pytest.raises(tidegate.Error, match=code):
            run(f"ALTER MATERIALIZED TABLE mt REFRESH WHERE {predicate}")
        assert (predicate, len(run(_ALL))) == (predicate, 3)


def test_fields_of_structs_may_have_any_name(run: Run) -> None:
    odd = "named_struct('a b', 1, 'ü', array(map('k', named_struct('select', ds)))) AS s"
    run("DROP MATERIALIZED TABLE mt")
    run(f"CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' DAY AS SELECT {odd} FROM ev")
    run("ALTER MATERIALIZED TABLE mt REFRESH")
    assert run("SELECT s.`a b`, s.`ü`[0]['k'].select FROM mt ORDER BY 2 LIMIT 1") == [
        (1, "2024-01-01")
    ]
    [[_, shown, *_]] = run("DESCRIBE mt")
    assert shown == "struct<`a b`:int,`ü`:array<map<string,struct<select:string>>>>"
    [[text]] = run("SHOW CREATE MATERIALIZED TABLE mt")
    run("DROP MATERIALIZED TABLE mt", str(text), "ALTER MATERIALIZED TABLE mt REFRESH")
    assert len(run("SELECT * FROM mt")) == 3


def test_a_range_is_refreshed_partition_by_partition(run: Run) -> None:
    run("UPDATE ev SET n = n + 100")
    rows = run(
        "ALTER MATERIALIZED TABLE mt REFRESH "
        "PARTITION FROM (ds = '2024-01-02') TO (ds = '2024-01-04')"
    )
    assert len(rows) == 3
    assert run(_ALL) == [("2024-01-01", 1), ("2024-01-02", 102), ("2024-01-03", 103)]
    runs = history(run, "`trigger`, action, sources, wave_id")[:3]
    assert {row[:2] for row in runs} == {("BACKFILL", "PARTITION")}
    assert len({row[2:] for row in runs}) == 1


def test_a_range_over_plain_values_takes_those_that_there_are(run: Run) -> None:
    run("ALTER MATERIALIZED TABLE mt RESET ('partition.fields.ds.date-formatter')")
    run("DELETE FROM ev WHERE ds = '2024-01-02'", "INSERT INTO ev VALUES ('2024-01-02b', 7)")
    rows = run(
        "ALTER MATERIALIZED TABLE mt REFRESH "
        "PARTITION FROM (ds = '2024-01-02') TO (ds = '2024-01-03')"
    )
    assert len(rows) == 3
    assert run(_ALL) == [("2024-01-01", 1), ("2024-01-02b", 7), ("2024-01-03", 3)]


def test_a_wave_reads_one_version_of_its_sources(run: Run) -> None:
    run(
        *(
            f"CREATE MATERIALIZED TABLE {side}_side FRESHNESS = INTERVAL '1' DAY "
            "AS SELECT sum(n) AS total FROM mt"
            for side in ("left", "right")
        ),
        "CREATE MATERIALIZED TABLE top FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT l.total - r.total AS gap, l.total FROM left_side l CROSS JOIN right_side r",
        "INSERT INTO ev VALUES ('2024-01-04', 1000)",
    )
    rows = run("ALTER MATERIALIZED TABLE mt REFRESH CASCADE")
    assert [state(info) for _, info in rows] == ["SUCCEEDED"] * 4
    assert run("SELECT gap, total FROM top") == [(0, 1006)]
    waves = {history(run, "wave_id", t)[0] for t in ("mt", "left_side", "right_side", "top")}
    assert len(waves) == 1
    run("INSERT INTO ev VALUES ('2024-01-05', 1)")
    assert len(run("ALTER MATERIALIZED TABLE top REFRESH CASCADE UPSTREAM")) == 4
    assert run("SELECT gap, total FROM top") == [(0, 1007)]


def test_a_wave_is_of_one_moment_while_its_source_changes(run: Run, server: Server) -> None:
    run(
        """CREATE MATERIALIZED TABLE left_side FRESHNESS = INTERVAL '1' DAY
        AS SELECT sum(n) AS total FROM mt""",
        """CREATE MATERIALIZED TABLE right_side FRESHNESS = INTERVAL '1' DAY
        AS SELECT sum(n) AS total FROM ev""",
        """CREATE MATERIALIZED TABLE top FRESHNESS = INTERVAL '1' DAY AS
        SELECT l.total - r.total AS gap FROM left_side l CROSS JOIN right_side r""",
    )
    stop = threading.Event()

    def write() -> None:
        with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
            while not stop.is_set():
                cursor.execute("INSERT INTO forms.ev VALUES ('2024-01-09', 1)")

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for _ in range(3):
                run("ALTER MATERIALIZED TABLE top REFRESH CASCADE UPSTREAM")
                assert run("SELECT gap FROM top") == [(0,)]
        finally:
            stop.set()
        writer.result()


# One task, so that there is a core left for other statements.
_ENDLESS = (
    "SELECT count(*) AS n FROM range(0, 100000000, 1, 1) a CROSS JOIN range(0, 100000000, 1, 1) b"
)


def until_running(run: Run, table: str) -> None:
    deadline = time.monotonic() + 300
    while "RUNNING" not in run(f"SHOW REFRESH HISTORY FOR {table} LIMIT 1")[0]:
        assert time.monotonic() < deadline, "waited in vain"


def test_async_goes_on_and_cancel_stops_it_without_a_new_version(run: Run) -> None:
    run(f"CREATE MATERIALIZED TABLE endless REFRESH_MODE = FULL AS {_ENDLESS}")
    versions = run("DESCRIBE HISTORY endless")
    [(job, info)] = run("ALTER MATERIALIZED TABLE endless REFRESH ASYNC")
    assert state(info) == "QUEUED"
    until_running(run, "endless")
    assert run("ALTER MATERIALIZED TABLE endless CANCEL REFRESH") == [(job, "CANCELLED")]
    assert history(run, "refresh_id, state", "endless") == [(job, "CANCELLED")]
    assert run("DESCRIBE HISTORY endless") == versions
    assert run("ALTER MATERIALIZED TABLE endless CANCEL REFRESH") == []


def test_a_table_can_be_dropped_while_it_is_refreshed(run: Run) -> None:
    run(f"CREATE MATERIALIZED TABLE doomed REFRESH_MODE = FULL AS {_ENDLESS}")
    [(job, _info)] = run("ALTER MATERIALIZED TABLE doomed REFRESH ASYNC")
    until_running(run, "doomed")
    run("DROP MATERIALIZED TABLE doomed")
    ended = run(
        "SELECT state, error_class FROM information_schema.materialized_table_refresh_history "
        f"WHERE refresh_id = '{job}'"
    )
    assert ended == [("CANCELLED", "OPERATION_CANCELED")]
