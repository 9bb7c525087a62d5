"""Assertions and held versions, seen from the gateway."""

from __future__ import annotations

import json

import pytest

from tests.gateway.command.fakes import NOW, World
from tests.gateway.command.tables import wider_query
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import CheckExpressions, DiscardHeld, ExplainRefresh
from tidegate_server.core.model.clauses import Assertion, Violation
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import HeldVersion
from tidegate_server.core.refresh.request import Publish

ALTER = "ALTER MATERIALIZED TABLE m"
ENOUGH = "CONSTRAINT enough ASSERT (row_count > 0.5 * previous(row_count)) ON VIOLATION HOLD"
CREATE = (
    "CREATE {}MATERIALIZED TABLE m (CONSTRAINT known EXPECT (a > 0), PRIMARY KEY (a) NOT ENFORCED"
    "{}) WITH ('constraint.enforce' = 'warn') FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1"
)
WAITING = HeldVersion(refresh_id="r-1", since=NOW, reason="The new version of m is held.")


@pytest.fixture
def asserting_world(world: World) -> World:
    world.execute(CREATE.format("", f", {ENOUGH}"))
    world.refreshed.clear()
    return world


@pytest.fixture
def held_world(asserting_world: World) -> World:
    asserting_world.catalog.record_held_version(asserting_world.table("m").id, WAITING)
    return asserting_world


