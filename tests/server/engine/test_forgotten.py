"""Delta forgets tables as soon as they are dropped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fix_spark import Lake
from tidegate_server.engine.forgotten import forgetting, forgetting_dropped
from tidegate_server.engine.spark import tables_remembered
from tidegate_server.storage.jvm import java


def remembered(lake: Lake, table: str) -> Any:
    """Return Delta's log of a table, the same object as long as Delta remembers it."""
    jvm = java(lake.session)
    path = jvm.org.apache.hadoop.fs.Path(str(lake.path(table)))
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(lake.root._jsparkSession, path)


@pytest.fixture
def table(lake: Lake) -> str:
    lake.sql("CREATE TABLE t USING delta AS SELECT 1 a")
    return "t"


def test_a_table_is_remembered_until_it_is_dropped(lake: Lake, table: str) -> None:
    log = remembered(lake, table)
    assert remembered(lake, table).equals(log)
    with forgetting(lake.root, lake.name(table)):
        pass
    assert not remembered(lake, table).equals(log)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE t",
        "drop table if exists {schema}.t",
        "DROP TABLE spark_catalog.{schema}.t PURGE",
        "DROP SCHEMA {schema} CASCADE",
    ],
)
def test_statements_that_drop_it_let_it_be_forgotten(lake: Lake, table: str, sql: str) -> None:
    log = remembered(lake, table)
    with forgetting_dropped(lake.session, sql.format(schema=lake.schema)):
        pass
    assert not remembered(lake, table).equals(log)


@pytest.mark.parametrize("sql", ["SELECT 1", "DROP VIEW t", "DROP TABLE other", "DROP nonsense"])
def test_others_do_not(lake: Lake, table: str, sql: str) -> None:
    log = remembered(lake, table)
    with forgetting_dropped(lake.session, sql):
        pass
    assert remembered(lake, table).equals(log)


@pytest.mark.parametrize(
    ("memory", "tables"),
    [("2g", 256), ("1g", 128), ("1536m", 192), ("512", 64), ("16g", 2048), ("100m", 20)],
)
def test_the_heap_bounds_how_many_are_remembered(memory: str, tables: int) -> None:
    assert tables_remembered(memory) == tables
