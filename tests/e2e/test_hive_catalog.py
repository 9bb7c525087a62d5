"""Catalogs of the type hive: tables that another Spark keeps in a metastore of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as
from tests.support.full_run import FULL
from tests.support.hive_metastore import running_hive_metastore
from tests.support.other_spark import OtherSpark, running_spark

pytestmark = pytest.mark.faults  # the server with authorization

full = pytest.mark.skipif(not FULL, reason="starts a metastore and a second Spark")
COLUMNS = "id INT, v STRING, at TIMESTAMP, price DECIMAL(8, 2), tags ARRAY<STRING>"
ROWS = (
    "SELECT 1 AS id, 'a' AS v, TIMESTAMP '2026-01-02 03:04:05' AS at, "
    "CAST(1.50 AS DECIMAL(8, 2)) AS price, array('x', 'y') AS tags UNION ALL "
    "SELECT 2, '', NULL, NULL, NULL"
)
FORMATS = {
    "hive_parquet": "STORED AS PARQUET",
    "hive_orc": "STORED AS ORC",
    "hive_avro": "STORED AS AVRO",
    "hive_text": "ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' STORED AS TEXTFILE",
    "hive_rc": "STORED AS RCFILE",
    "hive_sequence": "STORED AS SEQUENCEFILE",
    "spark_parquet": "USING parquet",
    "spark_orc": "USING orc",
    "spark_json": "USING json",
    "spark_delta": "USING delta",
}

REFUSED = re.compile(
    r"its tables are only read|does not offer (create|drop|rename)_(table|schema)|NOT_SUPPORTED"
    r"|DELTA_ONLY_OPERATION|DELTA_NOT_A_DELTA_TABLE"
)


def refused(server: Server, user: str, text: str) -> str:
    """Return the message and the hint of the error with which a statement must end."""
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, text)
    return f"{caught.value} {caught.value.hint}"


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A metastore that the server does not use otherwise."""
    with running_hive_metastore(tmp_path_factory.mktemp("metastore")) as uri:
        yield uri


@pytest.fixture(scope="module")
def other(metastore: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSpark]:
    """What writes its tables."""
    with running_spark(tmp_path_factory.mktemp("other"), metastore) as spark:
        spark.run("CREATE DATABASE sales COMMENT 'of another department'")
        for name, storage in FORMATS.items():
            spark.run(
                f"CREATE TABLE sales.{name} ({COLUMNS}) {storage}",
                f"INSERT INTO sales.{name} {ROWS}",
            )
        yield spark


@pytest.fixture(scope="module")
def server(guarded_server: Server, other: OtherSpark, metastore: str) -> Iterator[Server]:
    """A server with the catalog ``hms``, which ann may use."""
    run_as(
        guarded_server,
        "root",
        f"CREATE CATALOG hms WITH ('type' = 'hive', 'uri' = '{metastore}', "
        "'default-database' = 'sales')",
        "GRANT ALL ON CATALOG hms TO USER ann",
        "GRANT USE CATALOG ON CATALOG hms TO USER bob",
    )
    run_as(guarded_server, "ann", "CREATE SCHEMA ann_hive")
    yield guarded_server
    run_as(guarded_server, "root", "DROP SCHEMA ann_hive CASCADE", "DROP CATALOG hms")


@full
@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_read(server: Server, name: str) -> None:
    found = run_as(server, "bob", f"SELECT *, v IS NULL FROM hms.sales.{name} ORDER BY id")
    assert [(row[0], row[1], row[-1]) for row in found] == [(1, "a", False), (2, "", False)]
    assert [str(row[2]) for row in found] == ["2026-01-02 03:04:05", "None"]
    assert [str(row[3]) for row in found] == ["1.50", "None"]
    counted = f"SELECT sum(size(tags)) FROM hms.sales.{name} WHERE price > 1"
    assert run_as(server, "bob", counted) == [(2,)]