def refusal(world: World, text: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    return caught.value


# ---- the definition --------------------------------------------------------------------------


def test_an_assertion_is_checked_stored_and_shown(asserting_world: World) -> None:
    condition = "row_count > 0.5 * previous(row_count)"
    wanted = Assertion(name="enough", condition=condition, violation=Violation.HOLD)
    assert asserting_world.definition("m").assertions == (wanted,)
    [asked] = [r for r in asserting_world.engine.requests_of(CheckExpressions) if r.assertions]  # type: ignore[attr-defined]
    assert asked.assertions == (condition,)  # type: ignore[attr-defined]
    [(created,)] = asserting_world.rows("SHOW CREATE MATERIALIZED TABLE m")
    assert f"CONSTRAINT `enough` ASSERT ({condition}) ON VIOLATION HOLD" in str(created)
    [(described,)] = asserting_world.rows("DESCRIBE EXTENDED m AS JSON")
    facts = json.loads(str(described))
    assert facts["assertions"] == f"enough ASSERT ({condition}) ON VIOLATION HOLD"
    assert facts["held_version"] is None


def test_an_assertion_that_cannot_be_judged_is_refused_without_a_trace(world: World) -> None:
    world.engine.storage.unusable["b > 0"] = error(
        Code.MT_COLUMN_EXPRESSION, name="the assertion", reason="no aggregate", hint=""
    )
    problem = refusal(world, CREATE.format("", ", CONSTRAINT c ASSERT (b > 0)"))
    assert problem.code == "MT_COLUMN_EXPRESSION"
    assert world.catalog.tables() == ()


def test_an_assertion_may_not_have_the_name_of_a_key_that_is_checked(world: World) -> None:
    problem = refusal(world, CREATE.format("", ", CONSTRAINT PK_a ASSERT (row_count > 0)"))
    assert problem.code == "MT_OPTION_VALUE"


def test_changing_assertions_leaves_the_content_alone(asserting_world: World) -> None:
    before = asserting_world.table("m")
    asserting_world.execute(f"{ALTER} DROP CONSTRAINT enough")
    after = asserting_world.table("m")
    assert (after.definition.assertions, after.definition.expectations) == (
        (),
        before.definition.expectations,
    )
    again = CREATE.format("OR ALTER ", f", {ENOUGH.replace('HOLD', 'FAIL')}")
    [(what, old, new, effect, *_)] = asserting_world.rows(f"EXPLAIN {again}")
    assert (what, old, effect) == ("ASSERTIONS", None, "NONE")
    assert str(new).endswith("FAIL")
    asserting_world.execute(again)
    assert asserting_world.definition("m").assertions[0].violation is Violation.FAIL
    assert asserting_world.definition("m").version == before.definition.version
    assert (
        refusal(asserting_world, f"{ALTER} DROP CONSTRAINT gone").code
        == "MT_ALTER_SCHEMA_NOT_FOUND"
    )


def test_explain_refresh_tells_what_is_checked(asserting_world: World) -> None:
    rows = asserting_world.rows("EXPLAIN REFRESH m")
    assert [(row[1], row[3], row[4]) for row in rows] == [
        ("CHOSEN", "FORCED", "why"),
        ("CHECK", "EXPECTATION", "known EXPECT (a > 0) ON VIOLATION WARN"),
        ("CHECK", "PRIMARY_KEY", "PK_a PRIMARY KEY (`a`) ON VIOLATION WARN"),
        (
            "CHECK",
            "ASSERTION",
            "enough ASSERT (row_count > 0.5 * previous(row_count)) ON VIOLATION HOLD",
        ),
    ]
    [asked] = asserting_world.engine.requests_of(ExplainRefresh)
    assert asked.order.assertions == asserting_world.definition("m").assertions  # type: ignore[attr-defined]


CHECKS = [
    ("EXPECTATION", "known EXPECT (a > 0) ON VIOLATION WARN"),
    ("PRIMARY_KEY", "PK_a PRIMARY KEY (`a`) ON VIOLATION WARN"),
    ("ASSERTION", "enough ASSERT (row_count > 0.5 * previous(row_count)) ON VIOLATION HOLD"),
    ("IMMUTABLE", "IMMUTABLE WHERE (b > 'x')"),
]
FROZEN = CREATE.replace(" AS SELECT", " IMMUTABLE WHERE (b > 'x') AS SELECT")


def test_explain_create_tells_what_its_refreshes_will_check(world: World) -> None:
    [(section,)] = world.rows("EXPLAIN " + FROZEN.format("", f", {ENOUGH}"))
    title, *told = str(section).splitlines()
    assert title == "== Checks of a Refresh =="
    assert told == [f"{kind}: {text}" for kind, text in CHECKS]
    assert world.catalog.tables() == ()
    assert world.rows("EXPLAIN CREATE MATERIALIZED TABLE n AS SELECT * FROM t1") == []


def test_explain_of_a_change_tells_what_the_refresh_that_follows_checks(held_world: World) -> None:
    rows = held_world.rows("EXPLAIN " + FROZEN.format("OR ALTER ", f", {ENOUGH}"))
    assert [row[0] for row in rows] == ["IMMUTABLE WHERE", "HELD", "REFRESH", *["CHECK"] * 4]
    assert rows[1][3:5] == (
        "VERSION_HELD",
        f"{WAITING.reason} What this refresh makes takes its place.",
    )
    assert [row[3:5] for row in rows[3:]] == CHECKS
    wider = wider_query(held_world)
    rows = held_world.rows(f"EXPLAIN {ALTER} AS {wider}")
    assert [row[3:5] for row in rows if row[0] == "CHECK"] == CHECKS[:3], rows


# ---- a version that is held ------------------------------------------------------------------


def test_a_held_version_is_told_of_wherever_the_table_is(held_world: World) -> None:
    shown = f"r-1 since 2024-01-02 12:00:00 UTC: {WAITING.reason}"
    [row] = held_world.rows("SHOW MATERIALIZED TABLES EXTENDED")
    assert row[-1] == shown
    assert ("held_version", shown, "") in held_world.rows("DESCRIBE EXTENDED m")
    [told, chosen, *_] = held_world.rows("EXPLAIN REFRESH m")
    assert (told[1], told[3], chosen[1]) == ("HELD", "VERSION_HELD", "CHOSEN")
    assert WAITING.reason in str(told[4])


def test_publish_serves_the_held_version_by_a_run_of_its_own(held_world: World) -> None:
    held_world.execute(f"{ALTER} PUBLISH HELD VERSION")
    [request] = held_world.refreshed
    assert (request.task, request.refresh_id, request.requested_by) == (Publish(), "op2", "ann")
    assert "r-1" in held_world.logged[-1]


def test_a_publication_that_fails_leaves_the_version_held(held_world: World) -> None:
    held_world.refresh_failure = error(Code.MT_NOTHING_HELD, table="m", reason="it was overtaken")
    assert refusal(held_world, f"{ALTER} PUBLISH HELD VERSION").code == "MT_NOTHING_HELD"
    assert held_world.table("m").state.held == WAITING


def test_discard_throws_the_held_version_away(held_world: World) -> None:
    held_world.execute(f"{ALTER} DISCARD HELD VERSION")
    assert held_world.engine.requests_of(DiscardHeld) == [
        DiscardHeld(name=held_world.table("m").name, table_id=held_world.table("m").id)
    ]
    assert held_world.table("m").state.held is None
    assert held_world.table("m").state.status is RefreshStatus.ACTIVATED
    assert held_world.refreshed == []


def test_a_version_that_cannot_be_discarded_is_held_still(held_world: World) -> None:
    held_world.engine.failures[DiscardHeld] = error(Code.ENGINE_LOST)
    assert refusal(held_world, f"{ALTER} DISCARD HELD VERSION").code == "ENGINE_LOST"
    assert held_world.table("m").state.held == WAITING
    assert held_world.ledger.leases == {}


@pytest.mark.parametrize("word", ["PUBLISH", "DISCARD"])
def test_without_a_held_version_there_is_nothing_to_decide(
    asserting_world: World, word: str
) -> None:
    problem = refusal(asserting_world, f"{ALTER} {word} HELD VERSION")
    assert (problem.code, problem.sqlstate) == ("MT_NOTHING_HELD", "55000")
    assert asserting_world.refreshed == []
    assert asserting_world.engine.requests_of(DiscardHeld) == []


def test_a_refresh_whose_result_is_held_says_what_to_do(asserting_world: World) -> None:
    asserting_world.refresh_failure = error(Code.MT_VERSION_HELD, table="m", reason="too few rows")
    problem = refusal(asserting_world, f"{ALTER} REFRESH")
    assert problem.code == "MT_VERSION_HELD"
    assert "PUBLISH HELD VERSION" in problem.hint


def test_a_held_version_is_not_left_behind(held_world: World) -> None:
    problem = refusal(held_world, f"{ALTER} CONVERT TO TABLE")
    assert (problem.code, "DISCARD HELD VERSION" in problem.hint) == ("MT_STATE", True)
    held_world.execute(f"{ALTER} RENAME TO n")
    assert held_world.table("n").state.held == WAITING
    held_world.execute("DROP MATERIALIZED TABLE n")
    assert held_world.catalog.tables() == ()
