"""IMMUTABLE WHERE and BACKFILL FROM against real Delta tables."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy
from tidegate_server.engine.query.immutable_region import check_region

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

OLD = "ds < '2024-02'"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def sales(lake: Lake) -> Lake:
    lake.sql(
        "CREATE TABLE t (ds STRING, k STRING, n INT) USING delta",
        "INSERT INTO t VALUES ('2024-01', 'a', 1), ('2024-01', 'b', 2), ('2024-02', 'a', 3), "
        "('2024-02', 'b', 4), (NULL, 'a', 5)",
    )
    return lake


def rows(mt: Materialized) -> list[tuple[object, ...]]:
    return mt.lake.rows(f"SELECT * FROM {mt.name.quoted()}")


# ---- what a refresh leaves as it is ------------------------------------------------------------


@pytest.mark.parametrize("forced", [False, True], ids=["incremental", "full"])
def test_rows_of_the_region_stay_whatever_the_sources_say(sales: Lake, forced: bool) -> None:
    mt = Materialized(sales, "SELECT ds, k, n FROM t", immutable=OLD)
    assert mt.refresh().plan.reason_code == "FIRST_REFRESH"
    assert len(rows(mt)) == 5
    sales.sql(
        "UPDATE t SET n = n * 10",
        "DELETE FROM t WHERE ds = '2024-01' AND k = 'b'",
        "INSERT INTO t VALUES ('2024-01', 'late', 7), ('2024-03', 'new', 8)",
    )
    plan = mt.refresh(force=forced).plan
    assert plan.strategy is (Strategy.FULL if forced else Strategy.INCREMENTAL)
    assert "ds < '2024-02' stay as they are" in plan.reason_text
    assert rows(mt) == [
        ("2024-01", "a", 1),
        ("2024-01", "b", 2),
        ("2024-02", "a", 30),
        ("2024-02", "b", 40),
        ("2024-03", "new", 8),
        (None, "a", 50),
    ]
    found = mt.verify()
    assert (found.equal, found.left_out) == (True, OLD)
    assert mt.verify(1).left_out is None
    assert mt.verify(1).equal
    assert mt.refresh().plan.strategy is Strategy.NO_DATA


def test_without_the_clause_every_row_is_computed_again(sales: Lake) -> None:
    mt = Materialized(sales, "SELECT ds, k, n FROM t", immutable=OLD)
    mt.refresh()
    sales.sql("UPDATE t SET n = 0")
    mt.refresh()
    mt.immutable = None
    assert mt.refresh(definition_version=2).plan.strategy is Strategy.FULL
    assert {row[2] for row in rows(mt)} == {0}
    assert mt.verify(definition_version=2).left_out is None


def test_a_region_set_later_takes_the_rows_as_they_are(sales: Lake) -> None:
    mt = Materialized(sales, "SELECT ds, k, n FROM t")
    mt.refresh()
    sales.sql("UPDATE t SET n = 0")
    mt.immutable = "k = 'a' -- all of it"
    mt.refresh(definition_version=2)
    assert {row[1:] for row in rows(mt)} == {("a", 1), ("a", 3), ("a", 5), ("b", 0)}


def test_groups_are_not_added_to_what_is_out_of_date(sales: Lake) -> None:
    mt = Materialized(
        sales, "SELECT k, sum(n) AS n, count(*) AS c FROM t GROUP BY k", immutable="n > 8"
    )
    mt.refresh()
    assert rows(mt) == [("a", 9, 3), ("b", 6, 2)]
    sales.sql("INSERT INTO t VALUES ('2024-04', 'a', -5), ('2024-04', 'b', 1)")
    plan = mt.refresh().plan
    assert plan.reason_code == "KEYS_AFFECTED"
    assert rows(mt) == [("a", 4, 4), ("a", 9, 3), ("b", 7, 3)]
    assert mt.verify().equal


def test_requested_rows_and_partitions_are_replaced_outside_the_region(sales: Lake) -> None:
    mt = Materialized(sales, "SELECT k, n, ds FROM t", "ds", immutable=OLD)
    mt.refresh()
    before = rows(mt)
    sales.sql("UPDATE t SET n = 0")
    mt.refresh(partitions=({"ds": "2024-01"},))
    assert rows(mt) == before
    mt.refresh(partitions=({"ds": "2024-02"},))
    mt.refresh(predicate="k = 'a'")
    assert rows(mt) == [("a", 0, "2024-02"), ("a", 0, None), ("a", 1, "2024-01")] + [
        ("b", 0, "2024-02"),
        ("b", 2, "2024-01"),
    ]


def test_nothing_is_immutable_before_the_whole_table_was_computed(sales: Lake) -> None:
    mt = Materialized(sales, "SELECT k, n, ds FROM t", "ds", immutable=OLD)
    mt.refresh(partitions=({"ds": "2024-02"},))
    mt.refresh(partitions=({"ds": "2024-02"},))
    assert len(rows(mt)) == 2
    sales.sql("UPDATE t SET n = 0")
    mt.refresh()
    assert [row[1] for row in rows(mt)] == [0] * 5
    sales.sql("UPDATE t SET n = 1")
    mt.refresh(partitions=({"ds": "2024-02"},))
    mt.refresh()
    assert {row[1:] for row in rows(mt)} == {(0, "2024-01"), (1, "2024-02"), (1, None)}


def test_a_rollback_brings_back_the_region_of_its_version(sales: Lake) -> None:
    mt = Materialized(sales, "SELECT ds, k, n FROM t", immutable=OLD)
    mt.refresh()
    sales.sql("UPDATE t SET n = 0")
    mt.refresh()
    before = rows(mt)
    mt.immutable = None
    mt.refresh(definition_version=2)
    mt.immutable = OLD
    mt.roll_back(2)
    assert rows(mt) == before
    assert mt.verify().left_out == OLD
    assert mt.verify().equal


def test_refresh_where_leaves_the_rest_for_the_next_refresh(sales: Lake) -> None:
    mt = Materialized(sales, "SELECT ds, k, n FROM t")
    mt.refresh()
    sales.sql("UPDATE t SET n = 0")
    mt.refresh(predicate="k = 'a'")
    assert mt.refresh().plan.reason_code == "PARTIAL_BEFORE"
    assert {row[2] for row in rows(mt)} == {0}


# ---- a region that grows -----------------------------------------------------------------------


def test_rows_become_immutable_as_time_goes_by(lake: Lake) -> None:
    lake.session.conf.set("spark.sql.session.timeZone", "UTC")
    lake.sql(
        "CREATE TABLE t (ts TIMESTAMP, n INT) USING delta",
        "INSERT INTO t SELECT make_timestamp(2026, 1, 1, h, 0, 0), 0 FROM "
        "(SELECT explode(sequence(1, 15)) AS h)",
    )
    mt = Materialized(
        lake, "SELECT ts, n FROM t", immutable="ts < current_timestamp() - INTERVAL '4' HOUR"
    )

    def hours(value: int) -> list[object]:
        found = lake.rows(f"SELECT hour(ts) FROM {mt.name.quoted()} WHERE n = {value}")
        return sorted(row[0] for row in found)  # type: ignore[type-var]

    utc = {"spark.sql.session.timeZone": "UTC"}
    mt.refresh(logical_time=NOON, settings=utc)
    lake.sql("UPDATE t SET n = 1")
    plan = mt.refresh(logical_time=NOON, settings=utc).plan
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "IMMUTABLE_REGION_MOVES")
    assert hours(1) == [*range(8, 16)]
    assert mt.verify(settings=utc).equal
    idle = mt.refresh(logical_time=NOON + 2 * HOUR, settings=utc)
    assert idle.plan.strategy is Strategy.NO_DATA
    lake.sql("UPDATE t SET n = 2")
    mt.refresh(logical_time=NOON + 2 * HOUR, settings=utc)
    assert (hours(1), hours(2)) == ([8, 9], [*range(10, 16)])
    lake.sql("UPDATE t SET n = 3")
    mt.refresh(logical_time=NOON - 5 * HOUR, settings=utc)
    assert (hours(1), hours(3)) == ([8, 9], [*range(10, 16)])
    found = mt.verify(settings=utc)
    assert found.equal
    assert "2026-01-01 14:00:00.000000Z" in str(found.left_out)


def test_a_strictly_incremental_table_refuses_a_moving_region(sales: Lake) -> None:
    mt = Materialized(
        sales, "SELECT ds, k, n FROM t", immutable="ds < CAST(current_date AS STRING)"
    )
    mt.refresh(policy=RefreshPolicy.INCREMENTAL_STRICT)
    sales.sql("UPDATE t SET n = 0")
    with pytest.raises(ServerError, match="IMMUTABLE_REGION_MOVES"):
        mt.refresh(policy=RefreshPolicy.INCREMENTAL_STRICT)


# ---- against what it should mean ---------------------------------------------------------------

_QUERIES = {
    "groups": ("SELECT k, count(*) AS c, sum(n) AS n FROM t GROUP BY k", "c > 3 OR k = 'b'"),
    "join": ("SELECT t.ds, t.n, u.k FROM t LEFT JOIN t u ON t.n = u.n", "k < 'c'"),
    "window": ("SELECT k, n, sum(n) OVER (PARTITION BY k) AS s FROM t", "s > 20"),
}


@pytest.mark.parametrize("name", _QUERIES)
def test_a_refresh_is_the_old_region_and_the_rest_of_the_query(sales: Lake, name: str) -> None:
    chance = random.Random(name)
    query, immutable = _QUERIES[name]
    mt = Materialized(sales, query, immutable=immutable)
    mt.refresh()
    for _ in range(2):
        values = ", ".join(
            f"('2024-0{chance.randint(1, 4)}', '{chance.choice('abcd')}', {chance.randint(0, 9)})"
            for _ in range(chance.randint(1, 4))
        )
        sales.sql(
            f"INSERT INTO t VALUES {values}",
            f"DELETE FROM t WHERE n = {chance.randint(0, 9)}",
            f"UPDATE t SET n = n + 1 WHERE k = '{chance.choice('abcd')}'",
        )
        kept = f"SELECT * FROM {mt.name.quoted()} WHERE {immutable}"
        rest = f"SELECT * FROM ({query}) WHERE ({immutable}) IS NOT TRUE"
        wanted = Counter(sales.rows(f"{kept} UNION ALL {rest}"))
        assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
        assert Counter(rows(mt)) == wanted
    assert mt.verify().equal


# ---- BACKFILL FROM -----------------------------------------------------------------------------


def test_a_backfill_copies_the_region_and_the_refresh_the_rest(sales: Lake) -> None:
    sales.sql(
        "CREATE TABLE old (n INT, more INT, K STRING, ds STRING) USING delta",
        "INSERT INTO old VALUES (100, 1, 'x', '2023-12'), (200, 1, 'y', '2024-02'), "
        "(300, 1, 'z', NULL)",
    )
    mt = Materialized(sales, "SELECT ds, k, n FROM t", immutable=OLD)
    outcome = mt.backfill("old")
    assert rows(mt) == [("2023-12", "x", 100)]
    assert (outcome.plan.reason_code, outcome.metrics.rows_written) == ("BACKFILL_REQUESTED", 1)
    assert "old version 1 where ds < '2024-02'" in outcome.plan.reason_text
    assert mt.refresh().plan.reason_code == "PARTIAL_BEFORE"
    assert rows(mt) == [
        ("2023-12", "x", 100),
        ("2024-02", "a", 3),
        ("2024-02", "b", 4),
        (None, "a", 5),
    ]
    assert mt.verify().equal
    sales.sql("UPDATE t SET n = 0")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert rows(mt)[0] == ("2023-12", "x", 100)


def test_a_backfill_reads_views_and_happens_once(sales: Lake) -> None:
    sales.sql("CREATE VIEW v AS SELECT k, n, ds FROM t")
    mt = Materialized(sales, "SELECT ds, k, n FROM t", immutable=OLD)
    mt.backfill("v")
    assert len(rows(mt)) == 2
    with pytest.raises(ServerError, match="MT_REFRESH_FENCED"):
        mt.backfill("v")


# ---- which conditions --------------------------------------------------------------------------

_COLUMNS = (
    "SELECT CAST(NULL AS TIMESTAMP) AS ts, CAST(NULL AS DATE) AS d, CAST(NULL AS STRING) AS ds, "
    "CAST(NULL AS INT) AS n, CAST(NULL AS TIMESTAMP) AS `current_date`"
)


@pytest.mark.parametrize(
    "condition",
    [
        "n > 1 AND ds IN ('a', 'b')",
        "ts < current_timestamp() - INTERVAL '1 day'",
        "ts <= now() - INTERVAL 1 MONTH OR n = 3",
        "current_timestamp - INTERVAL '2' HOURS > ts",
        "d < current_date() - 7",
        "d < date_sub(current_date(), 7) AND NOT n = 4",
        "d < add_months(trunc(current_date(), 'MM'), -1)",
        "ts < date_trunc('HOUR', current_timestamp())",
        "ts < timestampadd(DAY, -3, current_timestamp())",
        "ts < dateadd(DAY, -3, current_timestamp())",
        "ds < date_format(curdate() - INTERVAL 3 DAYS, 'yyyy-MM-dd')",
        "ds < CAST(current_date() AS STRING)",
        "to_date(ts) < to_date(current_timestamp())",
        "ts < localtimestamp()",
        "current_date < TIMESTAMP '2024-01-01'",
    ],
)
def test_conditions_of_a_region_that_only_grows(module_lake: Lake, condition: str) -> None:
    check_region(module_lake.session.sql(_COLUMNS), condition)


@pytest.mark.parametrize(
    "condition",
    [
        "ts > current_timestamp() - INTERVAL '1 day'",
        "ts < current_timestamp() - INTERVAL '1 day' OR d > current_date()",
        "NOT ts < current_timestamp()",
        "(ts < current_timestamp()) = (n > 1)",
        "coalesce(ts, current_timestamp()) < TIMESTAMP '2024-01-01'",
        "n < hour(current_timestamp())",
        "ds < date_format(current_date(), 'dd.MM.yyyy')",
        "ts < `now`()",
        "rand() > 0.5",
        "ds = current_user()",
        "n IN (SELECT 1)",
    ],
)
def test_conditions_that_might_lose_rows_are_refused(module_lake: Lake, condition: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_region(module_lake.session.sql(_COLUMNS), condition)
    assert caught.value.code == "MT_PREDICATE"


@pytest.mark.parametrize("condition", ["n", "nope > 1", "mt.n > 1", "sum(n) > 1", "n >"])
def test_what_spark_does_not_understand_is_spark_s_to_say(
    module_lake: Lake, condition: str
) -> None:
    with pytest.raises((AnalysisException, ServerError)):
        check_region(module_lake.session.sql(_COLUMNS), condition)
