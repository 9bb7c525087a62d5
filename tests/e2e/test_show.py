"""SHOW, DESCRIBE, SET and the system tables, asked of the running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fixtures.server import Server

pytestmark = pytest.mark.spark

ROWS = list[tuple[Any, ...]]
TABLE = """
CREATE MATERIALIZED TABLE mt (
  loud AS upper(customer) COMMENT 'shouted',
  CONSTRAINT positive EXPECT (amount > 0),
  PRIMARY KEY (id) NOT ENFORCED
)
FRESHNESS = INTERVAL '1' HOUR
AS SELECT coalesce(id, 0) AS id, customer, amount FROM orders
"""


class Asking:
    """A cursor that answers rows."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor

    def __call__(self, text: str) -> ROWS:
        self.cursor.execute(text)
        return [tuple(row) for row in self.cursor.fetchall()] if self.cursor.description else []


@pytest.fixture(scope="module")
def ask(server: Server) -> Iterator[Asking]:
    with server.connect() as connection, connection.cursor() as cursor:
        ask = Asking(cursor)
        ask("CREATE SCHEMA shown")
        ask("USE shown")
        ask("CREATE TABLE orders (id BIGINT, customer STRING, amount INT) USING delta")
        ask("INSERT INTO orders VALUES (1, 'ann', 5), (2, 'bob', -1)")
        ask(TABLE)
        ask("ALTER MATERIALIZED TABLE mt REFRESH")
        yield ask
        ask("DROP MATERIALIZED TABLE mt")
        ask("DROP SCHEMA shown CASCADE")


def test_what_show_create_prints_makes_an_equal_table(ask: Asking) -> None:
    [(text,)] = ask("SHOW CREATE MATERIALIZED TABLE mt")
    ask(text.replace(".`mt`", ".`copy`"))
    [(again,)] = ask("SHOW CREATE MATERIALIZED TABLE copy")
    ask("DROP MATERIALIZED TABLE copy")
    assert again.replace(".`copy`", ".`mt`") == text


def test_lists_answer(ask: Asking) -> None:
    assert ask("SHOW MATERIALIZED TABLES") == [("mt",)]
    assert ask("SHOW LINEAGE mt") == [
        ("spark_catalog.shown.mt", "spark_catalog.shown.orders", "TABLE")
    ]
    origins = {(row[1], row[3], row[4]) for row in ask("SHOW LINEAGE mt COLUMNS")}
    assert ("customer", "customer", "UNCHANGED") in origins
    assert [row[2] for row in ask("SHOW VERSIONS mt")] == ["FULL"]
    assert "mt" in [row[2] for row in ask("SHOW LAG")]
    assert ask("DESCRIBE mt")[0] == ("loud", "string", "shouted")


def test_the_history_tells_what_was_read(ask: Asking) -> None:
    ask("SHOW REFRESH HISTORY FOR mt LIMIT 1")
    names = [column[0] for column in ask.cursor.description]
    ask.cursor.execute("SHOW REFRESH HISTORY FOR mt LIMIT 1")
    row = dict(zip(names, ask.cursor.fetchone(), strict=True))
    assert (row["state"], row["action"], row["table"]) == ("SUCCEEDED", "FULL", "mt")
    assert json.loads(row["expectations"]) == {"positive": 1}
    [source] = json.loads(row["sources"])
    assert source["after"] == 1


def test_system_tables_join(ask: Asking) -> None:
    [row] = ask(
        "SELECT t.table_name, h.action, g.source_name, l.breached, t.start_mode "
        "FROM information_schema.materialized_tables t "
        "JOIN information_schema.materialized_table_refresh_history h USING (table_id) "
        "JOIN information_schema.materialized_table_lineage g USING (table_id) "
        "JOIN information_schema.materialized_table_lag l USING (table_id) "
        "WHERE t.table_schema = 'shown'"
    )
    assert row == ("mt", "FULL", "orders", False, None)
    columns = ask(
        "SELECT column_name, source_column FROM "
        "information_schema.materialized_table_column_lineage WHERE table_schema = 'shown'"
    )
    assert ("amount", "amount") in columns


def test_history_tells_what_refreshes_took(ask: Asking) -> None:
    ask(
        "CREATE MATERIALIZED TABLE totals FRESHNESS = INTERVAL '1' HOUR "
        "AS SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer"
    )
    ask("ALTER MATERIALIZED TABLE totals REFRESH FULL")
    ask("ALTER MATERIALIZED TABLE totals REFRESH")
    nothing, full = ask(
        "SELECT action, spark_job_ids, executor_ms, peak_memory "
        "FROM information_schema.materialized_table_refresh_history "
        "WHERE table_schema = 'shown' AND table_name = 'totals' ORDER BY queued_at DESC LIMIT 2"
    )
    ask("DROP MATERIALIZED TABLE totals")
    assert nothing == ("NO_DATA", "[]", None, None)
    assert full[0] == "FULL"
    assert json.loads(full[1])
    assert full[2] > 0
    assert full[3] >= 0


def test_all_settings_are_listed(ask: Asking) -> None:
    ask("SET 'execution.mode' = 'embedded'")
    ask("SET spark.sql.shuffle.partitions = 3")
    listed = dict(ask("SET"))
    assert (listed["execution.mode"], listed["spark.sql.shuffle.partitions"]) == ("embedded", "3")
    assert len(ask("SET -v")[0]) == 4


def test_lines_of_slash_comments_run(ask: Asking) -> None:
    assert ask("// how many\nSELECT count(*)\n  // of them\nFROM orders") == [(2,)]
