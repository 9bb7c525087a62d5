"""Catalogs written in Python on a real server: the examples, grants, what refreshes see."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

import tidegate
from tests.support.fixtures.server import Server, run_as

pytestmark = pytest.mark.faults  # the server with authorization

REGISTER = """
CREATE TABLE datasets (schema_name TEXT, table_name TEXT, format TEXT, location TEXT,
                       options TEXT, comment TEXT, version TEXT);
CREATE TABLE fields (schema_name TEXT, table_name TEXT, position INTEGER, name TEXT, type TEXT);
INSERT INTO datasets VALUES ('raw', 'rates', 'csv', '{folder}/rates', '{{"header": "true"}}',
                             'Exchange rates', '1');
INSERT INTO datasets VALUES ('raw', 'odd', 'noop', NULL, NULL, NULL, NULL);
INSERT INTO fields VALUES ('raw', 'rates', 1, 'code', 'string'),
                          ('raw', 'rates', 2, 'rate', 'decimal(10, 4)'),
                          ('raw', 'odd', 1, 'a', 'int');
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where catalogs keep their files."""
    return tmp_path_factory.mktemp("python_catalogs")


@pytest.fixture(scope="module")
def server(guarded_server: Server, folder: Path) -> Iterator[Server]:
    """A server with the catalogs ``files``, which bob may read and ann may change, and ``reg``."""
    for name in ("files", "rates"):
        (folder / name).mkdir()
    (folder / "rates" / "part.csv").write_text("code,rate\nCHF,1.0500\n")
    with closing(sqlite3.connect(folder / "register.db")) as register:
        register.executescript(REGISTER.format(folder=folder))
    run_as(
        guarded_server,
        "root",
        f"CREATE CATALOG files WITH ('type' = 'directory', 'path' = '{folder}/files')",
        f"CREATE CATALOG reg WITH ('type' = 'register', 'database' = '{folder}/register.db')",
        "GRANT USE CATALOG ON CATALOG files TO USER bob",
        "GRANT ALL ON CATALOG files TO USER ann",
        "GRANT ALL ON CATALOG reg TO USER ann",
        "CREATE SCHEMA files.s",
        "CREATE TABLE files.s.t (day STRING, id INT COMMENT 'key', v STRING) USING csv "
        "PARTITIONED BY (DAY) COMMENT 'of files'",
        "INSERT INTO files.s.t VALUES (1, 'a', 'd1'), (2, 'b', 'd2')",
    )
    for user in ("ann", "bob"):
        run_as(guarded_server, user, f"CREATE SCHEMA {user}")
    yield guarded_server
    dropped = ("CATALOG files", "CATALOG reg", "SCHEMA ann CASCADE", "SCHEMA bob CASCADE")
    run_as(guarded_server, "root", *(f"DROP {each}" for each in dropped))


def refused(server: Server, user: str, text: str) -> str:
    """Return the message and the hint of the error with which a statement must end."""
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, text)
    return f"{caught.value} {caught.value.hint}"


def test_spark_reads_and_writes_the_tables(server: Server, folder: Path) -> None:
    run_as(server, "ann", "INSERT OVERWRITE files.s.t PARTITION (day = 'd2') VALUES (3, 'c')")
    rows = "SELECT id, v, day FROM files.s.t ORDER BY id"
    assert run_as(server, "bob", rows) == [(1, "a", "d1"), (3, "c", "d2")]
    # As another program leaves them.
    index = json.loads((folder / "files" / "s" / "index.json").read_text())
    place = Path(index["t"]["table"]["location"]) / "day=d3"
    place.mkdir()
    (place / "part.csv").write_text("9,i\n")
    assert run_as(server, "bob", rows)[-1] == (9, "i", "d3")
    run_as(
        server,
        "ann",
        "CREATE TABLE files.s.copy PARTITIONED BY (k) AS SELECT 7 AS k, id FROM files.s.t",
        "ALTER TABLE files.s.copy ADD COLUMN more STRING",
        "ALTER TABLE files.s.copy RENAME TO s.copied",
    )
    found = run_as(server, "bob", "SELECT * FROM files.s.copied ORDER BY id LIMIT 1")
    assert found == [(1, None, 7)]
    assert "CATALOG_REFUSED" in refused(server, "ann", "ALTER TABLE files.s.copied DROP COLUMN id")
    replaced = refused(server, "ann", "CREATE OR REPLACE TABLE files.s.copied AS SELECT 1 AS a")
    assert "drop it, and create it again" in replaced
    assert "x" in refused(
        server, "ann", "CREATE TABLE files.s.bad AS SELECT raise_error('x') AS e FROM files.s.t"
    )
    unknown = "CREATE TABLE files.s.bad (a INT) USING delta TBLPROPERTIES ('delta.nope' = '1')"
    assert "delta.nope" in refused(server, "ann", unknown)
    run_as(server, "ann", "DROP TABLE files.s.copied")
    assert run_as(server, "bob", "SHOW TABLES IN files.s") == [("s", "t", False)]
    left = [each.name for each in (folder / "files" / "s").iterdir() if each.is_dir()]
    assert left == [place.parent.name]


def test_delta_tables_are_complete(server: Server, folder: Path) -> None:
    run_as(
        server,
        "ann",
        "CREATE TABLE files.s.d (id INT, v STRING) USING delta",
        "INSERT INTO files.s.d VALUES (1, 'a'), (2, 'b')",
        "UPDATE files.s.d SET v = 'z' WHERE id = 1",
        "DELETE FROM files.s.d WHERE id = 2",
        "MERGE INTO files.s.d USING (SELECT 3 AS id) s ON s.id = d.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "ALTER TABLE files.s.d ADD COLUMN w INT",
        "INSERT INTO files.s.d REPLACE WHERE id = 1 SELECT 1, 'z', 1",
    )
    rows = "SELECT * FROM files.s.d ORDER BY id"
    assert run_as(server, "bob", rows) == [(1, "z", 1), (3, None, None)]
    past = "SELECT count(*) FROM files.s.d VERSION AS OF 1"
    assert run_as(server, "bob", past) == [(2,)]
    assert "MODIFY on catalog files" in refused(server, "bob", "DELETE FROM files.s.d")
    changes = "SELECT count(*) FROM table_changes('files.s.d', 0)"
    assert "USE CATALOG on catalog files" in refused(server, "eve", changes)
    made = f"CREATE MATERIALIZED TABLE bob.m REFRESH_MODE = FULL AS {rows.split(' ORDER')[0]}"
    run_as(server, "bob", made)
    assert run_as(server, "bob", "SELECT count(*) FROM bob.m") == [(2,)]
    refresh, history = "ALTER MATERIALIZED TABLE bob.m REFRESH", "SHOW REFRESH HISTORY FOR bob.m"
    assert "NO_DATA" in str(run_as(server, "bob", refresh, f"{history} LIMIT 1"))
    run_as(server, "ann", "INSERT INTO files.s.d VALUES (5, 'e', 5)")
    assert "NO_DATA" not in str(run_as(server, "bob", refresh, f"{history} LIMIT 1"))
    assert run_as(server, "bob", "SELECT count(*) FROM bob.m") == [(3,)]
    run_as(server, "bob", "DROP MATERIALIZED TABLE bob.m")
    run_as(server, "ann", "DROP TABLE files.s.d")


def test_materialized_tables_follow_files_and_versions(server: Server, folder: Path) -> None:
    run_as(
        server,
        "ann",
        "CREATE TABLE files.s.src USING parquet AS SELECT 1 AS id",
        "CREATE MATERIALIZED TABLE ann.m REFRESH_MODE = FULL AS "
        "SELECT max(id) AS m, max(rate) AS r FROM files.s.src, reg.raw.rates",
    )
    refresh = "ALTER MATERIALIZED TABLE ann.m REFRESH"
    last = "SHOW REFRESH HISTORY FOR ann.m LIMIT 1"
    assert "NO_DATA" in str(run_as(server, "ann", refresh, last))
    run_as(server, "ann", "INSERT INTO files.s.src VALUES (4)", refresh)
    assert [row[0] for row in run_as(server, "ann", "SELECT m FROM ann.m")] == [4]
    # The register says when its data set has changed, whatever its files look like.
    (folder / "rates" / "more.csv").write_text("code,rate\nUSD,2.0000\n")
    assert "NO_DATA" in str(run_as(server, "ann", refresh, last))
    with closing(sqlite3.connect(folder / "register.db")) as register:
        register.execute("UPDATE datasets SET version = '2' WHERE table_name = 'rates'")
        register.commit()
    run_as(server, "ann", refresh)
    assert str(run_as(server, "ann", "SELECT r FROM ann.m")[0][0]) == "2.0000"
    text = refused(server, "ann", "CREATE MATERIALIZED TABLE files.s.m AS SELECT 1 AS a")
    assert "NOT_SUPPORTED" in text and "spark_catalog.schema.table" in text
    assert "the versions of its sources" in text
    run_as(server, "ann", "DROP MATERIALIZED TABLE ann.m", "DROP TABLE files.s.src")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM files.s.t",
        "DESCRIBE files.s.t",
        "SHOW TABLES IN files.s",
        "SELECT count(*) FROM IDENTIFIER('files.s.' || 't')",
    ],
)
def test_nobody_reads_without_the_right(server: Server, text: str) -> None:
    assert "needs USE CATALOG on catalog files" in refused(server, "eve", text)


@pytest.mark.parametrize(
    ("user", "text", "reason"),
    [
        ("bob", "INSERT INTO files.s.t VALUES (3, 'c', 'd')", "MODIFY on catalog files"),
        ("bob", "CREATE TABLE files.s.x (a INT)", "MODIFY on catalog files"),
        ("bob", "DROP TABLE files.s.t", "MODIFY on catalog files"),
        ("bob", "ALTER TABLE files.s.t SET TBLPROPERTIES ('a' = 'b')", "MODIFY on catalog files"),
        ("bob", "SELECT * FROM files.s.t WITH (`path` = '/etc')", "ACCESS_DENIED"),
        ("ann", "CREATE TABLE files.s.x (a INT) LOCATION '/etc'", "ACCESS_DENIED"),
        ("ann", "CREATE TABLE files.s.x (a INT) USING csv OPTIONS (path '/etc')", "ACCESS_DENIED"),
        (
            "ann",
            "CREATE TABLE files.s.x (a INT) USING csv TBLPROPERTIES ('option.path' = '/etc')",
            "ACCESS_DENIED",
        ),
        (
            "ann",
            "CREATE TABLE files.s.x (a INT) USING jdbc OPTIONS (url 'jdbc:x', dbtable 't')",
            "ACCESS_DENIED",
        ),
        ("ann", "CREATE TABLE files.s.x (a INT) USING noop", "ACCESS_DENIED"),
        ("ann", "CREATE TABLE files.s.x (a INT) PARTITIONED BY (b)", "b"),
        ("ann", "ALTER TABLE files.s.t SET LOCATION '/etc'", "ACCESS_DENIED"),
        ("ann", "CREATE TABLE files.s.`../x` (a INT)", "ACCESS_DENIED"),
        ("root", "CREATE TABLE files.s.`*` (a INT)", "no name of letters"),
        ("ann", "CREATE TABLE reg.raw.x (a INT)", "does not offer create_table"),
        ("ann", "DROP TABLE reg.raw.rates", "does not offer drop_table"),
        ("ann", "SELECT * FROM reg.raw.odd", "cannot have the format noop"),
        ("ann", "UPDATE files.s.t SET v = 'z'", "UPDATE TABLE"),
        ("ann", "SELECT * FROM files.s.missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("root", "CREATE CATALOG x WITH ('type' = 'directory', 'path' = '/nope')", "/nope"),
        ("root", "CREATE CATALOG x WITH ('type' = 'directory', 'paht' = '/')", "Did you mean path"),
    ],
)
def test_what_is_not_allowed_is_refused_with_a_reason(
    server: Server, user: str, text: str, reason: str
) -> None:
    assert reason in refused(server, user, text)


def test_metadata_shows_the_tables(server: Server) -> None:
    described = run_as(server, "bob", "DESCRIBE files.s.t")
    assert described[0] == ("id", "int", "key")
    with closing(server.connect(user="bob", schema="files.s")) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM t")
        cursor.catalogs()
        assert cursor.fetchall() == [("files",), ("spark_catalog",)]
        cursor.schemas(catalog="files")
        assert cursor.fetchall() == [("s", "files")]
        cursor.tables("s", "t", catalog="files")
        assert [row[:4] for row in cursor.fetchall()] == [("files", "s", "t", "TABLE")]
        cursor.columns("s", "t", catalog="files")
        assert [row[3] for row in cursor.fetchall()] == ["id", "v", "day"]
    engine = create_engine(f"tidegate://bob@{server.host}:{server.port}/default")
    with closing(engine.connect()) as connection:
        columns = inspect(connection).get_columns("t", "files.s")
        assert [column["name"] for column in columns] == ["id", "v", "day"]
    engine.dispose()
    shown = {row[0]: row[1] for row in run_as(server, "root", "DESCRIBE CATALOG EXTENDED files")}
    assert (shown["type"], shown["status"]) == ("directory", "READY")
