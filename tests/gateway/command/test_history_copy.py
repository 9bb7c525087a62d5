"""The history that is published reads only what changed and misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from tests.contract.examples import NOON, run
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState
from tidegate_server.gateway.information_schema.history import HistoryCopy
from tidegate_server.gateway.runs.columns import HISTORY, table_of
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database


class CountingLedger(SqlLedger):
    """Counts the runs that were read."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.read = 0

    def runs(self, table_id: str | None = None, limit: int = 1000) -> tuple[RefreshRun, ...]:
        found = super().runs(table_id, limit)
        self.read += len(found)
        return found

    def find(self, refresh_id: str) -> RefreshRun | None:
        self.read += 1
        return super().find(refresh_id)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[CountingLedger]:
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.open()
    yield CountingLedger(database)
    database.close()


def test_an_unchanged_history_is_the_same_object(ledger: CountingLedger) -> None:
    copy = HistoryCopy(ledger, HISTORY, 100)
    ledger.record(run(state=RunState.SUCCEEDED))
    assert copy.table() is copy.table()


def test_a_run_that_goes_on_is_followed_to_its_end(ledger: CountingLedger) -> None:
    copy = HistoryCopy(ledger, HISTORY, 100)
    for state in (RunState.QUEUED, RunState.RUNNING, RunState.SUCCEEDED):
        ledger.record(run(state=state))
        assert copy.table().column("state").to_pylist() == [state.value]


def test_a_long_history_costs_little_to_follow(ledger: CountingLedger) -> None:
    for number in range(200):
        ledger.record(run(refresh_id=f"r{number}", state=RunState.SUCCEEDED))
    copy = HistoryCopy(ledger, HISTORY, 150)
    assert copy.table().num_rows == 150
    ledger.read = 0
    ledger.record(run(refresh_id="new", state=RunState.FAILED))
    assert copy.table().column("refresh_id")[0].as_py() == "new"
    assert copy.table().num_rows == 150
    assert ledger.read <= 128


@pytest.mark.parametrize("seed", range(2))
def test_the_copy_equals_the_history(ledger: CountingLedger, seed: int) -> None:
    random, copy, opened = Random(seed), HistoryCopy(ledger, HISTORY, 10_000), []
    for number in range(10):
        for _ in range(random.choice((0, 1, 1, 70))):
            opened.append(run(refresh_id=f"r{number}-{_}", queued_at=_later(number)))
            ledger.record(opened[-1])
        random.shuffle(opened)
        for _ in range(min(len(opened), random.choice((0, 1, 90)))):
            ended = random.choice((RunState.CANCELLED, RunState.SKIPPED, RunState.UPSTREAM_FAILED))
            ledger.record(replace(opened.pop(), state=ended))
        if random.random() < 0.5:
            by_id = {str(row["refresh_id"]): row for row in copy.table().to_pylist()}
            expected = table_of(HISTORY, ledger.runs(limit=100_000)).to_pylist()
            assert by_id == {row["refresh_id"]: row for row in expected}
            assert copy.table().num_rows == len(expected)


def _later(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)
