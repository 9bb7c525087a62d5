"""A server that dies at any side effect: the next one finds whole tables, old or new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import NOW, World, name
from tests.gateway.command.tables import ALTER, refusal
from tests.gateway.command.test_atomicity import STATEMENTS, Saboteur, effects, world_before
from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import DropTable
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.definition.derived import views
from tidegate_server.gateway.recovery.definitions import realign_storage, realign_workflows
from tidegate_server.gateway.scheduler.workflows import workflow_for


class Death(Saboteur):
    """From the n-th side effect on nothing is done any more, no compensation either."""

    def _count(self, label: str, act: Callable[[], Any]) -> Any:
        if len(self.calls) >= self._at - 1:
            self.calls.append(label)
            raise KeyboardInterrupt
        self.calls.append(label)
        return act()


CHANGES = {
    what: statement
    for what, statement in STATEMENTS.items()
    if not what.startswith("create") and not statement.startswith("DROP")
}
CASES = [
    pytest.param(statement, at, id=f"{what}-{at}")
    for what, statement in CHANGES.items()
    for at in range(1, len(effects(statement)) + 2)
]


def world_after_restart(world: World) -> World:
    """Return a world over what is left, as the next server finds it."""
    after = World(config=world.config)
    for table in world.catalog.tables():
        first, *later = (*world.catalog.replaced_definitions(table.id), table)
        after.catalog.create(vary(first, status=table.state.status))
        for definition in later:
            after.catalog.replace(definition)
    after.scheduler.workflows.update(world.scheduler.workflows)
    after.engine.storage, after.engine.analyses = world.engine.storage, world.engine.analyses
    after.ledger.history = world.ledger.history
    after.ledger.leases.update(world.ledger.leases)
    return after


def realign_all(world: World) -> tuple[TableName, ...]:
    """Do what a gateway does when it starts, and again when its engine is up."""
    return realigned_by("server-2", world)


def realigned_by(server_id: str, world: World) -> tuple[TableName, ...]:
    realign_workflows(world.catalog, world.scheduler, "UTC")  # type: ignore[arg-type]
    found = realign_storage(world.catalog, world.ledger, world.engine, NOW, server_id)  # type: ignore[arg-type]
    if found:
        realign_workflows(world.catalog, world.scheduler, "UTC")  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("statement", "at"), CASES)
def test_storage_and_schedules_follow_the_catalog_after_a_death(statement: str, at: int) -> None:
    world = world_before()
    Death(world, at, done=False)
    try:
        world.execute(statement)
    except (KeyboardInterrupt, ServerError):
        world = world_after_restart(world)
    realign_all(world)
    storage = world.engine.storage
    for table in world.catalog.tables():
        assert table.state.status is not RefreshStatus.INITIALIZING
        assert storage.tables[table.storage].owner == table.id
        assert (table.storage_table is None) == (views(table) == ())
        stored = storage.tables[table.storage].schema.names()
        assert set(table.definition.schema.names()) <= set(stored)
        assert world.workflow(table.name.table) == workflow_for(table, "UTC")
    wanted = {view.name: view for table in world.catalog.tables() for view in views(table)}
    assert storage.views.keys() == wanted.keys()
    assert {n: v.quarantining for n, v in storage.views.items()} == {
        n: v.quarantining for n, v in wanted.items()
    }
    assert world.ledger.leases == {}
    assert realign_all(world) == ()


BOTH = f"{ALTER} viewed ROLLBACK TO VERSION 101 BOTH"


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("at", range(1, len(effects(BOTH)) + 2))
def test_rows_and_definition_come_back_together_or_not_at_all(at: int, repeated: bool) -> None:
    world = world_before()
    before = world.table("viewed")
    Death(world, at, done=False)
    try:
        world.execute(BOTH)
    except KeyboardInterrupt:
        world = world_after_restart(world)
    if repeated:  # as with several gateways
        world.ledger.leases.clear()
        world.execute(BOTH)
    realign_all(world)
    after, rows = world.table("viewed"), world.engine.storage.content(before.id)
    assert after.pending is None
    assert (after.definition.restored_from, rows) == (
        (1, 101) if repeated or rows == 101 else (None, 102)
    )
    assert bool(after.definition.derived) == (rows == 101)
    assert (after.state.status is RefreshStatus.SUSPENDED) == (rows == 101)
    assert world.workflow("viewed") == workflow_for(after, "UTC")
    if rows == 102:
        assert after == before
    assert realign_all(world) == ()


def before_its_refresh(world: World, act: Callable[[], object]) -> None:
    """Let something happen when a ROLLBACK of both has marked its table and holds no lease yet."""
    refresh = world._refresh

    def late(request: RefreshRequest) -> RefreshRun:
        world._refresh = refresh  # type: ignore[method-assign]
        act()
        return refresh(request)

    world._refresh = late  # type: ignore[method-assign]


def test_an_engine_that_comes_up_does_not_settle_a_rollback_that_goes_on() -> None:
    world = world_before()
    before_its_refresh(world, lambda: realigned_by("server-1", world))
    world.execute(BOTH)
    after = world.table("viewed")
    assert (after.definition.restored_from, after.pending) == (1, None)
    assert world.engine.storage.content(after.id) == 101
    assert after.state.status is RefreshStatus.SUSPENDED
    assert world.ledger.leases == {}


def test_a_second_rollback_does_not_settle_the_first() -> None:
    world = world_before()
    world.config = Config(scheduler={"patience": 0})  # type: ignore[arg-type]
    told: list[str] = []
    before_its_refresh(world, lambda: told.append(refusal(world, BOTH).message))
    world.execute(BOTH)
    assert "being changed by another statement" in told[0]
    assert world.definition("viewed").restored_from == 1


def test_what_this_server_is_moving_is_left_to_it() -> None:
    world = world_before()
    stored = world.engine.storage.tables.pop(name("m"))
    world.engine.storage.tables[name("__tidegate_m")] = stored
    world.ledger.leases[world.table("m").id] = "server-2/op"
    assert realign_all(world) == ()
    world.ledger.leases.clear()
    assert realign_all(world) == (name("m"),)


def test_what_is_gone_stays_gone() -> None:
    world = world_before()
    table = world.table("m")
    world.engine.call(DropTable(name=table.name, table_id=table.id))
    assert realign_all(world) == ()
    world.execute(f"{ALTER} v SET ('k'='v')")


def test_schedules_are_judged_by_the_options_the_server_has() -> None:
    options = {"materialized-table.schedule.alignment": "interval"}
    world = World(config=Config(options=options))
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '40' MINUTE AS SELECT 1")
    before = world.workflow("m")
    assert before.cron == "@every 40 MINUTE"
    assert realign_workflows(world.catalog, world.scheduler, "UTC", options) == ()  # type: ignore[arg-type]
    assert world.workflow("m") == before
