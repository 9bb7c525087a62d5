"""A statement comes in between two steps of another: it is as if one came after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Blocked
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.command.fakes import NIGHT, T1, World, name
from tests.gateway.command.tables import ALTER, produces
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway.catalog.sql import SqlCatalog
from tidegate_server.gateway.definition import locks
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database

pytestmark = pytest.mark.slow

_STEPS = {
    "catalog": ("find", "by_id", "consumers", "tables", "replace", "move", "drop"),
    "scheduler": ("workflow", "modify", "create", "delete"),
}
PAIRS = [
    (f"{ALTER} idle RESUME WITH ('k'='v')", f"{ALTER} idle SET ('x'='y')"),
    (f"{ALTER} idle RESUME WITH ('k'='v')", f"{ALTER} idle SET FRESHNESS = INTERVAL '1' HOUR"),
    (f"{ALTER} idle RESUME CASCADE", f"{ALTER} idle RENAME TO other"),
    (f"{ALTER} m SUSPEND", f"{ALTER} m SET FRESHNESS = INTERVAL '1' HOUR"),
    (f"{ALTER} m SET ('execution.engine' = 'night')", f"{ALTER} m SET ('x'='y')"),
    (f"{ALTER} m SET ('execution.engine' = 'night')", f"{ALTER} m SUSPEND"),
    (f"{ALTER} idle RESUME", f"{ALTER} idle SET ('execution.engine' = 'night')"),
    (f"{ALTER} m SUSPEND CASCADE", f"{ALTER} reader SET FRESHNESS = INTERVAL '1' HOUR"),
    (f"{ALTER} m SET FRESHNESS = INTERVAL '1' HOUR", f"{ALTER} m SUSPEND"),
    (f"{ALTER} m SET FRESHNESS = INTERVAL '1' HOUR", f"{ALTER} m SET ('x'='y')"),
    (f"{ALTER} idle SET ('x'='y')", f"{ALTER} idle RESUME WITH ('k'='v')"),
    (f"{ALTER} m RENAME TO other", f"{ALTER} reader SET ('x'='y')"),
    (f"{ALTER} m RENAME TO other", f"{ALTER} m SUSPEND"),
    (f"{ALTER} m CONVERT TO TABLE", f"{ALTER} reader SET FRESHNESS = INTERVAL '1' HOUR"),
    (f"{ALTER} m SWAP WITH idle", f"{ALTER} idle RESUME WITH ('k'='v')"),
    (f"{ALTER} m SWAP WITH idle", f"{ALTER} reader SET ('x'='y')"),
    (f"{ALTER} m SUSPEND", f"{ALTER} idle SWAP WITH m"),
    (f"{ALTER} follower SET FRESHNESS = INTERVAL '1' HOUR", f"{ALTER} led SET ('x'='y')"),
    (f"{ALTER} follower SET FRESHNESS = INTERVAL '1' HOUR", f"{ALTER} led SUSPEND"),
    ("DROP MATERIALIZED TABLE follower", f"{ALTER} led SET ('x'='y')"),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_POLL", 0.01)


class Between:
    """Carries another statement out when the first one is about to take its n-th step."""

    def __init__(self, world: World, at: int, act: Callable[[], object]) -> None:
        self.steps = 0
        self.came: Future[object] | None = None
        self._at = at
        self._act = act
        self._thread = threading.get_ident()
        for part, methods in _STEPS.items():
            for method in methods:
                self._watch(getattr(world, part), method)

    def _watch(self, part: object, method: str) -> None:
        original = getattr(part, method)

        def step(*given: Any, **named: Any) -> Any:
            if threading.get_ident() == self._thread:
                self.steps += 1
                if self.steps == self._at:
                    self._come()
            return original(*given, **named)

        setattr(part, method, step)

    def _come(self) -> None:
        pool = ThreadPoolExecutor(1)
        self.came = pool.submit(self._act)
        pool.shutdown(wait=False)
        try:
            self.came.exception(0.05)
        except Blocked:
            # It waits for the first one, which goes on.
            return


def error_code(world: World, statement: str) -> str | None:
    """Execute a statement and return the code of its error."""
    try:
        world.execute(statement)
    except ServerError as problem:
        return problem.code
    return None


@contextmanager
def open_world(directory: Path, store: str = "sqlite") -> Iterator[World]:
    """Yield a world over a new store, with tables to change."""
    config = Config(scheduler={"patience": 10}, engines=NIGHT)  # type: ignore[arg-type]
    if store == "memory":
        yield create_tables(World(config=config, startable={"night"}))
        return
    database = Database(f"sqlite:///{directory / 'store.db'}")
    database.open()
    catalog, ledger = SqlCatalog(database), SqlLedger(database)
    try:
        world = World(
            config=config,
            startable={"night"},
            catalog=catalog,  # type: ignore[arg-type]
            ledger=ledger,  # type: ignore[arg-type]
        )
        yield create_tables(world)
    finally:
        database.close()


def create_tables(world: World) -> World:
    create = "CREATE MATERIALIZED TABLE {} FRESHNESS = {} REFRESH_MODE = FULL AS SELECT * FROM {}"
    for table in ("m", "led"):
        produces(world, f"SELECT * FROM {table}", *T1, source=table)
    for table, freshness, source in (
        ("m", "INTERVAL '1' DAY", "t1"),
        ("reader", "INTERVAL '1' DAY", "m"),
        ("idle", "INTERVAL '1' DAY", "t1"),
        ("led", "DOWNSTREAM", "t1"),
        ("follower", "INTERVAL '1' DAY", "led"),
    ):
        world.execute(create.format(table, freshness, source))
    world.execute(f"{ALTER} idle SUSPEND")
    return world


def picture(world: World) -> tuple[object, ...]:
    return world.catalog.tables(), dict(world.scheduler.workflows)


def one_after_the_other(*statements: str) -> tuple[object, ...]:
    with open_world(Path(), "memory") as world:
        for statement in statements:
            error_code(world, statement)
        return picture(world)


@pytest.mark.parametrize(
    ("first", "second", "store"),
    [*((*pair, "memory") for pair in PAIRS), *((*pair, "sqlite") for pair in PAIRS[:4:3])],
)
def test_statements_that_meet_leave_what_one_after_the_other_leaves(
    tmp_path: Path, first: str, second: str, store: str
) -> None:
    both = [one_after_the_other(first, second), one_after_the_other(second, first)]
    one = [one_after_the_other(first), one_after_the_other(second)]
    for at in count(1):
        directory = tmp_path / f"at-{at}"
        directory.mkdir()
        with open_world(directory, store) as world:
            between = Between(world, at, lambda world=world: error_code(world, second))
            refused = error_code(world, first)
            if between.came is None:
                assert at > 3
                return
            codes = {refused, between.came.result(30)}
            assert codes <= {None, Code.MT_STATE.name, Code.MT_NOT_FOUND.name}, at
            found = picture(world)
            assert found in both or (codes != {None} and found in one), (at, codes)
            assert not any(world.ledger.holder(t.id, t.created_at) for t in world.catalog.tables())


def test_a_lease_is_prolonged_while_a_statement_goes_on(tmp_path: Path) -> None:
    with open_world(tmp_path) as world:
        world.config = Config(scheduler={"patience": 0, "lease": 1.05})  # type: ignore[arg-type]
        extended = threading.Event()
        extend = world.ledger.extend

        def watched(*given: Any) -> bool:
            kept = extend(*given)
            extended.set()
            return kept

        world.ledger.extend = watched  # type: ignore[method-assign]
        call = world.engine.call

        def slow(request: Any, **options: Any) -> Any:
            assert extended.wait(10)
            return call(request, **options)

        world.engine.call = slow  # type: ignore[method-assign]
        world.execute(f"{ALTER} m SET ('x'='y')")
        assert world.catalog.find(name("m")).definition.options == {"x": "y"}  # type: ignore[union-attr]
