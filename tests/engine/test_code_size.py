"""Statements whose expressions are too large for one method of generated code."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Client, Session
from tests.support.spark_settings import COMPILED

pytestmark = pytest.mark.spark

TERMS = 3_000
OR = " OR ".join(f"id + {n} = 3000" for n in range(TERMS))
OR_OF_BOTH = OR.replace("id", "a.id + b.id")


def case(branches: int, value: str = "id") -> str:
    return f"CASE {' '.join(f'WHEN {value} = {n} THEN {n + 7}' for n in range(branches))} END"


def compiling(client: Client) -> Session:
    """Return a session that compiles its queries, which others of these tests do not."""
    session = Session(client)
    for name, value in COMPILED.items():
        session.execute(f"SET {name} = {value}")
    return session


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (f"SELECT {case(20_000)} FROM range(-1, 40000, 19999)", [(None,), (20_005,), (None,)]),
        (f"SELECT sum({case(TERMS)}), max({case(TERMS)}) FROM range(9)", [(99, 15)]),
        (f"SELECT id FROM range(9) WHERE {OR}", [(n,) for n in range(1, 9)]),
        (f"SELECT a.id FROM range(9) a LEFT ANTI JOIN range(1) b ON {OR_OF_BOTH}", [(0,)]),
        (f"SELECT max(x) FROM (SELECT {case(TERMS, 'rand()')} AS x FROM range(2))", [(None,)]),
    ],
    ids=["projection", "aggregate", "filter", "join", "random"],
)
def test_large_expressions_are_compiled_in_parts(
    client: Client, statement: str, rows: list[tuple[object, ...]]
) -> None:
    assert compiling(client).rows(statement) == rows


@pytest.mark.parametrize(("terms", "project"), [(30, "*(1) Project"), (400, "Project")])
def test_only_operators_with_large_expressions_are_separate(
    client: Client, terms: int, project: str
) -> None:
    statement = f"SELECT {' + '.join(f'id * {n}' for n in range(terms))} AS x FROM range(3)"
    plan = compiling(client).rows(f"EXPLAIN {statement}")[0][0]
    assert plan.splitlines()[1].startswith(f"{project} [")
    assert "+- *(1) Range" in plan or "+- *(1) CancelCheck" in plan
