"""INSERT into the tables of Flink's connectors."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, last_rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a schema of its own."""
    schema = f"sinks_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        last_rows(cursor, f"CREATE SCHEMA {schema}", f"USE {schema}", "SET TIME ZONE 'UTC'")
        yield cursor
        last_rows(cursor, f"DROP SCHEMA {schema} CASCADE")


def lines(folder: Path) -> list[str]:
    """The lines of all files in a directory, in order; a job may be writing others."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith((".", "_"))]
        for name in names:
            if not name.startswith((".", "_")):
                found += (Path(place) / name).read_text("utf-8").splitlines()
    return sorted(found)


def test_rows_become_files(cursor: tidegate.Cursor, tmp_path: Path) -> None:
    out = tmp_path / "it's new"
    place = str(out).replace("'", "''")
    last_rows(
        cursor,
        f"""CREATE TABLE j (id BIGINT, name VARCHAR(3), at TIMESTAMP(3), there TIMESTAMP_LTZ(3),
  twice AS id * 2, ds STRING, file STRING METADATA FROM 'file.name') PARTITIONED BY (ds) WITH (
  'connector' = 'filesystem', 'path' = '{place}', 'format' = 'json')""",
    )
    assert last_rows(cursor, "SELECT * FROM j") == []
    moment = "TIMESTAMP '2026-01-01 00:00:00.12'"
    last_rows(
        cursor,
        f"INSERT INTO j VALUES (1, 'a', {moment}, {moment}, 'x'), (2, NULL, NULL, NULL, 'y')",
        "INSERT INTO j (ds, id) VALUES ('z', 3)",
        "EXECUTE IMMEDIATE 'INSERT INTO j BY NAME SELECT \"x\" AS ds, 4 AS id'",
        "BEGIN INSERT INTO j PARTITION (ds = 'z') VALUES (5, 'b', NULL, NULL); END",
    )
    rows = "SELECT id, ds FROM j ORDER BY id"
    assert last_rows(cursor, rows) == [(1, "x"), (2, "y"), (3, "z"), (4, "x"), (5, "z")]
    [first] = [json.loads(each) for each in lines(out / "ds=x") if '"id":1' in each]
    assert first["at"] == "2026-01-01 00:00:00.12"
    assert first["there"] == "2026-01-01 00:00:00.120000Z"
    assert last_rows(cursor, "SELECT at = there, twice FROM j WHERE id = 1") == [(True, 2)]
    assert '{"id":2,"name":null,"at":null,"there":null}' in lines(out)
    last_rows(
        cursor,
        "INSERT OVERWRITE j VALUES (6, 'c', NULL, NULL, 'x')",
        "INSERT OVERWRITE j PARTITION (ds = 'y') SELECT 7, 'c', NULL, NULL WHERE false",
        "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        "INSERT OVERWRITE j BY NAME SELECT id + 10 AS id, ds FROM j WHERE ds = 'x'",
    )
    assert last_rows(cursor, rows) == [(3, "z"), (5, "z"), (16, "x")]
    for statement, said in (
        ("INSERT INTO j VALUES (1, 'four', NULL, NULL, 'x')", "EXCEED_LIMIT_LENGTH"),
        ("INSERT INTO j VALUES ('one', 'a', NULL, NULL, 'x')", "CANNOT_SAFELY_CAST"),
        ("INSERT INTO j VALUES (1, 'a')", "NOT_ENOUGH_DATA_COLUMNS"),
        ("INSERT INTO j (id, twice) VALUES (1, 2)", "twice"),
        ("DELETE FROM j", "DELETE on the table j of the connector filesystem is not"),
    ):
        with pytest.raises(tidegate.Error, match=said):
            cursor.execute(statement)
    assert len(lines(out)) == 3
    last_rows(cursor, "DROP TABLE j")
    assert len(lines(out)) == 3


def test_each_format_reads_what_it_has_written(cursor: tidegate.Cursor, tmp_path: Path) -> None:
    columns = "id INT, text STRING, price DECIMAL(5, 2), at TIMESTAMP, here TIMESTAMP_LTZ"
    now = "date_trunc('MILLISECOND', now())"
    row = f"VALUES (1, ' a\"b\\\\c,; ', 1.5, {now}, {now}), (2, '', NULL, NULL, NULL), "
    row += "(3, NULL, NULL, NULL, NULL)"
    last_rows(cursor, f"CREATE TABLE given ({columns})", f"INSERT INTO given {row}")
    for format in ("json", "csv", "avro", "parquet", "orc"):
        literal = ", 'csv.null-literal' = 'n/a'" if format == "csv" else ""
        last_rows(
            cursor,
            f"CREATE TEMPORARY TABLE {format}s ({columns}) WITH ('connector' = 'filesystem', "
            f"'path' = '{tmp_path}/{format}', 'format' = '{format}'{literal})",
            f"INSERT INTO {format}s SELECT * FROM given",
        )
        differing = f"(SELECT * FROM given EXCEPT SELECT * FROM {format}s)"
        assert last_rows(cursor, f"SELECT count(*) FROM {differing}") == [(0,)]
    last_rows(
        cursor,
        "CREATE TABLE raws (line STRING, d INT) PARTITIONED BY (d) WITH ('connector' = "
        f"'filesystem', 'path' = '{tmp_path}/raw', 'format' = 'raw', 'raw.charset' = 'ISO-8859-1')",
        "INSERT INTO raws VALUES ('größer', 1), (NULL, 2)",
    )
    assert last_rows(cursor, "SELECT * FROM raws ORDER BY d") == [("größer", 1), ("", 2)]
    assert {path.name for path in (tmp_path / "raw").iterdir() if path.is_dir()} == {"d=1", "d=2"}
    with pytest.raises(tidegate.Error, match="that is also being read from"):
        cursor.execute("INSERT OVERWRITE csvs SELECT * FROM csvs")
    last_rows(cursor, "INSERT OVERWRITE csvs SELECT 9, 'x', 1, NULL, NULL")
    assert lines(tmp_path / "csv") == ["9,x,1.00,n/a,n/a"]


def test_times_in_files_of_avro_have_a_zone_or_none(
    cursor: tidegate.Cursor, tmp_path: Path
) -> None:
    columns = "a TINYINT NOT NULL, at TIMESTAMP(3), there TIMESTAMP_LTZ(3), r ROW<x SMALLINT, y {}>"
    files = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/{{}}', 'format' = 'avro'{{}})"
    local = ", 'avro.timestamp_mapping.legacy' = 'false', 'avro.codec' = 'deflate'"
    moment = "TIMESTAMP '2026-07-01 12:00:00.123'"
    row = f"1, {moment}, {moment}, named_struct('x', 2S, 'y', {moment})"
    last_rows(
        cursor,
        "SET TIME ZONE 'Asia/Tokyo'",
        f"CREATE TABLE m ({columns.format('TIMESTAMP_LTZ(3)')}) {files.format('m', '')}",
        f"CREATE TABLE l ({columns.format('TIMESTAMP(3)')}) {files.format('l', local)}",
        f"INSERT INTO m VALUES ({row})",
        f"INSERT INTO l VALUES ({row})",
    )
    same = f"a = 1 AND at = {moment} AND there = {moment} AND r.x = 2 AND r.y = {moment}"
    for table in ("m", "l"):
        assert last_rows(cursor, f"SELECT count(*) FROM {table} WHERE {same}") == [(1,)]
    stored = "typeof(at), CAST(at AS STRING), CAST(there AS STRING) FROM read_files('{}', format "
    stored += "=> 'avro')"
    there = "2026-07-01 12:00:00.123"
    kind = last_rows(cursor, f"SELECT {stored.format(tmp_path / 'm')}")
    assert kind == [("timestamp", "2026-07-01 21:00:00.123", there)]
    kind = last_rows(cursor, f"SELECT {stored.format(tmp_path / 'l')}")
    assert kind == [("timestamp_ntz", there, there)]
    last_rows(
        cursor,
        "CREATE MATERIALIZED TABLE taken FRESHNESS = INTERVAL '1' DAY AS SELECT a, at FROM m",
        "ALTER MATERIALIZED TABLE taken REFRESH",
    )
    assert last_rows(cursor, f"SELECT count(*) FROM taken WHERE at = {moment}") == [(1,)]
    last_rows(cursor, "DROP MATERIALIZED TABLE taken")


def test_rows_are_printed_or_discarded(server: Server, cursor: tidegate.Cursor) -> None:
    mark = uuid.uuid4().hex
    last_rows(
        cursor,
        "CREATE TABLE shown (id BIGINT NOT NULL, text STRING, all ARRAY<INT>) WITH ("
        f"'connector' = 'print', 'print-identifier' = '{mark}')",
        "CREATE TEMPORARY TABLE nothing (id BIGINT) WITH ('connector' = 'blackhole')",
        "INSERT INTO shown VALUES (1, 'a\\nb', array(1, 2)), (2, NULL, NULL)",
        "INSERT INTO nothing SELECT id FROM range(1000)",
        "EXPLAIN INSERT INTO shown SELECT 3, 'not run', NULL",
        "BEGIN DECLARE n = 4; WHILE n < 6 DO INSERT INTO shown VALUES (n, '', NULL); SET n = n + 1;"
        " END WHILE; END",
    )
    logs = [path.read_text("utf-8") for path in server.data.rglob("print.log")]
    found = [line.split(" ", 1)[1] for text in logs for line in text.splitlines() if mark in line]
    rows = ("1, a\\nb, [1, 2]", "2, null, null", "4, , null", "5, , null")
    assert found == [f"{mark}> +I[{row}]" for row in rows]
    last_rows(cursor, "CREATE TABLE endless (id BIGINT) WITH ('connector' = 'datagen')")
    for statement, said in (
        ("SELECT * FROM shown", "of the connector print can only be written"),
        ("SELECT * FROM nothing", "of the connector blackhole can only be written"),
        ("INSERT INTO shown VALUES (NULL, '', NULL)", "NOT_NULL"),
        ("INSERT OVERWRITE shown VALUES (1, '', NULL)", "does not support truncate"),
        (
            "INSERT INTO endless VALUES (1)",
            "INSERT on the table endless of the connector datagen is not",
        ),
    ):
        with pytest.raises(tidegate.Error, match=said):
            cursor.execute(statement)


def test_the_directory_of_a_materialized_table_is_not_written(cursor: tidegate.Cursor) -> None:
    last_rows(
        cursor,
        "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL "
        "AS SELECT 1 AS a",
        "ALTER MATERIALIZED TABLE m REFRESH",
    )
    [(location,)] = last_rows(cursor, "SELECT DISTINCT input_file_name() FROM m")
    place = location.rpartition("/")[0]
    for path in (place, f"{place}/new", str(Path(place).parent)):
        last_rows(
            cursor,
            "CREATE TABLE inside (a INT) WITH ('connector' = 'filesystem', "
            f"'path' = '{path}', 'format' = 'parquet')",
            "ALTER VIEW inside UNSET TBLPROPERTIES ('connector')",
        )
        statements = ["INSERT OVERWRITE inside VALUES (2)"]
        if path.startswith(place):
            statements.append("INSERT INTO inside VALUES (2)")
        for statement in statements:
            with pytest.raises(tidegate.Error, match="MT_WRONG_KIND"):
                cursor.execute(statement)
        last_rows(cursor, "DROP VIEW inside")
    last_rows(cursor, "DROP MATERIALIZED TABLE m")


def test_a_forged_view_writes_nothing(cursor: tidegate.Cursor, tmp_path: Path) -> None:
    said = {"connector": "filesystem", "columns": "id INT", "format": "json"}
    for number, expression in enumerate(("(SELECT max(id) FROM t)", "version()", "id id id")):
        text = json.dumps({**said, "expressions": [expression], "path": f"{tmp_path}/{number}"})
        view = f"CREATE VIEW v{number} AS SELECT /* connector=filesystem {text} */ 1 AS id"
        last_rows(cursor, view)
        with pytest.raises(tidegate.Error, match="INVALID_VIEW_TEXT"):
            cursor.execute(f"INSERT INTO v{number} VALUES (1)")
    assert list(tmp_path.iterdir()) == []


def test_a_job_writes_what_arrives(cursor: tidegate.Cursor, tmp_path: Path) -> None:
    out = tmp_path / "streamed"
    last_rows(
        cursor,
        "SET 'execution.checkpointing.interval' = '1 s'",
        "CREATE TEMPORARY TABLE g (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '5', "
        "'fields.id.kind' = 'random', 'fields.id.min' = '1', 'fields.id.max' = '9')",
        "CREATE TABLE s (id BIGINT, text STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{out}', 'format' = 'csv')",
        "INSERT INTO s (text, id) SELECT concat('n', id), id FROM g",
    )
    wait_until(lambda: len(lines(out)) > 5, "rows", 60)
    [(job, *_)] = [
        row for row in last_rows(cursor, "SHOW JOBS") if "sinks_" in row[1] and row[2] == "RUNNING"
    ]
    last_rows(cursor, f"STOP JOB '{job}'")
    assert all(re.fullmatch(r"(\d),n\1", line) for line in lines(out))
    with pytest.raises(tidegate.Error, match="An INSERT of a stream into"):
        last_rows(
            cursor,
            "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'blackhole')",
            "INSERT INTO t SELECT id FROM g",
        )
