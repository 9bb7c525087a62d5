"""Tables of Flink's connectors, read by queries and ingested by materialized tables."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, last_rows
from tidegate.cli.split import split

pytestmark = pytest.mark.spark

GENERATORS = Path(__file__).parents[1] / "sql" / "fixtures" / "generators.sql"


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a schema of its own."""
    schema = f"connectors_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        last_rows(cursor, f"CREATE SCHEMA {schema}", f"USE {schema}")
        yield cursor
        last_rows(cursor, f"DROP SCHEMA {schema} CASCADE")


def test_flinks_tutorial_creates_and_reads_its_generators(cursor: tidegate.Cursor) -> None:
    last_rows(cursor, *(part.sql for part in split(GENERATORS.read_text("utf-8")) if part.sql))
    logged = last_rows(cursor, "SELECT * FROM `user_log` LIMIT 50")
    assert len(logged) == 50
    [today] = last_rows(cursor, "SELECT date_format(current_date, 'yyyyMMdd'), now()")
    for item, user, at, day in logged:
        assert 0 <= item < 1000 and 0 <= user < 100 and day == today[0]
        assert 0 <= (today[1] - at).total_seconds() < 5 * 3600 + 60
    products = last_rows(cursor, "SELECT * FROM dim_product LIMIT 50")
    assert len({title for _, title, *_ in products}) > 20
    assert all("." in domain for _, _, domain, _, _ in products)
    for endless in ("SELECT count(*) FROM user_log", "CREATE TABLE copy AS SELECT * FROM user_log"):
        with pytest.raises(tidegate.Error, match="The table has no end"):
            cursor.execute(endless)
    assert last_rows(cursor, "SHOW TABLES LIKE 'copy'") == []
    assert last_rows(cursor, "DROP TEMPORARY TABLE user_log", "SHOW VIEWS LIKE 'user_log'") == []


def test_the_values_of_datagen_have_their_types_and_limits(cursor: tidegate.Cursor) -> None:
    last_rows(
        cursor,
        """CREATE TABLE every_type (
  id BIGINT COMMENT 'from 5 on', tiny TINYINT, big BIGINT, wide DOUBLE, price DECIMAL(5, 2),
  name VARCHAR(40), code STRING, data BINARY, flag BOOLEAN, day DATE, at TIMESTAMP(3),
  twice AS id * 2, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'datagen', 'fields.id.start' = '5', 'fields.id.end' = '104',
  'fields.tiny.min' = '-3', 'fields.tiny.max' = '3', 'fields.price.min' = '0.5',
  'fields.code.length' = '7', 'fields.code.null-rate' = '0.5', 'fields.at.max-past' = '1 h'
)""",
    )
    [row] = last_rows(
        cursor,
        """SELECT count(*), min(id), max(id), count(DISTINCT tiny), min(tiny), max(tiny),
  min(big) < 0 AND max(big) > 0, count(wide), min(price) >= 0.5, max(length(name)),
  max(length(code)), count(code) BETWEEN 20 AND 80, count(data), count(DISTINCT flag),
  min(day) = current_date, min(at) > now() - INTERVAL 61 MINUTES, sum(twice)
FROM every_type""",
    )
    assert row[:6] == (100, 5, 104, 7, -3, 3)
    assert row[6:] == (True, 100, True, 40, 7, True, 100, 2, True, True, 2 * sum(range(5, 105)))
    types = last_rows(cursor, "DESCRIBE every_type")
    assert [kind for _, kind, *_ in types][:5] == [
        *("bigint", "tinyint", "bigint", "double", "decimal(5,2)"),
    ]
    assert types[0][2] == "from 5 on"


def test_a_materialized_table_ingests_what_is_generated(cursor: tidegate.Cursor) -> None:
    last_rows(
        cursor,
        """CREATE TABLE clicks (id BIGINT, page STRING) WITH (
  'connector' = 'faker', 'rows-per-second' = '50', 'number-of-rows' = '60',
  'fields.id.expression' = '#{number.numberBetween ''1'',''9''}',
  'fields.page.expression' = 'https://#{internet.domainName}/#{lorem.word}')""",
        "CREATE MATERIALIZED TABLE seen FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL "
        "AS SELECT c.id, upper(page) AS page FROM clicks c WHERE id < 10",
    )
    deadline = time.monotonic() + 60
    while last_rows(cursor, "SELECT count(*) FROM seen") != [(60,)]:
        assert time.monotonic() < deadline
        last_rows(cursor, "ALTER MATERIALIZED TABLE seen REFRESH")
        time.sleep(0.5)
    last_rows(cursor, "ALTER MATERIALIZED TABLE seen REFRESH")
    [(rows, ids, pages)] = last_rows(
        cursor, "SELECT count(*), count(DISTINCT id), count_if(page LIKE 'HTTPS://%.%/%') FROM seen"
    )
    assert (rows, ids, pages) == (60, 8, 60)
    last_rows(cursor, "DROP MATERIALIZED TABLE seen")
    assert last_rows(cursor, "DROP TABLE IF EXISTS clicks", "SHOW VIEWS") == []


