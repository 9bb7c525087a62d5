"""ASSERT on real Delta tables: every way of writing, every action, and what is held."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized, row_counts, task_of
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Assertion, Expectation, Violation
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.session.operations import Operation

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

ENOUGH = "row_count > 0.5 * previous(row_count)"
FULL = {"policy": RefreshPolicy.FULL}


def table_with_assertion(
    lake: Lake, violation: Violation, condition: str = ENOUGH, **given: object
) -> Materialized:
    """Return a filled table over the four rows of ``t``."""
    rows = "('a', 1), ('b', 2), ('c', 3), ('d', 4)"
    lake.sql("CREATE TABLE t (k STRING, n INT) USING delta", f"INSERT INTO t VALUES {rows}")
    assertion = Assertion(name="enough", condition=condition, violation=violation)
    mt = Materialized(lake, "SELECT k, n FROM t", assertions=(assertion,), **given)
    assert dict(mt.refresh().metrics.expectations)["enough"] == 0
    return mt


def stopped_refresh(mt: Materialized, code: str, **changed: object) -> tuple[str, str]:
    """Refresh, which has to leave the table alone; return the refresh and the message."""
    before = mt.last().version, mt.content()
    order = mt.order(**changed)
    with pytest.raises(ServerError) as caught:
        task, operation = task_of(changed), Operation(order.refresh_id)
        refresh(order, task, mt.lake.root, mt.lake.format, operation)
    assert (caught.value.code, caught.value.sqlstate) == (code, "23514")
    assert (mt.last().version, mt.content()) == before
    return order.refresh_id, caught.value.message


@pytest.mark.parametrize("number", [1, 7], ids=["incremental", "full"])
def test_a_held_version_is_published_with_what_is_known_of_it(lake: Lake, number: int) -> None:
    mt = table_with_assertion(lake, Violation.HOLD)
    changed = {"definition_version": number}
    lake.sql("DELETE FROM t WHERE k IN ('a', 'b', 'c')", "INSERT INTO t VALUES (NULL, NULL)")
    made, message = stopped_refresh(mt, "MT_VERSION_HELD", **changed)
    assert "enough (row_count > 0.5 * previous(row_count)): row_count is 2, previously 4" in message
    held = lake.format.find_held(mt.name, mt.id)
    assert held is not None
    assert (held.refresh_id, held.epoch, held.record.definition_version) == (made, mt.epoch, number)
    outcome = mt.publish(made)
    assert (outcome.plan.strategy, outcome.definition_version) == (Strategy.PUBLISH, number)
    assert mt.content() == row_counts([("d", 4), (None, None)])
    last = mt.last()
    assert (last.record.vector, last.record.definition_version) == (held.record.vector, number)
    assert (last.epoch, last.record.logical_time) == (mt.epoch, held.record.logical_time)
    assert lake.format.find_held(mt.name, mt.id) is None
    with pytest.raises(ServerError, match="no held version") as caught:
        mt.publish(made)
    assert caught.value.code == "MT_NOTHING_HELD"
    lake.sql("INSERT INTO t VALUES ('e', 5)")
    assert mt.refresh(**changed).plan.strategy is Strategy.INCREMENTAL
    assert mt.verify(**changed).equal


def test_a_new_version_takes_the_place_of_a_held_one(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.HOLD)
    lake.sql("DELETE FROM t WHERE n < 4")
    first, _ = stopped_refresh(mt, "MT_VERSION_HELD")
    lake.sql("INSERT INTO t VALUES ('z', 9)")
    second, _ = stopped_refresh(mt, "MT_VERSION_HELD")
    assert lake.format.find_held(mt.name, mt.id, first) is None
    assert lake.format.find_held(mt.name, mt.id).refresh_id == second  # type: ignore[union-attr]
    lake.sql("INSERT INTO t VALUES ('y', 8)")
    mt.refresh()
    assert mt.content() == row_counts([("d", 4), ("z", 9), ("y", 8)])
    # Whatever lies there still, a later commit has overtaken it.
    assert lake.format.find_held(mt.name, mt.id) is None
    with pytest.raises(ServerError) as caught:
        mt.publish(second)
    assert caught.value.code == "MT_NOTHING_HELD"


def test_a_discarded_version_leaves_nothing_behind(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.HOLD)
    lake.sql("DELETE FROM t WHERE n < 4")
    made, _ = stopped_refresh(mt, "MT_VERSION_HELD")
    lake.format.discard_held(mt.name, "another table")
    assert lake.format.find_held(mt.name, mt.id) is not None
    lake.sql(f"VACUUM {mt.name.quoted()}")
    assert lake.format.find_held(mt.name, mt.id, made) is not None
    lake.format.discard_held(mt.name, mt.id)
    lake.format.discard_held(mt.name, mt.id)
    assert lake.format.find_held(mt.name, mt.id) is None
    assert mt.content() == row_counts([("a", 1), ("b", 2), ("c", 3), ("d", 4)])


@pytest.mark.parametrize("changed", [{}, FULL], ids=["incremental", "full"])
def test_an_assertion_that_fails_keeps_the_old_version(
    lake: Lake, changed: dict[str, object]
) -> None:
    mt = table_with_assertion(
        lake, Violation.FAIL, "sum(n) >= previous(sum(n)) AND max(k) IS NOT NULL"
    )
    lake.sql("INSERT INTO t VALUES ('e', -5)")
    _, message = stopped_refresh(mt, "MT_ASSERTION_FAILED", **changed)
    assert "sum(n) is 5, previously 10" in message
    assert lake.format.find_held(mt.name, mt.id) is None
    lake.sql("INSERT INTO t VALUES ('f', 6)")
    assert dict(mt.refresh(**changed).metrics.expectations) == {"enough": 0}


def test_a_warning_is_counted(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.WARN, "row_count <= 4")
    lake.sql("INSERT INTO t VALUES ('e', 5)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert dict(outcome.metrics.expectations) == {"enough": 1}
    lake.sql("UPDATE t SET n = 0 WHERE k = 'a'", "DELETE FROM t WHERE k = 'e'")
    assert dict(mt.refresh().metrics.expectations) == {"enough": 0}
    assert mt.content() == row_counts([("a", 0), ("b", 2), ("c", 3), ("d", 4)])


def test_nothing_is_compared_with_no_version(lake: Lake) -> None:
    never = "previous(row_count) IS NOT NULL OR previous(count(*)) + row_count > 0"
    mt = table_with_assertion(lake, Violation.FAIL, f"NOT ({never})")
    lake.sql("INSERT INTO t VALUES ('e', 5)")
    stopped_refresh(mt, "MT_ASSERTION_FAILED")


def test_an_empty_version_is_judged(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.HOLD, "count(*) > 0")
    lake.sql("DELETE FROM t")
    made, message = stopped_refresh(mt, "MT_VERSION_HELD")
    assert "row_count is 0, previously 4" in message
    mt.publish(made)
    assert mt.content() == row_counts([])
    assert mt.refresh().plan.strategy is Strategy.NO_DATA


def test_a_refresh_of_some_rows_is_judged_by_all_of_them(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.HOLD, "row_count >= 4 AND min(n) > 0")
    lake.sql("UPDATE t SET n = 20 WHERE k = 'b'")
    mt.refresh(predicate="k = 'b'")
    lake.sql("DELETE FROM t WHERE k = 'b'")
    made, _ = stopped_refresh(mt, "MT_VERSION_HELD", predicate="k = 'b'")
    outcome = mt.publish(made)
    assert outcome.plan.strategy is Strategy.PARTITION
    assert mt.last().partial
    assert mt.content() == row_counts([("a", 1), ("c", 3), ("d", 4)])


def test_rows_that_are_left_out_do_not_count(lake: Lake) -> None:
    out = (
        Expectation(name="few", condition="n < 100", violation=Violation.DROP_ROW),
        Expectation(name="known", condition="k IS NOT NULL", violation=Violation.QUARANTINE),
        Expectation(name="positive", condition="n >= 0", violation=Violation.FAIL),
    )
    mt = table_with_assertion(lake, Violation.HOLD, "row_count <= 4", expectations=out)
    for changed in ({}, FULL):
        lake.sql("INSERT INTO t VALUES (NULL, 5), ('x', 100)")
        mt.refresh(**changed)
    lake.sql("INSERT INTO t VALUES ('e', -5)")
    for changed in ({}, FULL):
        stopped_refresh(mt, "MT_EXPECTATION_FAILED", **changed)
    lake.sql("UPDATE t SET n = 5 WHERE n = -5")
    made, _ = stopped_refresh(mt, "MT_VERSION_HELD")
    mt.publish(made)
    kept = [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]
    assert mt.content() == row_counts([*kept, (None, 5), (None, 5)])


def test_a_version_of_other_columns_cannot_be_published(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.HOLD)
    lake.sql("DELETE FROM t WHERE n < 4")
    made, _ = stopped_refresh(mt, "MT_VERSION_HELD")
    lake.sql(f"ALTER TABLE {mt.name.quoted()} ADD COLUMN more INT")
    with pytest.raises(ServerError, match="other columns"):
        mt.publish(made)


def test_a_publication_that_is_asked_for_again_is_done_once(lake: Lake) -> None:
    mt = table_with_assertion(lake, Violation.HOLD)
    lake.sql("DELETE FROM t WHERE n < 4")
    made, _ = stopped_refresh(mt, "MT_VERSION_HELD")
    first = mt.publish(made, refresh_id="p")
    again = mt.publish(made, refresh_id="p")
    assert first.to_version == again.to_version == mt.last().version
