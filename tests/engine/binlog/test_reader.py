"""The reader of binlogs against a real MariaDB: rows are the same from a query and from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pymysql
import pytest

from tests.support.mariadb import MariaDb, has_mariadb, running_mariadb
from tidegate_server.engine.binlog.reader import FILE, read
from tidegate_server.engine.binlog.request import Endpoint, Position, ReadAnswer, ReadRequest
from tidegate_server.engine.binlog.server import begin_locked, settings
from tidegate_server.engine.binlog.values import Wanted

pytestmark = [  # of mysql-replication
    pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*utcfromtimestamp:DeprecationWarning"),
]
SOURCE = """CREATE TABLE items (
  id BIGINT UNSIGNED, k VARCHAR(20) COLLATE utf8mb4_bin, t TINYINT(1), u TINYINT UNSIGNED,
  m MEDIUMINT, d DECIMAL(38, 10), f FLOAT, g DOUBLE, dt DATETIME(6), ts TIMESTAMP(3) NULL, da DATE,
  ti TIME(6), y YEAR, b BIT(1), bb BIT(12), e ENUM('x', 'y z', 'ü'), s SET('a', 'b', 'c'), j JSON,
  tx TEXT, bl BLOB, bi BINARY(4), vb VARBINARY(9), bits BIT(9), c CHAR(5),
  la VARCHAR(9) CHARACTER SET latin1, PRIMARY KEY (id, k))"""
ROWS = """
(1, 'a', 1, 255, -8388608, 12345678901234567890.0123456789, 0.1, 0.1,
  '2026-01-02 03:04:05.123456', '2026-01-02 03:04:05.123', '2026-01-02', '-100:00:00.5', 2026, b'1',
  b'101000000001', 'ü', 'c,a', '{"a": [1, "ä"]}', 'täxt', x'ff00', x'6100', x'00ff', b'100000001',
  'ab ', 'größe'),
