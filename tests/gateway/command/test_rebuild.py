"""A catalog that was lost comes back from the tables' own properties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import World, name
from tests.gateway.command.tables import ALTER, BASE
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.refresh.request import CommittedRefresh
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.recovery.catalog import rebuild


@pytest.fixture
def world_without_store(world: World) -> World:
    """A world with two tables whose store is gone."""
    world.execute(BASE)
    world.execute("CREATE MATERIALIZED TABLE v (x AS upper(b)) AS SELECT * FROM t1")
    world.catalog = MemoryCatalog()
    world.scheduler.workflows.clear()
    return world


def rebuilt(world: World) -> int:
    return rebuild(world.catalog, world.ledger, world.scheduler, world.engine, "UTC")  # type: ignore[arg-type]


def test_definitions_come_back_suspended(world: World) -> None:
    world.execute(BASE)
    world.execute("CREATE MATERIALIZED TABLE v (x AS upper(b)) AS SELECT * FROM t1")
    world.execute(f"{ALTER} base SET ('k'='v')")
    world.execute(f"{ALTER} base SET IMMUTABLE WHERE (c < 5)")
    kept, world.catalog = world.catalog, MemoryCatalog()
    world.scheduler.workflows.clear()
    assert rebuilt(world) == 2
    for before in kept.tables():
        after = world.table(before.name.table)
        assert (after.state.status, after.state.status_reason) == (
            RefreshStatus.SUSPENDED,
            Reason.REBUILT,
        )
        assert vary(after, status=before.state.status, status_reason=None) == before
        assert not world.workflow(before.name.table).active
    assert world.ledger.epochs == {table.id: 5 for table in kept.tables()}


def test_a_held_version_comes_back_with_its_table(world_without_store: World) -> None:
    held = CommittedRefresh(
        epoch=6, version=1, definition_version=1, vector={}, refresh_id="r", breaks="some assertion"
    )
    world_without_store.engine.storage.held[name("base")] = held
    rebuilt(world_without_store)
    mark = world_without_store.table("base").state.held
    assert mark is not None
    assert (mark.refresh_id, "breaks some assertion" in mark.reason) == ("r", True)
    assert world_without_store.table("v").state.held is None


def test_doing_it_again_adds_nothing(world_without_store: World) -> None:
    rebuilt(world_without_store)
    world_without_store.execute(f"{ALTER} base RESUME")
    assert rebuilt(world_without_store) == 0
    assert world_without_store.table("base").state.status is RefreshStatus.ACTIVATED


def test_a_name_taken_meanwhile_is_left_alone(world_without_store: World) -> None:
    rebuilt(world_without_store)
    stored = world_without_store.engine.storage.tables.pop(name("base"))
    world_without_store.engine.storage.tables[name("__tidegate_v")] = stored
    world_without_store.catalog.drop(world_without_store.table("base").id)
    assert rebuilt(world_without_store) == 0


def test_a_damaged_definition_hides_no_other(world_without_store: World) -> None:
    stored = world_without_store.engine.storage.tables[name("base")]
    damaged = {**stored.properties, "tidegate.definition": "{"}
    world_without_store.engine.storage.tables[name("base")] = replace(stored, properties=damaged)
    assert rebuilt(world_without_store) == 1
