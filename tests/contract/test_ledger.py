"""The promises of scheduler.base.Ledger, over every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contract.examples import NOON, run
from tests.contract.stores import open_database
from tidegate_server.core.model.runs import RefreshRun, RunMetrics, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.gateway.scheduler.ledger import SqlLedger

LATER = NOON + timedelta(seconds=31)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlLedger]:
    with open_database(request.param, tmp_path) as database:
        yield SqlLedger(database)


def _finished_run(number: int, **changes: object) -> RefreshRun:
    values: dict[str, object] = {
        "refresh_id": f"r-{number}",
        "state": RunState.SUCCEEDED,
        "action": Strategy.FULL,
        "epoch": number,
        "finished_at": NOON,
        **changes,
    }
    return run(**values)


def test_the_first_claim_gets_the_first_epoch(ledger: SqlLedger) -> None:
    assert ledger.claim("t", "a", NOON, 30) == 1


def test_a_held_lease_is_not_given_to_another(ledger: SqlLedger) -> None:
    ledger.claim("t", "a", NOON, 30)
    assert ledger.claim("t", "b", NOON, 30) is None
    assert ledger.holder("t", NOON) == "a"


def test_tables_have_leases_and_epochs_of_their_own(ledger: SqlLedger) -> None:
    assert ledger.claim("t", "a", NOON, 30) == 1
    assert ledger.claim("u", "b", NOON, 30) == 1


def test_epochs_go_on_after_a_release(ledger: SqlLedger) -> None:
    ledger.claim("t", "a", NOON, 30)
    ledger.release("t", "a")
    assert ledger.holder("t", NOON) is None
    assert ledger.claim("t", "b", NOON, 30) == 2


def test_an_expired_lease_is_taken_over_with_a_higher_epoch(ledger: SqlLedger) -> None:
    ledger.claim("t", "a", NOON, 30)
    assert ledger.holder("t", LATER) is None
    assert ledger.claim("t", "b", LATER, 30) == 2
    assert not ledger.extend("t", "a", LATER, 30)


def test_an_extended_lease_lives_on(ledger: SqlLedger) -> None:
    ledger.claim("t", "a", NOON, 30)
    assert ledger.extend("t", "a", NOON + timedelta(seconds=20), 30)
    assert ledger.claim("t", "b", LATER, 30) is None


def test_releasing_what_another_holds_is_harmless(ledger: SqlLedger) -> None:
    ledger.claim("t", "a", NOON, 30)
    ledger.release("t", "b")
    assert ledger.holder("t", NOON) == "a"


def test_a_raised_epoch_is_exceeded_by_the_next_claim(ledger: SqlLedger) -> None:
    ledger.raise_epoch("t", 41)
    assert ledger.claim("t", "a", NOON, 30) == 42
    ledger.raise_epoch("t", 7)
    ledger.release("t", "a")
    assert ledger.claim("t", "a", NOON, 30) == 43


def test_a_run_comes_back_whole(ledger: SqlLedger) -> None:
    full = run(
        trigger=Trigger.SCHEDULED,
        state=RunState.FAILED,
        epoch=7,
        schedule_time=NOON,
        partitions=({"ds": "2024-01-01", "hh": "00"}, {"ds": "O'x"}),
        action=Strategy.PARTITION,
        reason_code="PARTITIONS_REQUESTED",
        reason_text="why",
        from_version=1,
        to_version=2**40,
        sources={"delta-ev": 3},
        metrics=RunMetrics(rows_written=2**40),
        started_at=NOON,
        finished_at=LATER,
        error_class="X",
        sqlstate="58030",
        error_message="süß",
        attempt=2,
    )
    ledger.record(full)
    assert ledger.find("r-1") == full


def test_a_run_is_replaced_by_its_later_state(ledger: SqlLedger) -> None:
    ledger.record(run())
    ledger.record(run(state=RunState.RUNNING, epoch=1))
    assert ledger.runs() == (run(state=RunState.RUNNING, epoch=1),)


def test_a_run_that_ended_does_not_change_any_more(ledger: SqlLedger) -> None:
    ledger.record(run())
    ledger.record(run(state=RunState.RUNNING))
    ledger.record(run(state=RunState.CANCELLED))
    ledger.record(run(state=RunState.SUCCEEDED))
    assert ledger.runs() == (run(state=RunState.CANCELLED),)


def test_a_run_given_up_for_dead_may_have_committed_nevertheless(ledger: SqlLedger) -> None:
    ledger.record(run(state=RunState.RUNNING))
    ledger.record(run(state=RunState.ABANDONED))
    ledger.record(run(state=RunState.FAILED))
    assert ledger.runs() == (run(state=RunState.ABANDONED),)
    ledger.record(run(state=RunState.SUCCEEDED))
    assert ledger.runs() == (run(state=RunState.SUCCEEDED),)


def test_a_wish_to_cancel_stays_until_its_run_ended(ledger: SqlLedger) -> None:
    ledger.record(run(state=RunState.RUNNING))
    assert not ledger.is_cancel_requested("r-1")
    ledger.request_cancel("r-1")
    ledger.request_cancel("r-1")
    ledger.forget(NOON)
    assert ledger.is_cancel_requested("r-1")
    ledger.record(run(state=RunState.CANCELLED))
    ledger.forget(NOON)
    assert not ledger.is_cancel_requested("r-1")


def test_runs_come_newest_first_and_bounded(ledger: SqlLedger) -> None:
    for number in range(1, 4):
        ledger.record(_finished_run(number))
    ledger.record(_finished_run(9, table_id="t-2"))
    assert [r.refresh_id for r in ledger.runs("t-1")] == ["r-3", "r-2", "r-1"]
    assert [r.refresh_id for r in ledger.runs(limit=2)] == ["r-9", "r-3"]


def test_unfinished_runs_are_those_without_an_end(ledger: SqlLedger) -> None:
    ledger.record(run(refresh_id="queued"))
    ledger.record(run(refresh_id="running", state=RunState.RUNNING))
    ledger.record(_finished_run(3))
    assert [r.refresh_id for r in ledger.unfinished_runs()] == ["queued", "running"]


def test_the_last_success_is_the_newest_run_of_the_whole_table(ledger: SqlLedger) -> None:
    ledger.record(_finished_run(1, sources={"e": 1}))
    ledger.record(_finished_run(2, sources={"e": 2}, action=Strategy.NO_DATA))
    ledger.record(_finished_run(3, sources={"e": 3}, action=Strategy.PARTITION))
    ledger.record(_finished_run(4, sources={"e": 4}, state=RunState.FAILED))
    last = ledger.last_success("t-1")
    assert last is not None
    assert last.sources == {"e": 2}
    assert ledger.last_success("t-2") is None


def test_commits_are_the_runs_that_made_a_version(ledger: SqlLedger) -> None:
    ledger.record(_finished_run(1, to_version=1))
    ledger.record(_finished_run(2, to_version=2, action=Strategy.PARTITION))
    ledger.record(_finished_run(3, to_version=2, action=Strategy.NO_DATA))
    ledger.record(_finished_run(4, to_version=3, state=RunState.FAILED))
    ledger.record(_finished_run(5))
    ledger.record(_finished_run(6, to_version=1, table_id="t-2"))
    assert [r.refresh_id for r in ledger.commits("t-1", 10)] == ["r-2", "r-1"]
    assert [r.refresh_id for r in ledger.commits("t-1", 1)] == ["r-2"]
    assert [r.refresh_id for r in ledger.commits(None, 10)] == ["r-6", "r-2", "r-1"]


def test_old_runs_are_forgotten_but_not_a_tables_vector(ledger: SqlLedger) -> None:
    ledger.record(_finished_run(1))
    ledger.record(_finished_run(2, sources={"e": 2}))
    ledger.record(_finished_run(3, state=RunState.FAILED))
    ledger.record(_finished_run(4, table_id="t-2"))
    ledger.record(_finished_run(5, finished_at=LATER))
    ledger.record(run(refresh_id="unfinished"))
    assert ledger.forget(NOON) == 0
    ledger.record(_finished_run(6, table_id="t-3", action=Strategy.PARTITION))
    assert ledger.forget(LATER) == 4
    kept = [r.refresh_id for r in ledger.runs()]
    assert kept == ["unfinished", "r-5", "r-4"]