(2, 'n', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(3, 'e', 0, 0, 0, 0, 16777216, 1e300, '0001-01-01 00:00:00', NULL, '9999-12-31', '00:00:00', 1901,
  b'0', b'0', 'x', '', '[]', '', '', '', '', b'1', '', '')"""
NAMES = (
    *("id", "k", "t", "u", "m", "d", "f", "g", "dt", "ts", "da", "ti", "y", "b", "bb", "e", "s"),
    *("j", "tx", "bl", "bi", "vb", "bits", "c", "la"),
)
COLUMNS = tuple(
    Wanted(name=name, binary=name in ("bl", "bi", "vb", "bits"), boolean=name in ("t", "b"))
    for name in NAMES
)
Rows = list[dict[str, Any]]
Ask = Callable[..., tuple[ReadAnswer, Rows]]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDb]:
    if not has_mariadb():
        pytest.skip("MariaDB or the extra mysql is not installed")
    with running_mariadb() as database:
        database.execute(
            "CREATE DATABASE shop",
            "CREATE USER cdc IDENTIFIED BY 'hush'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES ON *.* TO cdc",
        )
        yield database


@pytest.fixture
def ask(mariadb: MariaDb, tmp_path: Path) -> Iterator[Ask]:
    """Return what is read of the table ``items`` from a position on, or at first."""
    mariadb.execute(SOURCE, f"INSERT INTO items VALUES {ROWS}", database="shop")

    def read_from(start: Position | None, **changed: Any) -> tuple[ReadAnswer, Rows]:
        request = ReadRequest(
            endpoint=Endpoint(host="127.0.0.1", port=mariadb.port, user="cdc", password="hush"),
            database="shop",
            table="items",
            columns=COLUMNS,
            key=("id", "K"),
            start=start,
            initial=True,
            servers=(5000, 9000),
            directory=str(tmp_path),
        )
        answer = read(replace(request, **changed))
        return answer, [] if answer.end is None else pq.read_table(tmp_path / FILE).to_pylist()

    yield read_from
    mariadb.execute("DROP TABLE IF EXISTS items", database="shop")


def test_a_row_is_the_same_from_a_query_and_from_the_binlog(mariadb: MariaDb, ask: Ask) -> None:
    first, rows = ask(None)
    assert [row["c0"] for row in rows] == ["1", "2", "3"]
    assert [row["sequence"] for row in rows] == [0, 1, 2]
    mariadb.execute("UPDATE items SET id = id + 100", database="shop")
    mariadb.execute("DELETE FROM items", "ROLLBACK", database="shop")
    mariadb.execute("FLUSH BINARY LOGS")
    second, events = ask(first.end)
    assert second.rows == 6
    assert second.end is not None
    values = [f"c{number}" for number in range(1, len(COLUMNS))]
    for row, before, after in zip(rows, events[::2], events[1::2], strict=True):
        assert (before["deleted"], after["deleted"]) == (True, False)
        assert int(after["c0"]) == int(row["c0"]) + 100
        for each in (before, after):
            assert [each[name] for name in values] == [row[name] for name in values]
    for answer, none in (ask(second.end), ask(None, initial=False)):
        assert (answer.problem, answer.rows, none) == ("", 0, [])
        assert answer.end is not None
        assert answer.end.order >= second.end.order


def test_columns_are_found_by_their_names_at_the_time(mariadb: MariaDb, ask: Ask) -> None:
    first, _ = ask(None)
    mariadb.execute(
        "INSERT INTO items (id, k, c) VALUES (7, 'z', 'old')",
        "ALTER TABLE items ADD COLUMN more INT FIRST, MODIFY c CHAR(5) AFTER k",
        "INSERT INTO items (more, id, k, c) VALUES (1, 8, 'z', 'new')",
        "DELETE FROM items WHERE id = 7",
        database="shop",
    )
    _, events = ask(first.end)
    at = f"c{NAMES.index('c')}"
    assert [(each["c0"], each[at], each["deleted"]) for each in events] == [
        ("7", "old", False),
        ("8", "new", False),
        ("7", "old", True),
    ]
    mariadb.execute("ALTER TABLE items DROP COLUMN tx", database="shop")
    assert ask(first.end)[0].problem == "the table shop.items has no column tx any more"


def test_what_ends_the_following_is_told(mariadb: MariaDb, ask: Ask) -> None:
    first, _ = ask(None)
    assert first.end is not None
    assert "no unique key of shop.items is within (k)" in ask(None, key=("k",))[0].problem
    assert "there is no table shop.x" in ask(None, table="x")[0].problem
    assert (
        "Access denied for user 'no'"
        in ask(
            None, endpoint=Endpoint(host="127.0.0.1", port=mariadb.port, user="no", password="hush")
        )[0].problem
    )
    mariadb.execute("SET SESSION binlog_format = STATEMENT", "DELETE FROM items", database="shop")
    assert "was logged as a text" in ask(first.end)[0].problem
    mariadb.execute("TRUNCATE items", database="shop")
    mariadb.execute("FLUSH BINARY LOGS")
    mariadb.purge()
    lost, _ = ask(first.end)
    assert (lost.problem, lost.lost) == (f"the server has purged the binlog {first.end.file}", True)
    again, _ = ask(None)
    assert again.end is not None
    beyond = Position(again.end.file, again.end.offset + 1000)
    assert "it was reset" in ask(beyond)[0].problem
    mariadb.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    refused, _ = ask(again.end)
    assert "binlog_row_metadata is MINIMAL" in refused.problem
    mariadb.execute("SET GLOBAL binlog_row_metadata = FULL")


def test_mysql_begins_its_snapshot_while_the_table_is_locked(mariadb: MariaDb, ask: Ask) -> None:
    first, _ = ask(None)
    endpoint = Endpoint(host="127.0.0.1", port=mariadb.port, user="cdc", password="hush")
    with (
        closing(pymysql.connect(**settings(endpoint))) as connection,
        connection.cursor() as cursor,
    ):
        begun = begin_locked(cursor, endpoint, "shop", "items")
        assert first.end is not None
        assert begun.order >= first.end.order
        mariadb.execute("DELETE FROM items", database="shop")
        cursor.execute("SELECT count(*) FROM shop.items")
        assert cursor.fetchall() == ((3,),)
