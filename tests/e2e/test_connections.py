"""Connections to a real PostgreSQL: what their grants allow, and that no secret is shown."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as, running_server
from tests.support.postgres import (
    USER,
    free_port,
    postgres_programs,
    require_password,
    running_postgres,
)
from tidegate_server.engine.jvm import jars
from tidegate_server.gateway.link.java import find_java

pytestmark = [pytest.mark.faults, pytest.mark.thorough]  # a server of its own

HUSH = "h0sh-hosh"
CONFIG = """
[authorization]
enabled = true
administrators = ["root"]

[options]
"materialized-table.initialize" = "ON_CREATE"

[engine]
jars = ["{driver}"]

[secrets]
crm = {{ file = "{secret}" }}
wrong = "wr0ng-wrong"
"""
ROWS = [(1, Decimal("10.50"), "a"), (2, Decimal("20.00"), "b")]


@pytest.fixture(scope="module")
def driver() -> Path:
    """The jar of PostgreSQL's JDBC driver, fetched once into the cache of jars."""
    jar = jars.Jar("org.postgresql", "postgresql", "42.7.4")
    file = jars.cache_dir() / jar.file
    if not file.exists():
        jars._fetch(jar, jars.cache_dir(), str(find_java().home))
    return file


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a database with the schema ``shop``, whose owner needs a password."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    port = free_port()
    with running_postgres(programs, port) as directory:
        where = f"host={directory} port={port} user={USER} dbname=postgres"
        with psycopg.connect(where, autocommit=True) as database:
            for text in (
                f"CREATE ROLE crm LOGIN PASSWORD '{HUSH}'",
                "CREATE SCHEMA shop AUTHORIZATION crm",
                "SET ROLE crm",
                "CREATE TABLE shop.orders (id int PRIMARY KEY, amount numeric(10, 2), who text)",
                "INSERT INTO shop.orders VALUES (1, 10.5, 'a'), (2, 20, 'b')",
                "CREATE TABLE shop.prices (id int, at date, price numeric(10, 2) NOT NULL)",
                "ALTER TABLE shop.prices ADD seen timestamp, ADD PRIMARY KEY (id, at)",
                "RESET ROLE",
            ):
                database.execute(text)
            require_password(directory)
            database.execute("SELECT pg_reload_conf()")
        yield f"jdbc:postgresql://127.0.0.1:{port}/postgres"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, driver: Path, url: str) -> Iterator[Server]:
    """A server with the connection ``crm``, which bob may use and ann may change."""
    folder = tmp_path_factory.mktemp("connections")
    secret, file = folder / "secret", folder / "tidegate.toml"
    secret.write_text(HUSH)
    secret.chmod(0o600)
    file.write_text(CONFIG.format(driver=driver, secret=secret))
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


def refused(server: Server, user: str, text: str) -> str:
    """Return the message of the error with which a statement must end."""
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, text)
    assert HUSH not in str(caught.value)
    return str(caught.value)


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


@pytest.mark.parametrize("text", ["USE crm", "USE crm.shop", "SET CATALOG crm", "USE CATALOG crm"])
def test_a_connection_becomes_the_current_catalog(server: Server, text: str) -> None:
    rows = run_as(server, "bob", text, "USE crm.shop", "SELECT count(*) FROM orders")
    assert rows == [(2,)]
    assert "USE CONNECTION on connection crm" in refused(server, "eve", text)


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


def test_a_reader_brings_no_options_of_its_own(server: Server) -> None:
    for option in ("query", "sessionInitStatement", "url", "dbtable"):
        text = f"SELECT * FROM crm.shop.orders WITH ('{option}' = '1')"
        assert "ACCESS_DENIED" in refused(server, "bob", text)


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


def test_a_view_reads_with_its_owners_privileges(server: Server) -> None:
    run_as(
        server,
        "bob",
        "CREATE VIEW bob.orders AS SELECT * FROM crm.shop.orders",
        "GRANT SELECT ON VIEW bob.orders TO USER eve",
    )
    assert run_as(server, "eve", "SELECT * FROM bob.orders ORDER BY id") == ROWS
    run_as(server, "bob", "DROP VIEW bob.orders")


def test_a_materialized_table_reads_it_with_its_owners_privileges(server: Server) -> None:
    run_as(
        server,
        "bob",
        "CREATE MATERIALIZED TABLE bob.totals FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT who, sum(amount) AS total FROM crm.shop.orders WHERE id < 3 GROUP BY who",
    )
    assert sorted(run_as(server, "bob", "SELECT * FROM bob.totals")) == [("a", 10.5), ("b", 20)]
    refresh = "ALTER MATERIALIZED TABLE bob.totals REFRESH"
    run_as(server, "bob", refresh)  # the source counts as changed
    run_as(server, "root", "REVOKE USE CONNECTION ON CONNECTION crm FROM USER bob")
    assert "USE CONNECTION on connection crm" in refused(server, "bob", refresh)
    run_as(server, "root", "GRANT USE CONNECTION ON CONNECTION crm TO USER bob")
    run_as(server, "bob", refresh, "DROP MATERIALIZED TABLE bob.totals")


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


def test_a_new_engine_has_the_connections(server: Server) -> None:
    engine = server.wait_for_engine()
    os.kill(engine["pid"], signal.SIGKILL)
    server.wait_for_engine(other_than=engine["pid"])
    assert run_as(server, "bob", "SELECT count(*) FROM crm.shop.orders") == [(2,)]


def test_a_missing_driver_is_told(server: Server) -> None:
    told = refused(
        server,
        "root",
        "CREATE CONNECTION mysql TYPE mysql OPTIONS (url 'jdbc:mysql://127.0.0.1/x', user 'x')",
    )
    assert "there is no class com.mysql.cj.jdbc.Driver" in told
