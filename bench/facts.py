"""The facts and dimensions that refreshes are measured on, and a function to run SQL."""

from __future__ import annotations

import tidegate


def make_sources(connection: tidegate.Connection, rows: int) -> int:
    """Create ``facts`` with ``rows`` rows, ``dims`` and ``orders``; return the number of keys.

    Each of the dims has 200 facts, each of the orders 5, that follow each other.
    """
    keys = max(rows // 200, 10)
    orders = max(rows // 5, 10)
    for statement in (
        "DROP TABLE IF EXISTS facts",
        "DROP TABLE IF EXISTS dims",
        "DROP TABLE IF EXISTS orders",
        (
            "CREATE TABLE facts (id BIGINT, o BIGINT, k BIGINT, amount DECIMAL(12,2), v INT) "
            "USING delta"
        ),
        "CREATE TABLE dims (k BIGINT, name STRING) USING delta",
        "CREATE TABLE orders (o BIGINT, customer BIGINT) USING delta",
        (
            f"INSERT INTO facts SELECT id, id div 5, id % {keys}, id % 1000, id % 17 "
            f"FROM RANGE({rows})"
        ),
        f"INSERT INTO dims SELECT id, concat('n', id) FROM RANGE({keys})",
        f"INSERT INTO orders SELECT id, id % {keys} FROM RANGE({orders})",
    ):
        run(connection, statement)
    return keys


def run(connection: tidegate.Connection, statement: str) -> list[tuple[object, ...]]:
    """Execute a statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]
