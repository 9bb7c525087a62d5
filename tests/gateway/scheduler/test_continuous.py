"""The watching of sources."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.examples import name, run, source, table
from tests.gateway.scheduler.fakes import FakeClock, FakeRunner, FakeSources
from tidegate_server.core.model.clauses import OnUpdate
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable, RefreshMode
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.scheduler.continuous import ContinuousWatcher
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database


def continuous(**changes: Any) -> MaterializedTable:
    values: dict[str, Any] = {
        "refresh_mode": RefreshMode.CONTINUOUS,
        "freshness": Freshness(20, TimeUnit.SECOND),
        "sources": (source("ev", "delta-ev"),),
        **changes,
    }
    return table(**values)


class World:
    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path / 'store.db'}")
        self.database.open()
        self.ledger = SqlLedger(self.database)
        self.catalog = MemoryCatalog()
        self.clock = FakeClock()
        self.sources = FakeSources(delta_ev=1)
        self.runner = FakeRunner(self.ledger, self.clock, self.sources)
        self.watcher = self.fresh_watcher()

    def fresh_watcher(self) -> ContinuousWatcher:
        return ContinuousWatcher(
            tables=self.catalog, ledger=self.ledger, source_versions=self.sources
        )

    def poll(self, seconds: float = 0) -> list[Trigger]:
        """Let time pass, then run whatever is due to its end."""
        now = self.clock.advance(seconds)
        requests = self.watcher.due(now)
        for request in requests:
            self.watcher.record_start(request.table_id, now)
            self.watcher.record_end(request.table_id, self.runner.run(request), self.clock.now())
        return [request.trigger for request in requests]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


@pytest.fixture
def refreshed_world(world: World) -> World:
    """A table refreshed once, a minute ago."""
    world.catalog.create(continuous())
    assert world.poll() == [Trigger.INITIAL]
    assert world.poll(60) == []
    return world


def _finished_run(world: World, **changes: Any) -> RefreshRun:
    values: dict[str, Any] = {
        "refresh_id": "other",
        "state": RunState.SUCCEEDED,
        "action": Strategy.FULL,
        "epoch": 50,
        "queued_at": world.clock.now(),
        "started_at": world.clock.now(),
        "finished_at": world.clock.now(),
        **changes,
    }
    return run(**values)


def test_the_first_refresh_is_the_initial_one(world: World) -> None:
    world.catalog.create(continuous())
    assert world.poll() == [Trigger.INITIAL]


def test_unchanged_sources_ask_for_nothing(refreshed_world: World) -> None:
    assert refreshed_world.poll(3600) == []


def test_a_change_is_refreshed_at_once_when_idle(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 2
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]
    assert refreshed_world.poll(60) == []


def test_changes_gather_for_a_quarter_of_the_freshness(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 2
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]
    refreshed_world.sources.versions["delta-ev"] = 3
    assert refreshed_world.poll(4) == []
    refreshed_world.sources.versions["delta-ev"] = 4
    assert refreshed_world.poll(1) == [Trigger.UPSTREAM_CHANGE]


def test_a_change_seen_while_a_refresh_runs_is_the_next_refresh(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 2
    (request,) = refreshed_world.watcher.due(refreshed_world.clock.now())
    refreshed_world.watcher.record_start(request.table_id, refreshed_world.clock.now())
    ended = refreshed_world.runner.run(request)
    refreshed_world.sources.versions["delta-ev"] = 3
    refreshed_world.watcher.due(refreshed_world.clock.advance(10))
    refreshed_world.watcher.record_end(request.table_id, ended, refreshed_world.clock.now())
    assert refreshed_world.poll(10) == [Trigger.UPSTREAM_CHANGE]


def test_a_source_that_was_created_again_is_watched_by_its_new_id(refreshed_world: World) -> None:
    refreshed_world.sources.created_again["delta-ev"] = "delta-new"
    refreshed_world.sources.versions = {"delta-new": 1}
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]
    assert refreshed_world.poll(60) == []
    refreshed_world.sources.versions["delta-new"] = 2
    assert refreshed_world.poll(60) == [Trigger.UPSTREAM_CHANGE]
    refreshed_world.watcher = refreshed_world.fresh_watcher()
    assert refreshed_world.poll(60) == []
    refreshed_world.sources.versions["delta-new"] = 3
    assert refreshed_world.poll(60) == [Trigger.UPSTREAM_CHANGE]


def test_a_source_that_went_back_to_an_older_version_is_a_change(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 0
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]


def test_one_look_serves_all_tables(world: World) -> None:
    for number in range(3):
        world.catalog.create(continuous(id=f"t-{number}", name=name(f"t{number}")))
    world.poll()
    assert world.sources.calls == 1


def test_full_and_suspended_tables_are_not_watched(world: World) -> None:
    world.catalog.create(table(refresh_mode=RefreshMode.FULL))
    world.catalog.create(continuous(id="s", name=name("s"), status=RefreshStatus.SUSPENDED))
    world.catalog.create(continuous(id="i", name=name("i"), status=RefreshStatus.INITIALIZING))
    assert world.poll() == []
    assert world.sources.calls == 0


def test_resume_goes_on_from_the_last_vector(refreshed_world: World) -> None:
    refreshed_world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    refreshed_world.sources.versions["delta-ev"] = 2
    assert refreshed_world.poll(60) == []
    refreshed_world.catalog.move("t-1", RefreshStatus.SUSPENDED, RefreshStatus.ACTIVATED)
    assert refreshed_world.poll(60) == [Trigger.UPSTREAM_CHANGE]


def test_a_restart_remembers_what_was_read(refreshed_world: World) -> None:
    refreshed_world.watcher = refreshed_world.fresh_watcher()
    assert refreshed_world.poll(60) == []
    refreshed_world.sources.versions["delta-ev"] = 2
    refreshed_world.watcher = refreshed_world.fresh_watcher()
    assert refreshed_world.poll(60) == [Trigger.UPSTREAM_CHANGE]


def test_a_refresh_by_hand_makes_another_one_unnecessary(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 2
    refreshed_world.ledger.record(_finished_run(refreshed_world, sources={"delta-ev": 2}))
    assert refreshed_world.poll() == []


def test_a_refresh_of_some_partitions_does_not_advance_the_vector(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 2
    refreshed_world.ledger.record(
        _finished_run(refreshed_world, sources={"delta-ev": 2}, action=Strategy.PARTITION)
    )
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]


def test_a_changed_definition_is_refreshed(refreshed_world: World) -> None:
    refreshed_world.catalog.replace(continuous(version=2))
    assert refreshed_world.poll() == [Trigger.EVOLUTION]


def test_failures_are_retried_ever_more_slowly(world: World) -> None:
    world.catalog.create(continuous(freshness=Freshness(1, TimeUnit.SECOND)))
    world.runner.end = RunState.FAILED
    starts = [second for second in range(200) if world.poll(1)]
    gaps = [b - a for a, b in zip(starts, starts[1:], strict=False)]
    assert gaps == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_restart_does_not_forget_the_failures(world: World) -> None:
    world.catalog.create(continuous(freshness=Freshness(1, TimeUnit.SECOND)))
    world.runner.end = RunState.FAILED
    for _ in range(20):
        world.poll(1)
    world.watcher = world.fresh_watcher()
    assert world.poll(1) == []
    assert world.poll(60) == [Trigger.INITIAL]


def test_success_ends_the_slowness(world: World) -> None:
    world.catalog.create(continuous(freshness=Freshness(1, TimeUnit.SECOND)))
    world.runner.end = RunState.FAILED
    for _ in range(20):
        world.poll(1)
    world.runner.end = RunState.SUCCEEDED
    world.poll(60)
    world.sources.versions["delta-ev"] = 2
    assert world.poll(1) == [Trigger.UPSTREAM_CHANGE]


def test_a_skipped_refresh_is_asked_for_again(refreshed_world: World) -> None:
    refreshed_world.sources.versions["delta-ev"] = 2
    refreshed_world.runner.end = RunState.SKIPPED
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]
    refreshed_world.runner.end = RunState.SUCCEEDED
    assert refreshed_world.poll(5) == [Trigger.UPSTREAM_CHANGE]


def test_a_source_that_vanished_is_asked_for_once_while_refreshes_succeed(
    refreshed_world: World,
) -> None:
    del refreshed_world.sources.versions["delta-ev"]
    refreshed_world.sources.versions["recreated"] = 1
    assert refreshed_world.poll() == [Trigger.UPSTREAM_CHANGE]
    assert refreshed_world.poll(60) == []


def test_a_source_without_versions_is_assumed_changed_once_per_freshness(world: World) -> None:
    world.catalog.create(continuous(sources=(source("csv", "p", SourceKind.PLAIN),)))
    world.sources.versions = {}
    assert world.poll() == [Trigger.INITIAL]
    assert world.poll(19) == []
    assert world.poll(1) == [Trigger.UPSTREAM_CHANGE]


@pytest.fixture
def files(world: World) -> World:
    """A table over files, refreshed once, a minute ago; changes gather for five seconds."""
    world.catalog.create(continuous(sources=(source("csv", "p", SourceKind.PLAIN),)))
    world.sources.versions = {"p": 1}
    assert world.poll() == [Trigger.INITIAL]
    assert world.poll(60) == []
    return world


def test_files_are_looked_at_while_changes_gather_and_start_a_refresh(files: World) -> None:
    files.sources.versions = {"p": 2}
    calls = files.sources.calls
    assert [files.poll(1) for _ in range(4)] == [[]] * 4
    assert files.sources.calls == calls
    assert files.poll(1) == [Trigger.UPSTREAM_CHANGE]
    assert files.poll(60) == []
    files.watcher = files.fresh_watcher()
    assert files.poll(60) == []
    files.sources.versions = {}
    assert files.poll(5) == [Trigger.UPSTREAM_CHANGE]
    assert files.poll(19) == []
    assert files.poll(1) == [Trigger.UPSTREAM_CHANGE]


def test_other_catalogs_are_asked_while_changes_gather(world: World) -> None:
    orders = replace(source("orders", "uuid"), name=TableName("lake", "db", "Orders"))
    world.catalog.create(continuous(sources=(orders,)))
    world.sources.versions = {"uuid": 4}
    assert world.poll() == [Trigger.INITIAL]
    assert world.poll(60) == []
    calls = world.sources.calls
    world.sources.versions = {"uuid": 3}  # it went back to an earlier snapshot
    assert [world.poll(1) for _ in range(4)] == [[]] * 4
    assert world.sources.calls == calls
    assert world.poll(1) == [Trigger.UPSTREAM_CHANGE]
    assert world.poll(60) == []
    world.sources.versions = {"another": 1}
    assert world.poll(5) == [Trigger.UPSTREAM_CHANGE]


def test_files_that_become_again_what_was_seen_before_others_were_read(files: World) -> None:
    files.sources.versions = {"p": 2}
    files.runner.changes = {"sources": {"p": 3}}
    assert files.poll(5) == [Trigger.UPSTREAM_CHANGE]
    files.runner.changes = {}
    assert files.poll(60) == [Trigger.UPSTREAM_CHANGE]
    assert files.poll(60) == []


def test_the_newest_versions_are_known_if_files_tell(files: World) -> None:
    (table,) = files.catalog.tables()
    assert files.watcher.newest_versions(table) == {"p": 1}
    files.sources.versions = {}
    assert files.watcher.newest_versions(table) is None


def test_an_absent_engine_is_mentioned_once_and_waited_for(
    refreshed_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refreshed_world.sources.versions["delta-ev"] = 2
    refreshed_world.sources.engine_up = False
    assert [refreshed_world.poll(1) for _ in range(5)] == [[]] * 5
    refreshed_world.sources.engine_up = True
    assert refreshed_world.poll(1) == [Trigger.UPSTREAM_CHANGE]
    messages = [r.getMessage() for r in caplog.records if "watched" in r.getMessage()]
    assert len(messages) == 2


# ---- checkpoints, excluded sources, tables without their own pace ------------------------------


def test_a_commit_before_the_floor_is_no_checkpoint(refreshed_world: World) -> None:
    refreshed_world.catalog.replace(continuous(checkpoint_floor=1))
    assert refreshed_world.poll(60) == [Trigger.EVOLUTION]
    assert refreshed_world.poll(60) == []


def test_excluded_sources_start_nothing(world: World) -> None:
    sources = (source("ev", "delta-ev"), source("dim", "delta-dim"))
    options = {"materialized-table.trigger.exclude": "d.dim, other"}
    world.catalog.create(continuous(sources=sources, options=options))
    world.sources.versions = {"delta-ev": 1, "delta-dim": 1}
    assert world.poll() == [Trigger.INITIAL]
    world.sources.versions["delta-dim"] = 2
    assert world.poll(60) == []
    world.watcher = world.fresh_watcher()
    assert world.poll(60) == []
    world.sources.versions["delta-ev"] = 2
    assert world.poll(60) == [Trigger.UPSTREAM_CHANGE]


def test_an_excluded_source_without_versions_starts_nothing(world: World) -> None:
    options = {"materialized-table.trigger.exclude": "csv"}
    sources = (source("ev", "delta-ev"), source("csv", "p", SourceKind.PLAIN))
    world.catalog.create(continuous(sources=sources, options=options))
    assert world.poll() == [Trigger.INITIAL]
    assert world.poll(3600) == []


@pytest.fixture
def chain(world: World) -> World:
    """A watched table over one that is as fresh as its consumers need."""
    base = table(id="base", name=name("base"), downstream=True, sources=(source("ev", "delta-ev"),))
    world.catalog.create(base)
    world.catalog.create(continuous(sources=(source("base", "delta-base"),)))
    world.sources.versions = {"delta-ev": 1, "delta-base": 1}
    world.runner.reads = {"t-1": {"delta-base"}}
    assert world.poll() == [Trigger.INITIAL]
    _base_was_refreshed(world, version=1)
    assert world.poll(60) == []
    return world


def _base_was_refreshed(world: World, version: int) -> None:
    world.ledger.record(
        _finished_run(
            world, refresh_id=f"b{version}", table_id="base", sources={"delta-ev": version}, epoch=9
        )
    )


def test_what_a_table_without_its_own_pace_reads_is_watched(chain: World) -> None:
    chain.sources.versions["delta-ev"] = 2
    assert chain.poll() == [Trigger.UPSTREAM_CHANGE]
    assert chain.poll(60) == []
    _base_was_refreshed(chain, version=2)
    chain.watcher = chain.fresh_watcher()
    assert chain.poll(60) == []


def test_a_suspended_one_is_not(chain: World) -> None:
    chain.catalog.move("base", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    chain.sources.versions["delta-ev"] = 2
    assert chain.poll(60) == []


# ---- REFRESH_TRIGGER = ON UPDATE ---------------------------------------------------------------


def on_update(seconds: int | None = 600, **changes: Any) -> MaterializedTable:
    every = Freshness(seconds, TimeUnit.SECOND) if seconds is not None else None
    full = {"refresh_mode": RefreshMode.FULL, "freshness": Freshness(1, TimeUnit.HOUR)}
    return continuous(**{**full, "on_update": OnUpdate(at_most_every=every), **changes})


def test_a_table_with_a_trigger_is_refreshed_at_once_and_then_only_on_changes(world: World) -> None:
    world.catalog.create(on_update())
    assert world.poll() == [Trigger.INITIAL]
    assert world.poll(7 * 24 * 3600) == []
    world.sources.versions["delta-ev"] = 2
    assert world.poll() == [Trigger.UPSTREAM_CHANGE]


def test_a_table_with_a_schedule_is_not_watched(world: World) -> None:
    world.catalog.create(on_update(on_update=None))
    assert world.poll() == []
    assert world.sources.calls == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_refreshes_begin_at_least_the_interval_apart(world: World, restarted: bool) -> None:
    world.catalog.create(on_update())
    world.poll()
    for version in (2, 3, 4):
        world.sources.versions["delta-ev"] = version
        if restarted:
            world.watcher = world.fresh_watcher()
        assert world.poll(599 if version == 2 else 0) == []
        world.sources.versions["delta-ev"] = version * 10
        assert world.poll(1) == [Trigger.UPSTREAM_CHANGE]
        assert world.poll(598) == []
        assert world.poll(1) == []
    [newest, *_] = world.ledger.runs("t-1")
    assert newest.sources == {"delta-ev": 40}


def test_a_skipped_run_does_not_shorten_the_interval(world: World) -> None:
    world.catalog.create(on_update())
    world.poll()
    world.ledger.record(
        run(refresh_id="s", state=RunState.SKIPPED, queued_at=world.clock.advance(10))
    )
    world.watcher = world.fresh_watcher()
    world.sources.versions["delta-ev"] = 2
    assert world.poll(588) == []
    assert world.poll(2) == [Trigger.UPSTREAM_CHANGE]


def test_without_an_interval_changes_follow_each_other(world: World) -> None:
    world.catalog.create(on_update(None))
    world.poll()
    for version in (2, 3):
        world.sources.versions["delta-ev"] = version
        assert world.poll(1) == [Trigger.UPSTREAM_CHANGE]


def test_another_query_of_a_table_with_a_trigger_is_refreshed_at_once(world: World) -> None:
    world.catalog.create(on_update())
    world.poll()
    world.catalog.replace(on_update(version=2))
    assert world.poll(600) == [Trigger.EVOLUTION]
