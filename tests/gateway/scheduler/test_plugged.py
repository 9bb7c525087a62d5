"""A workflow scheduler that another package offers fires the FULL tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.contract.examples import name, table, vary
from tests.gateway.scheduler.test_embedded import World
from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.table import MaterializedTable, RefreshMode
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    WorkflowScheduler,
)
from tidegate_server.gateway.scheduler.plugged import choose_scheduler
from tidegate_server.gateway.scheduler.plugin import PeriodicRefresh
from tidegate_server.gateway.scheduler.workflows import workflow_for

HERE = "tests.gateway.scheduler.test_plugged"
NIGHTLY = "0 0 0 * * ? *"
QUERY = "SELECT a FROM spark_catalog.d.t1"


class Nightwatch:
    """An external scheduler that records its calls."""

    made: ClassVar[list[Nightwatch]] = []

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self.calls: list[tuple[str, PeriodicRefresh | str]] = []
        self.broken = False
        self.made.append(self)

    def create(self, refresh: PeriodicRefresh) -> None:
        self._call("create", refresh)

    def modify(self, refresh: PeriodicRefresh) -> None:
        self._call("modify", refresh)

    def delete(self, table_id: str) -> None:
        self._call("delete", table_id)

    def actions(self) -> list[str]:
        return [action for action, _ in self.calls]

    def _call(self, action: str, told: PeriodicRefresh | str) -> None:
        if self.broken:
            raise ConnectionError("the watch sleeps")
        self.calls.append((action, told))


class Plugged:
    """A gateway's scheduler that uses the plug-in."""

    def __init__(self, world: World, **config: Any) -> None:
        self.world = world
        options = {"workflow-scheduler.type": "nightwatch", "workflow-scheduler.url": "x"}
        self.config = Config(options=options, **config)
        self.embedded = world.another(world.database, arms=False)
        self.scheduler: WorkflowScheduler = choose_scheduler(
            self.config, self.embedded, world.catalog, lambda: ("127.0.0.1", 10002)
        )
        self.watch = Nightwatch.made[-1]

    def add(self, **changes: object) -> MaterializedTable:
        given = {"expanded_query": QUERY, "options": {}, "settings": {"k": "v"}, **changes}
        mt = table(id="t-1", name=name("nightly"), **given)
        self.world.catalog.create(mt)
        self.scheduler.create(CreateWorkflow(workflow=workflow_for(mt, "UTC"), table=mt))
        return mt

    def modify(self, mt: MaterializedTable, **workflow: object) -> None:
        wanted = replace(workflow_for(mt, "UTC"), **workflow)  # type: ignore[arg-type]
        self.scheduler.modify(ModifyWorkflow(workflow=wanted, table=mt))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    information = tmp_path / "watches-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: watches\nVersion: 1\n")
    offered = f"[tidegate.schedulers]\nnightwatch = {HERE}:Nightwatch\n"
    (information / "entry_points.txt").write_text(offered)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Nightwatch, "made", [])
    world = World(tmp_path)
    yield world
    world.database.close()


def test_a_plugin_is_told_all_it_needs_to_fire(world: World) -> None:
    plugged = Plugged(world)
    mt = plugged.add()
    assert plugged.watch.options == {
        "workflow-scheduler.type": "nightwatch",
        "workflow-scheduler.url": "x",
    }
    told = PeriodicRefresh(
        table_id="t-1",
        table=str(name("nightly")),
        cron=str(workflow_for(mt, "UTC").cron),
        timezone="UTC",
        active=True,
        expanded_query=QUERY,
        settings={"k": "v"},
        dynamic_options={},
        endpoint="http://127.0.0.1:10002/v1/materialized-tables/t-1/refresh",
    )
    assert plugged.watch.calls == [("create", told)]
    resumed = vary(mt, expanded_query="SELECT 2", resume_options={"o": "1"})
    plugged.modify(resumed, cron=NIGHTLY, active=False)
    changed = replace(told, cron=NIGHTLY, active=False, expanded_query="SELECT 2")
    assert plugged.watch.calls[1:] == [("modify", replace(changed, dynamic_options={"o": "1"}))]
    plugged.scheduler.delete(DeleteWorkflow(table_id="t-1"))
    assert plugged.watch.calls[2:] == [("delete", "t-1")]
    assert plugged.scheduler.workflow("t-1") is None


