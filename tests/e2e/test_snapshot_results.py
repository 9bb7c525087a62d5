"""The rows of a result are those of its execution, whatever happens to the table meanwhile."""

from __future__ import annotations

import pytest

from tests.support.fixtures.server import Server

pytestmark = pytest.mark.spark

MATERIALIZED = """
CREATE MATERIALIZED TABLE snapshots.mt FRESHNESS = INTERVAL '1' DAY
AS SELECT id, n FROM snapshots.src
"""


def test_a_result_stays_as_it_was_while_its_table_changes(server: Server) -> None:
    query = "SELECT id, n FROM snapshots.mt ORDER BY id"
    with (
        server.connect(fetch_size=100) as connection,
        connection.cursor() as reader,
        connection.cursor() as writer,
    ):
        for text in (
            "CREATE SCHEMA snapshots",
            "CREATE TABLE snapshots.src AS SELECT id, 1 AS n FROM range(20000)",
            MATERIALIZED,
            "ALTER MATERIALIZED TABLE snapshots.mt REFRESH",
        ):
            writer.execute(text)
        reader.execute(query)
        assert reader.fetchmany(10) == [(number, 1) for number in range(10)]

        writer.execute("UPDATE snapshots.src SET n = 2")
        writer.execute("ALTER MATERIALIZED TABLE snapshots.mt REFRESH")
        assert reader.fetchmany(10) == [(number, 1) for number in range(10, 20)]
        writer.execute(query)
        assert writer.fetchone() == (0, 2)

        writer.execute("DROP MATERIALIZED TABLE snapshots.mt")
        assert reader.fetchall() == [(number, 1) for number in range(20, 20000)]
