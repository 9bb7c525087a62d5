"""Maintenance of tables' files after their refreshes, over a real store and a fake engine."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.examples import NOON, name, run, source, table
from tests.gateway.scheduler.fakes import FakeClock
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import (
    Answer,
    Done,
    FilesInspected,
    MaintenanceDone,
    Progress,
    Verified,
)
from tidegate_server.core.messages.requests import (
    Cancel,
    ChunkTicket,
    InspectFiles,
    RemoveFiles,
    Request,
    RewriteFiles,
    SetTableProperties,
    VerifyTable,
)
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.refresh.maintenance import (
    ContentCompared,
    FilesRemoved,
    FilesRewritten,
    FileStatistics,
    MaintenanceRun,
    NeededVersion,
    RowPart,
)
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.runs.maintenance import Maintenance
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.maintenance import MaintenanceRuns

WEEK, DAY = timedelta(days=7), timedelta(days=1)
FEW = FileStatistics(version=99, files=1, size=1000, retention=WEEK, log_retention=4 * WEEK)
MANY = replace(FEW, files=100)
EQUAL = Verified(version=4, epoch=2, missing_rows=0, extra_rows=0)
WAIT = 10.0


class FakeEngine:
    """Returns the answers that a test sets and records its requests."""

    generation = 1
    ready = True

    def __init__(self) -> None:
        self.found: FileStatistics | None = FEW
        self.asked: list[Request] = []
        self.canceled = threading.Event()
        self.rewriting: Callable[[], None] = lambda: None
        self.comparing: Callable[[], Verified] = lambda: EQUAL

    def call(
        self,
        request: Request,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> Answer:
        self.asked.append(request)
        match request:
            case InspectFiles():
                return FilesInspected(found=self.found)
            case RewriteFiles():
                self.rewriting()
                self.found = FEW
                return MaintenanceDone(rewritten=FilesRewritten(added=1, removed=100))
            case RemoveFiles():
                return MaintenanceDone(removed=FilesRemoved(files=7, size=700))
            case VerifyTable():
                return self.comparing()
            case SetTableProperties():
                return Done()
            case Cancel():
                self.canceled.set()
                return Done()
        raise AssertionError(f"unexpected {request}")

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"unexpected {ticket}")


class World:
    """Maintenance of one table."""

    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path / 'store.db'}")
        self.database.open()
        self.clock = FakeClock()
        self.catalog = MemoryCatalog()
        self.ledger = SqlLedger(self.database)
        self.runs = MaintenanceRuns(self.database)
        self.engine = FakeEngine()
        self.ended: list[MaintenanceRun] = []
        self.wished: list[RefreshRequest] = []
        ids = itertools.count(1)
        self.maintenance = Maintenance(
            catalog=self.catalog,
            ledger=self.ledger,
            runs=self.runs,
            engine=self.engine,
            clock=self.clock,
            new_id=lambda: f"u-{next(ids)}",
            server_id="gate",
            lease_seconds=30,
            options={},
            refresh=self.wished.append,
            ended=self.ended.append,
            draw=lambda parts: parts - 1,
        )
        self.catalog.create(table())

    def maintain(self) -> MaintenanceRun | None:
        return self.maintenance.maintain("t-1")

    def requests_of(self, kind: type[Request]) -> list[Any]:
        return [request for request in self.engine.asked if type(request) is kind]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def refresh_run(**changes: Any) -> RefreshRun:
    good = {"state": RunState.SUCCEEDED, "action": Strategy.INCREMENTAL, "to_version": 4}
    return run(**{**good, **changes})


def test_a_table_in_good_order_is_inspected_and_leaves_no_record(world: World) -> None:
    assert world.maintain() is None
    assert [type(request) for request in world.engine.asked] == [InspectFiles]
    assert world.runs.runs(10) == ()


def test_small_files_are_rewritten_under_the_tables_lease(world: World) -> None:
    world.engine.found = MANY
    holders = []
    world.engine.rewriting = lambda: holders.append(world.ledger.holder("t-1", world.clock.now()))
    done = world.maintain()
    assert done is not None
    assert (done.rewritten, done.files_left) == (FilesRewritten(added=1, removed=100), 1)
    assert holders == ["gate/definition/u-1"]
    assert world.ledger.holder("t-1", world.clock.now()) is None
    assert world.runs.runs(10) == (done,) == tuple(world.ended)
    assert world.maintain() is None


def test_compaction_gives_way_to_a_refresh_that_runs(world: World) -> None:
    world.engine.found = MANY
    world.ledger.claim("t-1", "gate/r-1", world.clock.now(), 30)
    assert world.maintain() is None
    assert world.requests_of(RewriteFiles) == []


def test_compaction_is_stopped_when_its_time_is_over(world: World) -> None:
    world.engine.found = MANY

    def slow() -> None:
        world.clock.advance(61)
        assert world.engine.canceled.wait(WAIT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.rewriting = slow
    assert world.maintain() is None
    assert world.requests_of(Cancel)[0].operation_id == "u-1"
    assert world.ledger.holder("t-1", world.clock.now()) is None


def test_files_are_removed_once_a_day_and_the_record_says_so(world: World) -> None:
    now = world.clock.advance(DAY.total_seconds())
    done = world.maintain()
    assert done is not None
    assert (done.removed, done.removed_before) == (FilesRemoved(files=7, size=700), now - WEEK)
    assert world.maintain() is None
    world.clock.advance(DAY.total_seconds())
    assert world.maintain() is not None


def test_versions_that_readers_compare_with_are_asked_for_and_kept(world: World) -> None:
    below = table(id="t-2", name=name("Below"), sources=(source("Daily", "delta-daily"),))
    world.catalog.create(below)
    read = refresh_run(refresh_id="r-2", table_id="t-2", sources={"delta-daily": 41, "delta-ev": 3})
    world.ledger.record(read)
    now = world.clock.advance(DAY.total_seconds())
    left = now - 2 * DAY
    world.engine.found = replace(
        FEW, oldest_wanted=now - DAY, needed=(NeededVersion(made=left, left=left),)
    )
    world.maintain()
    assert {request.versions for request in world.requests_of(InspectFiles)} == {(41,)}
    [removal] = world.requests_of(RemoveFiles)
    assert (removal.horizon.before, removal.horizon.shortens_log) == (left, False)


@pytest.mark.parametrize("table_id", ["t-1", "t-2"])
def test_nothing_goes_that_a_refresh_at_work_may_have_or_make(world: World, table_id: str) -> None:
    world.catalog.create(
        table(id="t-2", name=name("Below"), sources=(source("Daily", "delta-daily"),))
    )
    world.ledger.record(run(table_id=table_id))
    world.clock.advance(2 * WEEK.total_seconds())
    world.maintain()
    [removal] = world.requests_of(RemoveFiles)
    assert removal.horizon.before == NOON


def test_a_longer_retention_becomes_the_tables_own(world: World) -> None:
    world.catalog.replace(table(options={"materialized-table.upkeep.retention": "60 d"}))
    world.clock.advance(DAY.total_seconds())
    world.maintain()
    [request] = world.requests_of(SetTableProperties)
    assert world.requests_of(RemoveFiles) == []
    assert dict(request.properties) == {
        "delta.deletedFileRetentionDuration": "interval 5184000 seconds",
        "delta.logRetentionDuration": "interval 5184000 seconds",
    }
    assert world.ledger.holder("t-1", world.clock.now()) is None


def test_a_failure_is_in_the_record_and_an_absent_engine_is_none(world: World) -> None:
    world.engine.found = MANY

    def fail(code: Code) -> Callable[[], None]:
        def failing() -> None:
            raise error(code, reason="it broke")

        return failing

    world.engine.rewriting = fail(Code.ENGINE_LOST)
    assert world.maintain() is None
    world.engine.rewriting = fail(Code.INTERNAL)
    done = world.maintain()
    assert done is not None
    assert (done.error_class, done.rewritten) == ("INTERNAL", None)


def test_a_compaction_that_fails_does_not_keep_files_from_being_removed(world: World) -> None:
    world.engine.found = MANY

    def raise_canceled() -> None:
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.rewriting = raise_canceled
    world.clock.advance(DAY.total_seconds())
    done = world.maintain()
    assert done is not None
    assert (done.rewritten, done.removed) == (None, FilesRemoved(files=7, size=700))


HOURLY = {"materialized-table.upkeep.verify": "1 h"}


def test_a_table_is_compared_with_its_query_as_often_as_is_said(world: World) -> None:
    world.clock.advance(3600)
    assert world.maintain() is None
    world.catalog.replace(table(options=HOURLY))
    done = world.maintain()
    assert done is not None
    assert (done.compared, done.error_class) == (ContentCompared(version=4), None)
    assert world.runs.runs(10) == (done,)
    assert world.maintain() is None
    world.clock.advance(3600)
    assert world.maintain() is not None
    [request, _] = world.requests_of(VerifyTable)
    assert (request.order.refresh_id, request.order.name) == ("u-2", table().storage)
    assert world.wished == []


def test_a_table_that_differs_is_told_of_and_refreshed_fully(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.catalog.replace(table(options=HOURLY))
    world.engine.comparing = lambda: replace(EQUAL, missing_rows=1, sample='[{"n": 1}]')
    world.clock.advance(3600)
    done = world.maintain()
    assert done is not None
    assert done.compared == ContentCompared(version=4, missing_rows=1)
    assert '{"n": 1}' in caplog.text
    [wish] = world.wished
    assert (wish.table_id, wish.trigger, wish.recompute.force) == ("t-1", Trigger.REPAIR, True)
    assert world.maintain() is None


def test_what_cannot_be_compared_is_tried_again_when_it_is_due(world: World) -> None:
    world.catalog.replace(table(options=HOURLY))

    def impossible() -> Verified:
        gone = {"reason": "its files are gone", "hint": ""}
        raise error(Code.MT_VERIFY_IMPOSSIBLE, table="t", version=4, **gone)

    world.engine.comparing = impossible
    world.clock.advance(3600)
    done = world.maintain()
    assert done is not None
    assert (done.compared, done.error_class) == (None, "MT_VERIFY_IMPOSSIBLE")
    assert world.maintain() is None
    assert world.wished == []
    world.clock.advance(3600)
    assert world.maintain() is not None


IN_TEN = {"materialized-table.upkeep.verify-parts": "10"}
LAST = RowPart(number=9, of=10)


def test_a_part_is_compared_after_incremental_refreshes_without_a_record(world: World) -> None:
    world.catalog.replace(table(options=IN_TEN))
    checked = threading.Event()
    world.engine.comparing = lambda: (checked.set(), EQUAL)[1]
    world.maintenance.open()
    world.maintenance.refresh_ended(refresh_run(action=Strategy.FULL))
    assert not checked.wait(0.1)
    world.maintenance.refresh_ended(refresh_run())
    assert checked.wait(WAIT)
    world.maintenance.close()
    [request] = world.requests_of(VerifyTable)
    assert (request.version, request.part) == (None, LAST)
    [found] = world.ended
    assert found.compared == ContentCompared(version=4, part=LAST)
    assert (world.runs.runs(10), world.wished) == ((), [])


def test_a_part_that_differs_is_recorded_and_the_table_refreshed_fully(world: World) -> None:
    world.catalog.replace(table(options=IN_TEN))
    world.engine.comparing = lambda: replace(EQUAL, extra_rows=2)
    done = world.maintenance.check("t-1")
    assert done is not None
    assert done.compared == ContentCompared(version=4, extra_rows=2, part=LAST)
    assert world.runs.runs(10) == (done,) == tuple(world.ended)
    [wish] = world.wished
    assert (wish.table_id, wish.trigger, wish.recompute.force) == ("t-1", Trigger.REPAIR, True)


def test_parts_are_compared_where_that_is_wanted_and_possible(world: World) -> None:
    assert world.maintenance.check("t-9") is None
    assert world.maintenance.check("t-1") is None
    assert world.engine.asked == []
    world.catalog.replace(table(options=IN_TEN))

    def raise_lost() -> Verified:
        raise error(Code.ENGINE_LOST, reason="it died")

    world.engine.comparing = raise_lost
    done = world.maintenance.check("t-1")
    assert done is not None
    assert not done.did_something
    assert world.ended == []


def test_options_turn_it_off(world: World) -> None:
    off = {"materialized-table.upkeep": "FALSE"}
    world.catalog.replace(table(options=off))
    assert world.maintain() is None
    assert world.engine.asked == []
    world.catalog.replace(table(options={**off, **HOURLY}))
    world.clock.advance(2 * DAY.total_seconds())
    assert world.maintain() is not None
    assert [type(request) for request in world.engine.asked] == [VerifyTable]


def test_a_table_that_is_gone_or_of_another_id_is_left_alone(world: World) -> None:
    assert world.maintenance.maintain("t-9") is None
    world.engine.found = None
    world.clock.advance(DAY.total_seconds())
    assert world.maintain() is None


def test_only_commits_count_and_the_tenth_starts_an_inspection(world: World) -> None:
    world.maintenance.open()
    for state, action in (
        (RunState.FAILED, Strategy.FULL),
        (RunState.SUCCEEDED, Strategy.NO_DATA),
        (RunState.SUCCEEDED, None),
    ):
        for _ in range(20):
            world.maintenance.refresh_ended(refresh_run(state=state, action=action))
    looked = threading.Event()
    world.engine.found = MANY
    world.engine.rewriting = looked.set
    for _ in range(9):
        world.maintenance.refresh_ended(refresh_run())
    assert not looked.wait(0.1)
    world.maintenance.refresh_ended(refresh_run())
    assert looked.wait(WAIT)
    world.maintenance.close()


def test_the_store_keeps_the_newest_runs_of_each_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate_server.gateway.store.maintenance._KEPT", 2)

    def record(number: int, table_id: str, at: datetime) -> None:
        world.runs.record(
            MaintenanceRun(
                maintenance_id=f"x-{number}",
                table_id=table_id,
                table=name("Daily"),
                server_id="gate",
                started_at=at,
                finished_at=at,
                files_left=number,
            )
        )

    record(0, "t-2", NOON)
    for number in range(1, 5):
        record(number, "t-1", NOON)
    assert [found.maintenance_id for found in world.runs.runs(10)] == ["x-4", "x-3", "x-0"]
    assert world.runs.past("t-1").files_left == 4
    assert world.runs.past("t-3").files_left == 0
