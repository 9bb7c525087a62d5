"""Paimon tables of a catalog by pypaimon: in queries, and as sources of materialized tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.fixtures.spark import Lake
from tests.support.materialized import OverCatalog
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import CatalogDefinition
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.runs import ChangeMethod, Strategy
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.engine.gate.catalogs import put_catalogs
from tidegate_server.engine.jvm.errors import to_server_error

pytest.importorskip("pypaimon")
pytestmark = pytest.mark.spark

GROUPS = "SELECT k, sum(n) AS n, count(*) AS c FROM pai.db.{} GROUP BY k"


@pytest.fixture(scope="module")
def catalog(
    spark_root: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The catalog ``pai`` with the schema ``db``; Paimon's jar is not loaded."""
    definition = CatalogDefinition(
        kind=SecuredKind.CATALOG,
        name="pai",
        class_name="org.apache.paimon.spark.SparkCatalog",
        python_type="paimon",
        options={"warehouse": str(tmp_path_factory.mktemp("paimon")), "defaultDatabase": "db"},
    )
    put_catalogs(spark_root, [definition])
    spark_root.sql("CREATE SCHEMA pai.db")
    yield spark_root
    put_catalogs(spark_root, [])


@pytest.fixture
def table(lake: Lake, catalog: SparkSession) -> str:
    """A table without a key, with four rows; returns its name in ``pai.db``."""
    name = f"t_{lake.schema}"
    lake.sql(
        f"CREATE TABLE pai.db.{name} (id INT, k STRING, n INT)",
        f"INSERT INTO pai.db.{name} VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3), (4, 'c', 4)",
    )
    return name


@pytest.fixture
def keyed(lake: Lake, catalog: SparkSession) -> str:
    """A table with a key, with four rows."""
    name = f"k_{lake.schema}"
    lake.sql(
        f"CREATE TABLE pai.db.{name} (id INT, k STRING, n INT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')",
        f"INSERT INTO pai.db.{name} VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3), (4, 'c', 4)",
    )
    return name


def refusal(lake: Lake, text: str) -> ServerError:
    """Return the error with which a statement ends."""
    with pytest.raises(Exception) as caught:
        lake.rows(text)
    return to_server_error(caught.value)


def test_queries_read_what_statements_write(lake: Lake, table: str, keyed: str) -> None:
    assert lake.rows(f"SELECT n FROM pai.db.{table} WHERE k = 'a' AND id > 1") == [(2,)]
    assert lake.rows(f"SELECT count(*) FROM pai.db.{keyed}") == [(4,)]
    lake.sql(
        f"INSERT INTO pai.db.{keyed} VALUES (2, 'a', 20), (5, 'e', 5)",
        f"INSERT OVERWRITE pai.db.{table} SELECT /*+ REPARTITION(3) */ * FROM pai.db.{keyed}",
    )
    assert lake.rows(f"SELECT id, n FROM pai.db.{table}") == [
        *((1, 1), (2, 20), (3, 3), (4, 4), (5, 5)),
    ]
    joined = f"SELECT count(*) FROM pai.db.{table} JOIN pai.db.{keyed} USING (id, k, n)"
    assert lake.rows(joined) == [(5,)]


def test_all_types_are_read_as_they_were_written(lake: Lake, catalog: SparkSession) -> None:
    name = f"pai.db.all_{lake.schema}"
    values = (
        "SELECT true AS a, 1Y AS b, 2S AS c, 3 AS d, 4L AS e, 1.5F AS f, 2.5D AS g, 1.25BD AS h, "
        "'x' AS i, X'01' AS j, DATE'2026-01-01' AS k, TIMESTAMP'2026-01-01 12:00:00.123456' AS l, "
        "TIMESTAMP_NTZ'2026-01-01 12:00:00' AS m, array(1, NULL) AS n, map('a', 1) AS o, "
        "named_struct('x', 1, 'y', named_struct('z', array('q'))) AS p, CAST(NULL AS STRING) AS q"
    )
    lake.sql(f"CREATE TABLE {name} AS {values}")
    assert lake.rows(f"SELECT * FROM {name}") == lake.rows(values)
    assert lake.rows(f"SELECT l FROM {name} WHERE l > '2026-01-01'") == lake.rows(
        f"SELECT l FROM ({values})"
    )


def test_partitions_are_replaced_and_left_out(lake: Lake, catalog: SparkSession) -> None:
    name = f"pai.db.parts_{lake.schema}"
    lake.sql(
        f"CREATE TABLE {name} (day DATE, id INT) PARTITIONED BY (day)",
        f"INSERT INTO {name} (day, id) VALUES (DATE'2026-01-01', 1), (DATE'2026-01-02', 2)",
        "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        f"INSERT OVERWRITE {name} (day, id) VALUES (DATE'2026-01-02', 3)",
    )
    assert lake.rows(f"SELECT id FROM {name}") == [(1,), (3,)]
    lake.sql("SET spark.sql.sources.partitionOverwriteMode = static")
    one = lake.session.sql(f"SELECT id FROM {name} WHERE day = '2026-01-02'")
    assert [row.id for row in one.collect()] == [3]
    assert one.rdd.getNumPartitions() == 1
    lake.sql(f"INSERT OVERWRITE {name} (day, id) VALUES (DATE'2026-01-02', 4)")
    assert lake.rows(f"SELECT id FROM {name}") == [(4,)]


