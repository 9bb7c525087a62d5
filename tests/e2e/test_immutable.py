"""IMMUTABLE WHERE and BACKFILL FROM through the whole server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

import tidegate
from tests.support.fixtures.server import Run, Server, last_rows

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

_ALL = "SELECT * FROM mt ORDER BY ds, n"
_CREATE = (
    "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' DAY "
    "IMMUTABLE WHERE (ds < '2024-02') BACKFILL FROM {source} AS SELECT ds, n FROM ev"
)
_REFRESH = "ALTER MATERIALIZED TABLE mt REFRESH"


@pytest.fixture
def run(server: Server) -> Iterator[Run]:
    """Execute statements in a new schema; returns the rows of the last one."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        execute = partial(last_rows, cursor)
        execute(
            "CREATE SCHEMA frozen",
            "USE frozen",
            "CREATE TABLE ev (ds STRING, n INT) USING DELTA",
            "INSERT INTO ev VALUES ('2024-01', 1), ('2024-02', 2)",
            "CREATE TABLE old (n SMALLINT, ds STRING) USING DELTA",
            "INSERT INTO old VALUES (100, '2023-12'), (200, '2024-02')",
        )
        try:
            yield execute
        finally:
            execute("DROP MATERIALIZED TABLE IF EXISTS frozen.mt", "DROP SCHEMA frozen CASCADE")


def test_a_table_keeps_its_past_from_the_first_row_to_the_last_statement(run: Run) -> None:
    run(_CREATE.format(source="old"))
    assert run(_ALL) == [("2023-12", 100)]
    run(_REFRESH)
    assert run(_ALL) == [("2023-12", 100), ("2024-02", 2)]
    history = (
        "SELECT `trigger`, action, strategy_reason_code FROM "
        "information_schema.materialized_table_refresh_history "
        "WHERE table_schema = 'frozen' ORDER BY queued_at DESC LIMIT 2"
    )
    assert run(history) == [
        ("MANUAL", "FULL", "PARTIAL_BEFORE"),
        ("BACKFILL", "PARTITION", "BACKFILL_REQUESTED"),
    ]
    run("UPDATE ev SET n = n * 10")
    [(*_, text, _, _, _), *steps, check] = run("EXPLAIN REFRESH mt FULL")
    assert [step[3] for step in steps] == ["COMPUTE_QUERY", "REPLACE_ROWS"]
    assert "rows where ds < '2024-02' stay as they are" in str(text)
    assert check[3:5] == ("IMMUTABLE", "IMMUTABLE WHERE (ds < '2024-02')")
    run("ALTER MATERIALIZED TABLE mt AS SELECT ds, n, upper(ds) AS more FROM ev", _REFRESH)
    assert run(_ALL) == [("2023-12", 100, None), ("2024-02", 20, "2024-02")]
    [row] = run("VERIFY MATERIALIZED TABLE mt")
    assert (row[3], row[-1]) == (True, "ds < '2024-02'")
    columns = "immutable, backfilled_from"
    facts = "information_schema.materialized_tables WHERE table_schema = 'frozen'"
    assert run(f"SELECT {columns} FROM {facts}") == [("ds < '2024-02'", "spark_catalog.frozen.old")]
    run("ALTER MATERIALIZED TABLE mt DROP IMMUTABLE", _REFRESH)
    assert run(_ALL) == [("2024-01", 10, "2024-01"), ("2024-02", 20, "2024-02")]
    assert run("VERIFY MATERIALIZED TABLE mt")[0][-1] is None


def test_late_region_and_computed_columns_go_together(run: Run) -> None:
    run(
        "CREATE MATERIALIZED TABLE mt (x AS n + 1) FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT ds, n FROM ev",
        _REFRESH,
        "ALTER MATERIALIZED TABLE mt SET IMMUTABLE WHERE (ds < '2024-02')",
        "UPDATE ev SET n = n * 10",
        _REFRESH,
    )
    assert run("SELECT ds, n, x FROM mt ORDER BY n") == [("2024-01", 1, 2), ("2024-02", 20, 21)]


_REFUSED = [
    (_CREATE.format(source="nothing"), "TABLE_OR_VIEW_NOT_FOUND", "nothing"),
    (_CREATE.format(source="(SELECT 1)"), "PARSE_SYNTAX", "(SELECT 1)"),
    (_CREATE.format(source="ev").replace("ds, n", "n, ds, n AS k"), "MT_BACKFILL", "ev AS"),
    (_CREATE.format(source="ev").replace("ds <", "nope <"), "MT_PREDICATE", "nope <"),
    (_CREATE.format(source="ev").replace("ds <", "rand() <"), "MT_PREDICATE", "rand()"),
    (
        _CREATE.format(source="ev").replace("ds <", "current_date() <"),
        "MT_PREDICATE",
        "current_date()",
    ),
    (
        _CREATE.format(source="ev").replace("'2024-02'", "(SELECT max(ds) FROM ev)"),
        "MT_PREDICATE",
        "ds < (",
    ),
]


def test_what_cannot_be_leaves_nothing_behind(run: Run) -> None:
    for text, code, place in _REFUSED:
        with pytest.raises(tidegate.Error) as caught:
            run(text)
        assert f"[{code}" in str(caught.value)
        assert f"(line 1, column {text.index(place) + 1})" in str(caught.value)
        assert run("SHOW MATERIALIZED TABLES IN frozen") == []
        assert sorted(row[1] for row in run("SHOW TABLES IN frozen")) == ["ev", "old"]


def test_a_copy_that_fails_leaves_nothing_behind(run: Run) -> None:
    run("CREATE VIEW broken AS SELECT ds, CAST(raise_error('broken') AS INT) AS n FROM old")
    with pytest.raises(tidegate.Error, match=r"USER_RAISED_EXCEPTION\].*broken"):
        run(_CREATE.format(source="broken"))
    assert run("SHOW MATERIALIZED TABLES IN frozen") == []
    assert "mt" not in {row[1] for row in run("SHOW TABLES IN frozen")}
