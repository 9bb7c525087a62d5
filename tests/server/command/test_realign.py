"""A server that dies at any side effect: the next one finds whole tables, old or new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.command.fakes import NOW, World, name
from tests.server.command.tables import ALTER
from tests.server.command.test_atomicity import STATEMENTS, Saboteur, effects, world_before
from tidegate_server.command.derived import views
from tidegate_server.command.realign import realign_storage, realign_workflows
from tidegate_server.config import Config
from tidegate_server.errors import ServerError
from tidegate_server.link.messages.requests import DropTable
from tidegate_server.model.names import TableName
from tidegate_server.model.states import RefreshStatus
from tidegate_server.scheduler.workflows import workflow_for


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


def revived(world: World) -> World:
    """Return a world over what is left, as the next server finds it."""
    after = World(config=world.config)
    for table in world.catalog.tables():
        after.catalog.create(table)
    after.scheduler.workflows.update(world.scheduler.workflows)
    after.engine.storage = world.engine.storage
    after.ledger.leases.update(world.ledger.leases)
    return after


def realigned(world: World) -> tuple[TableName, ...]:
    realign_workflows(world.catalog, world.scheduler, "UTC")  # type: ignore[arg-type]
    return realign_storage(world.catalog, world.ledger, world.engine, NOW, "server-2")  # type: ignore[arg-type]


@pytest.mark.parametrize(("statement", "at"), CASES)
def test_storage_and_schedules_follow_the_catalog_after_a_death(statement: str, at: int) -> None:
    world = world_before()
    Death(world, at, done=False)
    try:
        world.execute(statement)
    except (KeyboardInterrupt, ServerError):
        world = revived(world)
    realigned(world)
    storage = world.engine.storage
    for table in world.catalog.tables():
        assert table.refresh_status is not RefreshStatus.INITIALIZING
        assert storage.tables[table.storage].owner == table.id
        assert (table.storage_table is None) == (views(table) == ())
        stored = storage.tables[table.storage].schema.names()
        assert set(table.schema.names()) <= set(stored)
        assert world.workflow(table.name.table) == workflow_for(table, "UTC")
    wanted = {view.name: view for table in world.catalog.tables() for view in views(table)}
    assert storage.views.keys() == wanted.keys()
    assert {n: v.holding for n, v in storage.views.items()} == {
        n: v.holding for n, v in wanted.items()
    }
    assert world.ledger.leases == {}
    assert realigned(world) == ()


def test_what_this_server_is_moving_is_left_to_it() -> None:
    world = world_before()
    stored = world.engine.storage.tables.pop(name("m"))
    world.engine.storage.tables[name("__tidegate_m")] = stored
    world.ledger.leases[world.table("m").id] = "server-2/op"
    assert realigned(world) == ()
    world.ledger.leases.clear()
    assert realigned(world) == (name("m"),)


def test_what_is_gone_stays_gone() -> None:
    world = world_before()
    table = world.table("m")
    world.engine.call(DropTable(name=table.name, table_id=table.id))
    assert realigned(world) == ()
    world.execute(f"{ALTER} v SET ('k'='v')")


def test_schedules_are_judged_by_the_options_the_server_has() -> None:
    options = {"materialized-table.schedule.alignment": "interval"}
    world = World(config=Config(options=options))
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '40' MINUTE AS SELECT 1")
    before = world.workflow("m")
    assert before.cron == "@every 40 MINUTE"
    assert realign_workflows(world.catalog, world.scheduler, "UTC", options) == ()  # type: ignore[arg-type]
    assert world.workflow("m") == before
