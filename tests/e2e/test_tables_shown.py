"""SHOW and metadata calls about Delta tables and materialized tables, as tools read them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import create_engine, inspect

from tests.support.fixtures.jdbc import Ask
from tests.support.fixtures.server import Server, last_rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def schema(server: Server) -> Iterator[str]:
    """A schema with a Delta table ``src`` and a materialized table ``mt``, of user ``eva``."""
    name = f"shown_{uuid.uuid4().hex[:8]}"
    with closing(server.connect(user="eva")) as connection, closing(connection.cursor()) as cursor:
        last_rows(
            cursor,
            f"CREATE SCHEMA {name}",
            f"CREATE TABLE {name}.src (id INT NOT NULL, amount DECIMAL(12,2)) COMMENT 'first'",
            f"CREATE MATERIALIZED TABLE {name}.mt FRESHNESS = INTERVAL '1' DAY "
            f"AS SELECT id, amount FROM {name}.src",
        )
        yield name
        last_rows(cursor, f"DROP MATERIALIZED TABLE {name}.mt", f"DROP SCHEMA {name} CASCADE")


def test_show_table_extended_has_owners_and_columns(server: Server, schema: str) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        rows = last_rows(cursor, f"SHOW TABLE EXTENDED IN {schema} LIKE '*'")
    told = {name: text for _, name, _, text in rows}
    assert sorted(told) == ["mt", "src"]
    # The metastore deletes no files of a materialized table.
    for name, kind in (("src", "MANAGED"), ("mt", "EXTERNAL")):
        text = told[name]
        assert "\nOwner: eva\n" in text
        assert f"\nType: {kind}\nProvider: delta\n" in text
        assert " |-- id: integer (nullable = false)\n" in text
        assert " |-- amount: decimal(12,2) (nullable = true)\n" in text


def test_show_create_table_answers_of_every_kind(server: Server, schema: str) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        [(plain,)] = last_rows(cursor, f"SHOW CREATE TABLE {schema}.src")
        [(made,)] = last_rows(cursor, f"SHOW CREATE TABLE {schema}.mt")
        assert [(made,)] == last_rows(cursor, f"SHOW CREATE MATERIALIZED TABLE {schema}.mt")
    assert "\nUSING delta\n" in plain
    assert made.startswith("CREATE MATERIALIZED TABLE ")


def test_a_comment_is_seen_at_once(server: Server, schema: str) -> None:
    engine = create_engine(f"tidegate://eva@{server.host}:{server.port}/{schema}")
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        for comment in ("second", "it is third"):
            cursor.execute(f"COMMENT ON TABLE {schema}.src IS '{comment}'")
            assert inspect(engine).get_table_comment("src") == {"text": comment}
    engine.dispose()


@pytest.mark.jdbc
def test_jdbc_reads_comments_types_and_logs(jdbc: Ask, schema: str) -> None:
    comment = uuid.uuid4().hex
    got = jdbc(
        ("comment", "update", f"COMMENT ON TABLE {schema}.src IS '{comment}'"),
        ("tables", "getTables", None, schema, "src", None),
        ("columns", "getColumns", None, schema, "src", "%"),
        ("types", "getTypeInfo"),
        ("log", "log", "SELECT 1"),
        ("query", "results", "SELECT 1 AS a"),
        ("ddl", "results", f"CREATE TABLE IF NOT EXISTS {schema}.src (a INT)"),
    )
    assert [row[2:5] for row in got["tables"][1:]] == [["src", "TABLE", comment]]
    columns = {row[3]: (row[5], row[6]) for row in got["columns"][1:]}
    assert columns == {"id": ("INT", "4"), "amount": ("DECIMAL(12,2)", "12")}
    assert "INT" in [row[0] for row in got["types"][1:]]
    assert "INTEGER" not in [row[0] for row in got["types"][1:]]
    assert "Executing command(queryId=" in got["log"][0]
    assert "Completed executing command(queryId=" in got["log"][-1]
    assert got["query"] == [[["a"], ["1"]]]
    assert got["ddl"] == []