def test_versions_of_the_past_are_read(lake: Lake, table: str) -> None:
    lake.sql(f"INSERT INTO pai.db.{table} VALUES (5, 'e', 5)")
    assert lake.rows(f"SELECT count(*) FROM pai.db.{table} VERSION AS OF 1") == [(4,)]
    assert lake.rows(f"SELECT count(*) FROM pai.db.{table} TIMESTAMP AS OF now()") == [(5,)]
    optional = refusal(lake, f"SELECT * FROM pai.db.{table} WITH ('scan.snapshot-id' = '1')")
    assert "its tables have no option scan.snapshot-id" in optional.message
    gone = refusal(lake, f"SELECT * FROM pai.db.{table} VERSION AS OF 9")
    assert (gone.code, "there is no snapshot 9" in gone.message) == ("CATALOG_REFUSED", True)


def test_a_failed_insertion_leaves_nothing(lake: Lake, table: str) -> None:
    lake.rows(f"SELECT 1 FROM pai.db.{table}")
    failed = refusal(
        lake,
        f"INSERT INTO pai.db.{table} SELECT id, k, CAST(raise_error('no') AS INT) "
        f"FROM pai.db.{table}",
    )
    assert "no" in failed.message
    assert lake.rows(f"SELECT count(*) FROM pai.db.{table}") == [(4,)]
    assert "support deletes" in refusal(lake, f"DELETE FROM pai.db.{table} WHERE id = 1").message


def test_a_refresh_records_and_pins_a_snapshot(lake: Lake, table: str) -> None:
    mt = OverCatalog(lake, GROUPS.format(table))
    [source] = mt.sources
    assert source.kind is SourceKind.VERSIONED
    assert mt.last().record.vector == {source.table_id: 1}
    assert mt.refresh().plan.strategy is Strategy.NO_DATA
    lake.sql(f"INSERT INTO pai.db.{table} VALUES (5, 'a', 10)")
    assert mt.verify().equal
    mt.refresh(vector={source.table_id: 1}, force=True)
    assert ("('a', 3, 2)", 1) in mt.content().items()
    outcome = mt.follow()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    [change] = outcome.plan.changes
    assert (change.before, change.after, change.method) == (1, 2, ChangeMethod.APPENDED)
    assert mt.verify().equal
    assert mt.verify(1).equal


def test_a_replaced_row_changes_its_groups(lake: Lake, keyed: str) -> None:
    mt = OverCatalog(lake, GROUPS.format(keyed))
    lake.sql(f"INSERT INTO pai.db.{keyed} VALUES (1, 'b', 7), (9, 'd', 9)")
    outcome = mt.follow()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    [change] = outcome.plan.changes
    assert change.method is ChangeMethod.DIFFERENCE
    lake.sql(f"INSERT OVERWRITE pai.db.{keyed} VALUES (3, 'b', 3)")
    mt.follow()
    assert mt.verify().equal


def test_other_columns_and_another_table_are_noticed(lake: Lake, table: str) -> None:
    mt = OverCatalog(lake, f"SELECT * FROM pai.db.{table}")
    lake.sql(f"ALTER TABLE pai.db.{table} ADD COLUMN more STRING")
    assert mt.refresh().plan.strategy is Strategy.FULL
    lake.sql(
        f"DROP TABLE pai.db.{table}",
        f"CREATE TABLE pai.db.{table} (id INT, k STRING, n INT)",
        f"INSERT INTO pai.db.{table} VALUES (7, 'z', 7)",
    )
    assert mt.refresh().plan.strategy is Strategy.FULL
    assert mt.content() == Counter({"(7, 'z', 7)": 1})


def test_an_empty_table_is_a_version(lake: Lake, catalog: SparkSession) -> None:
    name = f"e_{lake.schema}"
    lake.sql(f"CREATE TABLE pai.db.{name} (id INT, k STRING, n INT)")
    mt = OverCatalog(lake, GROUPS.format(name))
    assert mt.content() == Counter()
    assert mt.verify().equal
    lake.sql(f"INSERT INTO pai.db.{name} VALUES (1, 'a', 1)")
    mt.follow()
    assert mt.verify().equal


def test_snapshots_that_have_expired_cost_a_full_refresh(lake: Lake, table: str) -> None:
    mt = OverCatalog(lake, GROUPS.format(table))
    lake.sql(f"INSERT INTO pai.db.{table} VALUES (5, 'e', 5)")
    place = lake.format.sources.location(TableName("pai", "db", table)).rpartition("@")[0]
    Path(place.removeprefix("file:"), "snapshot", "snapshot-1").unlink()
    outcome = mt.follow()
    assert outcome.plan.strategy is Strategy.FULL
    with pytest.raises(ServerError, match="cannot be read any more"):
        mt.verify(1)
