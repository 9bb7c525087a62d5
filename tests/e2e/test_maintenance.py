"""The files of a materialized table are maintained while it is refreshed."""

from __future__ import annotations

import pytest

from tests.support.fixtures.server import Server, named_rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

KEPT = "information_schema.materialized_table_upkeep"


def test_a_table_that_is_refreshed_often_is_compacted_and_compared(server: Server) -> None:
    def ask(*statements: str) -> list[dict[str, object]]:
        return named_rows(server, "USE kept", *statements)

    named_rows(server, "CREATE SCHEMA kept")
    ask(
        "CREATE TABLE raw (n INT) USING delta",
        "CREATE MATERIALIZED TABLE mt WITH ('materialized-table.upkeep.small-files' = '5', "
        "'materialized-table.upkeep.verify' = '1 s') FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT n FROM raw",
    )
    refreshed = 0

    def refresh_and_list() -> list[dict[str, object]]:
        nonlocal refreshed
        refreshed += 1
        ask("INSERT INTO raw VALUES (1)", "ALTER MATERIALIZED TABLE mt REFRESH INCREMENTAL")
        return ask(f"SELECT * FROM {KEPT} WHERE table_name = 'mt'")

    # The first inspection follows one commit or ten, depending on the age of the server.
    wait_until(
        lambda: any(run["files_left"] for run in refresh_and_list()), "nothing was compacted"
    )
    runs = refresh_and_list()
    assert all(run["error_class"] is None for run in runs)
    assert all(run["files_removed"] is None for run in runs)
    assert all(run["files_left"] in (None, 1, 2, 3) for run in runs), "one, and refreshes since"
    compared = [run for run in runs if run["verified_version"] is not None]
    assert compared
    assert all((run["missing_rows"], run["extra_rows"]) == (0, 0) for run in compared)
    assert ask("SELECT count(*) AS c FROM mt") == [{"c": refreshed}]
    [last] = ask("SHOW REFRESH HISTORY FOR mt LIMIT 1")
    assert last["action"] == "INCREMENTAL"
    assert ask("VERIFY MATERIALIZED TABLE mt")[0]["equal"]
    ask("DROP MATERIALIZED TABLE mt", "DROP SCHEMA kept CASCADE")
