"""Which engine runs a refresh, and what the history says about it."""

from __future__ import annotations

from typing import Any

from tests.contract.examples import run, table, vary
from tests.gateway.runs.fakes import OUTCOME, World, request
from tidegate_server.core.config_sections import EngineTargetSection
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.request import (
    Backfill,
    Publish,
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    Rollback,
    Task,
)
from tidegate_server.gateway.link.targets import LOAD_ENGINE_KEY
from tidegate_server.gateway.runs.engines import engine_of

ENGINES = {
    "night": EngineTargetSection(master="spark://head:7077"),
    "pods": EngineTargetSection(master="k8s://https://head:6443", application=True),
}
ONE = (({"Ds": "2024-01-01"}),)


def loading(name: str = "Night", **changes: Any) -> MaterializedTable:
    """Return a table that is loaded by another engine than it is refreshed by."""
    return vary(table(), options={LOAD_ENGINE_KEY: name}, **changes)


def chosen(
    task: Task | None = None,
    trigger: Trigger = Trigger.SCHEDULED,
    last: RefreshRun | None = None,
    name: str = "Night",
    **changes: Any,
) -> str:
    asked = request(trigger, task=task or Recompute())
    return engine_of(loading(name, **changes), asked, lambda table_id: last, ENGINES)


def test_loads_run_in_the_engine_for_them() -> None:
    done = run(state=RunState.SUCCEEDED, epoch=3, definition_version=2)
    loads = [
        chosen(),
        chosen(trigger=Trigger.UPSTREAM_CHANGE),
        chosen(Recompute(partitions=ONE), Trigger.INITIAL),
        chosen(Recompute(partitions=ONE), Trigger.BACKFILL, done),
        chosen(Recompute(force=True), Trigger.MANUAL, done, version=2),
        chosen(Backfill(source=TableName("spark_catalog", "s", "t")), Trigger.BACKFILL),
        chosen(last=done, version=3),
        chosen(last=done, version=2, checkpoint_floor=3),
    ]
    assert set(loads) == {"remote/night"}


def test_all_other_refreshes_run_in_the_engine_of_the_table() -> None:
    done = run(state=RunState.SUCCEEDED, epoch=3, definition_version=2)
    others = [
        chosen(last=done, version=2),
        chosen(last=done, version=2, checkpoint_floor=2),
        chosen(Recompute(partitions=ONE)),
        chosen(Recompute(partitions=ONE, force=True), Trigger.MANUAL),
        chosen(Recompute(predicate="total < 0"), Trigger.MANUAL),
        chosen(Publish(), Trigger.MANUAL),
        chosen(Rollback(version=1), Trigger.MANUAL),
        engine_of(table(), request(), lambda table_id: None, ENGINES),
    ]
    assert set(others) == {"embedded"}


def test_each_load_of_an_application_has_one_of_its_own() -> None:
    assert chosen(name="pods") == "kubernetes-application/pods/tidegate-t-1-load"


def test_an_engine_that_was_removed_is_not_replaced() -> None:
    assert chosen(name="gone") == "embedded/gone"


def test_a_first_load_runs_in_the_engine_for_it(world: World) -> None:
    world.catalog.replace(loading())
    refresher = world.server("server-1", engines=ENGINES)

    def fail(order: RefreshOrder) -> RefreshOutcome:
        raise error(Code.ENGINE_LOST)

    world.engine.work = fail
    refresher.run(request())
    world.engine.work = lambda order: OUTCOME
    for _ in range(2):
        refresher.run(request())
    assert [order.engine for order in world.engine.orders] == [
        "remote/night",
        "remote/night",
        "embedded",
    ]
    told = [run.execution_target for run in world.ledger.runs()]
    assert told == ["embedded", "remote/night", "remote/night"]


def test_runs_that_no_engine_ran_name_none(world: World) -> None:
    assert world.refresher.skip(request()).execution_target is None
