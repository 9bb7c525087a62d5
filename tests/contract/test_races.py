"""Two servers at one store: what is given to one is not given to the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from tests.contract.examples import NOON, name, table
from tests.contract.stores import open_database
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import RefreshMode
from tidegate_server.gateway.catalog.sql import SqlCatalog
from tidegate_server.gateway.scheduler.base import Workflow
from tidegate_server.gateway.scheduler.fire_queue import Fire, FireQueue
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.scheduler.workflows import WorkflowStore
from tidegate_server.gateway.store.database import Database

T = TypeVar("T")
SERVERS = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Database]]:
    with open_database(request.param, tmp_path) as first:
        url = first.url.render_as_string(hide_password=False)
        others = [Database(url) for _ in range(SERVERS - 1)]
        yield [first, *others]
        for other in others:
            other.close()


def at_once(works: list[Callable[[], T]]) -> list[T]:
    """Run all works from the same moment on and return what each answered."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], T]) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))


@pytest.mark.parametrize("attempt", range(5))
def test_the_first_lease_of_a_table_goes_to_one(databases: list[Database], attempt: int) -> None:
    ledgers = [SqlLedger(database) for database in databases]
    claims = at_once(
        [lambda n=n, x=x: x.claim("t", f"s{n}", NOON, 30) for n, x in enumerate(ledgers)]
    )
    assert sorted(claims, key=str) == [1, None, None, None]


def test_an_expired_lease_is_taken_over_by_one(databases: list[Database]) -> None:
    ledgers = [SqlLedger(database) for database in databases]
    ledgers[0].claim("t", "dead", NOON, 30)
    later = NOON + timedelta(seconds=30)
    claims = at_once(
        [lambda n=n, x=x: x.claim("t", f"s{n}", later, 30) for n, x in enumerate(ledgers)]
    )
    assert sorted(claims, key=str) == [2, None, None, None]


def test_no_epoch_is_given_twice_or_left_out(databases: list[Database]) -> None:
    def work(number: int, ledger: SqlLedger) -> list[int]:
        epochs: list[int] = []
        while len(epochs) < 10:
            epoch = ledger.claim("t", f"s{number}", NOON, 30)
            if epoch is not None:
                epochs.append(epoch)
                ledger.release("t", f"s{number}")
        return epochs

    ledgers = [SqlLedger(database) for database in databases]
    given = at_once([lambda n=n, x=x: work(n, x) for n, x in enumerate(ledgers)])
    assert all(epochs == sorted(epochs) for epochs in given)
    assert sorted(epoch for epochs in given for epoch in epochs) == list(range(1, 41))


def test_a_fire_is_claimed_once(databases: list[Database]) -> None:
    stores = [FireQueue(database) for database in databases]
    workflow = Workflow(
        table_id="t",
        mode=RefreshMode.FULL,
        freshness_seconds=60,
        cron="0 0/1 * * * ? *",
        next_fire=NOON,
    )
    WorkflowStore(databases[0]).add(workflow)
    following = NOON + timedelta(minutes=1)
    fire = Fire(table_id="t", schedule_time=NOON, due_at=NOON)
    taken = at_once(
        [lambda x=x: x.advance(workflow, following, [fire], supersede=True) for x in stores]
    )
    assert sorted(taken) == [False, False, False, True]
    assert stores[0].ready(NOON) == (fire,)
    claims = at_once(
        [lambda n=n, x=x: x.acquire(fire, 1, f"s{n}", NOON, 30) for n, x in enumerate(stores)]
    )
    assert sorted(claims) == [False, False, False, True]
    assert stores[0].ready(NOON) == ()


def test_the_fire_of_a_dead_server_is_taken_over_by_one(databases: list[Database]) -> None:
    stores = [FireQueue(database) for database in databases]
    workflow = Workflow(
        table_id="t", mode=RefreshMode.FULL, freshness_seconds=60, cron="x", next_fire=NOON
    )
    WorkflowStore(databases[0]).add(workflow)
    fire = Fire(table_id="t", schedule_time=NOON, due_at=NOON)
    stores[0].advance(workflow, NOON + timedelta(minutes=1), [fire], supersede=True)
    stores[0].acquire(fire, 1, "dead", NOON, 30)
    later = NOON + timedelta(seconds=30)
    [left] = stores[0].ready(later)
    assert left.owner == "dead"
    claims = at_once(
        [lambda n=n, x=x: x.acquire(left, 2, f"s{n}", later, 30) for n, x in enumerate(stores)]
    )
    assert sorted(claims) == [False, False, False, True]


def test_a_name_is_given_to_one_table(databases: list[Database]) -> None:
    def create(number: int, catalog: SqlCatalog) -> str:
        try:
            catalog.create(table(id=f"t-{number}", name=name("x" if number % 2 else "X")))
        except ServerError as refused:
            return refused.code
        return "created"

    catalogs = [SqlCatalog(database) for database in databases]
    answers = at_once([lambda n=n, x=x: create(n, x) for n, x in enumerate(catalogs)])
    assert sorted(answers) == ["MT_ALREADY_EXISTS"] * 3 + ["created"]


def test_a_status_moves_once(databases: list[Database]) -> None:
    catalogs = [SqlCatalog(database) for database in databases]
    catalogs[0].create(table())
    start, end = RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED
    moves = at_once([lambda x=x: x.move("t-1", start, end) for x in catalogs])
    assert sorted(moves) == [False, False, False, True]


def test_servers_that_start_together_make_one_store(databases: list[Database]) -> None:
    at_once([database.open for database in databases])
    assert SqlCatalog(databases[0]).tables() == ()