def test_a_table_is_created_like_another_one(cursor: tidegate.Cursor) -> None:
    last_rows(
        cursor,
        """CREATE TABLE readings (
  id INT, ts TIMESTAMP(3), half AS id / 2, seen AS date_trunc('DAY', ts),
  WATERMARK FOR seen AS seen - INTERVAL '5' SECOND
) WITH ('connector' = 'datagen', 'fields.id.start' = '1', 'fields.id.end' = '5')""",
    )
    assert any("WATERMARK FOR seen has no effect" in str(text) for _, text in cursor.messages)
    [(shown,)] = last_rows(cursor, "SHOW CREATE TABLE readings")
    assert "WATERMARK FOR `seen` AS seen - INTERVAL" in shown
    last_rows(
        cursor,
        "CREATE TEMPORARY TABLE more (twice AS id * 2) WITH ('fields.id.end' = '7') "
        "LIKE readings (EXCLUDING WATERMARKS OVERWRITING OPTIONS)",
        "CREATE TABLE most (half AS id / 4) LIKE more (OVERWRITING GENERATED)",
    )
    assert last_rows(cursor, "SELECT sum(id), sum(twice), sum(half) FROM most") == [(28, 56, 7.0)]
    last_rows(
        cursor,
        "CREATE TABLE plain (k BIGINT NOT NULL COMMENT 'key', s STRUCT<a: INT>, v VARCHAR(10), "
        "PRIMARY KEY (k) NOT ENFORCED) PARTITIONED BY (v) WITH ()",
        "CREATE TABLE sunk WITH ('connector' = 'blackhole') LIKE plain (EXCLUDING PARTITIONS)",
        "CREATE TABLE copied LIKE plain",
        "CREATE TABLE wider (z INT) WITH () LIKE plain",
        "INSERT INTO sunk VALUES (1, named_struct('a', 2), 'x')",
    )
    wider = {name: kind for name, kind, _ in last_rows(cursor, "DESCRIBE wider")}
    assert (wider["s"], wider["z"], wider["# Partition Information"]) == (
        "struct<a:int>",
        "int",
        "",
    )
    views = [name for _, name, _ in last_rows(cursor, "SHOW VIEWS")]
    assert sorted(views) == ["more", "most", "readings", "sunk"]
    for statement, said in (
        ("CREATE TABLE x (id INT) LIKE readings", "it already has the column id"),
        ("CREATE TABLE x WITH ('a' = 'b') LIKE nothing", "cannot be found"),
        (
            "CREATE TABLE x (ts TIMESTAMP, WATERMARK FOR ts AS 1) WITH ('connector' = 'datagen')",
            "it is INT instead of a TIMESTAMP",
        ),
    ):
        with pytest.raises(tidegate.Error, match=said):
            cursor.execute(statement)
    with pytest.raises(tidegate.Error, match="is for the connector filesystem") as caught:
        cursor.execute("CREATE TABLE x WITH ('connector' = 'blackhole') LIKE plain")
    assert "EXCLUDING PARTITIONS" in str(caught.value.hint)


def test_files_are_a_table(cursor: tidegate.Cursor, tmp_path: Path) -> None:
    landing = tmp_path / "it's here"
    for day, lines in (("01", ['{"id": 1, "tags": ["a"]}', "no json"]), ("02", ['{"id": 2}'])):
        (landing / f"day={day}").mkdir(parents=True)
        (landing / f"day={day}" / "a.json").write_text("\n".join(lines))
    place = str(landing).replace("'", "''")
    last_rows(
        cursor,
        f"""CREATE TABLE landed (id BIGINT, tags ARRAY<STRING>, twice AS id * 2, day STRING,
  file STRING METADATA FROM 'file.name') PARTITIONED BY (day) WITH ('connector' = 'filesystem',
  'path' = '{place}', 'format' = 'json', 'json.ignore-parse-errors' = 'true')""",
        "CREATE MATERIALIZED TABLE kept FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL "
        "AS SELECT id, twice, day, file FROM landed WHERE id > 0",
        "ALTER MATERIALIZED TABLE kept REFRESH",
    )
    both = [(1, 2, "01", "a.json"), (2, 4, "02", "a.json")]
    assert last_rows(cursor, "SELECT id, twice, day, file FROM landed ORDER BY id") == both
    (landing / "day=02" / "b.json").write_text('{"id": 3}\n{"id": -3}')
    last_rows(cursor, "ALTER MATERIALIZED TABLE kept REFRESH")
    all_three = [*both, (3, 6, "02", "b.json")]
    assert last_rows(cursor, "SELECT * FROM kept ORDER BY id") == all_three
    texts = f"read_files('{place}/*/a.json', format => 'text')"
    assert last_rows(cursor, f"SELECT count(*) FROM {texts}") == [(3,)]
    for statement, said in (
        (f"CREATE MATERIALIZED TABLE x AS SELECT * FROM {texts}", "STREAM read_files"),
        (f"SELECT * FROM STREAM {texts}", "STREAM read_files in this statement"),
        (
            "SELECT * FROM read_kafka(bootstrapServers => 'b', subscribe => 't')",
            "source kafka is not",
        ),
        ("SELECT * FROM read_files('/x', format => 'json', multiLines => true)", "multiLine?"),
    ):
        with pytest.raises(tidegate.Error, match=said.replace("?", r"\?")):
            cursor.execute(statement)
    last_rows(
        cursor,
        "CREATE VIEW named AS SELECT 1 AS value",
        "CREATE MATERIALIZED TABLE over_view FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS "
        "SELECT value FROM named",
        f"ALTER VIEW named AS SELECT length(value) AS value FROM {texts}",
    )
    with pytest.raises(tidegate.Error, match="a view calls read_files"):
        cursor.execute("ALTER MATERIALIZED TABLE over_view REFRESH FULL")
    with pytest.raises(tidegate.Error, match="a view calls read_files"):
        cursor.execute("CREATE MATERIALIZED TABLE x AS SELECT * FROM named")
    last_rows(
        cursor,
        *("DROP MATERIALIZED TABLE kept", "DROP MATERIALIZED TABLE over_view"),
        "DROP TABLE landed",
    )
