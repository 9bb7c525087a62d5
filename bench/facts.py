"""The facts and dimensions that refreshes are measured on, and one statement at a time."""

from __future__ import annotations

import tidegate


def make_sources(connection: tidegate.Connection, rows: int) -> int:
    """Make ``facts`` of so many rows and ``dims`` anew; returns the number of their keys."""
    keys = max(rows // 200, 10)
    for statement in (
        "DROP TABLE IF EXISTS facts",
        "DROP TABLE IF EXISTS dims",
        "CREATE TABLE facts (id BIGINT, k BIGINT, amount DECIMAL(12,2), v INT) USING delta",
        "CREATE TABLE dims (k BIGINT, name STRING) USING delta",
        f"INSERT INTO facts SELECT id, id % {keys}, id % 1000, id % 17 FROM RANGE({rows})",
        f"INSERT INTO dims SELECT id, concat('n', id) FROM RANGE({keys})",
    ):
        run(connection, statement)
    return keys


def run(connection: tidegate.Connection, statement: str) -> list[tuple[object, ...]]:
    """Execute a statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]
