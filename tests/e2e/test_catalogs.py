"""Catalogs of a real server: Iceberg tables, what grants allow, and one that cannot be reached."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

import tidegate
from tests.support.fixtures.server import Server, run_as, running_server

pytestmark = [pytest.mark.faults, pytest.mark.thorough(4)]  # a server of its own

CONFIG = """
[authorization]
enabled = true
administrators = ["root"]

[options]
"materialized-table.initialize" = "ON_CREATE"

[engine]
iceberg = true

[catalog_store]
kind = "file"
path = "{store}"
"""
# As Flink leaves them.
LAKE = 'type: "iceberg"\ncatalog-type: "hadoop"\nwarehouse: "{warehouse}"\n'
DOWN = 'type: "iceberg"\ncatalog-type: "rest"\nuri: "http://127.0.0.1:1/"\n'
ROWS = [(1, "a"), (2, "b")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the catalogs ``lake``, which bob may read and ann may change, and ``down``."""
    folder = tmp_path_factory.mktemp("catalogs")
    store, file = folder / "store", folder / "tidegate.toml"
    store.mkdir()
    (store / "lake.yaml").write_text(LAKE.format(warehouse=folder / "lake"))
    (store / "down.yaml").write_text(DOWN)
    file.write_text(CONFIG.format(store=store))
    with running_server(folder, "--config", str(file)) as server:
        server.wait_for_engine()
        run_as(
            server,
            "root",
            "GRANT USE CATALOG ON CATALOG lake TO USER bob",
            "GRANT ALL ON CATALOG lake TO USER ann",
            "CREATE SCHEMA lake.db",
            "CREATE TABLE lake.db.t (id INT, v STRING) USING iceberg",
            "INSERT INTO lake.db.t VALUES (1, 'a'), (2, 'b')",
        )
        run_as(server, "bob", "CREATE SCHEMA bob")
        yield server


def refused(server: Server, user: str, *texts: str) -> str:
    """Return the message of the error with which the last of the statements must end."""
    *before, text = texts
    with closing(server.connect(user=user)) as connection, closing(connection.cursor()) as cursor:
        for each in before:
            cursor.execute(each)
        with pytest.raises(tidegate.Error) as caught:
            cursor.execute(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM lake.db.t ORDER BY id", ROWS),
        ("SELECT count(*) FROM IDENTIFIER('lake.db.' || 't')", [(2,)]),
        ("EXECUTE IMMEDIATE 'SELECT max(id) FROM lake.db.t'", [(2,)]),
        ("SELECT operation FROM lake.db.t.snapshots", [("append",)]),
        ("SELECT lake.system.bucket(4, 1)", [(0,)]),
        ("SHOW TABLES IN lake.db LIKE 't'", [("db", "t", False)]),
        ("SHOW SCHEMAS IN lake", [("db",)]),
        ("DESCRIBE lake.db.t", [("id", "int", None), ("v", "string", None)]),
    ],
)
def test_who_may_use_a_catalog_reads_it(
    server: Server, text: str, expected: list[tuple[object, ...]]
) -> None:
    assert run_as(server, "bob", text) == expected
    assert "needs USE CATALOG on catalog lake" in refused(server, "eve", text)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO lake.db.t VALUES (3, 'c')",
        "UPDATE lake.db.t SET v = 'z'",
        "DELETE FROM lake.db.t WHERE id = 1",
        "MERGE INTO lake.db.t USING (SELECT 5 AS id) s ON s.id = t.id WHEN MATCHED THEN DELETE",
        "CREATE TABLE lake.db.more AS SELECT * FROM lake.db.t",
        "CREATE OR REPLACE TABLE lake.db.t AS SELECT 1 AS a",
        "ALTER TABLE lake.db.t ADD COLUMN w INT",
        "DROP TABLE lake.db.t",
        "CREATE SCHEMA lake.more",
    ],
)
def test_whoever_only_reads_changes_nothing(server: Server, text: str) -> None:
    assert "needs MODIFY on catalog lake" in refused(server, "bob", text)


