"""The conformity cases, one line each, by the ids of the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gateway.command.fakes import T1, Column, Schema, World, analysis
from tests.gateway.command.tables import BASE, META, NOPK, WM, analysis_of, column
from tests.support.conformity import rows
from tidegate_server.core.errors import Code, ServerError

HERE = Path(__file__).parent
EV = Schema(
    (
        Column(name="user_id", type="bigint"),
        Column(name="amount", type="double"),
        Column(name="ds", type="string"),
    )
)
FULL_MT = (
    "CREATE MATERIALIZED TABLE full_mt PARTITIONED BY (ds) "
    "WITH ('partition.fields.ds.date-formatter'='yyyy-MM-dd') "
    "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM ev"
)
CONT_MT = "CREATE MATERIALIZED TABLE cont_mt AS SELECT * FROM ev"
ONE_TWO = (column("shop_id", "int", nullable=False), column("user_id", "int", nullable=False))
QUERIES = {
    "SELECT a, b, c, d, d AS m_p FROM t3": (*T1, column("m_p")),
    "SELECT a,b,c,d, d AS e, CAST('123' AS STRING) AS f FROM t3": (
        *T1,
        column("e"),
        column("f", nullable=False),
    ),
    "SELECT a,b FROM t3": T1.columns[:2],
    "SELECT a,b FROM t1": T1.columns[:2],
    "SELECT a,b,c, CAST(d AS INT) AS d FROM t3": (*T1.columns[:3], column("d", "int")),
    "SELECT a,b,c, coalesce(d, '') AS d FROM t3": (*T1.columns[:3], column("d", nullable=False)),
    "SELECT 1 AS shop_id, 2 AS user_id": ONE_TWO,
    "SELECT 1 AS shop_id": ONE_TWO[:1],
    "SELECT 1 AS shop_id, current_timestamp() AS ts": (*ONE_TWO[:1], column("ts", "timestamp")),
    "SELECT a, A FROM t1": (column("a"), column("A")),
}


def cases() -> list[object]:
    return [pytest.param(*cells, id=name) for name, *cells in rows()]


def world_of_cases() -> World:
    world = World()
    world.engine.analyses["SELECT * FROM ev"] = analysis(EV, "ev")
    for query, columns in QUERIES.items():
        world.engine.analyses[query] = analysis_of(query, *columns)
    for statement in (FULL_MT, CONT_MT, BASE, NOPK, WM, META):
        world.execute(statement)
    return world


@pytest.mark.parametrize(("settings", "statements", "expected"), cases())
def test_case(settings: str, statements: str, expected: str) -> None:
    if expected.startswith("see "):
        file, function = expected.removeprefix("see ").split("::")
        assert f"def {function}(" in (HERE / file).read_text(encoding="utf-8")
        return
    world = world_of_cases()
    for setting in filter(None, settings.split(", ")):
        world.execute(f"SET {setting}")
    *preparing, statement = statements.split(" ;; ")
    for before in preparing:
        world.execute(before)
    code, _, text = expected.partition(" ")
    if code in Code.__members__:
        check_refused(world, statement, code, text)
        return
    world.execute(statement)
    if checked := re.match(r"(\w+) (shows|hides|asks) (.*)", expected):
        check_definition(world, *checked.groups())
        return
    table, _, columns = expected.partition(": ")
    if columns:
        assert ",".join(column.name for column in world.definition(table).visible) == columns
    elif expected != "ok":
        check_pace(world, expected)


def check_refused(world: World, statement: str, code: str, text: str) -> None:
    before = world.catalog.tables(), dict(world.scheduler.workflows)
    stored = dict(world.engine.storage.tables), dict(world.engine.storage.views)
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    assert caught.value.code == code
    assert text in str(caught.value)
    assert (world.catalog.tables(), dict(world.scheduler.workflows)) == before
    assert (dict(world.engine.storage.tables), dict(world.engine.storage.views)) == stored


def check_definition(world: World, table: str, how: str, what: str) -> None:
    """Compare what SHOW CREATE prints, in any spacing, or the query as it was written."""
    if how == "asks":
        assert world.definition(table).original_query == what
        return
    [(text,)] = world.rows(f"SHOW CREATE MATERIALIZED TABLE {table}")
    printed = " ".join(str(text).split())
    for part in what.split(" && "):
        assert (part in printed) is (how == "shows"), printed


def check_pace(world: World, expected: str) -> None:
    """Compare ``[table is] logical physical freshness cron``; the table is m unless named."""
    named = re.match(r"(\w+) is (.*)", expected)
    table, wanted = (named[1], named[2]) if named else ("m", expected)
    found, workflow = world.table(table), world.workflow(table)
    modes = f"{found.definition.logical_refresh_mode.value} {found.definition.refresh_mode.value}"
    freshness = f"{found.definition.freshness.value} {found.definition.freshness.unit.name}"
    assert f"{modes} {freshness} {workflow.cron}" == wanted
