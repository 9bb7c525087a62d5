"""Results that are held back, and how they are published or replaced."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.examples import NOON, table
from tests.gateway.runs.fakes import OUTCOME, World, commit, failing_with, record_running, request
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import PublishHeld
from tidegate_server.core.model.runs import Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import HeldVersion
from tidegate_server.core.refresh.request import Publish

WAITING = HeldVersion(refresh_id="r-0", since=NOON, reason="too few rows")
HELD = error(Code.MT_VERSION_HELD, table="t", reason="the assertion enough: too few rows")


def test_a_result_that_is_held_fails_its_run_and_marks_the_table(world: World) -> None:
    world.engine.work = failing_with(HELD)
    ended = world.refresher.run(request())
    assert (ended.state, ended.error_class) == (RunState.FAILED, "MT_VERSION_HELD")
    assert world.catalog.by_id("t-1") == table(
        held=HeldVersion(refresh_id=ended.refresh_id, since=world.clock.now(), reason=HELD.message)
    )


def test_no_refresh_starts_by_itself_while_a_version_is_held(world: World) -> None:
    world.catalog.record_held_version("t-1", WAITING)
    for trigger in (Trigger.SCHEDULED, Trigger.UPSTREAM_CHANGE):
        skipped = world.refresher.run(request(trigger))
        assert (skipped.state, skipped.reason_code) == (RunState.SKIPPED, "VERSION_HELD")
        assert skipped.reason_text == WAITING.reason
    assert world.engine.orders == []


def test_what_a_refresh_commits_takes_the_place_of_a_held_version(world: World) -> None:
    world.catalog.record_held_version("t-1", WAITING)
    nothing = replace(OUTCOME, plan=replace(OUTCOME.plan, strategy=Strategy.NO_DATA))
    world.engine.work = lambda order: nothing
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table(held=WAITING)
    world.engine.work = lambda order: OUTCOME
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table()


def test_a_publication_names_the_refresh_whose_result_is_held(world: World) -> None:
    world.catalog.record_held_version("t-1", WAITING)
    world.engine.work = lambda order: replace(OUTCOME, definition_version=3)
    ended = world.refresher.run(request(task=Publish()))
    assert (ended.state, ended.definition_version) == (RunState.SUCCEEDED, 3)
    assert world.engine.requests == [
        PublishHeld(order=world.engine.orders[0], held_by=WAITING.refresh_id)
    ]
    assert world.catalog.by_id("t-1") == table()
    late = world.refresher.run(request(task=Publish()))
    assert (late.state, late.error_class) == (RunState.CANCELLED, "MT_NOTHING_HELD")


def test_a_result_that_an_engine_held_before_it_died_is_held(world: World) -> None:
    world.engine.work = failing_with(error(Code.ENGINE_LOST))
    world.engine.held = commit("server-1-run-1", breaks="the assertion enough")
    ended = world.refresher.run(request())
    assert (ended.state, ended.error_class) == (RunState.FAILED, "MT_VERSION_HELD")
    assert world.catalog.by_id("t-1").state.held.refresh_id == ended.refresh_id  # type: ignore[union-attr]


def test_recovery_finds_a_result_that_is_held(world: World) -> None:
    record_running(world)
    world.engine.commit = commit("an older run")
    world.engine.held = commit("r-1", breaks="the assertion enough")
    world.recovery().recover(NOON)
    [ended] = world.ledger.runs()
    assert (ended.state, ended.error_class) == (RunState.FAILED, "MT_VERSION_HELD")
    mark = world.catalog.by_id("t-1").state.held  # type: ignore[union-attr]
    assert mark == HeldVersion(refresh_id="r-1", since=NOON, reason=ended.error_message or "")
    assert "breaks the assertion enough" in mark.reason


def test_recovery_finds_that_a_held_version_was_published(world: World) -> None:
    world.catalog.record_held_version("t-1", WAITING)
    record_running(world)
    world.engine.commit = commit("r-1", strategy="PUBLISH", definition_version=4)
    world.recovery().recover(NOON)
    [ended] = world.ledger.runs()
    assert (ended.action, ended.definition_version) == (Strategy.PUBLISH, 4)
    assert world.catalog.by_id("t-1") == table()