def test_the_gateway_fires_nothing_itself(world: World) -> None:
    plugged = Plugged(world)
    plugged.add()
    plugged.embedded.tick(world.clock.advance(200_000))
    assert world.executor.held == []


def test_a_table_that_becomes_continuous_leaves_the_plugin_and_comes_back(world: World) -> None:
    plugged = Plugged(world)
    mt = plugged.add()
    plugged.modify(vary(mt, refresh_mode=RefreshMode.CONTINUOUS))
    assert plugged.watch.actions() == ["create", "delete"]
    plugged.modify(mt)
    assert plugged.watch.actions() == ["create", "delete", "create"]


def test_a_continuous_table_is_none_of_its_business(world: World) -> None:
    plugged = Plugged(world)
    mt = plugged.add(refresh_mode=RefreshMode.CONTINUOUS)
    plugged.modify(mt, active=False)
    plugged.scheduler.delete(DeleteWorkflow(table_id="t-1"))
    assert plugged.watch.actions() == []


def test_what_the_plugin_refuses_leaves_nothing(world: World) -> None:
    plugged = Plugged(world)
    plugged.watch.broken = True
    with pytest.raises(ServerError) as caught:
        plugged.add()
    assert caught.value.code == "SCHEDULER_FAILED"
    assert "nightwatch failed to create the workflow of" in caught.value.message
    assert "the watch sleeps" in caught.value.message
    assert plugged.scheduler.workflow("t-1") is None


def test_a_refused_change_or_end_leaves_the_workflow_as_it_was(world: World) -> None:
    plugged = Plugged(world)
    mt = plugged.add()
    before = plugged.scheduler.workflow("t-1")
    plugged.watch.broken = True
    with pytest.raises(ServerError, match="SCHEDULER_FAILED"):
        plugged.modify(mt, cron=NIGHTLY, active=False)
    with pytest.raises(ServerError, match="SCHEDULER_FAILED"):
        plugged.scheduler.delete(DeleteWorkflow(table_id="t-1"))
    assert plugged.scheduler.workflow("t-1") == before


def test_workflows_change_hands_when_the_configuration_does(world: World) -> None:
    armed = world.add()
    plugged = Plugged(world)
    plugged.scheduler.open()
    plugged.scheduler.close()
    assert plugged.watch.actions() == ["create"]
    stored = plugged.scheduler.workflow("t-1")
    assert stored is not None
    assert stored.next_fire is None
    world.scheduler.open()
    world.scheduler.close()
    back = world.scheduler.workflow("t-1")
    assert back is not None
    assert back.next_fire is not None
    assert back == replace(armed, next_fire=back.next_fire)


def test_the_endpoint_can_be_configured(world: World) -> None:
    plugged = Plugged(world, scheduler={"endpoint": "https://gate.example.org/"})
    plugged.add()
    [(_, told)] = plugged.watch.calls
    assert isinstance(told, PeriodicRefresh)
    assert told.endpoint == "https://gate.example.org/v1/materialized-tables/t-1/refresh"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"scheduler": {"type": "nope"}}, "no package offers it"),
        ({"scheduler": {"type": "nosuch.module:Class"}}, "cannot be loaded"),
        ({"scheduler": {"type": f"{HERE}:dict"}}, "cannot be loaded"),
        ({"scheduler": {"type": "builtins:dict"}}, "lacks create, modify, delete"),
        ({"scheduler": {"type": "nightwatch"}, "server": {"http_port": -1}}, "http_port is -1"),
    ],
)
def test_a_scheduler_that_cannot_be_used_is_refused(
    world: World, config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ServerError) as caught:
        choose_scheduler(Config(**config), world.scheduler, world.catalog, lambda: ("h", 1))
    assert caught.value.code == "SCHEDULER_CONFIGURATION"
    assert reason in caught.value.message
