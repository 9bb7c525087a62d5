"""Scripts with every statement of Flink's pages on materialized tables, on a real server."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, last_rows, sorted_rows
from tidegate.cli.split import split

pytestmark = pytest.mark.spark

SCRIPTS = Path(__file__).parents[1] / "sql" / "fixtures"
_REFUSED = re.compile(r"^-- refused: (\w+)$", re.MULTILINE)


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a schema of its own."""
    schema = f"scripts_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        last_rows(cursor, f"CREATE SCHEMA {schema}", f"USE {schema}")
        yield cursor
        for name, *_ in last_rows(cursor, f"SHOW MATERIALIZED TABLES IN {schema}"):
            last_rows(cursor, f"DROP MATERIALIZED TABLE {schema}.{name}")
        last_rows(
            cursor,
            f"DROP SCHEMA {schema} CASCADE",
            "DROP SCHEMA IF EXISTS statements_db1 CASCADE",
            *(f"DROP CATALOG IF EXISTS {name}_catalog" for name in ("kafka", "user", "paimon")),
        )


def carry_out(cursor: tidegate.Cursor, script: str) -> Iterator[str]:
    """Run a script, and yield each statement after it has run.

    A statement after ``-- refused: CODE`` has to fail with this code.
    """
    for part in split((SCRIPTS / script).read_text("utf-8")):
        if not part.sql:
            continue
        refused = _REFUSED.search(part.raw)
        if refused is None:
            cursor.execute(part.sql)
        else:
            with pytest.raises(tidegate.Error) as caught:
                cursor.execute(part.sql)
            assert caught.value.code == refused[1], str(caught.value)
            assert caught.value.hint, part.sql
        yield part.sql


def described(cursor: tidegate.Cursor, table: str) -> dict[str, str]:
    return {key: value for key, value, _ in last_rows(cursor, f"DESCRIBE EXTENDED {table}")}


def test_a_table_stays_on_the_cluster_it_was_created_for(cursor: tidegate.Cursor) -> None:
    for statement in carry_out(cursor, "deployment.sql"):
        if statement.endswith("SUSPEND"):
            assert described(cursor, "on_standalone")["refresh_status"] == "SUSPENDED"
    facts = described(cursor, "on_standalone")
    assert (facts["execution_target"], facts["refresh_status"]) == ("remote", "ACTIVATED")
    assert sorted_rows(cursor, "SELECT * FROM on_standalone") == [(1, 2, 30), (2, 1, 5)]
    assert len(last_rows(cursor, "SHOW MATERIALIZED TABLES")) == 5


def test_a_day_is_computed_again_and_a_table_becomes_fresher(cursor: tidegate.Cursor) -> None:
    for statement in carry_out(cursor, "backfill_and_freshness.sql"):
        if "REFRESH PARTITION" in statement:
            assert described(cursor, "customer_orders")["refresh_mode"] == "FULL"
            rows = last_rows(cursor, "SELECT ds, customer, orders FROM customer_orders")
            assert rows == [("20241125", "ann", 1)]
    facts = described(cursor, "customer_orders")
    assert (facts["refresh_mode"], facts["freshness"]) == ("CONTINUOUS", "1 MINUTE")


def test_every_form_of_a_statement_is_carried_out(cursor: tidegate.Cursor) -> None:
    modes = {}
    for statement in carry_out(cursor, "materialized_table_statements.sql"):
        created = re.match(r"CREATE (?:OR ALTER )?MATERIALIZED TABLE (\w+)", statement)
        if created is not None and created[1] != "never":
            facts = described(cursor, created[1])
            modes[statement.split(" AS SELECT")[0]] = (facts["refresh_mode"], facts["freshness"])
            if created[1] == "every_kind":
                assert facts["primary_key"] == "user_id"
    create = "CREATE MATERIALIZED TABLE"
    assert modes[f"{create} by_default"] == ("CONTINUOUS", "3 MINUTE")
    assert modes[f"{create} by_default_full REFRESH_MODE = FULL"] == ("FULL", "1 HOUR")
    units = {"SECOND": "CONTINUOUS", "MINUTE": "CONTINUOUS", "HOUR": "FULL", "DAY": "FULL"}
    for unit, mode in units.items():
        fresh = f"{create} fresh FRESHNESS = INTERVAL '1' {unit}"
        assert modes[fresh] == (mode, f"1 {unit}")
    assert len(last_rows(cursor, "SELECT * FROM by_default_full")) == 4
    prices = "SELECT ds, product_id, avg_sale_price, total_quantity FROM {}"
    first = ("2024-06-28", "p1", 15.0, 5)
    assert sorted_rows(cursor, prices.format("prices")) == [first]
    every = sorted_rows(cursor, prices.format("prices_with_types"))
    assert every == [first, ("2024-06-29", "p2", None, None), ("2024-06-29", "p3", None, None)]
    assert sorted_rows(cursor, "SELECT * FROM redefined") == [(1, 2, 30, 15.0), (2, 1, 7, 7.0)]
    last_rows(cursor, "ALTER MATERIALIZED TABLE purchases_by_user REFRESH")
    assert sorted_rows(cursor, "SELECT * FROM purchases_by_user") == [
        *(("2024-06-28", 1, 2, 30, 30), ("2024-06-29", 2, 1, 7, 40)),
    ]
