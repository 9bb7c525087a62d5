"""What is read from the metastore's own database is what Hive's client would have told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.fixtures.spark import Lake
from tidegate_server.engine.metastore.direct import StoredTable, parse_tables
from tidegate_server.engine.metastore.listing import Metastore

PREFIX = "spark.sql.sources."
SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"integer"},{"name":"b","type":"date"}]}'


def rows(kind: str = "MANAGED_TABLE", **properties: str) -> list[tuple[str, str, str, str | None]]:
    keys = {key.replace("__", "."): value for key, value in properties.items()}
    return [
        ("t", kind, key if key == "comment" else f"{PREFIX}{key}", value)
        for key, value in keys.items()
    ]


def names(table: StoredTable) -> list[str]:
    return [field["name"] for field in json.loads(table.columns)["fields"]]


def test_a_schema_may_be_cut_into_parts() -> None:
    parts = {"schema__numParts": "2", "schema__part__0": SCHEMA[:9], "schema__part__1": SCHEMA[9:]}
    (table,) = parse_tables(rows(provider="parquet", comment="c", **parts))
    assert (table.comment, names(table)) == ("c", ["a", "b"])


def test_partition_columns_come_last() -> None:
    partitioned = {"schema__numPartCols": "1", "schema__partCol__0": "a"}
    (table,) = parse_tables(rows(provider="parquet", schema=SCHEMA, **partitioned))
    assert names(table) == ["b", "a"]


def test_delta_keeps_its_columns_itself() -> None:
    (table,) = parse_tables(rows(provider="delta"))
    assert names(table) == []


@pytest.mark.parametrize(
    "given",
    [
        rows(kind="VIRTUAL_VIEW", provider="parquet", schema=SCHEMA),
        rows(provider="hive", schema=SCHEMA),
        rows(schema=SCHEMA),
        rows(comment="of Hive's own"),
        rows(provider="parquet"),
        rows(provider="parquet", schema__numParts="2", schema__part__0="{"),
        rows(
            provider="parquet", schema=SCHEMA, schema__numPartCols="1", schema__partCol__0="other"
        ),
    ],
)
def test_what_does_not_tell_everything_is_left_to_hive(
    given: list[tuple[str, str, str, str | None]],
) -> None:
    assert parse_tables(given) == ()


@pytest.fixture(scope="module")
def metastore(spark_root: SparkSession) -> Any:
    """One for all: py4j knows the class that it compiles by its name."""
    return Metastore(spark_root)


@pytest.mark.spark
def test_both_ways_tell_the_same(lake: Lake, metastore: Any) -> None:
    wide = ", ".join(f"column_number_{n} STRUCT<a: INT, b: ARRAY<STRING>>" for n in range(200))
    lake.sql(
        "CREATE TABLE plain (a INT COMMENT 'the a', B CHAR(3), c VARCHAR(9) NOT NULL) "
        "USING parquet COMMENT 'it''s ünusual'",
        "CREATE TABLE parted (p INT, a STRING, q DATE) USING parquet PARTITIONED BY (q, p)",
        f"CREATE TABLE wide ({wide}) USING json",
        "CREATE TABLE lake (a INT, b TIMESTAMP_NTZ) USING delta COMMENT 'of Delta'",
        "CREATE TABLE hives (a INT) STORED AS textfile",
        "CREATE VIEW seen COMMENT 'a view' AS SELECT a AS x FROM plain",
        "ALTER TABLE plain ADD COLUMNS (d BIGINT)",
        "CREATE TABLE renamed (a INT) USING orc",
        "ALTER TABLE renamed RENAME TO renamed_twice",
    )
    (found,) = (each for each in metastore.names().schemas if each.schema == lake.schema.lower())
    names = sorted({*found.tables, *found.views})
    stored, database = metastore._stored, metastore._stored._database
    quick = {table.name for table in stored.read(found.schema, names)}
    assert quick == {"plain", "parted", "wide", "lake", "renamed_twice"}
    for with_columns in (True, False):
        told = metastore.tables(found.schema, with_columns=with_columns, names=names)
        stored._database = None
        slowly = metastore.tables(found.schema, with_columns=with_columns, names=names)
        stored._database = database
        assert told == slowly
        assert bool(told.tables[0].columns) == with_columns


@pytest.mark.spark
def test_of_many_tables_those_are_told_that_were_asked_for(lake: Lake, metastore: Any) -> None:
    lake.sql(*(f"CREATE TABLE t{n} (a INT) USING parquet COMMENT 'number {n}'" for n in range(4)))
    wanted = [f"t{n}" for n in (0, 1, 3, *range(100, 200))]
    stored = metastore._stored.read(lake.schema.lower(), wanted)
    assert [(table.name, table.comment) for table in stored] == [
        (f"t{n}", f"number {n}") for n in (0, 1, 3)
    ]


@pytest.mark.spark
def test_a_database_that_cannot_be_read_is_not_asked_again(lake: Lake, metastore: Any) -> None:
    lake.sql("CREATE TABLE plain (a INT) USING parquet")
    stored, database = metastore._stored, metastore._stored._database
    stored._database = replace(database, url="jdbc:nothing:here")
    told = metastore.tables(lake.schema, with_columns=True, names=["plain"])
    assert [column.name for column in told.tables[0].columns] == ["a"]
    assert stored._database is None
    stored._database = database
