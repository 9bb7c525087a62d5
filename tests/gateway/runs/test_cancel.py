"""Cancellation of refreshes, and leases that are extended or lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.gateway.runs.fakes import OUTCOME, PATIENT, Gate, World, request
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.states import RunState
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshOutcome,
)
from tidegate_server.gateway.scheduler.ledger import SqlLedger


def test_cancel_reaches_the_engine_and_the_record(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        assert world.refresher.cancel(order.refresh_id)
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    ended = world.refresher.run(request(refresh_id="mine"))
    assert (ended.state, ended.reason_code) == (RunState.CANCELLED, "CANCELED")
    assert world.engine.cancels[0] == "mine"
    assert not world.refresher.cancel("mine")


def test_a_refresh_can_be_canceled_while_it_waits(world: World, gate: Gate) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.refresher.run, request())
        assert gate.entered.wait(PATIENT)
        second = pool.submit(world.refresher.run, request(refresh_id="waiting"))
        while not world.refresher.cancel("waiting"):
            assert not second.done()
        assert second.result(PATIENT).state is RunState.CANCELLED
        gate.opened.set()
        first.result()
    assert len(world.engine.orders) == 1


def test_another_server_can_cancel_what_waits_and_what_runs(world: World) -> None:
    entered = threading.Event()

    def work(order: RefreshOrder) -> RefreshOutcome:
        entered.set()
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    refresher = world.server("s", lease_seconds=0.03)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(refresher.run, request(refresh_id="runs"))
        assert entered.wait(PATIENT)
        second = pool.submit(refresher.run, request(refresh_id="waits"))
        for refresh_id in ("waits", "runs"):
            world.ledger.request_cancel(refresh_id)
        assert first.result(PATIENT).state is RunState.CANCELLED
        assert second.result(PATIENT).state is RunState.CANCELLED
    assert refresher.wait_ended(("runs", "waits"), PATIENT)


def test_close_ends_what_runs_and_what_waits(world: World) -> None:
    entered = threading.Event()

    def work(order: RefreshOrder) -> RefreshOutcome:
        entered.set()
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.refresher.run, request())
        assert entered.wait(PATIENT)
        second = pool.submit(world.refresher.run, request(refresh_id="waiting"))
        while not world.refresher.at_work("waiting"):
            assert not second.done()
        world.refresher.close()
        assert first.result(PATIENT).state is RunState.CANCELLED
        assert second.result(PATIENT).state is RunState.CANCELLED
    assert {run.reason_code for run in world.ledger.runs()} == {"SERVER_STOPPED"}
    assert len(world.engine.orders) == 1


def test_the_lease_is_prolonged_while_the_engine_works(world: World) -> None:
    prolonged = threading.Event()

    class Watched(SqlLedger):
        def extend(self, *args: Any) -> bool:
            try:
                return super().extend(*args)
            finally:
                prolonged.set()

    def work(order: RefreshOrder) -> RefreshOutcome:
        world.clock.advance(1000)
        assert prolonged.wait(PATIENT)
        return OUTCOME

    world.engine.work = work
    refresher = world.server("s", ledger=Watched(world.database), lease_seconds=0.03)
    assert refresher.run(request()).state is RunState.SUCCEEDED


def test_a_run_whose_lease_was_taken_over_is_stopped_and_abandoned(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        while world.ledger.claim("t-1", "someone else", world.clock.advance(1000), 30) is None:
            assert world.engine.cancels == []
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    ended = world.server("s", lease_seconds=0.03).run(request())
    assert (ended.state, ended.reason_code) == (RunState.ABANDONED, "LEASE_LOST")
    assert world.ledger.holder("t-1", world.clock.now()) == "someone else"
