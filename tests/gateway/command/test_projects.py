"""Tables of a project: they are recorded, and recognized without Spark's analysis."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.gateway.command.fakes import World, analysis
from tidegate_server.core.messages.requests import Analyze
from tidegate_server.gateway.options import PROJECT_KEY

HEAD = "CREATE OR ALTER MATERIALIZED TABLE m "
CLAUSES = (
    "FRESHNESS = INTERVAL '1' HOUR",
    "COMMENT 'it is daily' FRESHNESS = INTERVAL '1' DAY",
    "WITH ('materialized-table.refresh.retries' = '3') FRESHNESS = INTERVAL '1' HOUR",
    "FRESHNESS = INTERVAL '1' MINUTE REFRESH_MODE = CONTINUOUS",
    "FRESHNESS = DOWNSTREAM",
    "",
)
QUERIES = (
    "SELECT a, b FROM t1",
    "SELECT a AS x, count(*) AS n, sum(a * 2) AS s FROM t1 AS o GROUP BY a",
    "SELECT o.a, 'It''s; -- no comment' AS t FROM d.t1 AS o WHERE o.c <> 3 AND b LIKE 'x%'",
    "WITH big AS (SELECT a FROM t1) SELECT big.a, rank() OVER (ORDER BY a) AS n FROM big",
    "SELECT CAST(a AS STRING) AS a, date_format(d, 'yyyy') AS m FROM t1 JOIN t1 AS u USING (a)",
    "SELECT a, CASE WHEN c > 0 THEN 'A' ELSE 'a' END AS k FROM t1 ORDER BY a LIMIT 10",
)
_WORD = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\w+")


def outside_literals(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda sql: _WORD.sub(
        lambda found: found[0] if found[0][0] in "'`" else change(found[0]), sql
    )


COSMETICS: dict[str, Callable[[str], str]] = {
    "lower case": outside_literals(str.lower),
    "upper case": outside_literals(str.upper),
    "spaces": lambda sql: re.sub(r"(?<=[\w)]) (?=[A-Z])", "  \n\t", sql),
    "comments": lambda sql: (
        f"{sql.replace(' FROM ', ' /* from /* here */ */ FROM -- next' + chr(10))}"
    ),
    "quoted names": outside_literals(lambda w: f"`{w}`" if w in ("a", "t1", "o", "big") else w),
    "aliases without AS": lambda sql: re.sub(
        r" AS (?=\w+( FROM|,| GROUP| WHERE| USING))", " ", sql
    ),
    "another operator": lambda sql: sql.replace("<>", "!="),
}


@pytest.fixture
def project(world: World) -> World:
    world.session.settings[PROJECT_KEY] = "sales"
    return world


def analyses(world: World) -> int:
    return sum(isinstance(request, Analyze) for request in world.engine.requests)


def test_a_table_belongs_to_the_project_of_its_session(project: World) -> None:
    project.execute(f"{HEAD} AS SELECT a FROM t1")
    assert project.definition("m").options == {PROJECT_KEY: "sales"}
    project.session.settings.clear()
    rows = project.rows(f"EXPLAIN {HEAD} AS SELECT a FROM t1")
    assert (f"OPTION {PROJECT_KEY}", "sales", None) in [row[:3] for row in rows]


@pytest.mark.parametrize("cosmetic", COSMETICS)
@pytest.mark.parametrize("clauses", CLAUSES)
@pytest.mark.parametrize("query", QUERIES)
def test_cosmetic_differences_are_no_changes(
    project: World, query: str, clauses: str, cosmetic: str
) -> None:
    project.execute(f"{HEAD}{clauses} AS {query}")
    before = analyses(project)
    change = COSMETICS[cosmetic]
    assert project.rows(f"EXPLAIN {change(f'{HEAD}{clauses} AS ')}{change(query)}") == []
    assert analyses(project) == before


@pytest.mark.parametrize(
    "statement",
    [
        f"{HEAD}FRESHNESS = INTERVAL '1' HOUR AS SELECT b, a FROM t1",
        f"{HEAD}FRESHNESS = INTERVAL '2' HOUR AS SELECT a, b FROM t1",
        f"{HEAD}COMMENT 'x' FRESHNESS = INTERVAL '1' HOUR AS SELECT a, b FROM t1",
        f"{HEAD}FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = CONTINUOUS AS SELECT a, b FROM t1",
        f"{HEAD}PARTITIONED BY (b) FRESHNESS = INTERVAL '1' HOUR AS SELECT a, b FROM t1",
        f"{HEAD}FRESHNESS = INTERVAL '1' HOUR AS SELECT a, `B ` FROM t1",
    ],
)
def test_other_statements_are_analyzed(project: World, statement: str) -> None:
    project.execute(f"{HEAD}FRESHNESS = INTERVAL '1' HOUR AS SELECT a, b FROM t1")
    before = analyses(project)
    project.rows(f"EXPLAIN {statement}")
    assert analyses(project) > before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t1",
        "SELECT t1.* FROM t1",
        "SELECT a, * FROM t1",
        "SELECT struct(*) AS s FROM t1",
        "SELECT a FROM t1 NATURAL JOIN t2",
    ],
)
def test_columns_of_the_sources_can_only_be_told_by_an_analysis(project: World, query: str) -> None:
    project.execute(f"{HEAD} AS {query}")
    before = analyses(project)
    project.rows(f"EXPLAIN {HEAD} AS {query}")
    assert analyses(project) > before


def test_names_are_those_of_the_session(project: World) -> None:
    project.execute(f"{HEAD} AS SELECT a FROM t1")
    project.session.schema = "other"
    project.engine.analyses["SELECT a FROM t1"] = analysis()
    before = analyses(project)
    project.rows(f"EXPLAIN {HEAD.replace(' m ', ' d.m ')} AS SELECT a FROM t1")
    assert analyses(project) > before


def test_an_analysis_can_be_asked_for(project: World) -> None:
    project.execute(f"{HEAD} AS SELECT a FROM t1")
    before = analyses(project)
    assert project.rows(f"EXPLAIN EXTENDED {HEAD} AS SELECT a FROM t1") == []
    assert analyses(project) > before
