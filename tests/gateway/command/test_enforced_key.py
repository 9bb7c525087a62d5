"""The option constraint.enforce: its values, when it is rejected, and what refreshes get of it."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import World
from tests.gateway.command.tables import ALTER, refusal
from tidegate_server.core.errors import Code
from tidegate_server.core.model.clauses import EnforcedKey, Violation

KEY = "CONSTRAINT ct1 PRIMARY KEY (a) NOT ENFORCED"


def create(name: str = "m", word: str = "fail", items: str = KEY) -> str:
    listed = f" ({items})" if items else ""
    return (
        f"CREATE MATERIALIZED TABLE {name}{listed} WITH ('constraint.enforce' = '{word}') "
        "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1"
    )


@pytest.mark.parametrize(("word", "violation"), [("fail", "FAIL"), ("Warn", "WARN")])
def test_refreshes_are_told_of_the_key(world: World, word: str, violation: str) -> None:
    world.execute(create(word=word))
    expected = EnforcedKey(name="ct1", columns=("a",), violation=Violation(violation))
    assert world.table("m").enforced_key == expected


def test_it_is_set_and_reset(world: World) -> None:
    world.execute(create())
    world.execute(f"{ALTER} m SET ('constraint.enforce' = 'warn')")
    found = world.table("m").enforced_key
    assert found is not None
    assert found.violation is Violation.WARN
    world.execute(f"{ALTER} m RESET ('constraint.enforce')")
    assert world.table("m").enforced_key is None
    world.execute(f"{ALTER} m DROP PRIMARY KEY")


def test_create_or_alter_changes_it(world: World) -> None:
    world.execute(create())
    statement = create(word="warn").replace("CREATE", "CREATE OR ALTER")
    rows = world.rows(f"EXPLAIN {statement}")
    assert [row for row in rows if "OPTION constraint.enforce" in row], rows
    world.execute(statement)
    found = world.table("m").enforced_key
    assert found is not None
    assert found.violation is Violation.WARN


@pytest.mark.parametrize("word", ["yes", "", "DROP ROW"])
def test_other_values_are_refused(world: World, word: str) -> None:
    problem = refusal(world, create(word=word))
    assert problem.code == Code.MT_OPTION_VALUE.name
    assert "WARN, FAIL" in problem.message


def test_it_needs_a_key(world: World) -> None:
    for statement in (create(items=""), create(items="CONSTRAINT c EXPECT (a > 0)")):
        problem = refusal(world, statement)
        assert problem.code == Code.MT_OPTION_VALUE.name
        assert "has no primary key" in problem.message
    world.execute("CREATE MATERIALIZED TABLE plain AS SELECT * FROM t1")
    assert (
        "has no primary key"
        in refusal(world, f"{ALTER} plain SET ('constraint.enforce' = 'fail')").message
    )
    world.execute(create())
    for drop in ("PRIMARY KEY", "CONSTRAINT ct1"):
        problem = refusal(world, f"{ALTER} m DROP {drop}")
        assert problem.code == Code.MT_OPTION_VALUE.name
    assert world.definition("m").primary_key is not None


def test_its_name_is_no_expectations(world: World) -> None:
    problem = refusal(world, create(items=f"{KEY}, CONSTRAINT CT1 EXPECT (a > 0)"))
    assert problem.code == Code.MT_OPTION_VALUE.name
    assert "name of an expectation" in problem.message
