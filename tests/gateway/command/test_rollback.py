"""ALTER MATERIALIZED TABLE ... ROLLBACK TO VERSION, seen from the gateway."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import World
from tests.gateway.command.tables import refusal
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import RollingBack
from tidegate_server.core.refresh.request import Rollback

ROLLBACK = "ALTER MATERIALIZED TABLE m ROLLBACK TO VERSION 2"


@pytest.fixture
def full(world: World) -> World:
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1")
    world.refreshed.clear()
    return world


def test_a_rolled_back_table_stays_suspended(full: World) -> None:
    full.execute(ROLLBACK)
    (request,) = full.refreshed
    assert (request.task, request.table_id) == (Rollback(version=2), full.table("m").id)
    assert full.table("m").state.status is RefreshStatus.SUSPENDED
    assert not full.workflow("m").active
    assert "is suspended" in full.logged[-1]


def test_a_suspended_table_can_be_rolled_back(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    full.execute(ROLLBACK)
    assert full.table("m").state.status is RefreshStatus.SUSPENDED


@pytest.mark.parametrize(
    "statement",
    [
        "SET ('k' = 'v')",
        "RESUME",
        "AS SELECT * FROM t1",
        "RENAME TO o",
        "SWAP WITH n",
        "ROLLBACK TO VERSION 2",
        "ROLLBACK DEFINITION",
        "CONVERT TO TABLE",
    ],
)
def test_a_table_that_is_half_rolled_back_is_left_alone(full: World, statement: str) -> None:
    full.execute("CREATE MATERIALIZED TABLE n FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1")
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    table = full.table("m")
    mark = RollingBack(refresh_id="op0", active=True, to=vary(table, version=2))
    full.catalog.replace(replace(table, pending=mark))
    problem = refusal(full, f"ALTER MATERIALIZED TABLE m {statement}")
    assert (problem.code, "half rolled back" in problem.message) == (Code.MT_STATE.name, True)
    assert "repeat the ROLLBACK" in problem.hint


def test_a_rollback_that_fails_leaves_the_table_as_it_was(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    full.execute("ALTER MATERIALIZED TABLE m RESUME WITH ('spark.sql.shuffle.partitions' = '3')")
    before, workflow = full.table("m"), full.workflow("m")
    full.refresh_failure = error(
        Code.MT_ROLLBACK_IMPOSSIBLE, table="m", version=2, reason="there is no such version"
    )
    with pytest.raises(ServerError) as caught:
        full.execute(ROLLBACK)
    assert caught.value.code == Code.MT_ROLLBACK_IMPOSSIBLE.name
    after = full.table("m")
    assert (after.state.status, dict(after.state.resume_options), full.workflow("m").active) == (
        before.state.status,
        dict(before.state.resume_options),
        workflow.active,
    )
