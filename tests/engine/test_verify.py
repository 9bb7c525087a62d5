"""VERIFY and ROLLBACK against real Delta tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized, row_counts
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.maintenance import RowPart
from tidegate_server.engine.refresh.verify import compare

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

QUERY = "SELECT k, sum(n) AS n FROM t GROUP BY k"


@pytest.fixture
def mt(lake: Lake) -> Materialized:
    """A table refreshed three times, to versions 1, 2 and 3."""
    lake.sql(
        "CREATE TABLE t (k STRING, n INT) USING delta",
        "INSERT INTO t VALUES ('a', 1), ('b', 2), (NULL, 3)",
    )
    table = Materialized(lake, QUERY)
    table.refresh()
    lake.sql("UPDATE t SET n = 5 WHERE k = 'a'")
    table.refresh()
    lake.sql("DELETE FROM t WHERE k = 'b'")
    table.refresh()
    return table


def rejection(call: Callable[[], object]) -> str:
    """Return the message of the error that a call must raise."""
    with pytest.raises(ServerError) as caught:
        call()
    assert caught.value.code in ("MT_VERIFY_IMPOSSIBLE", "MT_ROLLBACK_IMPOSSIBLE")
    return caught.value.message


def test_every_version_equals_its_query(mt: Materialized) -> None:
    newest = mt.verify()
    assert (newest.version, newest.epoch, newest.equal, newest.sample) == (3, 3, True, "")
    for version in (1, 2):
        found = mt.verify(version)
        assert (found.version, found.epoch, found.equal) == (version, version, True)
    mt.lake.sql("INSERT INTO t VALUES ('later', 1)")
    assert mt.verify().equal


def test_rows_that_should_not_or_should_be_there_are_counted(mt: Materialized) -> None:
    mt.lake.sql("INSERT INTO mt VALUES ('x', 1), ('x', 1)", "DELETE FROM mt WHERE k IS NULL")
    found = mt.verify()
    assert (found.equal, found.missing_rows, found.extra_rows) == (False, 1, 2)
    sample = json.loads(found.sample)
    assert {"side": "extra", "times": 2, "row": {"k": "x", "n": 1}} in sample
    assert {"side": "missing", "times": 1, "row": {"k": None, "n": 3}} in sample
    assert mt.verify(3).equal


@pytest.mark.parametrize(
    ("query", "told_by"),
    [
        (QUERY, "k"),
        ("SELECT count(*) AS c, k, 1.5D * sum(n) AS d FROM t GROUP BY k", "k"),
        ("SELECT n, k FROM t", "n, k"),
        ("SELECT sum(n) AS n, sum(n) / 3 AS d FROM t GROUP BY k", "n"),
        ("SELECT array(k) AS a, n / 3 AS d FROM t", None),
    ],
)
def test_every_row_is_in_one_part(lake: Lake, query: str, told_by: str | None) -> None:
    lake.sql("CREATE TABLE t (k STRING, n INT) USING delta")
    lake.sql("INSERT INTO t SELECT 'k' || id, id FROM range(30) UNION ALL VALUES (NULL, NULL)")
    mt = Materialized(lake, query)
    mt.refresh()
    parts = [RowPart(number=number, of=4) for number in range(4)]
    assert all(mt.verify(part=part).equal for part in parts)
    lake.sql("DELETE FROM mt")
    missing = [mt.verify(part=part).missing_rows for part in parts]
    if told_by is None:
        assert missing == [31] * 4
        return
    place = f"pmod(xxhash64({told_by}), 4)"
    counts = dict(lake.rows(f"SELECT {place}, count(*) FROM ({query}) GROUP BY {place}"))
    assert missing == [counts[number] for number in range(4)]
    assert sum(missing) == 31


def test_what_cannot_be_proved_is_said_so(mt: Materialized) -> None:
    assert "its newest version is 3" in rejection(lambda: mt.verify(4))
    assert "no refresh is recorded" in rejection(lambda: mt.verify(0))
    assert "another definition" in rejection(lambda: mt.verify(definition_version=2))
    mt.lake.sql("DROP TABLE t", "CREATE TABLE t (k STRING, n INT) USING delta")
    assert "other tables" in rejection(mt.verify)


def test_versions_that_were_vacuumed_cannot_be_verified(mt: Materialized) -> None:
    mt.lake.session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    mt.lake.sql("VACUUM t RETAIN 0 HOURS")
    assert "cannot be read any more" in rejection(lambda: mt.verify(1))
    assert mt.verify(3).equal


def test_a_view_that_changed_is_not_taken_for_a_wrong_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k STRING) USING delta", "CREATE VIEW v AS SELECT k FROM t")
    mt = Materialized(lake, f"SELECT k FROM {lake.schema}.v")
    mt.refresh()
    assert mt.verify().equal
    lake.sql("ALTER VIEW v AS SELECT upper(k) AS k FROM t")
    assert "view" in rejection(mt.verify)


def test_queries_of_the_moment_are_verified_at_their_moment(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k STRING) USING delta", "INSERT INTO t VALUES ('a')")
    mt = Materialized(lake, "SELECT k, current_timestamp() AS at, current_date() AS day FROM t")
    mt.refresh()
    time.sleep(0.01)
    assert mt.verify().equal
    lake.sql("UPDATE mt SET at = at + INTERVAL '1' SECOND")
    found = mt.verify()
    assert (found.missing_rows, found.extra_rows) == (1, 1)


def test_random_queries_and_plain_sources_cannot_be_verified(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k STRING) USING delta", "INSERT INTO t VALUES ('a')")
    mt = Materialized(lake, "SELECT k, rand() AS r FROM t")
    mt.refresh()
    assert "rand" in rejection(mt.verify)
    (source,) = mt.sources
    lake.sql("CREATE TABLE p (k STRING) USING parquet")
    mt.sources = (source.__class__(name=lake.name("p"), kind=SourceKind.PLAIN, table_id="p"),)
    assert "keeps no versions" in rejection(mt.verify)


def test_rows_that_an_expectation_dropped_are_not_missing(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (n INT) USING delta", "INSERT INTO t VALUES (1), (-1), (NULL)")
    drop = Expectation(name="positive", condition="n > 0", violation=Violation.DROP_ROW)
    mt = Materialized(lake, "SELECT n FROM t", expectations=[drop])
    outcome = mt.refresh()
    assert dict(outcome.metrics.expectations) == {"positive": 1}
    assert mt.verify().equal
    lake.sql("INSERT INTO t VALUES (2), (-2), (-2)", "DELETE FROM t WHERE n = -1")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert dict(outcome.metrics.expectations) == {"positive": 2}
    assert mt.content() == row_counts([(1,), (2,), (None,)])
    assert mt.verify().equal


@pytest.mark.parametrize(
    ("wanted", "stored", "counts"),
    [
        ("(1, 0.3D), (2, 1D)", "(1, 0.1D + 0.2D), (2, 1D)", (0, 0)),
        ("(1, 0.3D), (1, 0.3D)", "(1, 0.1D + 0.2D), (1, 0.3D)", (0, 0)),
        ("(1, 1D)", "(1, 1.000001D)", (1, 1)),
        ("(1, 1D), (1, 5D)", "(1, 5.0000000001D), (1, 1.0000000001D)", (0, 0)),
        ("(1, 0D)", "(1, -0D)", (0, 0)),
        ("(1, double('NaN'))", "(1, 1D)", (1, 1)),
        ("(1, double('Infinity'))", "(1, 1D)", (1, 1)),
        ("(1, NULL), (1, 2D)", "(1, NULL), (1, 2.0000000001D)", (0, 0)),
        ("(1, NULL)", "(1, 0D)", (1, 1)),
        ("(1, 1D)", "(2, 1D)", (1, 1)),
        ("(1, 1D), (1, 1D)", "(1, 1D)", (1, 0)),
        ("(1, 1e300D)", "(1, 1.00000000001e300D)", (0, 0)),
    ],
)
def test_floating_point_numbers_may_differ_in_their_last_digits(
    module_lake: Lake, wanted: str, stored: str, counts: tuple[int, int]
) -> None:
    frames = [
        module_lake.session.sql(f"SELECT k, CAST(d AS DOUBLE) AS d FROM VALUES {rows} AS v(k, d)")
        for rows in (wanted, stored)
    ]
    assert compare(*frames)[:2] == counts


def test_types_without_equality_are_compared_as_json(module_lake: Lake) -> None:
    frames = [
        module_lake.session.sql(f"SELECT parse_json('{text}') AS v, map(1, {number}D) AS m")
        for text, number in (('{"a": 1}', 0.0), ('{"a": 1}', 0.0), ('{"a": 2}', 0.0))
    ]
    assert compare(frames[0], frames[1])[:2] == (0, 0)
    assert compare(frames[0], frames[2])[:2] == (1, 1)


def test_a_rollback_is_a_new_version_with_the_old_vector(mt: Materialized) -> None:
    old = mt.lake.rows("SELECT * FROM mt VERSION AS OF 1")
    outcome = mt.roll_back(1)
    assert (outcome.plan.strategy, outcome.from_version, outcome.to_version) == (
        Strategy.ROLLBACK,
        3,
        4,
    )
    assert mt.content() == row_counts(old)
    assert (mt.last().strategy, mt.last().epoch) == ("ROLLBACK", mt.epoch)
    assert mt.verify().equal
    mt.lake.sql("INSERT INTO t VALUES ('z', 9)")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert mt.content() == row_counts([("a", 5), (None, 3), ("z", 9)])
    assert mt.verify().equal


def test_a_rollback_carried_out_twice_is_done_once(mt: Materialized) -> None:
    first = mt.roll_back(2, refresh_id="same")
    again = mt.roll_back(2, refresh_id="same")
    assert first.to_version == again.to_version == 4


def test_a_rollback_that_came_too_late_is_fenced(mt: Materialized) -> None:
    with pytest.raises(ServerError) as caught:
        mt.roll_back(1, epoch=2)
    assert caught.value.code == "MT_REFRESH_FENCED"
    assert mt.last().version == 3


def test_versions_that_cannot_be_restored(mt: Materialized) -> None:
    assert "no such version" in rejection(lambda: mt.roll_back(9))
    assert "no refresh is recorded" in rejection(lambda: mt.roll_back(0))
    mt.lake.sql("INSERT INTO mt VALUES ('foreign', 1)")
    assert "not written by a refresh" in rejection(lambda: mt.roll_back(4))
    mt.lake.sql("ALTER TABLE mt ADD COLUMN more INT")
    assert "other columns" in rejection(lambda: mt.roll_back(1))
