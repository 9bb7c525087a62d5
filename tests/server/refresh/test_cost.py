"""What refreshes are expected to take, and what is learned from those that ran."""

from __future__ import annotations

from dataclasses import replace

from tidegate_server.model.runs import RunMetrics, Strategy
from tidegate_server.refresh.cost import Way, Work, predict
from tidegate_server.refresh.request import PastRun

WORK = Work(rows_read=1_000_000, rows_written=10_000)


def past(seconds: float, strategy: Strategy = Strategy.FULL, deleted: int | None = None) -> PastRun:
    metrics = RunMetrics(rows_read=1_000_000, rows_written=10_000, rows_deleted=deleted)
    return PastRun(strategy=strategy, seconds=seconds, metrics=metrics)


def test_more_rows_take_longer() -> None:
    for way in Way:
        more = Work(rows_read=2_000_000, rows_written=10_000)
        assert predict(way, more, ()) > predict(way, WORK, ())


def test_appending_is_cheapest_and_small_merges_are_dear() -> None:
    tiny = Work(rows_read=3, rows_written=3)
    append, overwrite, merge = (
        predict(way, tiny, ()) for way in (Way.APPEND, Way.OVERWRITE, Way.REWRITE)
    )
    assert append < overwrite < merge


def test_a_rewrite_wins_where_much_is_read_and_little_written() -> None:
    whole = Work(rows_read=20_000_000, rows_written=100_000)
    few = Work(rows_read=20_000_000, rows_written=100)
    assert predict(Way.REWRITE, few, ()) < predict(Way.OVERWRITE, whole, ())


def test_the_table_s_own_runs_correct_the_list() -> None:
    listed = predict(Way.OVERWRITE, WORK, ())
    twice = (past(2 * listed), past(2 * listed), past(2 * listed))
    assert predict(Way.OVERWRITE, WORK, twice) == 2 * listed


def test_one_outlier_changes_nothing() -> None:
    listed = predict(Way.OVERWRITE, WORK, ())
    runs = (past(100 * listed), past(listed), past(listed))
    assert predict(Way.OVERWRITE, WORK, runs) == listed


def rewrite(times: float) -> PastRun:
    listed = predict(Way.REWRITE, WORK, ())
    return past(times * listed, Strategy.INCREMENTAL, deleted=5)


def test_ways_learn_apart() -> None:
    full = past(predict(Way.OVERWRITE, WORK, ()))
    listed = predict(Way.REWRITE, WORK, ())
    assert predict(Way.REWRITE, WORK, (rewrite(3.0), rewrite(3.0), full)) == 3 * listed
    assert predict(Way.OVERWRITE, WORK, (rewrite(3.0), full, full)) == full.seconds


def test_a_way_without_runs_is_corrected_as_the_others_are() -> None:
    slow = past(4 * predict(Way.OVERWRITE, WORK, ()))
    assert predict(Way.REWRITE, WORK, (slow,)) == 4 * predict(Way.REWRITE, WORK, ())


def test_a_single_slow_run_is_no_reason_to_leave_a_way() -> None:
    full, listed = past(predict(Way.OVERWRITE, WORK, ())), predict(Way.REWRITE, WORK, ())
    assert predict(Way.REWRITE, WORK, (rewrite(9.0), full)) == listed
    assert predict(Way.REWRITE, WORK, (rewrite(9.0), rewrite(9.0), full)) == 9 * listed


def test_a_run_that_looked_keys_up_and_removed_nothing_was_a_rewrite() -> None:
    listed = predict(Way.APPEND, WORK, ())
    metrics = RunMetrics(rows_read=1_000_000, rows_written=10_000, affected_keys=3)
    run = PastRun(strategy=Strategy.INCREMENTAL, seconds=99.0, metrics=metrics)
    append = replace(run, seconds=listed, metrics=replace(metrics, affected_keys=None))
    assert predict(Way.APPEND, WORK, (run, run, append, append)) == listed
    assert predict(Way.REWRITE, WORK, (run, run, append, append)) > predict(Way.REWRITE, WORK, ())


def test_what_no_run_could_tell_is_not_learned() -> None:
    run = PastRun(strategy=Strategy.FULL, seconds=9.0, metrics=RunMetrics())
    assert predict(Way.OVERWRITE, WORK, (run,)) == predict(Way.OVERWRITE, WORK, ())
