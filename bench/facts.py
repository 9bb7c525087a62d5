"""The facts and dimensions that refreshes are measured on, and functions that run SQL."""

from __future__ import annotations

import time
from dataclasses import dataclass

import tidegate


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What a refresh took, the strategy that it chose, and why."""

    seconds: float
    action: str
    reason: str


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


def refresh(connection: tidegate.Connection, table: str, kind: str) -> Refreshed:
    """Refresh a materialized table and measure it.

    :param kind: FULL, INCREMENTAL, or empty for the table's own choice.
    """
    start = time.perf_counter()
    run(connection, f"ALTER MATERIALIZED TABLE {table} REFRESH {kind}")
    seconds = time.perf_counter() - start
    [last] = connection.materialized_tables.history(table, limit=1)
    reason = last.strategy_reason_code or ""
    return Refreshed(seconds=seconds, action=last.action or "", reason=reason)


def require_equal(connection: tidegate.Connection, table: str, query: str) -> None:
    """Compare a table with its query: how many rows, and the sum of their hashes.

    :raises SystemExit: if they differ.
    """
    found, wanted = (
        run(
            connection,
            f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM ({rows})",
        )
        for rows in (f"SELECT * FROM {table}", query)
    )
    if found != wanted:
        raise SystemExit(f"{table} differs from its query: {found} and {wanted}")