@pytest.mark.parametrize(
    "text",
    [
        "CALL lake.system.rollback_to_snapshot('db.t', 1)",
        "CREATE TABLE lake.db.x (a INT) LOCATION '/tmp/elsewhere'",
        "CREATE TABLE lake.db.x (a INT) TBLPROPERTIES ('write.data.path' = '/tmp/elsewhere')",
        "CREATE TABLE bob.x (a INT) USING iceberg",
        "SELECT * FROM lake.db.`../../x`",
        "SELECT * FROM lake.`..`.x",
        "CREATE TABLE IDENTIFIER('lake.`..`.x') (a INT)",
        "SELECT * FROM lake.db.t WITH (`snapshot-id` = '1')",
        "ALTER CATALOG lake SET ('cache-enabled' = 'false')",
        "DROP CATALOG lake",
    ],
)
def test_not_even_whoever_changes_tables_reaches_beyond(server: Server, text: str) -> None:
    assert "ACCESS_DENIED" in refused(server, "ann", text)


def test_tables_are_written_and_their_past_is_read(server: Server) -> None:
    snapshot = "SELECT snapshot_id FROM lake.db.s.snapshots ORDER BY committed_at LIMIT 1"
    run_as(
        server,
        "ann",
        "CREATE TABLE lake.db.s AS SELECT id, v FROM lake.db.t",
        "UPDATE lake.db.s SET v = 'z' WHERE id = 1",
        "DELETE FROM lake.db.s WHERE id = 2",
        "INSERT INTO lake.db.s VALUES (3, 'c')",
    )
    assert run_as(server, "bob", "SELECT * FROM lake.db.s ORDER BY id") == [(1, "z"), (3, "c")]
    [(first,)] = run_as(server, "bob", snapshot)
    past = f"SELECT * FROM lake.db.s VERSION AS OF {first} ORDER BY id"
    assert run_as(server, "bob", past) == ROWS


def test_the_current_catalog_completes_names(server: Server) -> None:
    uses = ("USE CATALOG lake", "USE db")
    assert run_as(server, "bob", *uses, "SELECT count(*) FROM t") == [(2,)]
    assert run_as(server, "bob", *uses, "SHOW TABLES LIKE 't'") == [("db", "t", False)]
    assert run_as(server, "bob", "USE lake.db", "SHOW CURRENT CATALOG") == [("lake",)]
    here = "SELECT current_catalog(), current_schema()"
    assert run_as(server, "bob", "USE lake.db", "SET CATALOG spark_catalog", here) == [
        ("spark_catalog", "default")
    ]
    assert "needs MODIFY" in refused(
        server, "bob", "USE lake.db", "CREATE MATERIALIZED TABLE m AS SELECT 1 AS x"
    )
    assert "ACCESS_DENIED" in refused(server, "ann", *uses, "CREATE TABLE `..`.x (a INT)")
    for text in ("USE CATALOG lake", "USE lake.db", "SET CATALOG IDENTIFIER('lake')"):
        assert "USE CATALOG on catalog lake" in refused(server, "eve", text)


def test_lists_show_what_the_user_may_use(server: Server) -> None:
    assert run_as(server, "eve", "SHOW CATALOGS") == [("spark_catalog",)]
    assert run_as(server, "bob", "SHOW CATALOGS") == [("lake",), ("spark_catalog",)]
    assert run_as(server, "root", "SHOW CATALOGS LIKE 'd%'") == [("down",)]
    assert "ACCESS_DENIED" in refused(server, "bob", "EXECUTE IMMEDIATE 'SHOW CATALOGS'")
    assert "ACCESS_DENIED" in refused(server, "eve", "DESCRIBE CATALOG lake")


def test_metadata_calls_know_catalogs(server: Server) -> None:
    with closing(server.connect(user="bob", schema="lake.db")) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(2,)]
        cursor.catalogs()
        assert cursor.fetchall() == [("lake",), ("spark_catalog",)]
        cursor.schemas(catalog="lake")
        assert cursor.fetchall() == [("db", "lake")]
        cursor.tables("db", "t", catalog="lake")
        assert [row[:4] for row in cursor.fetchall()] == [("lake", "db", "t", "TABLE")]
        cursor.columns("db", "t", catalog="lake")
        assert [row[3] for row in cursor.fetchall()] == ["id", "v"]
        cursor.tables(None, "t")
        assert cursor.fetchall() == []
    for refused_place in ("lake.db", "nowhere.db"):
        with pytest.raises(tidegate.Error):
            server.connect(user="eve", schema=refused_place)


