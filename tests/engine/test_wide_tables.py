"""Refreshes of tables with many columns, which Parquet's writer keeps in memory page by page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized
from tidegate_server.engine.storage.jvm import java

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

ROWS = 12_000


@pytest.mark.parametrize(("columns", "pages"), [(2, 1), (200, 3)])
def test_pages_of_many_columns_have_fewer_rows(lake: Lake, columns: int, pages: int) -> None:
    lake.sql(f"CREATE TABLE t USING delta AS SELECT id FROM range(0, {ROWS}, 1, 1)")
    computed = ", ".join(f"id + {n} AS c{n}" for n in range(columns))
    mt = Materialized(lake, f"SELECT {computed} FROM t")
    mt.refresh()
    assert pages_of_first_column(lake) == pages
    lake.sql(f"INSERT INTO t SELECT id FROM range({ROWS}, {2 * ROWS}, 1, 1)")
    assert mt.refresh().plan.reason_code == "ROWS_APPENDED"
    assert pages_of_first_column(lake) == pages


def pages_of_first_column(lake: Lake) -> int:
    """Count the pages of a column in the newest file of the table."""
    file = max(lake.path("mt").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    jvm: Any = java(lake.session)
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    opened = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, configuration)
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(opened)
    try:
        column = reader.getFooter().getBlocks().get(0).getColumns().get(0)
        return int(reader.readOffsetIndex(column).getPageCount())
    finally:
        reader.close()
