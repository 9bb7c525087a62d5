"""What becomes of a materialized table when its sources change, and the time it is computed at."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import new_order
from tidegate_server.core.errors import ServerError
from tidegate_server.core.refresh.request import Recompute, RefreshOutcome
from tidegate_server.engine.definition.analyze import analyze
from tidegate_server.engine.query.logical_time import bind_time
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import Child

pytestmark = pytest.mark.spark

NOON = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)


class Materialized:
    """The table ``mt`` with its definition."""

    def __init__(self, lake: Lake, query: str) -> None:
        self.lake = lake
        self.id = str(uuid.uuid4())
        self.name = lake.name("mt")
        self.analysis = analyze(Child(lake.session), query, lake.format)
        lake.format.create(self.name, self.analysis.schema, (), None, {"tidegate.id": self.id})
        self.epoch = 0

    def refresh(self, **changed: object) -> RefreshOutcome:
        self.epoch += 1
        query, columns = self.analysis.expanded_query, self.analysis.schema.names()
        given = {"logical_time": NOON, **changed}
        sources = self.analysis.sources
        order = new_order(self.id, self.name, query, columns, sources, self.epoch, **given)
        operation = Operation(order.refresh_id)
        return refresh(order, Recompute(), self.lake.root, self.lake.format, operation)

    def failing_refresh(self) -> ServerError:
        """Refresh in vain; the old data must be there all the same."""
        before = self.rows()
        with pytest.raises(ServerError) as caught:
            self.refresh()
        assert self.rows() == before != []
        return caught.value

    def rows(self) -> list[tuple[object, ...]]:
        return self.lake.rows("SELECT * FROM mt")


@pytest.fixture
def t(lake: Lake) -> Lake:
    """A table ``t`` whose columns may be renamed, dropped and widened."""
    lake.sql(
        "CREATE TABLE t (a INT, b STRING, s STRUCT<x: INT>) USING delta TBLPROPERTIES ("
        "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')",
        "INSERT INTO t VALUES (1, 'x', named_struct('x', 7))",
    )
    return lake


def filled_table(lake: Lake, query: str) -> Materialized:
    mt = Materialized(lake, query)
    mt.refresh()
    return mt


def test_a_dropped_source_is_named_and_the_data_stays(t: Lake) -> None:
    mt = filled_table(t, "SELECT a FROM t")
    t.sql("DROP TABLE t")
    refused = mt.failing_refresh()
    assert refused.code == "MT_SOURCE_NOT_FOUND"
    assert f"Source table {t.name('t')} of {mt.name}" in refused.message
    assert "keeps the data" in refused.hint


def test_a_dropped_view_is_named(t: Lake) -> None:
    t.sql("CREATE VIEW v AS SELECT a FROM t")
    mt = filled_table(t, "SELECT a FROM v")
    t.sql("DROP VIEW v")
    assert f"Source view {t.name('v')}" in mt.failing_refresh().message


def test_a_dropped_table_without_versions_is_named(lake: Lake) -> None:
    lake.sql("CREATE TABLE p (a INT) USING parquet", "INSERT INTO p VALUES (1)")
    mt = filled_table(lake, "SELECT a FROM p")
    lake.sql("DROP TABLE p")
    assert mt.failing_refresh().code == "MT_SOURCE_NOT_FOUND"


def test_a_source_made_anew_with_its_columns_is_read(t: Lake) -> None:
    mt = filled_table(t, "SELECT a FROM t")
    t.sql("DROP TABLE t", "CREATE TABLE t (b STRING, a INT) USING delta")
    t.sql("INSERT INTO t VALUES ('y', 5)")
    mt.refresh()
    assert mt.rows() == [(5,)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER TABLE t DROP COLUMN a", "column a is gone"),
        ("ALTER TABLE t RENAME COLUMN a TO z", "column a is gone"),
        ("ALTER TABLE t ALTER COLUMN a TYPE BIGINT", "column a was INT and is BIGINT now"),
    ],
)
def test_a_changed_column_is_named_and_the_data_stays(t: Lake, change: str, told: str) -> None:
    mt = filled_table(t, "SELECT a, b FROM t")
    t.sql(change)
    refused = mt.failing_refresh()
    assert refused.code == "MT_SOURCE_CHANGED"
    assert str(t.name("t")) in refused.message
    assert told in refused.message


def test_a_changed_column_behind_a_view_is_named(t: Lake) -> None:
    t.sql("CREATE VIEW v AS SELECT a AS k FROM t")
    mt = filled_table(t, "SELECT k FROM v")
    t.sql("ALTER TABLE t DROP COLUMN a")
    refused = mt.failing_refresh()
    assert (refused.code, "column a is gone" in refused.message) == ("MT_SOURCE_CHANGED", True)


def test_a_source_without_versions_any_more_is_told(t: Lake) -> None:
    mt = filled_table(t, "SELECT a FROM t")
    t.sql("DROP TABLE t", "CREATE TABLE t (a INT) USING parquet")
    assert "no versions any more" in mt.failing_refresh().message


def test_changes_that_do_not_concern_the_query_are_no_matter(t: Lake) -> None:
    mt = filled_table(t, "SELECT a, s.x FROM t")
    t.sql(
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t ADD COLUMN x STRING",
        "ALTER TABLE t ADD COLUMN s.y INT",
        "INSERT INTO t (a, x) VALUES (2, 'new')",
    )
    mt.refresh()
    assert mt.rows() == [(1, 7), (2, None)]


def test_a_new_column_changes_neither_star_nor_meaning(t: Lake) -> None:
    t.sql("CREATE TABLE u (a INT, n INT) USING delta", "INSERT INTO u VALUES (1, 10)")
    mt = filled_table(t, "SELECT *, b AS again FROM t NATURAL JOIN (SELECT * FROM u)")
    t.sql("ALTER TABLE u ADD COLUMN b STRING", "INSERT INTO u VALUES (1, 20, 'other')")
    mt.refresh()
    assert [(row[0], row[1], row[3], row[4]) for row in mt.rows()] == [
        (1, "x", 10, "x"),
        (1, "x", 20, "x"),
    ]


# ---- the time ------------------------------------------------------------------------------------


def test_a_refresh_sees_its_logical_time(t: Lake) -> None:
    mt = Materialized(
        t, "SELECT a, current_timestamp() AS at, current_date AS d, now() AS n FROM t"
    )
    outcome = mt.refresh()
    at, day, now = mt.rows()[0][1:]
    assert at == now
    assert isinstance(at, datetime)
    assert at.astimezone(UTC) == NOON
    assert str(day) == "2024-02-29"
    assert outcome.plan.reason_code == "FIRST_REFRESH"
    later = mt.refresh(logical_time=NOON.replace(year=2025, day=28))
    assert later.plan.reason_code == "UNSTABLE_QUERY"
    assert later.plan.reason_text == "the query reads current_date, current_timestamp, now"
    assert str(mt.rows()[0][2]) == "2025-02-28"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "value"),
    [
        (
            "SELECT date_format(current_timestamp(), 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
            "2024-02-29 12:30:15.123456",
        ),
        ("SELECT CAST(localtimestamp() AS STRING)", "2024-02-29 12:30:15.123456"),
        ("SELECT CAST(unix_timestamp() AS STRING)", "1709209815"),
        ("SELECT x FROM (SELECT 'a' AS x) WHERE current_date = DATE'2024-02-29'", "a"),
        ("WITH q AS (SELECT current_date AS d) SELECT CAST(max(d) AS STRING) FROM q", "2024-02-29"),
        ("SELECT (SELECT CAST(max(current_date) AS STRING) FROM range(2))", "2024-02-29"),
        ("SELECT 'in' WHERE EXISTS (SELECT 1 WHERE year(now()) = 2024)", "in"),
        ("SELECT CAST(`current_date()` AS STRING) FROM (SELECT current_date())", "2024-02-29"),
        ("SELECT 'a' AS x GROUP BY current_date HAVING max(now()) < TIMESTAMP'2024-03-01'", "a"),
        (
            (
                "SELECT CAST(l.d AS STRING) FROM range(1) t LEFT JOIN "
                "(SELECT 0L AS id, current_date AS d) l ON t.id = l.id AND now() = now()"
            ),
            "2024-02-29",
        ),
        (
            "SELECT CAST(e AS STRING) FROM range(1) LATERAL VIEW explode(array(current_date)) AS e",
            "2024-02-29",
        ),
    ],
)
def test_the_time_is_bound_wherever_it_is_read(module_lake: Lake, sql: str, value: str) -> None:
    module_lake.sql("SET spark.sql.session.timeZone = UTC")
    frame = module_lake.session.sql(sql)
    again = bind_time(frame, NOON)
    assert again.schema == frame.schema
    assert [row[0] for row in again.collect()] == [value]


def test_the_day_is_that_of_the_session_s_zone(module_lake: Lake) -> None:
    module_lake.sql("SET spark.sql.session.timeZone = Asia/Tokyo")
    frame = module_lake.session.sql("SELECT CAST(current_date AS STRING), CAST(now() AS STRING)")
    evening = NOON.replace(hour=20, microsecond=0)
    assert [tuple(row) for row in bind_time(frame, evening).collect()] == [
        ("2024-03-01", "2024-03-01 05:30:15")
    ]


def test_a_query_without_the_time_is_left_alone(module_lake: Lake) -> None:
    frame = module_lake.session.sql("SELECT 1 AS one")
    assert bind_time(frame, NOON) is frame
