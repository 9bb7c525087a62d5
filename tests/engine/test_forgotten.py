"""Delta forgets tables as soon as they are dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Stored
from tidegate_server.engine.jvm.session import cached_tables
from tidegate_server.engine.statement.drop import protect_other_files
from tidegate_server.engine.statement.guard import guard
from tidegate_server.engine.storage.jvm import java


def cached_delta_log(lake: Lake, path: Path) -> Any:
    """Return Delta's log of a place, the same object as long as Delta remembers it."""
    jvm = java(lake.session)
    place = jvm.org.apache.hadoop.fs.Path(str(path))
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(lake.root._jsparkSession, place)


def run(lake: Lake, sql: str) -> None:
    with protect_other_files(lake.session, guard(lake.session, sql).targets):
        lake.sql(sql)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE t",
        "drop table if exists {schema}.t",
        "DROP TABLE spark_catalog.{schema}.t PURGE",
        "BEGIN DROP TABLE t; END",
    ],
)
def test_a_table_is_remembered_until_it_is_dropped(lake: Lake, sql: str) -> None:
    lake.sql("CREATE TABLE t USING delta AS SELECT 1 a", "CREATE VIEW v AS SELECT 1 a")
    path = lake.path("t")
    log = cached_delta_log(lake, path)
    for other in ("SELECT 1", "DROP VIEW v", "DROP TABLE IF EXISTS other"):
        run(lake, other)
    assert cached_delta_log(lake, path).equals(log)
    run(lake, sql.format(schema=lake.schema))
    assert not cached_delta_log(lake, path).equals(log)


def test_the_tables_of_a_schema_are_forgotten_with_it(lake: Lake) -> None:
    other = Lake(lake.root)
    other.sql("CREATE TABLE t USING delta AS SELECT 1 a")
    path = other.path("t")
    log = cached_delta_log(lake, path)
    run(other, f"DROP SCHEMA {other.schema} CASCADE")
    assert not cached_delta_log(lake, path).equals(log)


def test_a_materialized_table_is_forgotten_with_its_files(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    path = lake.path("mt")
    log = cached_delta_log(lake, path)
    lake.format.drop(mt.name, mt.id)
    assert not cached_delta_log(lake, path).equals(log)


@pytest.mark.parametrize(
    ("memory", "tables"),
    [("2g", 256), ("1g", 128), ("1536m", 192), ("512", 64), ("16g", 2048), ("100m", 20)],
)
def test_the_heap_bounds_how_many_are_remembered(memory: str, tables: int) -> None:
    assert cached_tables(memory) == tables
