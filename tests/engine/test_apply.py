"""Signed diffs landed in real Delta tables: one commit, exact rows, fencing."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Stored, record_for, row_counts
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.engine.incremental.apply import apply, consolidate
from tidegate_server.engine.incremental.changes import source_change
from tidegate_server.engine.storage.base import DiffMismatchError, Written
from tidegate_server.engine.storage.delta import rewrite

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

VALUES = "SELECT * FROM VALUES {} AS v(k, n)"
ROWS = VALUES.format("('a', 1), ('a', 1), ('a', 1), ('b', 2), (NULL, NULL), (NULL, NULL)")


def land(mt: Stored, diff: str, **changed: object) -> Written:
    """Apply the diff a query gives."""
    session = mt.lake.root.newSession()
    session.sql(f"USE {mt.lake.schema}")
    order = mt.order(**changed)
    frame = session.sql(diff)
    return apply(
        session,
        mt.lake.format,
        order,
        consolidate(mt.lake.format, order, frame, None),
        record_for(order),
        base=mt.last().version,
    )


def diff(*rows: str) -> str:
    """Return the query of a diff over (k, n) from rows in SQL, the weight last."""
    values = ", ".join(rows)
    return f"SELECT k, n, CAST(w AS BIGINT) AS __weight FROM VALUES {values} AS v(k, n, w)"


@pytest.fixture
def mt(lake: Lake) -> Stored:
    """A filled table with copies of rows and NULLs."""
    stored = Stored(lake, ROWS)
    stored.fill()
    return stored


def history(mt: Stored) -> Mapping[str, object]:
    """Return the newest commit as DESCRIBE HISTORY shows it."""
    row = mt.lake.session.sql(f"DESCRIBE HISTORY {mt.name.quoted()} LIMIT 1").first()
    assert row is not None
    return row.asDict()


def test_additions_are_appended(mt: Stored) -> None:
    done = land(mt, diff("('a', 1, 1)", "('c', 3, 2)"))
    assert (done.version, done.rows_inserted, done.rows_deleted) == (2, 3, None)
    assert mt.content() == row_counts(
        [("a", 1)] * 4 + [("b", 2)] + [(None, None)] * 2 + [("c", 3)] * 2
    )
    newest = history(mt)
    assert (newest["operation"], newest["isBlindAppend"]) == ("WRITE", True)
    facts = json.loads(str(newest["userMetadata"]))
    assert (facts["strategy"], facts["base"], facts["epoch"]) == ("INCREMENTAL", 1, 2)
    assert (mt.last().strategy, dict(mt.last().record.vector)) == ("INCREMENTAL", {"s": 2})


def test_copies_of_a_row_are_counted(mt: Stored) -> None:
    done = land(mt, diff("('a', 1, -1)", "(NULL, NULL, -2)", "('b', 2, -1)", "('d', 4, 1)"))
    assert mt.content() == row_counts([("a", 1)] * 2 + [("d", 4)])
    assert (done.rows_deleted, done.rows_inserted) == (4, 1)
    assert history(mt)["operation"] == "MERGE"
    land(mt, diff("('a', 1, -2)", "('d', 4, -1)", "('d', 4, 3)"))
    assert mt.content() == row_counts([("d", 4)] * 3)


def test_weights_of_a_row_are_summed_before_anything_is_written(mt: Stored) -> None:
    before = mt.content()
    done = land(
        mt, diff("('a', 1, 2)", "('a', 1, -1)", "('a', 1, -1)", "('x', 9, 1)", "('x', 9, -1)")
    )
    assert mt.content() == before
    assert done.rows == 0
    assert mt.last().version == done.version == 2


def test_a_diff_of_nothing_moves_the_vector_on_and_changes_no_row(mt: Stored) -> None:
    state = mt.lake.format.find(mt.name)
    assert state is not None
    done = land(mt, diff("('a', 1, 0)"))
    later = mt.lake.format.find(mt.name)
    assert later is not None
    assert (later.version, later.newest) == (state.version, done.version)
    assert (mt.last().epoch, dict(mt.last().record.vector), mt.last().version) == (2, {"s": 2}, 2)
    source = mt.lake.source("mt")
    found = source_change(mt.lake.session, mt.lake.format, source, 1, done.version)
    assert found.method is ChangeMethod.UNCHANGED


def test_values_that_spark_calls_equal_are_told_apart(lake: Lake) -> None:
    columns = "d, CAST(d AS FLOAT) AS f, array(d) AS a, named_struct('x', d) AS s, map('k', d) AS m"
    values = "VALUES (0.0D), (-0.0D), (double('NaN')), (NULL), (1.5D) AS v(d)"
    mt = Stored(lake, f"SELECT {columns} FROM {values}")
    mt.fill()
    start = mt.lake.rows("SELECT * FROM mt")
    one = "SELECT *, {} AS __weight FROM mt WHERE {}"
    for condition, sign in (
        ("CAST(d AS STRING) = '-0.0'", "BIGINT(-1)"),
        ("isnan(d)", "BIGINT(-1)"),
        ("d IS NULL", "BIGINT(-1)"),
        ("CAST(d AS STRING) = '0.0'", "BIGINT(-1)"),
    ):
        gone = lake.rows("SELECT * FROM mt WHERE " + condition)
        assert len(gone) == 1
        before = Counter(mt.content())
        land(mt, one.format(sign, condition))
        assert before - Counter(mt.content()) == Counter(row_counts(gone))
    land(
        mt, f"SELECT {columns}, BIGINT(1) AS __weight FROM {values} WHERE coalesce(d <> 1.5D, true)"
    )
    assert mt.content() == row_counts(start)


def test_extreme_values_are_found(lake: Lake) -> None:
    mt = Stored(
        lake,
        "SELECT * FROM VALUES"
        " (99999999999999999999999999999999999999BD, TIMESTAMP '9999-12-31 23:59:59.999999',"
        "  DATE '0001-01-01', X'00FF', '\\u0000é', TIMESTAMP_NTZ '1900-01-01 00:00:00.000001'),"
        " (-99999999999999999999999999999999999999BD, TIMESTAMP '1999-10-31 01:30:00Z',"
        "  DATE '9999-12-31', X'', '', NULL)"
        " AS v(n, t, d, b, s, z)",
    )
    lake.session.conf.set("spark.sql.session.timeZone", "America/New_York")
    mt.fill()
    land(mt, "SELECT *, BIGINT(-1) AS __weight FROM mt WHERE n > 0")
    land(mt, "SELECT *, BIGINT(-1) AS __weight FROM mt")
    assert not mt.content()


def test_partitions_and_odd_names(lake: Lake) -> None:
    mt = Stored(lake, "SELECT k AS `a b`, n AS `p;q` FROM " + ROWS.split("FROM ", 1)[1], "a b")
    mt.fill()
    land(mt, diff("(NULL, NULL, -1)", "('b', 2, -1)", "('b', 5, 1)", "('new', 1, 1)"))
    assert mt.content() == row_counts([("a", 1)] * 3 + [(None, None), ("b", 5), ("new", 1)])


def test_a_table_whose_columns_have_names_of_the_change_feed(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 'insert' AS _change_type, 1 AS _commit_version, 2 AS `a``b`")
    mt.fill()
    columns = "_change_type, _commit_version, `a``b`, CAST(w AS BIGINT) AS __weight"
    rows = "('insert', 1, 2, -1), ('delete', 1, 2, 2), ('delete', 9, 3, 1)"
    land(mt, f"SELECT {columns} FROM VALUES {rows} AS v(_change_type, _commit_version, `a``b`, w)")
    assert mt.content() == row_counts([("delete", 1, 2)] * 2 + [("delete", 9, 3)])


def test_a_column_of_the_change_feed_that_is_added_turns_it_off(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 1 AS n")
    mt.fill()
    schema = Schema((Column(name="n", type="int"), Column(name="_change_type", type="string")))
    lake.format.evolve(mt.name, mt.id, schema, None, {})
    mt.columns = schema.names()
    mt.fill("SELECT 1 AS n, 'x' AS _change_type")
    land(mt, "SELECT 1 AS n, 'x' AS _change_type, -1L AS __weight")
    assert mt.content() == row_counts([])


def test_files_out_of_range_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "SMALL_BYTES", 0)
    mt = Stored(lake, "SELECT BIGINT(id) AS n FROM range(10)")
    mt.fill()
    before = set(lake.path("mt").glob("*.parquet"))
    land(mt, "SELECT BIGINT(id + 1000), BIGINT(1) AS __weight FROM range(10)")
    for late in set(lake.path("mt").glob("*.parquet")) - before:
        late.unlink()
    assert land(mt, "SELECT BIGINT(5), BIGINT(-1) AS __weight").rows_deleted == 1
    assert lake.rows("SELECT n FROM mt WHERE n BETWEEN 4 AND 6") == [(4,), (6,)]


def test_files_in_range_without_a_removed_row_stay(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mt = Stored(lake, "SELECT BIGINT(id * 2) AS n FROM range(10)")
    mt.fill()
    land(mt, "SELECT BIGINT(id * 2 + 1), BIGINT(1) AS __weight FROM range(9)")
    odd = "SELECT BIGINT(7), BIGINT(-1) AS __weight"
    monkeypatch.setattr(rewrite, "SMALL_BYTES", 0)
    monkeypatch.setattr(rewrite, "_UNSEARCHED", 0)
    done = land(mt, odd)
    assert (done.rows_deleted, done.rows_inserted) == (1, 0)
    assert done.rows_copied is not None and done.rows_copied < 9
    kept = {n for (n,) in lake.rows("SELECT n FROM mt")}
    assert kept == set(range(19)) - {7}


def test_of_many_small_files_only_those_with_a_removed_row_are_written_again(lake: Lake) -> None:
    mt = Stored(lake, "SELECT concat('p', id % 20) AS p, id AS n FROM range(0, 200, 1, 1)", "p")
    mt.fill()
    done = land(mt, "SELECT concat('p', id), id, -1L AS __weight FROM VALUES (1L), (9L) AS v(id)")
    assert (done.rows_deleted, done.rows_copied) == (2, 18)
    assert sum(mt.content().values()) == 198


@pytest.mark.parametrize("small", [0, 2**20])
def test_a_diff_that_takes_away_too_much_writes_nothing(
    mt: Stored, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "SMALL_BYTES", small)
    before = mt.content()
    for gone in ("('b', 2, -2)", "('z', 1, -1)", "(NULL, 1, -1)"):
        with pytest.raises(DiffMismatchError):
            land(mt, diff(gone, "('y', 1, 1)"))
        assert (gone, mt.content()) == (gone, before)
    assert mt.fill(epoch=mt.epoch).version == 2  # the epoch is still unused


def test_somebody_elses_commit_is_not_built_upon(mt: Stored) -> None:
    mt.lake.sql("INSERT INTO mt VALUES ('foreign', 1)")
    with pytest.raises(DiffMismatchError):
        land(mt, diff("('a', 1, 1)"))
    assert mt.last().foreign_version == 2


def test_a_foreign_commit_below_an_incremental_one_is_found_later(mt: Stored) -> None:
    mt.lake.sql("INSERT INTO mt VALUES ('foreign', 1)")
    frame = mt.lake.format.fit_columns(mt.order(), mt.lake.session.sql("SELECT 'c' AS k, 3 AS n"))
    order = mt.order()
    mt.lake.format.append(frame, order, record_for(order), base=1)
    assert (mt.last().version, mt.last().foreign_version) == (3, 2)


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_outdated_epoch_is_fenced(mt: Stored, epoch: int) -> None:
    mt.fill(epoch=5)
    before = mt.content()
    for row in ("('a', 1, 1)", "('a', 1, -1)", "('a', 1, 0)"):
        with pytest.raises(ServerError) as caught:
            land(mt, diff(row), epoch=epoch)
        assert (row, caught.value.code) == (row, "MT_REFRESH_FENCED")
        assert (row, mt.content()) == (row, before)


def test_of_writers_at_the_same_time_what_is_said_to_be_landed_is_there(mt: Stored) -> None:
    outcomes: dict[int, bool] = {}
    base = mt.last().version
    start = threading.Barrier(2)

    def write(epoch: int) -> None:
        session = mt.lake.root.newSession()
        order = mt.order(epoch=epoch)
        frame = session.sql(diff("('a', 1, -1)", f"('epoch', {epoch}, 1)"))
        start.wait()
        try:
            apply(
                session,
                mt.lake.format,
                order,
                consolidate(mt.lake.format, order, frame, None),
                record_for(order),
                base=base,
            )
            outcomes[epoch] = True
        except Exception:  # whichever way the loser learns of it
            outcomes[epoch] = False

    writers = [threading.Thread(target=write, args=(epoch,)) for epoch in (10, 11)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    landed = [epoch for epoch, done in outcomes.items() if done]
    assert len(landed) == 1
    copies = [("a", 1)] * 2 + [("b", 2), (None, None), (None, None), ("epoch", landed[0])]
    assert mt.content() == row_counts(copies)


def test_a_variant_can_be_appended_and_not_taken_away(lake: Lake) -> None:
    mt = Stored(lake, "SELECT parse_json('{\"a\": 1}') AS v")
    mt.fill()
    land(mt, "SELECT parse_json('2'), BIGINT(1) AS __weight")
    assert lake.session.table("mt").count() == 2
    with pytest.raises(DiffMismatchError):
        land(mt, "SELECT parse_json('2'), BIGINT(-1) AS __weight")


POSITIVE = "n > 0"


def expecting(lake: Lake, *violations: Violation) -> Stored:
    """Return a filled table that expects n > 0 in each of the given ways."""
    return Stored(
        lake,
        VALUES.format("('a', 1), ('b', -1), ('c', NULL)"),
        expectations=[
            Expectation(name=each.name.lower(), condition=POSITIVE, violation=each)
            for each in violations
        ],
    )


def test_expectations_count_and_drop_rows_of_a_full_refresh(lake: Lake) -> None:
    mt = expecting(lake, Violation.WARN, Violation.DROP_ROW)
    assert mt.fill().expectations == {"warn": 1, "drop_row": 1}
    assert mt.content() == row_counts([("a", 1), ("c", None)])


def test_expectations_of_an_empty_result_are_met(lake: Lake) -> None:
    mt = expecting(lake, Violation.WARN, Violation.DROP_ROW, Violation.FAIL)
    nothing = f"SELECT * FROM ({mt.query}) WHERE false"
    assert mt.fill(nothing).expectations == {"warn": 0, "drop_row": 0, "fail": 0}


def test_expectations_hold_for_diffs(lake: Lake) -> None:
    mt = expecting(lake, Violation.WARN, Violation.DROP_ROW)
    mt.fill()
    done = land(
        mt, diff("('b', -1, -1)", "('b', -2, 2)", "('d', 4, 1)", "('c', CAST(NULL AS INT), -1)")
    )
    assert done.expectations == {"warn": 2, "drop_row": 2}
    assert mt.content() == row_counts([("a", 1), ("d", 4)])
    assert land(mt, diff("('b', -2, -2)", "('b', -3, 1)")).rows == 0
    assert mt.content() == row_counts([("a", 1), ("d", 4)])


def test_rows_that_are_held_out_are_stored_and_counted(lake: Lake) -> None:
    mt = expecting(lake, Violation.QUARANTINE)
    assert mt.fill().expectations == {"quarantine": 1}
    done = land(mt, diff("('b', -1, -1)", "('b', -2, 2)", "('a', 1, -1)"))
    assert done.expectations == {"quarantine": 2}
    assert mt.content() == row_counts([("b", -2), ("b", -2), ("c", None)])


def test_a_failed_expectation_keeps_the_old_version(lake: Lake) -> None:
    mt = expecting(lake, Violation.FAIL)
    good = VALUES.format("('a', 1), ('c', NULL)")
    assert mt.fill(good).expectations == {"fail": 0}
    for attempt in (
        lambda: mt.fill(),
        lambda: land(mt, diff("('a', 1, -1)", "('b', -1, 1)")),
    ):
        with pytest.raises(ServerError) as caught:
            attempt()
        assert caught.value.code == "MT_EXPECTATION_FAILED"
        assert '"k":"b"' in caught.value.message
        assert (mt.last().version, mt.content()) == (1, row_counts([("a", 1), ("c", None)]))


def test_a_failing_expectation_sees_only_rows_of_the_query(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE l (k INT, n INT) USING delta",
        "CREATE TABLE r (k INT) USING delta",
        "INSERT INTO l VALUES (1, 1), (2, -1)",
        "INSERT INTO r VALUES (1)",
    )
    fail = Expectation(name="positive", condition=POSITIVE, violation=Violation.FAIL)
    mt = Stored(lake, "SELECT l.k, l.n FROM l JOIN r ON l.k = r.k", expectations=[fail])
    mt.fill()
    assert mt.content() == row_counts([(1, 1)])
