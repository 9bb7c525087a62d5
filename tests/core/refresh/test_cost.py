"""What refreshes are expected to take, and what is learned from those that ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate_server.core.model.runs import Attempt, RunMetrics, Strategy, Work
from tidegate_server.core.refresh.request import PastRun
from tidegate_server.engine.planning.cost import Way, predict, worth_recording

WORK = Work(rows_read=1_000_000, rows_written=10_000)


def past(seconds: float, strategy: Strategy = Strategy.FULL) -> PastRun:
    metrics = RunMetrics(rows_written=10_000, work=WORK)
    return PastRun(strategy=strategy, seconds=seconds, metrics=metrics)


def test_more_cores_make_rows_cheaper_but_not_refreshes() -> None:
    nothing = Work(rows_read=0, rows_written=0)
    for way in Way:
        fixed = predict(way, nothing, ())
        assert predict(way, nothing, (), 20) == fixed
        rows = predict(way, WORK, ()) - fixed
        assert predict(way, WORK, (), 20) - fixed == pytest.approx(rows / 10)


def test_more_rows_take_longer() -> None:
    for way in Way:
        more = Work(rows_read=2_000_000, rows_written=10_000)
        assert predict(way, more, ()) > predict(way, WORK, ())


def test_wide_rows_further_columns_and_lookups_take_longer() -> None:
    for way in Way:
        assert predict(way, replace(WORK, row_bytes=4_000), ()) > predict(way, WORK, ())
        assert predict(way, replace(WORK, columns=190), ()) > predict(way, WORK, ())
    for way in set(Way) - {Way.OVERWRITE, Way.APPEND}:
        one, many = (predict(way, replace(WORK, lookups=n), ()) for n in (1, 60))
        assert (one, many > 10) == (predict(way, WORK, ()), True)
        assert predict(way, replace(WORK, rows_in_table=10_000_000), ()) > 2 * one


def test_wide_rows_are_no_sign_of_a_slow_machine() -> None:
    wide = replace(WORK, row_bytes=4_000, columns=190)
    run = past(predict(Way.OVERWRITE, wide, ()))
    known = replace(run, metrics=replace(run.metrics, work=wide))
    listed = predict(Way.OVERWRITE, WORK, ())
    assert predict(Way.OVERWRITE, WORK, (), elsewhere=(known,)) == pytest.approx(listed)


def test_appending_is_cheapest_and_small_merges_are_dear() -> None:
    tiny = Work(rows_read=3, rows_written=3)
    append, overwrite, merge = (
        predict(way, tiny, ()) for way in (Way.APPEND, Way.OVERWRITE, Way.REWRITE)
    )
    assert append < overwrite < merge


def test_a_rewrite_wins_where_much_is_read_and_little_written() -> None:
    whole = Work(rows_read=20_000_000, rows_written=100_000, rows_grouped=20_000_000)
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
    return replace(past(times * listed, Strategy.INCREMENTAL), reason_code="ROWS_CHANGED")


def test_ways_learn_apart() -> None:
    full = past(predict(Way.OVERWRITE, WORK, ()))
    listed = predict(Way.REWRITE, WORK, ())
    assert predict(Way.REWRITE, WORK, (rewrite(3.0), rewrite(3.0), full)) == 3 * listed
    assert predict(Way.OVERWRITE, WORK, (rewrite(3.0), full, full)) == full.seconds


@pytest.mark.parametrize(("times", "transferred"), [(4.0, 2.0), (0.5, 0.5)])
def test_a_way_without_runs_is_corrected_by_the_others(times: float, transferred: float) -> None:
    run = past(times * predict(Way.OVERWRITE, WORK, ()))
    predicted = predict(Way.REWRITE, WORK, (run,))
    assert predicted == pytest.approx(transferred * predict(Way.REWRITE, WORK, ()))


def test_other_tables_show_the_price_of_a_way_that_the_table_has_not_gone() -> None:
    listed = predict(Way.REWRITE, WORK, ())
    elsewhere = (rewrite(3.0), rewrite(5.0), rewrite(3.0))
    full = past(4 * predict(Way.OVERWRITE, WORK, ()))
    assert predict(Way.REWRITE, WORK, (full,), elsewhere=elsewhere) == pytest.approx(3 * listed)
    own = (rewrite(1.0), rewrite(1.0), full)
    assert predict(Way.REWRITE, WORK, own, elsewhere=elsewhere) == pytest.approx(listed)
    assert predict(Way.OVERWRITE, WORK, (full,), elsewhere=elsewhere) == full.seconds


def test_an_attempt_counts_for_its_way_and_not_for_full_refreshes() -> None:
    listed = predict(Way.OVERWRITE, WORK, ())
    attempt = Attempt(way="RECOMPUTE", seconds=3 * listed, work=WORK)
    full = past(4 * listed)
    run = replace(full, metrics=replace(full.metrics, attempt=attempt, affected_keys=7))
    assert predict(Way.OVERWRITE, WORK, (run,) * 3) == pytest.approx(listed)
    keys = replace(WORK, rows_written=7)
    assert predict(Way.RECOMPUTE, keys, (run,) * 3) == pytest.approx(4 * listed)


def test_a_single_slow_run_is_no_reason_to_leave_a_way() -> None:
    full, listed = past(predict(Way.OVERWRITE, WORK, ())), predict(Way.REWRITE, WORK, ())
    assert predict(Way.REWRITE, WORK, (rewrite(9.0), full)) == listed
    assert predict(Way.REWRITE, WORK, (rewrite(9.0), rewrite(9.0), full)) == 9 * listed


def test_a_run_that_took_no_time_is_not_trusted() -> None:
    listed = predict(Way.OVERWRITE, WORK, ())
    assert 0 < predict(Way.OVERWRITE, WORK, (past(0.0),) * 3) < listed


def test_fast_incremental_refreshes_do_not_make_a_costly_query_look_cheap() -> None:
    listed = predict(Way.OVERWRITE, WORK, ())
    runs = (rewrite(1.0), rewrite(1.0), past(4 * listed))
    assert predict(Way.OVERWRITE, WORK, runs) == pytest.approx(2 * listed)


@pytest.mark.parametrize(
    ("reason", "way"),
    [
        ("ROWS_APPENDED", Way.APPEND),
        ("KEYS_AFFECTED", Way.RECOMPUTE),
        ("GROUPS_COMBINED", Way.REWRITE),
        ("SOURCES_REREAD", Way.REREAD),
        ("ROWS_CHANGED", Way.REWRITE),
    ],
)
def test_the_reason_of_a_run_tells_its_way(reason: str, way: Way) -> None:
    full = past(predict(Way.OVERWRITE, WORK, ()))
    run = replace(past(99.0, Strategy.INCREMENTAL), reason_code=reason)
    runs = (*[full] * 5, *[run] * 3)
    assert {w for w in Way if predict(w, WORK, runs) > 5 * predict(w, WORK, ())} == {way}


def test_changed_rows_are_dearer_than_others() -> None:
    changed = replace(WORK, rows_changed=500_000)
    for way in (Way.REWRITE, Way.RECOMPUTE):
        listed = predict(way, changed, ())
        assert listed > predict(way, WORK, ())
        metrics = RunMetrics(rows_written=10_000, work=changed)
        run = replace(rewrite(1.0), seconds=listed, metrics=metrics)
        if way is Way.REWRITE:
            assert predict(way, changed, (run, run, run)) == listed


def test_what_no_run_could_tell_is_not_learned() -> None:
    run = PastRun(strategy=Strategy.FULL, seconds=9.0, metrics=RunMetrics())
    assert predict(Way.OVERWRITE, WORK, (run,)) == predict(Way.OVERWRITE, WORK, ())


def test_totals_are_recorded_where_full_refreshes_take_long() -> None:
    few, many = Work(rows_read=100_000, rows_written=0), Work(rows_read=20_000_000, rows_written=0)
    assert not worth_recording(few, ())
    assert worth_recording(many, ())
    listed = predict(Way.OVERWRITE, WORK, ())
    assert worth_recording(few, (past(8 * listed),))
    assert not worth_recording(many, (rewrite(9.0), rewrite(9.0), past(listed)))