@full
def test_partitions_are_those_of_the_metastore(
    server: Server, other: OtherSpark, tmp_path: Path
) -> None:
    for name, storage in (("p_parquet", "STORED AS PARQUET"), ("p_text", "STORED AS TEXTFILE")):
        elsewhere = tmp_path / f"{name}_elsewhere"
        other.run(
            f"CREATE TABLE sales.{name} (id INT) PARTITIONED BY (day DATE, n INT) {storage}",
            f"INSERT INTO sales.{name} VALUES (1, DATE '2026-01-01', 1), "
            "(2, DATE '2026-01-02', 2), (3, NULL, 3), (4, DATE '2026-01-04', 4)",
            f"ALTER TABLE sales.{name} ADD PARTITION (day = '2026-01-05', n = 5) "
            f"LOCATION '{elsewhere}'",
            f"INSERT INTO sales.{name} VALUES (5, DATE '2026-01-05', 5)",
        )
        file = f"SELECT input_file_name() FROM hms.sales.{name} WHERE n = 4"
        [(place,)] = run_as(server, "bob", file)
        # A directory without a partition has no rows, a partition without a directory neither.
        directory = Path(urlsplit(place).path).parent
        shutil.copytree(directory, directory.parent.parent / "day=2026-01-09" / "n=9")
        missing = directory.parent.parent / "day=2026-01-02"
        rows = f"SELECT id, CAST(day AS STRING), n FROM hms.sales.{name}"
        assert sorted(run_as(server, "bob", rows), key=lambda row: row[0]) == [
            (1, "2026-01-01", 1),
            (2, "2026-01-02", 2),
            (3, None, 3),
            (4, "2026-01-04", 4),
            (5, "2026-01-05", 5),
        ]
        shutil.rmtree(missing)
        assert (2, "2026-01-02", 2) not in run_as(server, "bob", rows)
        for condition, found in (
            ("day = DATE '2026-01-05'", [5]),
            ("n > 3 AND id < 5", [4]),
            ("day IS NULL", [3]),
            ("n IN (SELECT 1)", [1]),
        ):
            assert [
                each for each, *_ in run_as(server, "bob", f"{rows} WHERE {condition}")
            ] == found
        shown = [row[0] for row in run_as(server, "bob", f"SHOW PARTITIONS hms.sales.{name}")]
        assert "day=2026-01-05/n=5" in shown and len(shown) == 5
        shown = run_as(server, "bob", f"SHOW PARTITIONS hms.sales.{name} PARTITION (n = 4)")
        assert shown == [("day=2026-01-04/n=4",)]
        for change in (
            "ADD PARTITION (day = '2027-01-01', n = 1)",
            "DROP PARTITION (day = '2026-01-04', n = 4)",
        ):
            text = refused(server, "ann", f"ALTER TABLE hms.sales.{name} {change}")
            assert "its tables are only read" in text
    planned = "EXPLAIN SELECT * FROM hms.sales.p_parquet WHERE n = 4"
    assert "PartitionFilters: [isnotnull(n" in str(run_as(server, "bob", planned))


