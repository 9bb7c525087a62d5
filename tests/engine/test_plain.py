"""Sources without versions: files show whether they changed, other sources do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized, row_counts
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import Recompute, RefreshOutcome
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.refresh.plan import explain, source_versions

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

WHY = "SOURCE_WITHOUT_VERSIONS"


@pytest.fixture
def sold(lake: Lake, tmp_path: Path) -> Iterator[Path]:
    """The place of table ``p``, partitioned files that have one row."""
    place = tmp_path / "p"
    (place / "d=1").mkdir(parents=True)
    put(place / "d=1" / "a.parquet", 1)
    lake.sql(
        f"CREATE TABLE p (n BIGINT, d INT) USING parquet PARTITIONED BY (d) LOCATION '{place}'",
        "MSCK REPAIR TABLE p",
    )
    yield place
    lake.sql("UNCACHE TABLE IF EXISTS p")


def put(path: Path, *numbers: int) -> None:
    """Write a file of numbers."""
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)


def jobs(lake: Lake) -> int:
    """Return how many jobs this Spark has started."""
    context = lake.root.sparkContext._jsc.sc()
    return int(context.dagScheduler().nextJobId())


def why(outcome: RefreshOutcome) -> tuple[Strategy, str, list[str]]:
    """Return what was done, why, and how each source's change was known."""
    plan = outcome.plan
    return plan.strategy, plan.reason_code, [change.method for change in plan.changes]


def test_files_that_stay_are_not_read_again_and_others_are(lake: Lake, sold: Path) -> None:
    mt = Materialized(lake, "SELECT d, sum(n) AS n FROM p GROUP BY d")
    assert why(mt.refresh()) == (Strategy.FULL, "FIRST_REFRESH", ["FINGERPRINT"])
    before, version = jobs(lake), lake.version("mt")
    (sold / "_temporary").mkdir()
    put(sold / "_temporary" / "a.parquet", 7)
    outcome = mt.refresh()
    assert why(outcome) == (Strategy.NO_DATA, "SOURCES_UNCHANGED", ["FINGERPRINT"])
    (change,) = outcome.plan.changes
    assert change.before == change.after == mt.last().record.vector[mt.sources[0].table_id]
    assert (lake.version("mt"), jobs(lake)) == (version, before)
    assert mt.verify().equal

    lake.sql("CACHE TABLE p")
    put(sold / "d=1" / "b.parquet", 2)
    with pytest.raises(ServerError, match="are others by now"):
        mt.verify()
    outcome = mt.refresh()
    assert why(outcome) == (Strategy.FULL, WHY, ["FINGERPRINT"])
    assert outcome.plan.reason_text == f"files of {lake.name('p')} changed"
    assert mt.content() == row_counts([(1, 3)])
    lake.sql("ALTER TABLE p DROP PARTITION (d = 1)")
    assert why(mt.refresh())[1] == WHY
    assert mt.content() == row_counts([])


def test_an_unchanged_file_leaves_a_join_incremental(lake: Lake, tmp_path: Path) -> None:
    lines = tmp_path / "dim.csv"
    lines.write_text("1,one\n2,two\n")
    lake.sql(
        "CREATE TABLE t (k INT, n INT) USING delta",
        "INSERT INTO t VALUES (1, 10), (2, 20)",
        f"CREATE TABLE dim (k INT, name STRING) USING csv LOCATION '{tmp_path}'",
    )
    mt = Materialized(lake, "SELECT name, sum(n) AS n FROM t JOIN dim ON t.k = dim.k GROUP BY name")
    mt.refresh()
    lake.sql("INSERT INTO t VALUES (2, 5)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert [change.method for change in outcome.plan.changes] == ["APPENDED", "FINGERPRINT"]
    assert mt.content() == row_counts([("one", 10), ("two", 25)])
    lake.sql("INSERT INTO t VALUES (2, 5)")
    lines.write_text("1,one\n2,TWO\n")
    assert why(mt.refresh()) == (Strategy.FULL, WHY, ["WHOLE", "FINGERPRINT"])
    assert mt.content() == row_counts([("one", 10), ("TWO", 30)])


def test_paths_have_fingerprints_and_files_that_move_meanwhile_none(
    lake: Lake, tmp_path: Path
) -> None:
    put(tmp_path / "a.parquet", 1)
    path = f"parquet.`{tmp_path}/*.parquet`"
    tables = Tables(lake.session, lake.format, fingerprinted=True)
    tables.pin(f"SELECT * FROM {path}", "spark_catalog", lake.schema)
    (found,) = tables.vector().values()
    assert not tables.has_untracked_source() and tables.changed_sources() == {}
    (source,) = tables.sources.values()
    now = source_versions([source], lake.root, lake.format.sources)
    assert now == {source.table_id: found}
    put(tmp_path / "b.parquet", 2)
    assert list(tables.changed_sources()) == [source.table_id]
    assert source_versions([source], lake.root, lake.format.sources) != now


def test_a_source_that_is_no_files_is_assumed_to_change(lake: Lake) -> None:
    url = f"jdbc:derby:memory:{lake.schema};create=true"
    lake.session.range(2).write.jdbc(url, "numbers")
    lake.sql(f"CREATE TABLE j USING jdbc OPTIONS (url '{url}', dbtable 'numbers')")
    mt = Materialized(lake, "SELECT id FROM j")
    mt.refresh()
    assert why(mt.refresh()) == (Strategy.FULL, WHY, ["ASSUMED"])
    assert "are assumed" in explain(mt.order(), Recompute(), lake.root, lake.format).reason_text
    assert source_versions(mt.sources, lake.root, lake.format.sources) == {}
