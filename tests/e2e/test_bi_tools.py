"""What BI tools ask for, as users who have only SELECT on what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.fixtures.jdbc import VERSIONS
from tests.support.fixtures.server import Server, run_as

pytestmark = [pytest.mark.faults, pytest.mark.jdbc]

STATEMENTS = {
    "DBeaver": (
        "SHOW CREATE TABLE bi.sales",
        "DESCRIBE FORMATTED bi.sales",
        "SELECT * FROM bi.sales LIMIT 200",
    ),
    "Hue": ("SHOW DATABASES", "SHOW VIEWS IN bi", "DESCRIBE FORMATTED `bi`.`sales`", "SET"),
    "Looker": (
        "SHOW TABLES IN `bi`",
        "DESCRIBE `bi`.`sales`",
        "EXPLAIN SELECT region, sum(n) FROM bi.sales GROUP BY region",
    ),
    "Metabase": (
        "show databases",
        "show tables in `bi`",
        "describe `bi`.`sales`",
        "SELECT `t`.`region` AS `region` FROM (SELECT * FROM `bi`.`sales`) `t` LIMIT 1048575",
    ),
    "Power BI": (
        "SHOW TABLE EXTENDED IN bi LIKE '*'",
        "SELECT `region`, SUM(`n`) AS `a0` FROM `bi`.`sales` GROUP BY `region` LIMIT 1000001",
    ),
    "Superset": (
        "SHOW SCHEMAS",
        "SHOW COLUMNS IN bi.sales",
        "SHOW FUNCTIONS",
        "SELECT current_database(), current_catalog(), current_user()",
    ),
    "Tableau": (
        "SET -v",
        "SELECT 1",
        "USE `bi`",
        "SELECT * FROM `bi`.`sales` `sales` WHERE 1 = 0",
        (
            "SELECT `sales`.`region`, SUM(`sales`.`n`) AS `sum_n_ok` FROM `bi`.`sales` `sales` "
            "GROUP BY 1 HAVING (COUNT(1) > 0)"
        ),
        "DESCRIBE DATABASE bi",
    ),
}
"""What the tools send to Hive or Spark to find tables, to describe them and to fill a chart."""
METADATA = (
    ("getCatalogs",),
    ("getSchemas",),
    ("getTableTypes",),
    ("getTables", None, "bi", "%", None),
    ("getColumns", None, "bi", "%", "%"),
    ("getPrimaryKeys", None, "bi", "sales"),
    ("getImportedKeys", None, "bi", "sales"),
    ("getTypeInfo",),
    ("getFunctions", None, "%", "abs"),
    ("getSQLKeywords",),
    ("getDatabaseProductName",),
    ("getDatabaseProductVersion",),
)


@pytest.fixture(scope="module")
def reports(guarded_server: Server) -> Iterator[Server]:
    """A server on which eve may read one materialized table of ann, and no other object."""
    run_as(
        guarded_server,
        "ann",
        "CREATE SCHEMA bi",
        "CREATE TABLE bi.orders (region STRING NOT NULL, n BIGINT)",
        "INSERT INTO bi.orders SELECT 'north', id FROM range(10)",
        "CREATE MATERIALIZED TABLE bi.sales (PRIMARY KEY (region) NOT ENFORCED) "
        "FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT region, sum(n) AS n FROM bi.orders GROUP BY region",
        "CREATE VIEW bi.hidden AS SELECT n FROM bi.sales",
        "GRANT SELECT ON MATERIALIZED TABLE bi.sales TO USER eve",
    )
    yield guarded_server
    run_as(guarded_server, "ann", "DROP MATERIALIZED TABLE bi.sales", "DROP SCHEMA bi CASCADE")


@pytest.mark.parametrize("tool", STATEMENTS)
def test_the_statements_of_a_tool_run_with_select_alone(reports: Server, tool: str) -> None:
    for statement in STATEMENTS[tool]:
        rows = run_as(reports, "eve", statement)
        if statement.lower().startswith(("show tables", "show table extended", "show views")):
            assert [row[1] for row in rows] in (["sales"], [])
        assert "hidden" not in str(rows)


def test_metadata_calls_list_what_the_user_may_read(
    reports: Server, jdbc_program: Callable[[str], Any]
) -> None:
    steps = [(method, method, *rest) for method, *rest in METADATA]
    for user, names in (("eve", ["sales"]), ("ann", ["hidden", "orders", "sales"])):
        answers = jdbc_program(VERSIONS[-1]).ask(f"{reports.url}default;user={user}", steps)
        assert [name for name, answer in answers.items() if "error" in answer] == []
        assert sorted(row[2] for row in answers["getTables"][1:]) == names
        assert {row[2] for row in answers["getColumns"][1:]} == set(names)
        assert [row[3] for row in answers["getPrimaryKeys"][1:]] == ["region"]
        assert "bi" in [row[0] for row in answers["getSchemas"][1:]]
        assert [row[2] for row in answers["getFunctions"][1:]] == ["abs"]