@full
def test_materialized_tables_follow(server: Server, other: OtherSpark, tmp_path: Path) -> None:
    refresh = "ALTER MATERIALIZED TABLE ann_hive.m REFRESH"
    last = "SHOW REFRESH HISTORY FOR ann_hive.m LIMIT 1"
    names = ("m_parquet", "m_text", "m_delta")
    storages = ("STORED AS PARQUET", "STORED AS TEXTFILE", "USING delta")
    for name, storage in zip(names, storages, strict=True):
        partitioned = "" if name == "m_delta" else " PARTITIONED BY (n INT)"
        columns = "id INT, n INT" if name == "m_delta" else "id INT"
        other.run(
            f"CREATE TABLE sales.{name} ({columns}){partitioned} {storage}"
            if name != "m_delta"
            else f"CREATE TABLE sales.{name} ({columns}) {storage}",
            f"INSERT INTO sales.{name} VALUES (1, 1), (2, 2)",
        )
        run_as(
            server,
            "ann",
            "CREATE MATERIALIZED TABLE ann_hive.m FRESHNESS = INTERVAL '1' DAY AS "
            f"SELECT count(*) AS c, sum(id) AS s FROM hms.sales.{name}",
            refresh,
        )
        assert run_as(server, "ann", "SELECT * FROM ann_hive.m") == [(2, 3)]
        assert "NO_DATA" in str(run_as(server, "ann", refresh, last))
        other.run(f"INSERT INTO sales.{name} VALUES (4, 2)")
        run_as(server, "ann", refresh)
        assert run_as(server, "ann", "SELECT * FROM ann_hive.m") == [(3, 7)], name
        if partitioned:
            # One of them has a directory elsewhere, where another program adds a file.
            place = tmp_path / name
            other.run(
                f"ALTER TABLE sales.{name} ADD PARTITION (n = 7) LOCATION '{place}'",
                f"INSERT INTO sales.{name} VALUES (8, 7)",
            )
            assert "SOURCE_WITHOUT_VERSIONS" in str(run_as(server, "ann", refresh, last)), name
            [file] = [each for each in place.iterdir() if each.name.startswith("part-")]
            shutil.copy(file, place / f"part-9{file.name.removeprefix('part-')}")
            run_as(server, "ann", refresh)
            assert run_as(server, "ann", "SELECT * FROM ann_hive.m") == [(5, 23)], name
            other.run(f"ALTER TABLE sales.{name} DROP PARTITION (n = 7)")
            run_as(server, "ann", refresh)
            assert run_as(server, "ann", "SELECT * FROM ann_hive.m") == [(3, 7)], name
            assert "NO_DATA" in str(run_as(server, "ann", refresh, last))
        run_as(server, "ann", "DROP MATERIALIZED TABLE ann_hive.m")
    past = "SELECT count(*) FROM hms.sales.m_delta VERSION AS OF 1"
    assert run_as(server, "bob", past) == [(2,)]


@full
def test_nothing_is_written(server: Server, other: OtherSpark) -> None:
    for name in ("hive_parquet", "hive_text", "spark_orc", "spark_delta"):
        table = f"hms.sales.{name}"
        for text in (
            f"INSERT INTO {table} SELECT * FROM {table}",
            f"INSERT OVERWRITE {table} SELECT * FROM {table}",
            f"DELETE FROM {table} WHERE id = 1",
            f"UPDATE {table} SET id = 1",
            f"MERGE INTO {table} t USING {table} s ON s.id = t.id WHEN MATCHED THEN DELETE",
            f"TRUNCATE TABLE {table}",
            f"ALTER TABLE {table} ADD COLUMN w INT",
            f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')",
            f"ALTER TABLE {table} RENAME TO sales.other",
            f"DROP TABLE {table}",
            f"OPTIMIZE {table}",
            f"VACUUM {table} RETAIN 200 HOURS",
            f"RESTORE TABLE {table} TO VERSION AS OF 0",
            f"REORG TABLE {table} APPLY (PURGE)",
        ):
            assert REFUSED.search(refused(server, "ann", text)), text
    for text in (
        "CREATE TABLE hms.sales.x (a INT)",
        "CREATE TABLE hms.sales.x AS SELECT 1 AS a",
        "CREATE SCHEMA hms.x",
        "DROP SCHEMA hms.sales CASCADE",
        "CREATE MATERIALIZED TABLE hms.sales.m AS SELECT 1 AS a",
    ):
        assert REFUSED.search(refused(server, "ann", text)), text
    counted = run_as(server, "bob", "SELECT count(*) FROM hms.sales.spark_delta")
    assert counted == [(2,)]


