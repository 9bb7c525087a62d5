"""One refresh from request to record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import NOON, name, run, source, table
from tests.gateway.runs.fakes import OUTCOME, World, request
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.requests import Refresh
from tidegate_server.core.model.runs import RefreshRun, RunMetrics, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import LogicalRefreshMode, RollingBack
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPolicy,
)


def test_a_refresh_is_ordered_with_all_the_engine_needs(world: World) -> None:
    task = Recompute(partitions=({"Ds": "x"},), force=True)
    world.refresher.run(request(task=task))
    assert world.engine.requests == [Refresh(order=world.engine.orders[0], task=task)]
    assert world.engine.orders[0] == RefreshOrder(
        refresh_id="server-1-run-1",
        table_id="t-1",
        name=name("Daily"),
        definition_version=1,
        expanded_query="SELECT ...",
        columns=("Ds", "total"),
        partition_keys=("Ds",),
        sources=table().definition.sources,
        epoch=1,
        trigger=Trigger.MANUAL,
        logical_time=NOON,
        settings={"spark.sql.shuffle.partitions": "7"},
        options=table().definition.options,
        executor="ana",
        engine="embedded",
    )


def test_the_outcome_is_recorded(world: World) -> None:
    answer = world.refresher.run(request(Trigger.SCHEDULED, schedule_time=NOON))
    assert answer == run(
        refresh_id="server-1-run-1",
        trigger=Trigger.SCHEDULED,
        schedule_time=NOON,
        state=RunState.SUCCEEDED,
        epoch=1,
        action=Strategy.FULL,
        reason_code="SOURCES_CHANGED",
        reason_text="sources have newer versions",
        from_version=3,
        to_version=4,
        sources={"delta-ev": 5},
        metrics=RunMetrics(rows_written=10),
        started_at=NOON,
        finished_at=NOON,
        execution_target="embedded",
    )
    assert world.ledger.runs() == (answer,)


def test_history_shows_the_run_while_it_runs(world: World) -> None:
    seen: list[RefreshRun] = []

    def record(order: RefreshOrder) -> RefreshOutcome:
        seen.extend(world.ledger.runs())
        return OUTCOME

    world.engine.work = record
    world.refresher.run(request())
    assert [(r.state, r.epoch) for r in seen] == [(RunState.RUNNING, 1)]


def test_history_and_statement_show_for_what_a_run_waits(world: World) -> None:
    seen: list[str | None] = []
    told: list[str] = []

    def wait(order: RefreshOrder) -> RefreshOutcome:
        for message in ("", "no executor", "no executor", ""):
            world.engine.report(message)
            seen.append(world.ledger.runs()[0].reason_text)
        return OUTCOME

    world.engine.work = wait
    with world.refresher.following("mine", told.append):
        world.refresher.run(request(refresh_id="mine.t1"))
        world.refresher.run(request(refresh_id="yours"))
    assert seen == [None, "no executor", "no executor", None] * 2
    assert told == [f"{name('Daily')}: no executor"]


def test_the_asker_may_choose_the_id(world: World) -> None:
    assert world.refresher.run(request(refresh_id="mine")).refresh_id == "mine"


def test_the_mode_of_a_table_is_the_policy_of_its_refreshes(world: World) -> None:
    for mode, policy in (
        (LogicalRefreshMode.FULL, RefreshPolicy.FULL),
        (LogicalRefreshMode.INCREMENTAL_STRICT, RefreshPolicy.INCREMENTAL_STRICT),
    ):
        world.catalog.replace(table(logical_refresh_mode=mode))
        world.refresher.run(request())
        assert world.engine.orders[-1].policy is policy
    run = world.refresher.run(request(policy=RefreshPolicy.INCREMENTAL))
    assert world.engine.orders[-1].policy is RefreshPolicy.INCREMENTAL
    assert run.requested_action == "INCREMENTAL"


def test_options_of_the_last_resume_hold_for_refreshes(world: World) -> None:
    options = {"k": "v", "spark.sql.ansi.enabled": "false", "fs.defaultFS": "s3a://x"}
    world.catalog.replace(table(resume_options=options))
    world.refresher.run(request())
    order = world.engine.orders[-1]
    assert order.options["k"] == "v"
    assert order.settings["spark.sql.ansi.enabled"] == "false"
    assert not order.settings.keys() & {"k", "fs.defaultFS"}  # only settings of Spark are applied


def test_the_engine_is_told_the_last_runs_and_whether_others_read_the_table(world: World) -> None:
    world.refresher.run(request())
    world.catalog.create(table(id="t-2", name=name("Above"), sources=(source("Daily", "x"),)))
    world.refresher.run(request())
    order = world.engine.orders[-1]
    assert [past.strategy for past in order.history] == [Strategy.FULL]
    assert order.has_consumers


def test_a_run_that_read_a_suspended_table_says_so(world: World) -> None:
    suspended = RefreshStatus.SUSPENDED
    world.catalog.create(table(id="t-2", name=name("ev"), status=suspended))
    answer = world.refresher.run(request())
    assert "(UPSTREAM_SUSPENDED: spark_catalog.d.ev)" in str(answer.reason_text)


def test_an_enqueued_refresh_goes_on_as_the_same_run(world: World) -> None:
    queued = world.refresher.enqueue(request(refresh_id="mine"))
    assert queued.state is RunState.QUEUED
    assert world.states() == [RunState.QUEUED]
    assert world.refresher.run(request(refresh_id="mine")).state is RunState.SUCCEEDED
    assert world.states() == [RunState.SUCCEEDED]
    assert world.refresher.withdraw("mine", RunState.CANCELLED, "X", "too late") is None


def test_an_enqueued_refresh_can_be_withdrawn_once(world: World) -> None:
    world.refresher.enqueue(request(refresh_id="mine"))
    closed = world.refresher.withdraw("mine", RunState.UPSTREAM_FAILED, "UPSTREAM_FAILED", "why")
    assert closed is not None
    assert (closed.state, closed.reason_text) == (RunState.UPSTREAM_FAILED, "why")
    assert world.ledger.find("mine") == closed
    assert world.refresher.withdraw("mine", RunState.CANCELLED, "X", "again") is None


def test_an_enqueued_refresh_that_was_canceled_never_begins(world: World) -> None:
    world.refresher.enqueue(request(refresh_id="a"))
    world.refresher.enqueue(request(refresh_id="b"))
    assert set(world.refresher.cancel_table("t-1")) == {"a", "b"}
    assert world.refresher.run(request(refresh_id="a")).state is RunState.CANCELLED
    closed = world.refresher.withdraw("b", RunState.UPSTREAM_FAILED, "UPSTREAM_FAILED", "why")
    assert closed is not None
    assert closed.state is RunState.CANCELLED
    assert world.engine.orders == []


def test_canceling_a_table_leaves_the_other_tables_of_its_wave_alone(world: World) -> None:
    world.catalog.create(table(id="t-2", name=name("Above")))
    world.refresher.enqueue(request(refresh_id="op"))
    world.refresher.enqueue(request(refresh_id="op.u1", table_id="t-2"))
    assert world.refresher.cancel_table("t-1") == ("op",)
    assert world.refresher.run(request(refresh_id="op.u1", table_id="t-2")).state is (
        RunState.SUCCEEDED
    )
    assert world.refresher.run(request(refresh_id="op")).state is RunState.CANCELLED


def test_every_refresh_has_a_higher_epoch_and_frees_its_lease(world: World) -> None:
    for _ in range(3):
        world.refresher.run(request())
    assert [order.epoch for order in world.engine.orders] == [1, 2, 3]
    assert world.ledger.holder("t-1", NOON) is None


def test_only_its_own_rollback_touches_a_table_that_is_being_rolled_back(world: World) -> None:
    mark = RollingBack(refresh_id="op", active=True, to=table())
    world.catalog.replace(replace(table(), pending=mark))
    other = world.refresher.run(request())
    assert (other.state, other.error_class) == (RunState.CANCELLED, Code.MT_STATE.name)
    for own in ("op", "op.back"):
        assert world.refresher.run(request(refresh_id=own)).state is RunState.SUCCEEDED


def test_a_missing_table_is_refused_without_a_record(world: World) -> None:
    with pytest.raises(ServerError) as caught:
        world.refresher.run(request(table_id="nope"))
    assert caught.value.code == "MT_NOT_FOUND"
    assert world.ledger.runs() == ()


def test_sources_that_were_replaced_are_noted(world: World) -> None:
    [first, *others] = table().definition.sources
    found = (replace(first, table_id="created again"), *others)
    world.engine.work = lambda order: replace(OUTCOME, sources=found)
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table(sources=found)
    world.engine.work = lambda order: OUTCOME
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table(sources=found)
