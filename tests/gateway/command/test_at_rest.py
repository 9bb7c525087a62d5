"""Changes of a table and its refreshes come one after the other."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.contract.examples import run as queued
from tests.gateway.command.fakes import NIGHT, World
from tests.gateway.command.tables import ALTER, BASE, CONT, refusal, wider_query
from tests.support.waiting import wait_until
from tidegate_server.core.config import Config
from tidegate_server.core.model.states import RunState

WIDER = wider_query(World())
CHANGES = {
    "options": f"{ALTER} base SET ('k' = 'v')",
    "engine": f"{ALTER} base SET ('execution.engine' = 'night')",
    "freshness": f"{ALTER} base SET FRESHNESS = INTERVAL '1' DAY",
    "query": f"{ALTER} base AS {WIDER}",
    "column": f"{ALTER} base ADD x AS upper(b)",
    "key": f"{ALTER} base DROP PRIMARY KEY",
    "name": f"{ALTER} base RENAME TO other",
    "end": "DROP MATERIALIZED TABLE base",
}


def world_with(statement: str, patience: float) -> World:
    config = Config(scheduler={"patience": patience}, engines=NIGHT)  # type: ignore[arg-type]
    world = World(config=config, startable={"night"})
    wider_query(world)
    world.execute(statement)
    return world


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES.keys())
def test_a_refresh_that_does_not_end_stops_a_change(statement: str) -> None:
    world = world_with(BASE, patience=0)
    world.ledger.leases[world.table("base").id] = "server-2/r"
    problem = refusal(world, statement)
    assert problem.code == "MT_STATE"
    assert (
        problem.message
        == "spark_catalog.d.base is being refreshed; this statement requires it to be at rest."
    )
    assert "CANCEL REFRESH" in problem.hint
    assert world.ledger.leases == {world.table("base").id: "server-2/r"}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_waits_for_the_refresh_and_gives_the_table_back(statement: str) -> None:
    world = world_with(BASE, patience=60)
    table_id = world.table("base").id
    world.ledger.leases[table_id] = "server-2/r"
    waiting = "Waiting for the running refresh of spark_catalog.d.base"

    def end_refresh() -> None:
        wait_until(lambda: waiting in world.logged, "the statement did not wait")
        world.ledger.leases.pop(table_id)

    threading.Thread(target=end_refresh).start()
    world.execute(statement)
    assert waiting in world.logged
    assert world.ledger.leases == {}


def test_a_suspend_waits_for_nothing() -> None:
    world = world_with(BASE, patience=0)
    world.ledger.leases[world.table("base").id] = "server-2/r"
    world.execute(f"{ALTER} base SUSPEND")
    world.execute(f"{ALTER} base RESUME")


@pytest.mark.parametrize(
    ("statement", "stops"),
    [
        ("DROP MATERIALIZED TABLE cont", True),
        (f"{ALTER} cont SET ('k' = 'v')", True),
        (f"{ALTER} cont SET ('execution.engine' = 'night')", False),
        (f"{ALTER} cont SET FRESHNESS = INTERVAL '5' MINUTE", False),
    ],
)
def test_what_runs_is_stopped_where_its_outcome_is_not_wanted(statement: str, stops: bool) -> None:
    world = world_with(CONT, patience=0)
    run = replace(queued(refresh_id="r-9"), table_id=world.table("cont").id)
    world.ledger.history.append(replace(run, state=RunState.RUNNING))
    world.execute(statement)
    assert ("r-9" in world.ledger.canceled) is stops
    assert ("r-9" in world.stopped) is stops