def test_sqlalchemy_reflects_tables_of_catalogs(server: Server) -> None:
    engine = create_engine(f"tidegate://bob@{server.host}:{server.port}/default")
    with closing(engine.connect()) as connection:
        inspector = inspect(connection)
        assert inspector.get_schema_names(catalog="lake") == ["db"]
        assert "t" in inspector.get_table_names("lake.db")
        columns = inspector.get_columns("t", "lake.db")
        assert [column["name"] for column in columns] == ["id", "v"]
    engine.dispose()


def test_a_catalog_that_cannot_be_reached_says_why(server: Server) -> None:
    text = refused(server, "root", "SELECT * FROM down.db.t")
    assert "CATALOG_UNAVAILABLE" in text
    assert "Connect to http://127.0.0.1:1 failed" in text
    rows = described(server, "DESCRIBE CATALOG EXTENDED down")
    assert rows["status"] == "FAILED"
    assert "refused" in str(rows["error"])
    assert run_as(server, "bob", "SELECT 1") == [(1,)]
    assert described(server, "DESCRIBE CATALOG EXTENDED lake")["status"] == "READY"


def described(server: Server, text: str) -> dict[object, object]:
    """Return what DESCRIBE CATALOG shows to an administrator."""
    return {row[0]: row[1] for row in run_as(server, "root", text)}


