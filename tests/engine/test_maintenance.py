"""Compaction and removal of a materialized table's files, against real Delta tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.maintenance import (
    FilesRemoved,
    FileStatistics,
    Horizon,
    MaintenanceRules,
    horizon,
)

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

COMMITS = 2


@pytest.fixture
def mt(lake: Lake) -> Materialized:
    """A table to which each of some refreshes has added a file."""
    lake.sql("CREATE TABLE t (k STRING, n INT) USING delta")
    table = Materialized(lake, "SELECT k, n FROM t")
    for number in range(COMMITS):
        lake.sql(f"INSERT INTO t VALUES ('a', {number})")
        table.refresh()
    return table


def inspect_files(mt: Materialized, *versions: int, back: int = 0) -> FileStatistics:
    """Return what the inspection of the table finds."""
    found = mt.lake.format.inspect_files(mt.name, mt.id, versions, back)
    assert found is not None
    return found


def remove(mt: Materialized, before: datetime, *, shortens_log: bool = False) -> FilesRemoved:
    """Remove what no version since then needs."""
    wanted = Horizon(before=before, shortens_log=shortens_log)
    return mt.lake.format.remove_files(mt.name, mt.id, wanted, "u")


def on_disk(mt: Materialized) -> int:
    """Count the files with rows."""
    return len(list(Path(mt.lake.path(mt.name.table)).rglob("*.parquet"))) - len(
        list(Path(mt.lake.path(mt.name.table) / "_delta_log").rglob("*.parquet"))
    )


def later() -> datetime:
    """Return a moment after all that was written."""
    return datetime.now(UTC) + timedelta(seconds=1)


def test_compaction_changes_no_row_and_concerns_nobody(lake: Lake, mt: Materialized) -> None:
    below = Materialized(lake, "SELECT k, count(*) AS c FROM mt GROUP BY k", table="below")
    below.refresh()
    content, before = mt.content(), lake.version("mt")
    assert inspect_files(mt).files == COMMITS
    done = lake.format.rewrite_files(mt.name, mt.id, "u")
    assert (done.added, done.removed) == (1, COMMITS)
    assert (inspect_files(mt).files, inspect_files(mt).version, mt.content()) == (
        1,
        before + 1,
        content,
    )
    assert below.refresh().plan.strategy is Strategy.NO_DATA
    assert mt.refresh().plan.strategy is Strategy.NO_DATA
    assert mt.last().foreign_version is None
    assert mt.verify().equal
    lake.sql("INSERT INTO t VALUES ('b', 9)")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert below.refresh().plan.strategy is Strategy.INCREMENTAL
    assert mt.verify().equal and below.verify().equal
    mt.roll_back(before)
    assert mt.content() == content


def test_what_no_version_since_the_horizon_needs_is_gone(lake: Lake, mt: Materialized) -> None:
    content = mt.content()
    lake.format.rewrite_files(mt.name, mt.id, "u")
    orphan = lake.path("mt") / "part-00000-of-a-refresh-that-died.snappy.parquet"
    orphan.write_bytes(b"-" * 100)
    assert on_disk(mt) == COMMITS + 2
    long_ago = datetime.now(UTC) - timedelta(days=1)
    assert remove(mt, long_ago) == FilesRemoved()
    assert on_disk(mt) == COMMITS + 2
    removed = remove(mt, later())
    assert (removed.files, on_disk(mt), orphan.exists()) == (COMMITS + 1, 1, False)
    assert removed.size > 100
    with pytest.raises(PySparkException, match="DELTA_VACUUM_RETENTION|retention"):
        lake.sql("VACUUM t RETAIN 0 HOURS")
    assert mt.content() == content
    assert mt.last().foreign_version is None
    lake.sql("INSERT INTO t VALUES ('c', 1)")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert mt.verify().equal


def test_a_table_that_lags_goes_on_incrementally(lake: Lake, mt: Materialized) -> None:
    below = Materialized(lake, "SELECT k, sum(n) AS s FROM mt GROUP BY k", table="below")
    below.refresh()
    (read,) = below.last().record.vector.values()
    lake.sql("UPDATE t SET n = 7 WHERE n = 1", "INSERT INTO t VALUES ('b', 7)")
    mt.refresh()
    lake.format.rewrite_files(mt.name, mt.id, "u")
    found = inspect_files(mt, read, back=1)
    wanted = horizon(found, MaintenanceRules(), datetime.now(UTC))
    assert wanted.before <= found.needed[0].left
    # As if all of this were long past: nothing but the need holds the files.
    assert remove(mt, found.needed[0].made).files < on_disk(mt)
    assert lake.rows(f"SELECT count(*) FROM mt VERSION AS OF {read}") == [(COMMITS,)]
    assert below.refresh().plan.strategy is Strategy.INCREMENTAL
    assert below.verify().equal


def test_without_the_need_it_is_refreshed_in_full(lake: Lake, mt: Materialized) -> None:
    below = Materialized(lake, "SELECT k, sum(n) AS s FROM mt GROUP BY k", table="below")
    below.refresh()
    lake.sql("UPDATE t SET n = 99 WHERE n = 1")
    mt.refresh()
    assert remove(mt, later()).files > 0
    plan = below.refresh().plan
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "SOURCE_CHANGE_UNKNOWN")


def test_partitions_and_the_table_of_another_id_stay_as_they_are(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k STRING, n INT) USING delta")
    mt = Materialized(lake, "SELECT k, n FROM t", "k")
    for number in range(2):
        lake.sql(f"INSERT INTO t VALUES ('a', {number}), ('b', {number})")
        mt.refresh()
    assert inspect_files(mt).files == 4
    assert lake.format.inspect_files(mt.name, "other", (), 0) is None
    assert lake.format.rewrite_files(mt.name, "other", "u").removed == 0
    assert (
        lake.format.remove_files(mt.name, "other", Horizon(before=later(), shortens_log=False), "u")
        == FilesRemoved()
    )
    assert (lake.format.rewrite_files(mt.name, mt.id, "u").removed, inspect_files(mt).files) == (
        4,
        2,
    )
    assert lake.rows("SELECT DISTINCT k, input_file_name() RLIKE concat('/k=', k) FROM mt") == [
        ("a", True),
        ("b", True),
    ]


def test_the_log_of_a_busy_table_is_shortened(lake: Lake, mt: Materialized) -> None:
    log = lake.path("mt") / "_delta_log"
    for number in range(12):
        lake.format.set_properties(mt.name, {"c": str(number)})
    lake.sql("INSERT INTO t VALUES ('c', 1)")
    mt.refresh()
    before = len(list(log.glob("*.json")))
    content = mt.content()
    remove(mt, later() + timedelta(days=2), shortens_log=True)
    assert len(list(log.glob("0*.json"))) < before - 5
    assert mt.content() == content
    lake.sql("INSERT INTO t VALUES ('d', 1)")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL


def test_files_that_are_not_the_tables_stay(lake: Lake) -> None:
    """Its own that no version needs go all the same."""
    mt = Materialized(lake, "SELECT 'k' AS k")
    mt.fill()
    mt.fill("SELECT 'l' AS k")
    folder = lake.path("mt")
    lake.sql(f"CREATE TABLE ext (x INT) USING parquet LOCATION '{folder}/inside'")
    lake.sql("INSERT INTO ext VALUES (1)")
    (folder / "notes.txt").write_text("mine")
    assert remove(mt, later()).files == 1
    assert (folder / "notes.txt").read_text() == "mine"
    assert lake.rows("SELECT * FROM ext") == [(1,)]
