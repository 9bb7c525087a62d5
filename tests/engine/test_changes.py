"""What changed in a real Delta table: each rung of the ladder, and that it is exact."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.fixtures.spark import Lake
from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.engine.incremental.changes import Change, source_change

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FEED = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
NO_FEED = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')"


def change(lake: Lake, before: int, after: int | None = None) -> Change:
    """Read the change of ``t`` after a version up to the newest."""
    end = lake.version("t") if after is None else after
    return source_change(lake.session, lake.format, lake.source("t"), before, end)


def rows(found: Change) -> list[tuple[object, ...]]:
    """Return the change as rows, the weight last."""
    return sorted((tuple(row) for row in frame(found).collect()), key=repr)


def frame(found: Change, *columns: str) -> DataFrame:
    """Return the change of some columns, or of all."""
    assert found.read is not None
    table = SparkSession.active().table(found.source.name.quoted())
    return found.read(columns or table.columns)


def check(lake: Lake, found: Change, *, once: bool = True) -> None:
    """Assert that the change turns the old version into the new one, bit by bit."""
    name = found.source.name.quoted()
    content = Counter(map(repr, lake.rows(f"SELECT * FROM {name} VERSION AS OF {found.before}")))
    signed = rows(found)
    for *values, weight in signed:
        content[repr(tuple(values))] += weight  # type: ignore[assignment]
    wanted = Counter(map(repr, lake.rows(f"SELECT * FROM {name} VERSION AS OF {found.after}")))
    assert {k: n for k, n in content.items() if n} == wanted
    if once:
        assert len({repr(row[:-1]) for row in signed}) == len(signed)
        assert all(row[-1] != 0 for row in signed)


def jobs_of(lake: Lake, before: int) -> tuple[Change, list[int]]:
    """Read a change and return the Spark jobs that started meanwhile."""
    context = lake.session.sparkContext
    group = f"change {lake.schema} {before}"
    context.setJobGroup(group, "a change")
    found = change(lake, before)
    return found, list(context.statusTracker().getJobIdsForGroup(group))


def test_maintenance_and_empty_writes_change_nothing(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k STRING, n INT) {FEED}",
        "INSERT INTO t VALUES ('a', 1)",
        "INSERT INTO t VALUES ('b', 2)",
        "OPTIMIZE t",
        "ALTER TABLE t SET TBLPROPERTIES ('x' = 'y')",
        "INSERT INTO t SELECT 'c', 3 WHERE false",
        "DELETE FROM t WHERE n > 100",
    )
    assert change(lake, 2, 2).method is ChangeMethod.UNCHANGED
    found, jobs = jobs_of(lake, 2)
    assert (found.method, found.rows, jobs) == (ChangeMethod.UNCHANGED, 0, [])
    assert rows(found) == []
    assert frame(found).columns == ["k", "n", "__weight"]


def test_added_rows_are_read_from_the_added_files_alone(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE t (`a b` STRING, p INT) USING delta PARTITIONED BY (p)"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "INSERT INTO t VALUES ('x', 1), ('x', 1)",
        "INSERT INTO t VALUES ('y', 1), ('y', NULL), ('y', 1)",
        "OPTIMIZE t",
        "INSERT INTO t VALUES (NULL, 2)",
    )
    found, jobs = jobs_of(lake, 1)
    assert (found.method, found.rows, jobs) == (ChangeMethod.APPENDED, 4, [])
    assert rows(found) == [("y", 1, 1), ("y", 1, 1), ("y", None, 1), (None, 2, 1)]
    check(lake, found, once=False)
    assert rows(change(lake, 1, 2)) == [("y", 1, 1), ("y", 1, 1), ("y", None, 1)]


def test_the_change_feed_is_cancelled_out(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k STRING, n DECIMAL(38, 0)) {FEED}",
        "INSERT INTO t VALUES ('a', 1), ('a', 1), (NULL, 2), ('z', 99999999999999999999999)",
        "UPDATE t SET n = n",
        "UPDATE t SET n = 5 WHERE k IS NULL",
        "DELETE FROM t WHERE k = 'a'",
        "INSERT INTO t VALUES ('a', 1)",
    )
    assert rows(change(lake, 1, 2)) == []
    found = change(lake, 1)
    assert found.method is ChangeMethod.CHANGE_FEED
    assert [(*row[:1], int(row[1]), row[2]) for row in rows(found)] == [  # type: ignore[call-overload]
        ("a", 1, -1),
        (None, 2, -1),
        (None, 5, 1),
    ]
    check(lake, found)
    assert change(lake, 2, 3).rows == 2


def test_without_a_feed_replaced_files_are_compared(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k STRING, n INT) {NO_FEED}",
        "INSERT INTO t VALUES ('a', 1), ('a', 1), (NULL, NULL)",
        "INSERT INTO t VALUES ('b', 1)",
        "UPDATE t SET n = 7 WHERE k = 'b'",
        "MERGE INTO t USING (SELECT 'a' AS k) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = 3",
        "INSERT OVERWRITE t SELECT * FROM VALUES ('a', 3), ('b', 8) AS v(k, n)",
        "RESTORE TABLE t TO VERSION AS OF 3",
    )
    for before, after in ((2, 3), (3, 4), (4, 5), (5, 6), (1, 6), (2, 6)):
        found = change(lake, before, after)
        assert found.method is ChangeMethod.DIFFERENCE
        check(lake, found)
    assert len(rows(change(lake, 4, 5))) == 4
    assert rows(change(lake, 3, 6)) == []


@pytest.mark.parametrize("properties", [FEED, NO_FEED])
def test_mapped_columns_partitions_and_replaced_tables(lake: Lake, properties: str) -> None:
    mapped = properties.replace("(", "('delta.columnMapping.mode' = 'name', ", 1)
    table = f"TABLE t (`a b` STRING, p INT, `n;m` INT) {mapped} PARTITIONED BY (p)"
    rows_of_it = "SELECT * FROM VALUES ('x', 1, 1), ('y', NULL, 2), ('y', NULL, 2) AS v(a, p, n)"
    lake.sql(
        f"CREATE {table}",
        f"INSERT INTO t {rows_of_it}",
        "UPDATE t SET p = 2 WHERE p = 1",
        "DELETE FROM t WHERE p IS NULL",
        f"INSERT OVERWRITE t {rows_of_it}",
        "TRUNCATE TABLE t",
        f"INSERT INTO t {rows_of_it}",
    )
    for before, after in ((1, 2), (2, 3), (3, 4), (4, 5), (1, 6), (3, 6)):
        check(lake, change(lake, before, after))
    lake.sql(f"CREATE OR REPLACE {table}", f"INSERT INTO t {rows_of_it}")
    found = change(lake, 6)
    if found.method is not ChangeMethod.WHOLE:
        check(lake, found)


def test_a_feed_that_began_later_is_not_trusted(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k STRING, n INT) {NO_FEED}",
        "INSERT INTO t VALUES ('a', 1), ('b', 2)",
        "DELETE FROM t WHERE k = 'a'",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "UPDATE t SET n = 3",
    )
    found = change(lake, 1)
    assert found.method is ChangeMethod.DIFFERENCE
    check(lake, found)
    assert change(lake, 3).method is ChangeMethod.CHANGE_FEED


def test_deletion_vectors_are_followed(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE t (k STRING, n INT) USING delta TBLPROPERTIES"
        " ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'false')",
        "INSERT INTO t SELECT /*+ COALESCE(1) */ CAST(id AS STRING), id FROM range(20)",
        "DELETE FROM t WHERE n % 3 = 0",
        "DELETE FROM t WHERE n % 5 = 0",
        "UPDATE t SET n = -n WHERE n = 7",
    )
    for before, after in ((1, 2), (2, 3), (1, 4), (3, 4)):
        found = change(lake, before, after)
        assert found.method is ChangeMethod.DIFFERENCE
        check(lake, found)


def test_zeros_of_either_sign_and_nans_are_told_apart_as_a_query_prints_them(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (d DOUBLE, f FLOAT, a ARRAY<DOUBLE>, s STRUCT<x: DOUBLE, y: STRING>,"
        f" m MAP<STRING, DOUBLE>) {FEED}",
        "INSERT INTO t SELECT d, CAST(d AS FLOAT), array(d, NULL), named_struct('x', d, 'y', 'q'),"
        " map('k', d) FROM VALUES (0.0D), (double('NaN')), (NULL), (1.5D), (1.5D) AS v(d)",
        "INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL)",
        "UPDATE t SET d = -0.0D WHERE d = 0",
        "UPDATE t SET f = CAST(-0.0D AS FLOAT) WHERE f = 0",
        "UPDATE t SET a = array(-0.0D, NULL) WHERE a[0] = 0",
        "UPDATE t SET s = named_struct('x', -0.0D, 'y', 'q') WHERE s.x = 0",
        "UPDATE t SET m = map('k', -0.0D) WHERE m['k'] = 0",
        "UPDATE t SET d = d",
    )
    for before in range(1, 8):
        check(lake, change(lake, before, before + 1))
    assert rows(change(lake, 7, 8)) == []
    found = change(lake, 2, 7)
    check(lake, found)
    assert len(rows(found)) == 2


def test_rows_that_differ_in_other_columns_are_unchanged(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k STRING, n INT, v VARIANT) {FEED}",
        "INSERT INTO t VALUES ('a', 1, NULL), ('b', 2, NULL), ('b', 3, NULL)",
        "UPDATE t SET n = n + 1, v = parse_json('1')",
    )
    found = change(lake, 1)
    assert frame(found, "k").collect() == []
    assert sorted(map(tuple, frame(found, "n").collect())) == [(1, -1), (4, 1)]
    assert frame(found, "n", "k").columns == ["n", "k", "__weight"]


def test_a_column_that_cannot_be_compared_is_left_as_recorded(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k INT, v VARIANT) {FEED}",
        "INSERT INTO t SELECT 1, parse_json('{\"a\": 1}')",
        "UPDATE t SET k = k",
    )
    found = change(lake, 1)
    assert (found.method, frame(found).count()) == (ChangeMethod.CHANGE_FEED, 2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (("ALTER TABLE t ADD COLUMN m INT",), "SCHEMA_CHANGED"),
        (("ALTER TABLE t DROP COLUMN n", "ALTER TABLE t ADD COLUMN n INT"), "SCHEMA_CHANGED"),
        (("DROP TABLE t", f"CREATE TABLE t (k STRING) {FEED}"), "TABLE_RECREATED"),
        (("DELETE FROM t WHERE k = 'a'", "VACUUM t RETAIN 0 HOURS"), "FILES_GONE"),
    ],
)
def test_what_cannot_be_known_is_everything(
    lake: Lake, changes: tuple[str, ...], reason: str
) -> None:
    lake.sql(
        "CREATE TABLE t (k STRING, n INT) USING delta TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO t VALUES ('a', 1), ('b', 2)",
    )
    source = lake.source("t")
    lake.session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    lake.sql(*changes)
    after = max(lake.version("t"), 2)
    found = source_change(lake.session, lake.format, source, 1, after)
    assert (found.method, found.reason, found.read) == (ChangeMethod.WHOLE, reason, None)


def test_a_comment_on_a_column_is_no_change_of_the_schema(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE t (k STRING) {FEED}",
        "INSERT INTO t VALUES ('a')",
        "COMMENT ON TABLE t IS 'x'",
        "ALTER TABLE t ALTER COLUMN k COMMENT 'y'",
        "INSERT INTO t VALUES ('b')",
    )
    assert rows(change(lake, 1)) == [("b", 1)]


def test_versions_that_are_gone_or_from_another_history(lake: Lake) -> None:
    lake.sql(f"CREATE TABLE t (k STRING) {FEED}", *["INSERT INTO t VALUES ('a')"] * 4)
    assert change(lake, 3, 2).reason == "VERSION_WENT_BACK"
    jvm: Any = lake.session._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        lake.session._jsparkSession, str(lake.path("t"))
    )
    log.checkpoint(log.update(False, none(lake), none(lake)), none(lake))
    for version in range(3):
        (lake.path("t") / "_delta_log" / f"{version:020d}.json").unlink()
    for before in (1, 2):  # a commit is missing, the version itself is missing
        assert change(lake, before, 4).reason == "VERSION_GONE"


def none(lake: Lake) -> object:
    """Return Scala's None."""
    jvm: Any = lake.session._jvm
    return jvm.scala.Option.empty()


def test_a_source_without_versions_is_everything(lake: Lake) -> None:
    lake.sql("CREATE TABLE p (k STRING) USING parquet")
    source = Source(name=lake.name("p"), kind=SourceKind.PLAIN, table_id="p")
    found = source_change(lake.session, lake.format, source, 0, 1)
    assert (found.method, found.reason) == (ChangeMethod.WHOLE, "SOURCE_WITHOUT_VERSIONS")