def test_a_catalog_is_created_changed_and_dropped(server: Server, tmp_path: Path) -> None:
    created = (
        "CREATE CATALOG other COMMENT 'c' WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', "
        f"'warehouse' = '{tmp_path}')"
    )
    run_as(server, "root", created, "CREATE SCHEMA other.db", "CREATE TABLE other.db.t (a INT)")
    assert "a schema named other" in refused(server, "root", "CREATE SCHEMA other").lower()
    with closing(server.connect(user="root")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("USE CATALOG other")
        run_as(server, "root", "DROP CATALOG other")
        with pytest.raises(tidegate.Error, match="does not exist any more"):
            cursor.execute("SHOW SCHEMAS")
        cursor.execute("USE CATALOG spark_catalog")
        cursor.execute("SELECT 1")
    assert "INVALID_CATALOG" in refused(server, "root", created.replace("iceberg", "paimon"))


def test_materialized_tables_read_catalogs(server: Server) -> None:
    run_as(server, "ann", "CREATE TABLE lake.db.src AS SELECT 2 AS id, 'b' AS v")
    query = "SELECT max(id) AS m FROM lake.db.src"
    run_as(server, "bob", f"CREATE MATERIALIZED TABLE bob.m REFRESH_MODE = FULL AS {query}")
    assert run_as(server, "bob", "SELECT * FROM bob.m") == [(2,)]
    assert "CATALOG_IN_USE" in refused(server, "root", "DROP CATALOG lake")
    refresh = "ALTER MATERIALIZED TABLE bob.m REFRESH"
    run_as(server, "root", "REVOKE USE CATALOG ON CATALOG lake FROM USER bob")
    assert "USE CATALOG on catalog lake" in refused(server, "bob", refresh)
    run_as(server, "root", "GRANT USE CATALOG ON CATALOG lake TO USER bob")
    run_as(server, "bob", refresh)
    # A refresh of an Iceberg table's newest snapshot has nothing to do.
    history = "SHOW REFRESH HISTORY FOR bob.m LIMIT 1"
    assert "NO_DATA" in str(run_as(server, "bob", refresh, history))
    run_as(server, "ann", "INSERT INTO lake.db.src VALUES (7, 'g')")
    [(snapshot,)] = run_as(
        server, "bob", "SELECT snapshot_id FROM lake.db.src.refs WHERE name = 'main'"
    )
    shown = f'"snapshot": "{snapshot}"'
    assert shown in str(run_as(server, "bob", "EXPLAIN ALTER MATERIALIZED TABLE bob.m REFRESH"))
    refreshed = str(run_as(server, "bob", refresh, history))
    assert "NO_DATA" not in refreshed
    assert shown in refreshed
    assert run_as(server, "bob", "SELECT * FROM bob.m") == [(7,)]
    # It is compared with the snapshot that it read.
    run_as(server, "ann", "INSERT INTO lake.db.src VALUES (8, 'h')")
    [verified] = run_as(server, "bob", "VERIFY MATERIALIZED TABLE bob.m")
    assert verified[3] is True


# ---- materialized tables in a catalog ----------------------------------------------------------

PLAN = "SELECT k, count(*) AS c, sum(n) AS s FROM ann.src GROUP BY k"


@pytest.fixture(scope="module")
def stored(server: Server) -> Iterator[Server]:
    """The server with the materialized table ``lake.mts.m`` of ann over a Delta table."""
    run_as(
        server,
        "ann",
        "CREATE SCHEMA ann",
        "CREATE SCHEMA lake.mts",
        "CREATE TABLE ann.src (k STRING, n INT) USING delta",
        "INSERT INTO ann.src VALUES ('a', 1), ('a', 2), ('b', 3)",
        f"CREATE MATERIALIZED TABLE lake.mts.m COMMENT 'of a test' REFRESH_MODE = FULL AS {PLAN}",
    )
    yield server
    run_as(server, "ann", "DROP MATERIALIZED TABLE IF EXISTS lake.mts.m", "DROP SCHEMA lake.mts")


def follows(server: Server) -> None:
    """Require that the table equals its query."""
    rows = "SELECT * FROM lake.mts.m ORDER BY k"
    assert run_as(server, "ann", rows) == run_as(server, "ann", f"{PLAN} ORDER BY k")
    [verified] = run_as(server, "ann", "VERIFY MATERIALIZED TABLE lake.mts.m")
    assert verified[3] is True


def strategy(server: Server, statement: str = "REFRESH") -> str:
    """Return how the last refresh worked, after running a statement on the table."""
    history = "SHOW REFRESH HISTORY FOR lake.mts.m LIMIT 1"
    with closing(server.connect(user="ann")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"ALTER MATERIALIZED TABLE lake.mts.m {statement}")
        cursor.execute(history)
        names = [column[0] for column in cursor.description or ()]
        [row] = cursor.fetchall()
    return str(dict(zip(names, row, strict=True))["action"])


def test_a_materialized_table_of_a_catalog_follows_its_query(stored: Server) -> None:
    follows(stored)
    assert strategy(stored) == "NO_DATA"
    for change in (
        "INSERT INTO ann.src VALUES ('c', 4)",
        "UPDATE ann.src SET n = 20 WHERE n = 2",
        "DELETE FROM ann.src WHERE k = 'b'",
    ):
        run_as(stored, "ann", change)
        assert strategy(stored, "REFRESH INCREMENTAL") == "INCREMENTAL"
        follows(stored)
    [(created,)] = run_as(stored, "ann", "SHOW CREATE MATERIALIZED TABLE lake.mts.m")
    assert created.startswith("CREATE MATERIALIZED TABLE `lake`.`mts`.`m`")
    assert run_as(stored, "ann", "SHOW MATERIALIZED TABLES IN lake.mts") == [("m",)]
    short = ("USE lake.mts", "ALTER MATERIALIZED TABLE m REFRESH", "SELECT count(*) FROM m")
    assert run_as(stored, "ann", *short) == [(2,)]


def test_its_rights_are_those_of_a_materialized_table(stored: Server) -> None:
    query = "SELECT count(*) FROM lake.mts.m"
    for text in (query, "SELECT operation FROM lake.mts.m.snapshots"):
        assert "needs SELECT on materialized table lake.mts.m" in refused(stored, "bob", text)
    run_as(stored, "root", "GRANT SELECT ON MATERIALIZED TABLE lake.mts.m TO USER bob")
    assert run_as(stored, "bob", query)[0][0] > 0
    run_as(stored, "root", "REVOKE SELECT ON MATERIALIZED TABLE lake.mts.m FROM USER bob")
    assert "needs SELECT" in refused(stored, "bob", query)
    created = "CREATE MATERIALIZED TABLE lake.mts.x AS SELECT 1 AS a"
    assert "needs MODIFY on catalog lake" in refused(stored, "bob", created)
    assert "SCHEMA_NOT_FOUND" in refused(stored, "ann", created.replace("mts", "absent"))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO lake.mts.m VALUES ('x', 1, 1)",
        "UPDATE lake.mts.m SET s = 0",
        "DELETE FROM lake.mts.m",
        "MERGE INTO lake.mts.m USING (SELECT 1 AS a) s ON true WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE lake.mts.m",
        "DROP TABLE lake.mts.m",
        "ALTER TABLE lake.mts.m ADD COLUMN w INT",
        "ALTER TABLE lake.mts.m RENAME TO lake.mts.n",
        "CREATE OR REPLACE TABLE lake.mts.m (a INT)",
        "DROP SCHEMA lake.mts CASCADE",
    ],
)
def test_only_refreshes_change_it(stored: Server, text: str) -> None:
    before = run_as(stored, "ann", "SELECT count(*) FROM lake.mts.m")
    assert "MT_WRONG_KIND" in refused(stored, "ann", text)
    assert run_as(stored, "ann", "SELECT count(*) FROM lake.mts.m") == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALTER MATERIALIZED TABLE lake.mts.m SWAP WITH lake.mts.m2", "another catalog"),
        ("ALTER MATERIALIZED TABLE lake.mts.m CONVERT TO TABLE", "another catalog"),
        ("ALTER MATERIALIZED TABLE lake.mts.m RENAME TO n", "RENAME TO in the catalog lake"),
        ("ALTER MATERIALIZED TABLE lake.mts.m ADD (d AS s + 1)", "Computed and METADATA VIRTUAL"),
        ("CREATE MATERIALIZED TABLE lake.mts.y AS SELECT 1Y AS a", "type tinyint of the column a"),
        ("DROP CATALOG lake", "materialized tables are in it: lake.mts.m"),
    ],
)
def test_what_it_does_not_support_is_refused(stored: Server, text: str, message: str) -> None:
    user = "root" if "CATALOG" in text else "ann"
    before = ("CREATE MATERIALIZED TABLE IF NOT EXISTS lake.mts.m2 AS SELECT 1 AS a",)
    found = refused(stored, user, *(before if "SWAP" in text else ()), text)
    run_as(stored, "ann", "DROP MATERIALIZED TABLE IF EXISTS lake.mts.m2")
    assert message in found
    assert run_as(stored, "ann", "SHOW MATERIALIZED TABLES IN lake.mts") == [("m",)]
    follows(stored)


