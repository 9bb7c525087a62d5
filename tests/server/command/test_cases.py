"""The conformity cases, one line each, by the ids of the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.command.fakes import Column, Schema, World, analysis
from tidegate_server.errors import Code, ServerError

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


def cases() -> list[object]:
    text = (Path(__file__).parent / "cases.txt").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.replace("| |", "|  |").splitlines()[1:]]
    return [pytest.param(*(cell.strip() for cell in row[1:]), id=row[0]) for row in rows]


@pytest.mark.parametrize(("settings", "statement", "expected"), cases())
def test_case(world: World, settings: str, statement: str, expected: str) -> None:
    world.engine.analyses["SELECT * FROM ev"] = analysis(EV, "ev")
    world.execute(FULL_MT)
    world.execute(CONT_MT)
    before = world.catalog.tables()
    for setting in filter(None, settings.split(", ")):
        world.execute(f"SET {setting}")
    if expected in Code.__members__:
        with pytest.raises(ServerError) as caught:
            world.execute(statement)
        assert caught.value.code == expected
        assert world.catalog.tables() == before
        assert len(world.scheduler.workflows) == 2
    else:
        world.execute(statement)
        table, workflow = world.table("m"), world.workflow("m")
        modes = f"{table.logical_refresh_mode.value} {table.refresh_mode.value}"
        freshness = f"{table.freshness.value} {table.freshness.unit.name}"
        assert f"{modes} {freshness} {workflow.cron}" == expected
