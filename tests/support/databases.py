"""Databases to which connections lead, their drivers, and rows that replace others in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import psycopg

from tests.support.fixtures.server import Server, run_as
from tests.support.postgres import USER, free_port, require_password, running_postgres
from tidegate_server.engine.jvm import jars
from tidegate_server.gateway.link.java import find_java

DRIVERS = (
    jars.Jar("org.postgresql", "postgresql", "42.7.4"),
    jars.Jar("org.mariadb.jdbc", "mariadb-java-client", "3.5.3"),
    jars.Jar("org.xerial", "sqlite-jdbc", "3.50.3.0"),
)


def driver_jars() -> list[str]:
    """Return the jars of JDBC drivers, fetched once into the cache of jars."""
    return list(map(str, jars.fetch_jars(DRIVERS, str(find_java().home))))


@contextmanager
def running_shop(programs: Path, password: str) -> Iterator[str]:
    """Run PostgreSQL with the schema ``shop``, whose owner ``crm`` needs a password; its URL."""
    port = free_port()
    with running_postgres(programs, port) as directory:
        where = f"host={directory} port={port} user={USER} dbname=postgres"
        with psycopg.connect(where, autocommit=True) as database:
            for text in (
                f"CREATE ROLE crm LOGIN PASSWORD '{password}'",
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


def replace_rows(server: Server, connection: str, table: str) -> None:
    """Insert rows with the keys of others into the tables ``prices`` and ``ids``."""
    of = f"WITH ('connector' = 'jdbc', 'connection' = '{connection}', 'table-name' = '{{}}')"
    run_as(
        server,
        "root",
        f"CREATE SCHEMA {connection}_tables",
        f"USE {connection}_tables",
        "CREATE TABLE prices (note STRING, id INT, at DATE, price DECIMAL(10, 2), PRIMARY KEY (id, "
        f"at) NOT ENFORCED) {of.format('prices')}",
        f"CREATE TABLE ids (id INT, PRIMARY KEY (id) NOT ENFORCED) {of.format('ids')}",
        "INSERT INTO prices VALUES ('a', 1, DATE '2026-01-01', 1.5), ('b', 2, DATE '2026-01-01', 2)"
        ", ('it''s', 1, DATE '2026-01-02', NULL)",
        "INSERT INTO prices (price, at, id) VALUES (3, DATE '2026-01-01', 1)",
        "INSERT INTO prices VALUES ('b', 2, DATE '2026-01-01', 4.5)",
        "INSERT INTO ids VALUES (1), (2)",
        "INSERT INTO ids VALUES (2), (3)",
    )
    columns = "id, CAST(at AS STRING), price, note"
    found = run_as(
        server, "root", f"SELECT {columns} FROM {connection}_tables.prices ORDER BY id, at"
    )
    assert found == [
        (1, "2026-01-01", Decimal("3.00"), None),
        (1, "2026-01-02", None, "it's"),
        (2, "2026-01-01", Decimal("4.50"), "b"),
    ]
    assert run_as(server, "root", f"SELECT count(*) FROM {table} WHERE note IS NULL") == [(1,)]
    ids = f"SELECT count(*), max(id) FROM {connection}_tables.ids"
    assert run_as(server, "root", ids) == [(3, 3)]
    run_as(server, "root", f"DROP SCHEMA {connection}_tables CASCADE")