@full
def test_what_is_listed_and_described(server: Server) -> None:
    assert ("sales",) in run_as(server, "bob", "SHOW SCHEMAS IN hms")
    names = [row[1] for row in run_as(server, "bob", "USE CATALOG hms", "SHOW TABLES")]
    assert set(FORMATS) <= set(names)
    described = run_as(server, "bob", "DESCRIBE hms.sales.hive_text")
    assert [row[:2] for row in described][:5] == [
        ("id", "int"),
        ("v", "string"),
        ("at", "timestamp"),
        ("price", "decimal(8,2)"),
        ("tags", "array<string>"),
    ]
    text = str(run_as(server, "bob", "DESCRIBE EXTENDED hms.sales.hive_text"))
    assert "'Provider', 'hive'" in text and "field.delim=|" in text
    text = str(run_as(server, "bob", "SHOW CREATE TABLE hms.sales.spark_json"))
    assert "USING json" in text
    with closing(server.connect(user="bob")) as connection, closing(connection.cursor()) as cursor:
        schemas = {row[0] for row in cursor.schemas(catalog="hms").fetchall()}
        assert {"default", "sales"} <= schemas
        tables = {row[2] for row in cursor.tables(schema="sales", catalog="hms").fetchall()}
        assert set(FORMATS) <= tables


@full
def test_what_cannot_be_read_is_refused_with_what_to_do(server: Server, other: OtherSpark) -> None:
    other.run(
        "CREATE VIEW sales.a_view AS SELECT 1 AS a",
        "CREATE TABLE sales.odd (a INT) ROW FORMAT SERDE "
        "'org.apache.hadoop.hive.serde2.MetadataTypedColumnsetSerDe'",
    )
    for name, reason in (
        ("a_view", "create a view over its tables here instead"),
        ("odd", "write it to a table of Parquet or ORC"),
    ):
        text = refused(server, "bob", f"SELECT * FROM hms.sales.{name}")
        assert "CATALOG_REFUSED" in text and f"sales.{name} cannot be read" in text
        assert reason in text
    assert "TABLE_OR_VIEW_NOT_FOUND" in refused(server, "bob", "SELECT * FROM hms.sales.none")
    # Lists of names and columns are complete nevertheless.
    with closing(server.connect(user="bob")) as connection, closing(connection.cursor()) as cursor:
        rows = cursor.columns("sales", catalog="hms").fetchall()
        assert not {"a_view", "odd"} & {row[2] for row in rows}
        assert {"id", "tags"} <= {row[3] for row in rows}


@full
def test_only_the_right_opens_it(server: Server) -> None:
    assert "needs USE CATALOG on catalog hms" in refused(
        server, "eve", "SELECT * FROM hms.sales.hive_text"
    )
    assert "ACCESS_DENIED" in refused(
        server, "ann", "CREATE CATALOG mine WITH ('type' = 'hive', 'uri' = 'thrift://127.0.0.1:1')"
    )
    with_options = "SELECT * FROM hms.sales.spark_json WITH (`path` = '/etc')"
    for user in ("bob", "root"):
        assert "ACCESS_DENIED" in (text := refused(server, user, with_options)) or (
            "no option path" in text
        )


@full
def test_a_file_names_the_metastore(server: Server, metastore: str, tmp_path: Path) -> None:
    (tmp_path / "hive-site.xml").write_text(
        "<configuration><property><name>hive.metastore.uris</name>"
        f"<value>{metastore}</value></property></configuration>"
    )
    run_as(
        server,
        "root",
        f"CREATE CATALOG site WITH ('type' = 'hive', 'hive-conf-dir' = '{tmp_path}')",
    )
    assert run_as(server, "root", "SELECT count(*) FROM site.sales.hive_orc") == [(2,)]
    run_as(server, "root", "DROP CATALOG site")


def test_a_metastore_has_to_answer(guarded_server: Server) -> None:
    statement = "CREATE CATALOG gone WITH ('type' = 'hive', 'uri' = 'thrift://127.0.0.1:1')"
    text = refused(guarded_server, "root", statement)
    assert "INVALID_CATALOG" in text and "no metastore at thrift://127.0.0.1:1 answered" in text
