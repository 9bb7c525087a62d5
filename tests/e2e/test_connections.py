"""Connections to real databases: what their grants allow, and that no secret is shown."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

import tidegate
from tests.support.databases import driver_jars, replace_rows, running_shop
from tests.support.fixtures.server import Server, run_as, running_job, running_server
from tests.support.full_run import FULL
from tests.support.mariadb import MariaDb, has_mariadb, running_mariadb
from tests.support.postgres import postgres_programs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults  # a server of its own
thorough = pytest.mark.thorough

HUSH = "h0sh-hosh"
CONFIG = """
[authorization]
enabled = true
administrators = ["root"]

[options]
"materialized-table.initialize" = "ON_CREATE"

[engine]
jars = {drivers}

[secrets]
crm = {{ file = "{secret}" }}
wrong = "wr0ng-wrong"
"""
ROWS = [(1, Decimal("10.50"), "a"), (2, Decimal("20.00"), "b")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a database with the schema ``shop``, whose owner needs a password."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with running_shop(programs, HUSH) as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Server]:
    """A server with the connection ``crm``, which bob may use and ann may change."""
    folder = tmp_path_factory.mktemp("connections")
    secret, file = folder / "secret", folder / "tidegate.toml"
    secret.write_text(HUSH)
    secret.chmod(0o600)
    file.write_text(CONFIG.format(drivers=json.dumps(driver_jars()), secret=secret))
    with running_server(folder, "--config", str(file)) as server:
        server.wait_for_engine()
        run_as(
            server,
            "root",
            f"CREATE CONNECTION crm TYPE postgresql OPTIONS (url '{url}', user 'crm', "
            "password secret('crm'))",
            "GRANT USE CONNECTION ON CONNECTION crm TO USER bob",
            "GRANT ALL ON CONNECTION crm TO USER ann",
        )
        run_as(server, "bob", "CREATE SCHEMA bob")
        yield server
        written = [path for path in server.data.rglob("*") if path.is_file()]
        assert not [path for path in written if HUSH.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def mariadb(server: Server) -> Iterator[MariaDb]:
    """A server of MariaDB with a binlog, to which the connection ``shop`` leads."""
    if not has_mariadb():
        pytest.skip("MariaDB or the extra mysql is not installed")
    with running_mariadb() as database:
        database.execute(
            "CREATE DATABASE shop",
            f"CREATE USER cdc IDENTIFIED BY '{HUSH}'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO cdc",
        )
        run_as(
            server,
            "root",
            "CREATE CONNECTION shop TYPE mysql OPTIONS (user 'cdc', password secret('crm'), "
            f"url 'jdbc:mysql://127.0.0.1:{database.port}/shop?permitMysqlScheme', "
            "driver 'org.mariadb.jdbc.Driver', preferTimestampNTZ 'true')",
            "GRANT USE CONNECTION ON CONNECTION shop TO USER bob",
        )
        yield database


def refused(server: Server, user: str, text: str) -> str:
    """Return the message of the error with which a statement must end."""
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, text)
    assert HUSH not in str(caught.value)
    return str(caught.value)


@thorough
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM crm.shop.orders ORDER BY id", ROWS),
        ("SELECT who, sum(amount) FROM crm.shop.orders WHERE id > 1 GROUP BY who", [("b", 20)]),
        ("SELECT count(*) FROM IDENTIFIER('crm.shop.' || 'orders')", [(2,)]),
        ("EXECUTE IMMEDIATE 'SELECT max(id) FROM crm.shop.orders'", [(2,)]),
        ("SELECT count(*) > 0 FROM crm.information_schema.tables", [(True,)]),
        ("BEGIN SELECT min(id) FROM crm.shop.orders; END", [(1,)]),
        ("SHOW TABLES IN crm.shop LIKE 'orders'", [("shop", "orders", False)]),
        ("SHOW SCHEMAS IN crm LIKE 'shop'", [("shop",)]),
        (
            "DESCRIBE crm.shop.orders",
            [("id", "int", None), ("amount", "decimal(10,2)", None), ("who", "string", None)],
        ),
    ],
)
def test_use_connection_allows_reading(server: Server, text: str, expected: object) -> None:
    assert run_as(server, "bob", text) == expected
    assert "needs USE CONNECTION on connection crm" in refused(server, "eve", text)


@thorough
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO crm.shop.orders VALUES (3, 1, 'c')",
        "CREATE TABLE crm.shop.more (a INT)",
        "DROP TABLE crm.shop.orders",
        "ALTER TABLE crm.shop.orders ADD COLUMN more STRING",
        "DELETE FROM crm.shop.orders",
        "TRUNCATE TABLE crm.shop.orders",
        "CREATE SCHEMA crm.more",
        "ANALYZE TABLE crm.shop.orders COMPUTE STATISTICS",
    ],
)
def test_changing_needs_modify(server: Server, text: str) -> None:
    assert "needs MODIFY on connection crm" in refused(server, "bob", text)


@thorough
@pytest.mark.parametrize("text", ["USE crm", "USE crm.shop", "SET CATALOG crm", "USE CATALOG crm"])
def test_a_connection_becomes_the_current_catalog(server: Server, text: str) -> None:
    rows = run_as(server, "bob", text, "USE crm.shop", "SELECT count(*) FROM orders")
    assert rows == [(2,)]
    assert "USE CONNECTION on connection crm" in refused(server, "eve", text)


@thorough
def test_a_catalog_of_flinks_options_reads_the_same(server: Server, url: str) -> None:
    base, _, database = url.rpartition("/")
    run_as(
        server,
        "root",
        f"CREATE CATALOG flink WITH ('type' = 'jdbc', 'base-url' = '{base}', 'default-database' = "
        f"'{database}', 'username' = 'crm', 'password' = '${{secret:crm}}')",
        "GRANT USE CATALOG ON CATALOG flink TO USER bob",
    )
    assert run_as(server, "bob", "SELECT * FROM flink.shop.orders ORDER BY id") == ROWS
    assert "USE CATALOG on catalog flink" in refused(server, "eve", "TABLE flink.shop.orders")
    for text in ("DESCRIBE CATALOG EXTENDED flink", "SHOW CREATE CATALOG flink"):
        assert HUSH not in str(run_as(server, "root", text))
    run_as(server, "root", "DROP CATALOG flink")


@thorough
def test_a_reader_brings_no_options_of_its_own(server: Server) -> None:
    for option in ("query", "sessionInitStatement", "url", "dbtable"):
        text = f"SELECT * FROM crm.shop.orders WITH ('{option}' = '1')"
        assert "ACCESS_DENIED" in refused(server, "bob", text)
    text = "SELECT count(*) FROM crm.shop.orders WITH ('fetchsize' = '1')"
    assert run_as(server, "bob", text) == [(2,)]


JDBC = "WITH ('connector' = 'jdbc', 'connection' = 'crm', 'table-name' = 'shop.{}'{})"
PARTITIONS = (
    ", 'scan.fetch-size' = '1', 'scan.partition.column' = 'id', 'scan.partition.num' = '2', "
    "'scan.partition.lower-bound' = '1', 'scan.partition.upper-bound' = '3'"
)


def test_flinks_connector_reads_a_table_of_the_connection(server: Server) -> None:
    columns = "who STRING, id BIGINT, twice AS id * 2"
    create = f"({columns}) {JDBC.format('orders', PARTITIONS)}"
    run_as(
        server,
        "bob",
        f"CREATE TABLE bob.o {create}",
        "GRANT SELECT, MODIFY ON VIEW bob.o TO USER eve",
        "CREATE MATERIALIZED TABLE bob.doubled FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT who, twice FROM bob.o WHERE id < 3",
    )
    assert run_as(server, "eve", "SELECT * FROM bob.o ORDER BY id") == [("a", 1, 2), ("b", 2, 4)]
    assert sorted(run_as(server, "bob", "SELECT * FROM bob.doubled")) == [("a", 2), ("b", 4)]
    assert "USE CONNECTION" in refused(server, "eve", f"CREATE TEMPORARY TABLE o {create}")
    for user in ("bob", "eve"):  # the owner of the table may not
        text = "INSERT INTO bob.o (who, id) VALUES ('c', 3)"
        assert "needs MODIFY on connection crm" in refused(server, user, text)
    told = refused(server, "bob", f"CREATE TABLE bob.p (whose STRING) {JDBC.format('orders', '')}")
    assert "`whose` cannot be resolved. Did you mean one of the following? [`who`" in told
    run_as(server, "bob", "DROP MATERIALIZED TABLE bob.doubled", "DROP TABLE bob.o")
    assert run_as(server, "bob", "SELECT count(*) FROM crm.shop.orders") == [(2,)]


def test_an_insert_replaces_the_rows_of_the_same_key(server: Server) -> None:
    run_as(
        server,
        "ann",
        "CREATE SCHEMA ann",
        "CREATE TABLE ann.prices (id INT, at DATE, price DECIMAL(10, 2), seen TIMESTAMP(3), "
        f"PRIMARY KEY (id, at) NOT ENFORCED) {JDBC.format('prices', '')}",
        "INSERT INTO ann.prices VALUES (1, DATE '2026-01-01', 1.5, TIMESTAMP '2026-01-01 12:00:00')"
        ", (2, DATE '2026-01-01', 2.5, NULL)",
        "INSERT INTO ann.prices (price, at, id) VALUES (3, DATE '2026-01-01', 2)",
        "GRANT MODIFY ON VIEW ann.prices TO USER eve",
    )
    run_as(server, "eve", "INSERT INTO ann.prices VALUES (1, DATE '2026-01-02', 4, NULL)")
    told = refused(
        server,
        "ann",
        "INSERT INTO ann.prices SELECT id, DATE '2026-01-03', if(id = 99, NULL, id), NULL "
        "FROM range(100)",
    )
    assert "null value in column" in told
    query = "SELECT id, CAST(at AS STRING), price, CAST(seen AS STRING) FROM {} ORDER BY id, at"
    expected = [
        (1, "2026-01-01", Decimal("1.50"), "2026-01-01 12:00:00"),
        (1, "2026-01-02", Decimal("4.00"), None),
        (2, "2026-01-01", Decimal("3.00"), None),
    ]
    assert run_as(server, "ann", query.format("ann.prices")) == expected
    assert run_as(server, "bob", query.format("crm.shop.prices")) == expected
    text = "INSERT OVERWRITE ann.prices SELECT * FROM ann.prices"
    assert "does not support truncate" in refused(server, "ann", text)
    run_as(server, "ann", "DROP SCHEMA ann CASCADE")
    assert run_as(server, "bob", "SELECT count(*) FROM crm.shop.prices") == [(3,)]


@thorough
def test_rows_replace_others_in_mariadb(server: Server, mariadb: MariaDb) -> None:
    mariadb.execute(
        "CREATE TABLE prices (id INT, `at` DATE, price DECIMAL(10, 2), note TEXT, PRIMARY KEY (id, "
        "`at`))",
        "CREATE TABLE ids (id INT PRIMARY KEY)",
        database="shop",
    )
    mariadb.execute(f"CREATE USER writer IDENTIFIED BY '{HUSH}'", "GRANT ALL ON shop.* TO writer")
    run_as(
        server,
        "root",
        "CREATE CONNECTION maria TYPE mariadb OPTIONS (user 'writer', password secret('crm'), "
        f"url 'jdbc:mariadb://127.0.0.1:{mariadb.port}/shop')",
        "CREATE CATALOG marias WITH ('type' = 'jdbc', 'default-database' = 'shop', 'username' = "
        f"'writer', 'base-url' = 'jdbc:mariadb://127.0.0.1:{mariadb.port}', 'password' = "
        "'${secret:crm}')",
    )
    replace_rows(server, "maria", "maria.shop.prices")
    text = "SELECT max(id), max(price) FROM {}.shop.prices WHERE note = 'b'"
    for catalog in ("maria", "marias"):
        assert run_as(server, "root", text.format(catalog)) == [(2, Decimal("4.50"))]
    run_as(server, "root", "DROP CATALOG marias", "DROP CONNECTION maria")


@thorough
def test_rows_replace_others_in_sqlite(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "CREATE TABLE prices (id INTEGER, at DATE, price NUMERIC(10, 2), note TEXT, "
            "PRIMARY KEY (id, at))"
        )
        database.execute("CREATE TABLE ids (id INTEGER PRIMARY KEY)")
        database.commit()
    run_as(
        server,
        "root",
        f"CREATE CONNECTION lite TYPE jdbc OPTIONS (url 'jdbc:sqlite:{file}', "
        "driver 'org.sqlite.JDBC')",
    )
    replace_rows(server, "lite", "lite.prices")
    run_as(server, "root", "DROP CONNECTION lite")


@pytest.mark.thorough(2)
@pytest.mark.parametrize("system", ["postgresql", "mariadb"])
def test_a_job_deletes_rows_by_their_key(
    server: Server, url: str, system: str, request: pytest.FixtureRequest
) -> None:
    """The rows of a table whose key has several types, after inserts, updates and deletes."""
    columns = "id INT, day DATE, code VARCHAR(8), price DECIMAL(10, 2), note TEXT, seen {}"
    key = "PRIMARY KEY (id, day, code, price)"
    of = {"connection": "crm", "table": "shop.sunk"}
    if system == "postgresql":
        with psycopg.connect(url.removeprefix("jdbc:"), user="crm", password=HUSH) as database:
            database.execute(f"CREATE TABLE shop.sunk ({columns.format('TIMESTAMP')}, {key})")
    else:
        mariadb = request.getfixturevalue("mariadb")
        mariadb.execute(
            f"CREATE TABLE sunk ({columns.format('DATETIME(6)')}, {key})", database="shop"
        )
        mariadb.execute(f"CREATE USER job IDENTIFIED BY '{HUSH}'", "GRANT ALL ON shop.* TO job")
        run_as(
            server,
            "root",
            "CREATE CONNECTION jobs TYPE mariadb OPTIONS (user 'job', password secret('crm'), "
            f"url 'jdbc:mariadb://127.0.0.1:{mariadb.port}/shop')",
        )
        of = {"connection": "jobs", "table": "sunk"}
    selected = "id, day, code, price, note, seen"
    run_as(
        server,
        "root",
        "CREATE SCHEMA sinks",
        "USE sinks",
        "CREATE TABLE items (id INT, day DATE, code STRING, price DECIMAL(10, 2), note STRING, "
        "seen TIMESTAMP_NTZ)",
        "INSERT INTO items VALUES (1, DATE '2026-01-01', 'a', 1.5, 'x', TIMESTAMP_NTZ "
        "'2026-03-29 02:30:00.5'), (2, DATE '1900-01-01', 'it''s', 2, NULL, NULL), "
        "(3, DATE '2026-01-03', ' c ', 3, 'z', NULL), (4, DATE '2026-01-04', 'é', 4, '', NULL)",
        "CREATE TABLE sunk (id INT, day DATE, code STRING, price DECIMAL(10, 2), note STRING, "
        "seen TIMESTAMP_NTZ, PRIMARY KEY (id, day, code, price) NOT ENFORCED) WITH ('connector' = "
        f"'jdbc', 'connection' = '{of['connection']}', 'table-name' = '{of['table']}')",
        "SET 'execution.checkpointing.interval' = '1 s'",
        f"INSERT INTO sunk SELECT {selected} FROM STREAM items",
    )
    ordered = f"SELECT {selected} FROM sinks.{{}} ORDER BY id, code"

    def settle(*statements: str) -> None:
        run_as(server, "root", "USE sinks", *statements)
        expected = run_as(server, "root", ordered.format("items"))
        wait_until(
            lambda: run_as(server, "root", ordered.format("sunk")) == expected,
            f"{statements}: the target is another",
            90,
        )

    settle()
    settle(
        "DELETE FROM items WHERE id = 2",
        "UPDATE items SET note = 'new' WHERE id = 1",
        "INSERT INTO items VALUES (5, DATE '2026-01-05', 'A', 5, NULL, NULL)",
    )
    # Of a key that changes, one row is deleted, and another one inserted.
    settle("UPDATE items SET price = 30, code = 'c' WHERE id = 3", "DELETE FROM items WHERE id = 4")
    settle("DELETE FROM items", "INSERT INTO items VALUES (6, DATE '2026-01-06', 'f', 6, '', NULL)")
    job = running_job(server, "root")
    run_as(server, "root", f"STOP JOB '{job}'", "DROP SCHEMA sinks CASCADE")
    if system == "mariadb":
        run_as(server, "root", "DROP CONNECTION jobs")


@thorough
def test_rows_of_a_database_without_upserts_are_added(server: Server) -> None:
    written = "'connector' = 'jdbc', 'connection' = 'derby', 'table-name' = 'APP.T'"
    run_as(
        server,
        "root",
        "CREATE CONNECTION derby TYPE jdbc OPTIONS (url 'jdbc:derby:memory:x;create=true', "
        "driver 'org.apache.derby.jdbc.EmbeddedDriver')",
        "CREATE TABLE derby.APP.T (ID INT, V STRING)",
        f"CREATE TABLE keyed (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({written})",
        f"CREATE TABLE added (id INT, v STRING) WITH ({written})",
        "INSERT INTO added VALUES (1, 'a'), (1, NULL)",
    )
    assert run_as(server, "root", "SELECT count(v), sum(id) FROM added") == [(1, 2)]
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, "root", "INSERT INTO keyed VALUES (1)")
    assert "Rows replace others by a primary key only in PostgreSQL" in caught.value.hint
    run_as(server, "root", "DROP TABLE keyed", "DROP TABLE added", "DROP CONNECTION derby")


@thorough
def test_rows_and_tables_are_written(server: Server) -> None:
    run_as(
        server,
        "ann",
        "CREATE TABLE crm.shop.copied AS SELECT id, who FROM crm.shop.orders",
        "INSERT INTO crm.shop.copied VALUES (3, 'c')",
    )
    assert run_as(server, "bob", "SELECT max(id), count(*) FROM crm.shop.copied") == [(3, 3)]
    run_as(server, "ann", "DROP TABLE crm.shop.copied")
    assert "TABLE_OR_VIEW_NOT_FOUND" in refused(server, "bob", "SELECT * FROM crm.shop.copied")


@thorough
def test_a_view_reads_with_its_owners_privileges(server: Server) -> None:
    run_as(
        server,
        "bob",
        "CREATE VIEW bob.orders AS SELECT * FROM crm.shop.orders",
        "GRANT SELECT ON VIEW bob.orders TO USER eve",
    )
    assert run_as(server, "eve", "SELECT * FROM bob.orders ORDER BY id") == ROWS
    run_as(server, "bob", "DROP VIEW bob.orders")


@thorough
def test_a_materialized_table_reads_it_with_its_owners_privileges(server: Server) -> None:
    run_as(
        server,
        "bob",
        "CREATE MATERIALIZED TABLE bob.totals FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT who, sum(amount) AS total FROM crm.shop.orders WHERE id < 3 GROUP BY who",
    )
    assert sorted(run_as(server, "bob", "SELECT * FROM bob.totals")) == [("a", 10.5), ("b", 20)]
    refresh = "ALTER MATERIALIZED TABLE bob.totals REFRESH"
    run_as(server, "bob", refresh)
    run_as(server, "root", "REVOKE USE CONNECTION ON CONNECTION crm FROM USER bob")
    assert "USE CONNECTION on connection crm" in refused(server, "bob", refresh)
    run_as(server, "root", "GRANT USE CONNECTION ON CONNECTION crm TO USER bob")
    run_as(server, "bob", refresh, "DROP MATERIALIZED TABLE bob.totals")


@thorough
def test_what_has_not_changed_in_the_database_is_not_read_again(server: Server, url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    create = "CREATE CONNECTION {} TYPE postgresql OPTIONS (url '{}', user 'crm', {}, {})"
    secret, newest = "password secret('crm')", "SELECT max(id) FROM {table} WHERE {name} > ''"
    queries = {
        "by_snapshot": "SELECT name, id FROM crm.shop.visits JOIN watching.names USING (who)",
        "of_a_view": "SELECT * FROM crm.shop.latest",
        "by_query": "SELECT count(*) AS c FROM newest.shop.visits",
        "ignored": "SELECT count(*) AS c FROM ignored.shop.visits",
        "failing": "SELECT count(*) AS c FROM failing.shop.visits",
    }

    def refresh(table: str, how: str = "") -> str:
        statement = f"ALTER MATERIALIZED TABLE watching.{table} REFRESH {how}"
        history = f"SHOW REFRESH HISTORY FOR watching.{table} LIMIT 1"
        last = run_as(server, "root", statement, history)
        return str(next(word for word in last[0] if word in ("FULL", "INCREMENTAL", "NO_DATA")))

    with psycopg.connect(
        host="127.0.0.1", port=port, dbname="postgres", user="crm", password=HUSH, autocommit=True
    ) as database:
        database.execute("CREATE TABLE shop.visits (id int, who text)")
        database.execute("INSERT INTO shop.visits VALUES (1, 'a')")
        database.execute("CREATE VIEW shop.latest AS SELECT max(id) AS id FROM shop.visits")
        run_as(
            server,
            "root",
            create.format("newest", url, secret, f'versionQuery "{newest}"'),
            create.format("ignored", url, secret, "versionQuery 'none'"),
            create.format("failing", url, secret, "versionQuery 'SELECT seen FROM {table}'"),
            "CREATE SCHEMA watching",
            "CREATE TABLE watching.names (who STRING, name STRING)",
            "INSERT INTO watching.names VALUES ('a', 'ann'), ('c', 'carl')",
            *(
                f"CREATE MATERIALIZED TABLE watching.{name} FRESHNESS = INTERVAL '1' DAY AS {query}"
                for name, query in queries.items()
            ),
        )
        # PostgreSQL may gather statistics, which is a transaction.
        wait_until(lambda: refresh("by_snapshot") == "NO_DATA", "an unchanged snapshot", 60)
        assert [refresh(name) for name in queries if name != "by_snapshot"] == [
            *("FULL", "NO_DATA", "FULL", "FULL")
        ]
        run_as(server, "root", "INSERT INTO watching.names VALUES ('d', 'dora')")
        assert refresh("by_snapshot", "INCREMENTAL") == "INCREMENTAL"
        database.execute("UPDATE shop.visits SET who = 'c'")
        assert (refresh("by_snapshot"), refresh("by_query")) == ("FULL", "NO_DATA")
        database.execute("INSERT INTO shop.visits VALUES (2, 'd')")
        assert (refresh("by_snapshot"), refresh("by_query")) == ("FULL", "FULL")
        found = run_as(server, "root", "SELECT * FROM watching.by_snapshot ORDER BY id")
        assert found == [("carl", 1), ("dora", 2)]
    run_as(server, "root", *(f"DROP MATERIALIZED TABLE watching.{name}" for name in queries))
    assert "placeholders are {table}, {schema}, {name}" in refused(
        server, "root", create.format("odd", url, secret, "versionQuery 'SELECT {relation}'")
    )


@thorough
def test_no_statement_shows_the_secret(server: Server) -> None:
    for text in (
        "SHOW CONNECTIONS",
        "DESCRIBE CONNECTION crm",
        "DESCRIBE EXTENDED crm.shop.orders",
        "SHOW CREATE TABLE crm.shop.orders",
        "SHOW TBLPROPERTIES crm.shop.orders",
        "EXPLAIN EXTENDED SELECT * FROM crm.shop.orders",
        "EXPLAIN FORMATTED SELECT * FROM crm.shop.orders",
        "SET spark.sql.catalog.crm.password",
        "SET spark.sql.catalog.crm",
        "SET -v",
    ):
        assert HUSH not in str(run_as(server, "root", text))


@thorough
def test_an_error_of_the_database_shows_no_secret(server: Server, url: str) -> None:
    run_as(
        server,
        "root",
        f"CREATE CONNECTION other TYPE postgresql OPTIONS (url '{url}', user 'crm', "
        "password secret('wrong'))",
    )
    told = refused(server, "root", "SELECT * FROM other.shop.orders")
    assert "wr0ng" not in told
    run_as(
        server,
        "root",
        "ALTER CONNECTION other SET OPTIONS (password secret('crm'))",
        "ALTER CONNECTION other RENAME TO mended",
    )
    assert run_as(server, "root", "SELECT count(*) FROM mended.shop.orders") == [(2,)]
    run_as(server, "root", "DROP CONNECTION mended")
    refused(server, "root", "SELECT count(*) FROM mended.shop.orders")


@thorough
def test_a_missing_driver_is_told(server: Server) -> None:
    told = refused(
        server,
        "root",
        "CREATE CONNECTION mysql TYPE mysql OPTIONS (url 'jdbc:mysql://127.0.0.1/x', user 'x')",
    )
    assert "there is no class com.mysql.cj.jdbc.Driver" in told


# ---- mysql-cdc ---------------------------------------------------------------------------------

SOURCE = """CREATE TABLE {} (
  id INT UNSIGNED, kind VARCHAR(9), at DATETIME(6), seen TIMESTAMP(3) NULL, price DECIMAL(20, 4),
  share FLOAT, flag TINYINT(1), bits BIT(1), tags SET('a', 'b'), level ENUM('low', 'high'),
  note TEXT, raw VARBINARY(8), fixed BINARY(4), `day` DATE, PRIMARY KEY (id, kind))"""
COLUMNS = (
    "id BIGINT, kind STRING, at TIMESTAMP(6), seen TIMESTAMP_LTZ(3), price DECIMAL(20, 4), "
    "share FLOAT, flag BOOLEAN, bits BOOLEAN, tags STRING, level STRING, note STRING, raw BYTES, "
    "fixed BYTES, `day` DATE"
)
FULL_ROW = (
    "'2026-01-02 03:04:05.678901', '2026-01-02 03:04:05.678', -1234.5678, 0.1, 1, b'1', "
    "'b,a', 'high', 'größer', x'00ff', x'6100', '2026-02-28'"
)


def follow(server: Server, name: str, *, options: str = "") -> str:
    """Create a table of the connector and a materialized one over it; return its name."""
    run_as(
        server,
        "bob",
        "SET TIME ZONE 'UTC'",
        f"CREATE TABLE bob.{name} ({COLUMNS}, PRIMARY KEY (id, kind) NOT ENFORCED) WITH ("
        f"'connector' = 'mysql-cdc', 'connection' = 'shop', 'database-name' = 'shop', "
        f"'table-name' = '{name}'{options})",
        f"CREATE MATERIALIZED TABLE bob.{name}_kept FRESHNESS = INTERVAL '1' DAY "
        f"AS SELECT * FROM bob.{name}",
    )
    return f"bob.{name}_kept"


def contents(server: Server, table: str) -> list[tuple[object, ...]]:
    query = f"SELECT * FROM {table} ORDER BY id, kind"
    return run_as(server, "bob", "SET TIME ZONE 'UTC'", query)


def refresh(server: Server, table: str) -> None:
    run_as(server, "bob", f"ALTER MATERIALIZED TABLE {table} REFRESH")


@pytest.mark.thorough(4)
def test_a_materialized_table_follows_a_table_of_mariadb(server: Server, mariadb: MariaDb) -> None:
    def change(*statements: str) -> None:
        mariadb.execute(*statements, database="shop")

    change(
        SOURCE.format("items"),
        "CREATE TABLE others (id INT PRIMARY KEY)",
        f"INSERT INTO items VALUES (1, 'a', {FULL_ROW}), (4294967295, '', {FULL_ROW})",
        "INSERT INTO items (id, kind) VALUES (2, 'b'), (3, 'ä')",
    )
    kept = follow(server, "items")
    assert contents(server, kept) == contents(server, "bob.items")
    assert len(contents(server, kept)) == 4
    change(
        "UPDATE items SET price = price * 2, share = 0.3, note = NULL WHERE kind = 'a'",
        "UPDATE items SET id = 20, bits = b'0' WHERE id = 2",
        "DELETE FROM items WHERE id = 3",
        f"INSERT INTO items VALUES (5, 'e', {FULL_ROW})",
        "INSERT INTO items (id, kind) VALUES (6, 'f')",
        "DELETE FROM items WHERE id = 6",
        "INSERT INTO others VALUES (1)",
    )
    change("DELETE FROM items", "ROLLBACK")
    change("ALTER TABLE items ADD COLUMN more INT FIRST", "UPDATE items SET more = 1 WHERE id = 1")
    refresh(server, kept)
    assert contents(server, kept) == contents(server, "bob.items")
    assert [row[0] for row in contents(server, kept)] == [1, 5, 20, 4294967295]
    engine = server.wait_for_engine()
    os.kill(engine["jvm_pid"], signal.SIGKILL)
    change("FLUSH BINARY LOGS", "UPDATE items SET flag = 0, fixed = x'' WHERE id = 1")
    server.wait_for_engine(other_than=engine["pid"])
    assert run_as(server, "bob", "SELECT count(*) FROM crm.shop.orders") == [(2,)]
    refresh(server, kept)
    assert contents(server, kept) == contents(server, "bob.items")
    refresh(server, kept)
    [last, *_] = run_as(server, "bob", f"SHOW REFRESH HISTORY FOR {kept} LIMIT 1")
    assert "NO_DATA" in last
    change("FLUSH BINARY LOGS")
    refresh(server, kept)  # commits the position in the new file, and no rows
    mariadb.purge()
    change("DELETE FROM items WHERE id = 5")
    refresh(server, kept)
    assert contents(server, kept) == contents(server, "bob.items")
    change("TRUNCATE TABLE items")
    told = refused(server, "bob", f"ALTER MATERIALIZED TABLE {kept} REFRESH")
    assert "TRUNCATE has removed or replaced rows of shop.items" in told
    run_as(server, "bob", f"DROP MATERIALIZED TABLE {kept}", "DROP TABLE bob.items")


@pytest.mark.skipif(not FULL, reason="kills three engines")
def test_a_killed_refresh_is_continued(server: Server, mariadb: MariaDb) -> None:
    mariadb.execute(SOURCE.format("many"), database="shop")
    kept = follow(server, "many")
    assert contents(server, kept) == []
    for number in range(3):
        mariadb.execute(
            f"REPLACE INTO many (id, kind, price) SELECT seq, 'a', {number} FROM seq_1_to_20000",
            f"DELETE FROM many WHERE id % 7 = {number}",
            database="shop",
        )
        engine = server.wait_for_engine()
        with server.connect(user="bob") as connection, connection.cursor() as cursor:
            cursor.execute_async(f"ALTER MATERIALIZED TABLE {kept} REFRESH")
            time.sleep(1 + 2 * number)
            os.kill(engine["jvm_pid"], signal.SIGKILL)
        server.wait_for_engine(other_than=engine["pid"])
    refresh(server, kept)
    compared = f"SELECT count(*), count(DISTINCT id), sum(id), sum(price) FROM {kept}"
    assert run_as(server, "bob", compared) == run_as(
        server, "bob", compared.replace(kept, "bob.many")
    )
    run_as(server, "bob", f"DROP MATERIALIZED TABLE {kept}", "DROP TABLE bob.many")


def test_what_cannot_be_followed_is_told(server: Server, mariadb: MariaDb) -> None:
    mariadb.execute(
        SOURCE.format("lost"), "CREATE TABLE keyless (id INT, kind INT)", database="shop"
    )
    kept = follow(server, "lost", options=", 'scan.startup.mode' = 'latest-offset'")
    text = (
        "CREATE TEMPORARY TABLE k (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = "
        "'mysql-cdc', 'connection' = 'shop', 'database-name' = 'shop', 'table-name' = 'keyless')"
    )
    assert "USE CONNECTION on connection shop" in refused(server, "eve", text)
    stream = "STREAM read_mysql(connection => 'shop', `database` => 'shop', `table` => 'lost', "
    stream += 'columns => \'[["id", "INT"]]\', key => \'["id"]\')'
    told = refused(server, "bob", f"CREATE MATERIALIZED TABLE bob.x AS SELECT * FROM {stream}")
    assert "read_mysql is for tables of the connector mysql-cdc" in told
    assert "USE CONNECTION on connection shop" in refused(
        server, "eve", f"CREATE MATERIALIZED TABLE x AS SELECT * FROM {stream}"
    )
    refreshing = f"ALTER MATERIALIZED TABLE {kept} REFRESH"
    run_as(server, "root", "REVOKE USE CONNECTION ON CONNECTION shop FROM USER bob")
    assert "USE CONNECTION on connection shop" in refused(server, "bob", refreshing)
    run_as(server, "root", "GRANT USE CONNECTION ON CONNECTION shop TO USER bob")
    mariadb.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    assert "binlog_row_metadata is MINIMAL" in refused(server, "bob", refreshing)
    mariadb.execute("SET GLOBAL binlog_row_metadata = FULL", "FLUSH BINARY LOGS")
    mariadb.purge()
    assert "the server has purged the binlog" in refused(server, "bob", refreshing)
    mariadb.execute("ALTER TABLE lost DROP COLUMN note", database="shop")
    assert "note" in refused(server, "bob", refreshing)
    run_as(server, "bob", f"DROP MATERIALIZED TABLE {kept}", "DROP TABLE bob.lost")
