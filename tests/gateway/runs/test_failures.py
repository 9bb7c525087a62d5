"""Refreshes that fail, and engines that die in them."""

from __future__ import annotations

from tests.contract.examples import NOON
from tests.gateway.runs.fakes import OUTCOME, World, commit, failing_with, request
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.states import RunState
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshOutcome,
)


def test_a_failure_is_in_the_record(world: World) -> None:
    world.engine.work = failing_with(
        ServerError(code="DIVIDE_BY_ZERO", sqlstate="22012", message="Division by zero.")
    )
    failed = world.refresher.run(request())
    assert failed.state is RunState.FAILED
    assert (failed.error_class, failed.sqlstate) == ("DIVIDE_BY_ZERO", "22012")
    assert failed.error_message == "Division by zero."
    assert world.ledger.runs() == (failed,)
    assert world.ledger.holder("t-1", NOON) is None


def test_an_unforeseen_error_is_a_failure_too(world: World) -> None:
    world.engine.work = failing_with(RuntimeError("boom"))
    failed = world.refresher.run(request())
    assert (failed.state, failed.error_class) == (RunState.FAILED, "INTERNAL")


def test_a_commit_of_an_engine_that_died_counts(world: World) -> None:
    world.engine.work = failing_with(error(Code.ENGINE_LOST))
    world.engine.commit = commit("server-1-run-1")
    ended = world.refresher.run(request())
    assert ended.state is RunState.SUCCEEDED
    assert (ended.to_version, ended.sources) == (8, {"delta-ev": 7})
    assert ended.reason_code == "RECOVERED"


def test_an_engine_that_died_before_its_commit_is_a_failure(world: World) -> None:
    world.engine.work = failing_with(error(Code.ENGINE_LOST))
    world.engine.commit = commit("an older run")
    ended = world.refresher.run(request())
    assert (ended.state, ended.error_class) == (RunState.FAILED, "ENGINE_LOST")


def test_what_no_engine_can_tell_is_left_to_recovery(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        world.engine.down = True
        raise error(Code.ENGINE_LOST)

    world.engine.work = work
    answer = world.refresher.run(request())
    assert (answer.state, answer.error_class) == (RunState.FAILED, "ENGINE_LOST")
    assert world.states() == [RunState.RUNNING]
    assert world.ledger.holder("t-1", NOON) is None
    world.engine.down = False
    world.engine.commit = commit("server-1-run-1")
    world.recovery().recover(NOON)
    assert world.states() == [RunState.SUCCEEDED]


def test_a_fenced_refresh_is_abandoned(world: World) -> None:
    world.engine.work = failing_with(error(Code.MT_REFRESH_FENCED, epoch=1, table="t", current=2))
    assert world.refresher.run(request()).state is RunState.ABANDONED


def test_a_store_behind_its_table_catches_up(world: World) -> None:
    world.engine.work = failing_with(error(Code.MT_REFRESH_FENCED, epoch=1, table="t", current=90))
    world.engine.commit = commit("before the store was lost", epoch=90)
    world.refresher.run(request())
    world.engine.work = lambda order: OUTCOME
    assert world.refresher.run(request()).epoch == 91
