"""Every side effect of every statement fails once: what was there before is there again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.command.fake_storage import Stored
from tests.gateway.command.fakes import NIGHT, T1, World, name
from tests.gateway.command.tables import ALTER, produces, wider_query
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import (
    CreateTable,
    DropTable,
    DropView,
    EvolveTable,
    PlaceTables,
    PutView,
    RenameTable,
    Request,
    SetTableProperties,
)
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.options import CONVERSION_KEY

_CHANGING = (
    CreateTable,
    DropTable,
    DropView,
    EvolveTable,
    PlaceTables,
    PutView,
    RenameTable,
    SetTableProperties,
)
_CATALOG = ("create", "replace", "move", "drop")
_SCHEDULER = ("create", "modify", "delete")


class Saboteur:
    """Makes the n-th side effect fail, before it is done or, as a lost engine does, after."""

    def __init__(self, world: World, at: int, *, done: bool) -> None:
        self.calls: list[str] = []
        self._at = at
        self._done = done
        engine = world.engine.call

        def call(request: Request, **options: Any) -> Any:
            if not isinstance(request, _CHANGING):
                return engine(request, **options)
            return self._count(type(request).__name__, lambda: engine(request, **options))

        self._replace(world.engine, "call", call)
        for part, names in ((world.catalog, _CATALOG), (world.scheduler, _SCHEDULER)):
            for method in names:
                self._replace(part, method, self._wrap(part, method))

    def _wrap(self, part: object, method: str) -> Callable[..., Any]:
        original = getattr(part, method)
        label = f"{type(part).__name__}.{method}"
        return lambda *given: self._count(label, lambda: original(*given))

    def _replace(self, part: object, name: str, function: Callable[..., Any]) -> None:
        setattr(part, name, function)

    def _count(self, label: str, act: Callable[[], Any]) -> Any:
        self.calls.append(label)
        if len(self.calls) != self._at:
            return act()
        if self._done:
            act()
        raise error(Code.ENGINE_LOST)


HOLDING = "CONSTRAINT c EXPECT (a > 0) ON VIOLATION QUARANTINE"


def world_before() -> World:
    """A world with a table, one with a derived column, one that holds rows out, one that reads, and
    a plain one."""
    world = World(ids=10, startable={"night"})
    world.config = Config(options={CONVERSION_KEY: "true"}, engines=NIGHT)  # type: ignore[arg-type]
    for table in ("m", "v"):
        produces(world, f"SELECT * FROM {table}", *T1, source=table)
    create = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM {}"
    world.execute(create.format("m", "t1"))
    world.execute(create.format("v (x AS upper(b))", "t1"))
    world.execute(create.format(f"q ({HOLDING})", "t1"))
    world.execute(create.format("reader", "m"))
    world.execute(create.format("viewed (y AS upper(b))", "v"))
    world.execute(f"{ALTER} viewed REFRESH")
    world.execute(create.format("apart", "t1"))
    plain = Stored(schema=Schema((T1.columns[1],)), properties={"k": "v"})
    world.engine.storage.tables[name("plain")] = plain
    wider_query(world)
    # A second definition, from which there is a way back to the first one.
    later = produces(world, "SELECT * FROM t2", *T1, source="t2")
    world.execute(f"CREATE OR ALTER MATERIALIZED TABLE viewed {DAY} AS {later}")
    world.execute(f"{ALTER} viewed REFRESH")
    return world


WIDER = "SELECT a, b, c, d, d AS e, CAST('123' AS STRING) AS f FROM t3"
DAY = "FRESHNESS = INTERVAL '1' DAY"
STATEMENTS = {
    "create": f"CREATE MATERIALIZED TABLE new {DAY} AS SELECT * FROM t1",
    "create a view": f"CREATE MATERIALIZED TABLE new (x AS upper(b)) {DAY} AS SELECT * FROM t1",
    "or alter": f"CREATE OR ALTER MATERIALIZED TABLE m COMMENT 'c' {DAY} AS {WIDER}",
    "or alter to a view": f"CREATE OR ALTER MATERIALIZED TABLE m (x AS upper(b)) {DAY} AS {WIDER}",
    "or alter from a view": f"CREATE OR ALTER MATERIALIZED TABLE v {DAY} AS {WIDER}",
    "create a quarantine": f"CREATE MATERIALIZED TABLE new ({HOLDING}) {DAY} AS SELECT * FROM t1",
    "or alter to a quarantine": (
        f"CREATE OR ALTER MATERIALIZED TABLE m ({HOLDING}) {DAY} AS {WIDER}"
    ),
    "or alter a view to a quarantine": (
        f"CREATE OR ALTER MATERIALIZED TABLE v (x AS upper(b), {HOLDING}) {DAY} AS SELECT * FROM t1"
    ),
    "or alter a quarantine": (
        f"CREATE OR ALTER MATERIALIZED TABLE q ({HOLDING.replace('0', '1')}) {DAY} AS {WIDER}"
    ),
    "or alter a quarantine to a view": (
        f"CREATE OR ALTER MATERIALIZED TABLE q (x AS upper(b)) {DAY} AS {WIDER}"
    ),
    "take over": f"CREATE OR ALTER MATERIALIZED TABLE plain {DAY} AS SELECT * FROM t1",
    "alter as": f"{ALTER} m AS {WIDER}",
    "set": f"{ALTER} m SET ('k'='v')",
    "set the engine": f"{ALTER} m SET ('execution.engine' = 'night', 'k' = 'v')",
    "set freshness": f"{ALTER} m SET FRESHNESS = INTERVAL '1' MINUTE",
    "set refresh mode": f"{ALTER} m SET REFRESH_MODE = CONTINUOUS",
    "add a column": f"{ALTER} m ADD x AS upper(b)",
    "add another column": f"{ALTER} v ADD y AS lower(b)",
    "add a key": f"{ALTER} m ADD PRIMARY KEY (a) NOT ENFORCED",
    "modify": f"{ALTER} m MODIFY c INT COMMENT 'n' FIRST",
    "drop a column": f"{ALTER} v DROP x",
    "rename": f"{ALTER} m RENAME TO other",
    "swap": f"{ALTER} m SWAP WITH apart",
    "rename a view": f"{ALTER} v RENAME TO other",
    "rename a quarantine": f"{ALTER} q RENAME TO other",
    "drop a constraint": f"{ALTER} q DROP CONSTRAINT c",
    "roll the definition back": f"{ALTER} viewed ROLLBACK DEFINITION",
    "roll rows and definition back": f"{ALTER} viewed ROLLBACK TO VERSION 101 BOTH",
    "convert to a table": f"{ALTER} m CONVERT TO TABLE",
    "suspend all": f"{ALTER} m SUSPEND CASCADE",
    "drop": "DROP MATERIALIZED TABLE m",
    "drop a view": "DROP MATERIALIZED TABLE v",
    "drop a quarantine": "DROP MATERIALIZED TABLE q",
}


def picture(world: World) -> object:
    """Everything that a statement may change; locations are those reported by the engine."""
    stored = {
        table: (found.schema, found.partition_keys, found.comment, _facts(found))
        for table, found in world.engine.storage.tables.items()
    }
    tables = {table.name: table for table in world.catalog.tables()}
    past = world.catalog.replaced_definitions()
    workflows = dict(world.scheduler.workflows)
    rows = {table.id: world.engine.storage.content(table.id) for table in tables.values()}
    views = dict(world.engine.storage.views)
    return tables, past, workflows, stored, views, rows, world.ledger.leases


def _facts(found: Stored) -> dict[str, object]:
    facts: dict[str, object] = dict(found.properties)
    if text := found.properties.get("tidegate.definition"):
        # The stored status does not matter: a rebuilt table is suspended.
        volatile = {"location": "", "refresh_status": ""}
        facts["tidegate.definition"] = {**json.loads(text), **volatile}
    return facts


def effects(statement: str) -> list[str]:
    world = world_before()
    saboteur = Saboteur(world, 0, done=False)
    world.execute(statement)
    return saboteur.calls


CASES = [
    pytest.param(STATEMENTS[what], at, done, id=f"{what}-{at}-{'after' if done else 'before'}")
    for what in STATEMENTS
    for at in range(1, len(effects(STATEMENTS[what])) + 1)
    for done in (False, True)
]


@pytest.mark.parametrize(("statement", "at", "done"), CASES)
def test_a_failed_side_effect_leaves_everything_as_it_was(
    statement: str, at: int, done: bool
) -> None:
    world = world_before()
    before = picture(world)
    saboteur = Saboteur(world, at, done=done)
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    assert caught.value.code == Code.ENGINE_LOST.name
    done_so_far = saboteur.calls[: at if done else at - 1]
    if "DropTable" in done_so_far and statement.startswith("DROP"):
        # Nothing brings dropped data back; repeating the DROP ends what was begun.
        world.execute(statement.replace("TABLE", "TABLE IF EXISTS"))
        assert len(world.catalog.tables()) == len(world.scheduler.workflows) == 5
    else:
        assert picture(world) == before


def test_every_statement_changes_something() -> None:
    for what, statement in STATEMENTS.items():
        world = world_before()
        before = picture(world)
        world.execute(statement)
        assert picture(world) != before, what