def test_it_is_evolved_read_by_others_and_seen_in_lists(stored: Server) -> None:
    run_as(
        stored,
        "ann",
        "ALTER MATERIALIZED TABLE lake.mts.m AS "
        "SELECT k, count(*) AS c, sum(n) AS s, max(n) AS top FROM ann.src GROUP BY k",
        "ALTER MATERIALIZED TABLE lake.mts.m REFRESH",
        "CREATE MATERIALIZED TABLE ann.above REFRESH_MODE = FULL AS "
        "SELECT max(top) AS top FROM lake.mts.m",
    )
    assert run_as(stored, "ann", "SELECT * FROM ann.above") == [(20,)]
    run_as(
        stored,
        "ann",
        "INSERT INTO ann.src VALUES ('d', 99)",
        "ALTER MATERIALIZED TABLE ann.above REFRESH CASCADE UPSTREAM",
    )
    assert run_as(stored, "ann", "SELECT * FROM ann.above") == [(99,)]
    with closing(stored.connect(user="ann")) as connection, closing(connection.cursor()) as cursor:
        cursor.tables("mts", "m", catalog="lake")
        assert [row[3] for row in cursor.fetchall()] == ["MATERIALIZED_TABLE"]
    run_as(stored, "ann", "DROP MATERIALIZED TABLE ann.above")


def test_it_is_refreshed_after_the_engine_died(stored: Server) -> None:
    with closing(stored.connect(user="bob")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("USE lake.db")
        dead = stored.engine_pid
        os.kill(dead, signal.SIGKILL)
        stored.wait_for_engine(other_than=dead)
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(2,)]
    run_as(stored, "ann", "INSERT INTO ann.src VALUES ('e', 5)")
    assert strategy(stored) in ("INCREMENTAL", "FULL")
    [verified] = run_as(stored, "ann", "VERIFY MATERIALIZED TABLE lake.mts.m")
    assert verified[3] is True
