"""The enforced primary key on real Delta tables: every way of writing, warn and fail."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized, Stored, row_counts
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import EnforcedKey, Expectation, Violation
from tidegate_server.core.model.runs import Strategy

pytestmark = [pytest.mark.spark, pytest.mark.thorough(3)]


def table_with_key(
    lake: Lake, violation: Violation, query: str = "SELECT k, n FROM t"
) -> Materialized:
    """Return an unfilled table over ``t`` whose key is k."""
    lake.sql("CREATE TABLE t (k STRING, n INT) USING delta", "INSERT INTO t VALUES ('a', 1)")
    return Materialized(
        lake, query, key=EnforcedKey(name="pk", columns=("k",), violation=violation)
    )


def rejection(mt: Materialized, **changed: object) -> str:
    """Refresh, which the key must stop without a trace, and return the message."""
    before = mt.last().version, mt.content()
    with pytest.raises(ServerError) as caught:
        mt.refresh(**changed)
    assert (caught.value.code, caught.value.sqlstate) == ("MT_PK_VIOLATED", "23505")
    assert (mt.last().version, mt.content()) == before
    return caught.value.message


def test_a_key_that_fails_keeps_the_old_version(lake: Lake) -> None:
    mt = table_with_key(lake, Violation.FAIL)
    assert dict(mt.refresh().metrics.expectations) == {"pk": 0}
    assert mt.last().record.unique == ("k",)
    lake.sql("INSERT INTO t VALUES ('a', 2), ('b', 3), (NULL, 4), ('c', 5), ('c', 6)")
    for force in (False, True):
        message = rejection(mt, force=force)
        assert "primary key pk (k)" in message
        assert "3 of its values" in message
        assert all(sample in message for sample in ('{"k":"a"}', '{"k":null}', '{"k":"c"}'))
    lake.sql("DELETE FROM t WHERE n IN (2, 4, 6)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert mt.content() == row_counts([("a", 1), ("b", 3), ("c", 5)])


def test_an_incremental_refresh_looks_at_the_rows_that_are_there(lake: Lake) -> None:
    mt = table_with_key(lake, Violation.FAIL)
    mt.refresh()
    lake.sql("UPDATE t SET n = 2")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL  # the key's old row goes
    lake.sql("INSERT INTO t VALUES ('a', 3)")
    assert "1 of its values" in rejection(mt)
    lake.sql("UPDATE t SET k = 'z' WHERE n = 2")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert mt.content() == row_counts([("a", 3), ("z", 2)])


def test_a_warning_counts_the_whole_version(lake: Lake) -> None:
    mt = table_with_key(lake, Violation.WARN)
    lake.sql("INSERT INTO t VALUES ('a', 2)")
    assert dict(mt.refresh().metrics.expectations) == {"pk": 1}
    assert mt.last().record.unique == ()
    lake.sql("INSERT INTO t VALUES ('b', 1)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert dict(outcome.metrics.expectations) == {"pk": 1}
    lake.sql("DELETE FROM t WHERE n = 2")
    assert dict(mt.refresh().metrics.expectations) == {"pk": 0}
    assert mt.last().record.unique == ("k",)
    lake.sql("INSERT INTO t VALUES ('b', 9), ('b', 10)")
    assert dict(mt.refresh().metrics.expectations) == {"pk": 1}
    assert mt.last().record.unique == ()


def test_a_version_nobody_checked_is_checked_whole(lake: Lake) -> None:
    mt = table_with_key(lake, Violation.FAIL)
    lake.sql("INSERT INTO t VALUES ('a', 2)")
    mt.refresh(key=None)
    lake.sql("INSERT INTO t VALUES ('b', 1)")
    assert "1 of its values" in rejection(mt)
    lake.sql("DELETE FROM t WHERE n = 2")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    other = EnforcedKey(name="pk", columns=("n",), violation=Violation.FAIL)
    lake.sql("INSERT INTO t VALUES ('c', 7)")
    assert "primary key pk (n)" in rejection(mt, key=other)


def test_rows_that_stay_count_when_some_are_replaced(lake: Lake) -> None:
    mt = table_with_key(lake, Violation.FAIL)
    mt.refresh()
    lake.sql("INSERT INTO t VALUES ('a', 2)")
    assert '{"k":"a"}' in rejection(mt, predicate="n = 2")
    lake.sql("UPDATE t SET k = 'b' WHERE n = 2")
    assert mt.refresh(predicate="n = 2").plan.strategy is Strategy.PARTITION
    assert mt.content() == row_counts([("a", 1), ("b", 2)])


def test_partitions_that_are_replaced_and_those_that_stay(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k INT, p STRING) USING delta", "INSERT INTO t VALUES (1, 'x')")
    key = EnforcedKey(name="pk", columns=("k",), violation=Violation.FAIL)
    mt = Materialized(lake, "SELECT k, p FROM t", key=key)
    mt.keys = ("p",)
    mt.refresh()
    lake.sql("INSERT INTO t VALUES (2, 'y')")
    assert mt.refresh(partitions=({"p": "y"},)).to_version is not None
    lake.sql("INSERT INTO t VALUES (1, 'y')")
    assert '{"k":1}' in rejection(mt, partitions=({"p": "y"},))


def test_values_that_sql_calls_equal_are_one_key(lake: Lake) -> None:
    key = EnforcedKey(name="pk", columns=("d", "s"), violation=Violation.WARN)
    values = "VALUES (0.0D, 'x'), (-0.0D, 'x'), (double('NaN'), 'y'), (double('NaN'), 'z')"
    mt = Stored(lake, f"SELECT * FROM {values} AS v(d, s)", key=key)
    assert mt.fill().expectations == {"pk": 1}


def test_rows_left_out_do_not_break_the_key(lake: Lake) -> None:
    drop = Expectation(name="positive", condition="n > 0", violation=Violation.DROP_ROW)
    mt = table_with_key(lake, Violation.FAIL)
    mt.expectations = (drop,)
    lake.sql("INSERT INTO t VALUES ('a', -1)")
    assert dict(mt.refresh().metrics.expectations) == {"positive": 1, "pk": 0}
    lake.sql("INSERT INTO t VALUES ('a', -2)")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert mt.content() == row_counts([("a", 1)])


def test_a_query_of_chance_is_checked_as_it_is_written(lake: Lake) -> None:
    key = EnforcedKey(name="pk", columns=("u",), violation=Violation.WARN)
    mt = Stored(lake, "SELECT CAST(rand() * 200 AS INT) AS u FROM range(100)", key=key)
    done = mt.fill()
    twice = [times for times in mt.content().values() if times > 1]
    assert done.expectations == {"pk": len(twice)}


def test_a_rollback_restores_what_was(lake: Lake) -> None:
    mt = table_with_key(lake, Violation.FAIL)
    lake.sql("INSERT INTO t VALUES ('a', 2)")
    first = mt.refresh(key=None).to_version
    lake.sql("DELETE FROM t WHERE n = 2")
    mt.refresh()
    assert first is not None
    mt.roll_back(first)
    assert mt.content() == row_counts([("a", 1), ("a", 2)])
    assert mt.last().record.unique == ()
