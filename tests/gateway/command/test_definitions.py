"""SHOW VERSIONS ... DEFINITION and ROLLBACK DEFINITION: what a definition was, and back to it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import NOW, T1, World, analysis, name
from tests.gateway.command.tables import ALTER, BASE, column, produces, refusal, wider_query
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Analyze
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.types import Schema
from tidegate_server.core.refresh.request import Rollback

FIRST = "SELECT * FROM t1 -- first"
SECOND = "SELECT * FROM t1 WHERE c > 0"
BACK = f"{ALTER} m ROLLBACK DEFINITION"
SHOW = "SHOW VERSIONS m DEFINITION"


def register_query(world: World, query: str, *, expanded: str) -> str:
    """Let the engine know a query, and the same query with its names in full."""
    world.engine.analyses[query] = analysis(T1, "t1", expanded=expanded)
    world.engine.analyses[expanded] = analysis(T1, "t1", expanded=expanded)
    return query


@pytest.fixture
def twice(world: World) -> World:
    """A table with two definition versions that differ in their query."""
    register_query(world, FIRST, expanded="SELECT a, b, c, d FROM spark_catalog.d.t1")
    register_query(world, SECOND, expanded="SELECT a, b, c, d FROM spark_catalog.d.t1 WHERE c > 0")
    world.execute(f"CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS {FIRST}")
    world.session.user = "bob"
    world.execute(f"{ALTER} m AS {SECOND}")
    return world


def definition_rows(world: World) -> list[dict[str, object]]:
    result = world.execute(SHOW)
    return [row for batch in result.batches(0) for row in batch.to_pylist()]


def test_every_version_has_its_text_its_author_and_what_it_changed(twice: World) -> None:
    second, first = definition_rows(twice)
    assert (first["definition_version"], first["query"]) == (1, FIRST)
    assert (first["defined_by"], first["defined_at"], first["changes"]) == ("ann", NOW, None)
    assert (second["definition_version"], second["query"]) == (2, SECOND)
    assert (second["defined_by"], second["defined_at"]) == ("bob", NOW)
    assert json.loads(str(second["changes"])) == [
        {"object": "QUERY", "before": FIRST, "after": SECOND}
    ]
    assert str(first["definition"]).startswith(
        "CREATE OR ALTER MATERIALIZED TABLE `spark_catalog`.`d`.`m`"
    )
    assert str(first["definition"]).endswith("AS SELECT a, b, c, d FROM spark_catalog.d.t1")


def test_a_version_is_kept_as_it_last_was(twice: World) -> None:
    twice.execute(f"{ALTER} m SET ('k' = 'v')")
    twice.execute(f"{ALTER} m AS {FIRST}")
    rows = definition_rows(twice)
    assert [row["definition_version"] for row in rows] == [3, 2, 1]
    assert "'k' = 'v'" in str(rows[1]["definition"])
    assert "'k' = 'v'" not in str(rows[2]["definition"])


def test_data_versions_tell_the_query_that_made_them(twice: World) -> None:
    table = twice.table("m")
    twice.execute(f"{ALTER} m REFRESH")
    run = replace(twice.ledger.history[-1], to_version=7, action=Strategy.FULL)
    made_by = ((1, FIRST), (2, SECOND), (9, None))
    twice.ledger.history[:] = [
        replace(run, table_id=table.id, definition_version=version, state=RunState.SUCCEEDED)
        for version, _ in made_by
    ]
    assert [row[-1] for row in twice.rows("SHOW VERSIONS m")] == [q for _, q in made_by[::-1]]


def test_the_version_before_comes_back_as_a_new_one(twice: World) -> None:
    before, workflow = twice.table("m"), twice.workflow("m")
    twice.execute(BACK)
    after = twice.table("m")
    assert (after.definition.version, after.definition.restored_from) == (3, 1)
    assert (after.definition.original_query, after.definition.expanded_query) == (
        FIRST,
        "SELECT a, b, c, d FROM spark_catalog.d.t1",
    )
    assert (after.definition.defined_by, after.definition.defined_at) == ("bob", NOW)
    for kept in ("id", "owner", "location", "state"):
        assert getattr(after, kept) == getattr(before, kept), kept
    for kept in ("schema", "freshness", "declared"):
        assert getattr(after.definition, kept) == getattr(before.definition, kept), kept
    assert twice.workflow("m") == workflow
    properties = twice.engine.storage.tables[name("m")].properties
    assert '"restored_from":1' in properties["tidegate.definition"]
    assert "version 3, which is that of version 1" in twice.logged[-1]


def test_back_again_is_the_other_way_round(twice: World) -> None:
    twice.execute(BACK)
    twice.execute(BACK)
    after = twice.table("m")
    assert (after.definition.version, after.definition.restored_from) == (4, 2)
    assert after.definition.original_query == SECOND
    twice.execute(f"{ALTER} m AS {FIRST}")
    assert twice.definition("m").restored_from is None


def test_the_whole_definition_comes_back_options_and_comment_too(world: World) -> None:
    world.execute(BASE)
    query = wider_query(world)
    first = world.table("base")
    again = produces(world, first.definition.expanded_query, *T1, source="t1")
    assert again == first.definition.expanded_query
    other = "SELECT a, b, c, d FROM t1 WHERE c > 0"
    produces(world, other, *T1, source="t1")
    altered = BASE.replace("CREATE", "CREATE OR ALTER").replace("COMMENT 'x'", "COMMENT 'y'")
    altered = altered.replace("'format'='json'", "'k'='v'").replace("SELECT * FROM t1", other)
    world.execute(altered)
    assert (world.definition("base").comment, world.definition("base").options) == ("y", {"k": "v"})
    world.execute(f"{ALTER} base ROLLBACK DEFINITION TO VERSION 1")
    after = world.table("base")
    changed = {"version": 3, "restored_from": 1}
    assert after == vary(first, **changed, defined_by="ann", defined_at=NOW)
    world.execute(f"{ALTER} base AS {query}")
    problem = refusal(world, f"{ALTER} base ROLLBACK DEFINITION TO VERSION 1")
    assert problem.code == Code.MT_EVOLUTION_UNSUPPORTED.name
    assert "column 5" in problem.message


def test_settings_of_the_session_come_back_with_the_query(world: World) -> None:
    register_query(world, FIRST, expanded="SELECT 1st")
    register_query(world, SECOND, expanded="SELECT 2nd")
    world.execute("SET 'spark.sql.shuffle.partitions' = '7'")
    world.execute(f"CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS {FIRST}")
    world.execute("SET 'spark.sql.shuffle.partitions' = '9'")
    world.execute(f"{ALTER} m AS {SECOND}")
    world.execute(BACK)
    assert world.definition("m").settings == {"spark.sql.shuffle.partitions": "7"}


def test_explain_tells_what_the_way_back_would_do(twice: World) -> None:
    before = twice.catalog.tables(), dict(twice.engine.storage.tables)
    rows = twice.rows(f"EXPLAIN {BACK} TO VERSION 1")
    assert (twice.catalog.tables(), dict(twice.engine.storage.tables)) == before
    assert [row[:4] for row in rows] == [
        ("QUERY", SECOND, FIRST, "NEXT_REFRESH"),
        ("REFRESH", None, "FULL", "FORCED"),
    ]
    assert twice.rows(f"EXPLAIN {BACK} TO VERSION 2") == []
    problem = refusal(twice, f"EXPLAIN {BACK} TO VERSION 7")
    assert (problem.code, problem.line) == ("MT_DEFINITION_NOT_FOUND", 1)


def test_the_version_in_force_changes_nothing(twice: World) -> None:
    before = twice.table("m")
    twice.execute(f"{BACK} TO VERSION 2")
    assert twice.table("m") == before
    assert "says already" in twice.logged[-1]


def test_unknown_versions_are_told_with_their_place_and_those_there_are(twice: World) -> None:
    problem = refusal(twice, f"{BACK}\nTO VERSION 7")
    assert (problem.code, problem.line, problem.column) == ("MT_DEFINITION_NOT_FOUND", 2, 12)
    assert "has no definition version 7; it has 1, 2." in problem.message
    assert "SHOW VERSIONS spark_catalog.d.m DEFINITION" in problem.hint
    twice.execute(f"CREATE MATERIALIZED TABLE n FRESHNESS = INTERVAL '1' DAY AS {FIRST}")
    problem = refusal(twice, f"{ALTER} n ROLLBACK DEFINITION")
    assert (problem.code, problem.line) == ("MT_DEFINITION_NOT_FOUND", None)


@pytest.fixture
def dated_versions(twice: World) -> World:
    """The same; its first definition made version 7 of the data, its second version 8."""
    table = twice.table("m")
    twice.execute(f"{ALTER} m REFRESH")
    run = replace(twice.ledger.history[-1], table_id=table.id, action=Strategy.FULL)
    twice.ledger.history[:] = [
        replace(run, to_version=made, definition_version=by, state=RunState.SUCCEEDED)
        for made, by in ((7, 1), (8, 2))
    ]
    twice.refreshed.clear()
    return twice


def test_the_definition_of_a_version_of_the_data_comes_back_alone(dated_versions: World) -> None:
    dated_versions.execute(f"{ALTER} m ROLLBACK TO VERSION 7 DEFINITION")
    after = dated_versions.table("m")
    assert (after.definition.restored_from, after.definition.original_query) == (1, FIRST)
    assert (after.state.status, dated_versions.refreshed) == (RefreshStatus.ACTIVATED, [])


def test_definition_and_data_come_back_together(dated_versions: World) -> None:
    dated_versions.execute(f"{ALTER} m ROLLBACK TO VERSION 7 BOTH")
    (request,) = dated_versions.refreshed
    assert request.task == Rollback(version=7)
    after = dated_versions.table("m")
    assert (after.definition.restored_from, after.definition.original_query) == (1, FIRST)
    assert after.state.status is RefreshStatus.SUSPENDED


def test_data_whose_definition_cannot_come_back_stay(dated_versions: World) -> None:
    dated_versions.engine.failures[Analyze] = error(Code.MT_NOT_FOUND, table="t1")
    before = dated_versions.table("m")
    refusal(dated_versions, f"{ALTER} m ROLLBACK TO VERSION 7 BOTH")
    assert (dated_versions.table("m"), dated_versions.refreshed) == (before, [])


def test_a_definition_stays_when_its_data_cannot_come_back(dated_versions: World) -> None:
    before = dated_versions.table("m")
    failure = error(Code.MT_ROLLBACK_IMPOSSIBLE, table="m", version=7, reason="it is gone", hint="")
    dated_versions.refresh_failure = failure
    problem = refusal(dated_versions, f"{ALTER} m ROLLBACK TO VERSION 7 BOTH")
    assert problem.code == Code.MT_ROLLBACK_IMPOSSIBLE.name
    assert dated_versions.definition("m").version == before.definition.version
    assert dated_versions.table("m").state.status is RefreshStatus.ACTIVATED


@pytest.mark.parametrize("what", ["DEFINITION", "BOTH"])
def test_of_data_that_no_known_refresh_made_there_is_no_definition(
    dated_versions: World, what: str
) -> None:
    problem = refusal(dated_versions, f"{ALTER} m ROLLBACK TO\nVERSION 9 {what}")
    assert (problem.code, problem.line, problem.column) == ("MT_ROLLBACK_IMPOSSIBLE", 2, 9)
    assert "SHOW VERSIONS" in problem.hint


def test_what_spark_says_of_the_earlier_query_has_no_place_in_the_statement(twice: World) -> None:
    twice.engine.failures[Analyze] = ServerError(
        code="TABLE_OR_VIEW_NOT_FOUND", sqlstate="42P01", message="t1 is gone", line=1, column=9
    )
    problem = refusal(twice, BACK)
    assert (problem.code, problem.line, problem.column) == ("TABLE_OR_VIEW_NOT_FOUND", None, None)


def test_a_suspended_table_stays_suspended_and_a_new_one_is_refused(twice: World) -> None:
    twice.execute(f"{ALTER} m SUSPEND")
    twice.execute(BACK)
    table = twice.table("m")
    assert table.state.status is RefreshStatus.SUSPENDED
    twice.catalog.drop(table.id)
    twice.catalog.create(vary(table, status=RefreshStatus.INITIALIZING))
    assert refusal(twice, BACK).code == Code.MT_STATE.name


def test_a_failed_change_leaves_no_version_behind(twice: World) -> None:
    twice.scheduler.broken = error(Code.INTERNAL, reason="down")
    assert refusal(twice, BACK).code == Code.INTERNAL.name
    assert [row["definition_version"] for row in definition_rows(twice)] == [2, 1]


def test_a_rename_names_all_versions_anew_and_a_drop_forgets_them(twice: World) -> None:
    twice.execute(f"{ALTER} m RENAME TO other")
    rows = twice.rows("SHOW VERSIONS other DEFINITION")
    assert all("TABLE `spark_catalog`.`d`.`other`" in str(row[-1]) for row in rows)
    twice.execute("DROP MATERIALIZED TABLE other")
    assert twice.catalog.replaced_definitions() == ()


def test_new_columns_and_dropped_expectations_are_versions_too(world: World) -> None:
    world.execute(
        "CREATE MATERIALIZED TABLE m (CONSTRAINT few EXPECT (a < 9) ON VIOLATION DROP ROW) "
        "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1"
    )
    world.execute(f"{ALTER} m DROP CONSTRAINT few")
    world.execute(f"{ALTER} m AS {wider_query(world)}")
    changes = [json.loads(str(row["changes"] or "[]")) for row in definition_rows(world)]
    assert [[c["object"] for c in told] for told in changes] == [
        ["COLUMN e", "COLUMN f", "QUERY"],
        ["EXPECTATIONS"],
        [],
    ]


def test_a_column_that_was_added_can_be_kept_and_its_query_taken_back(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1")
    world.execute(f"{ALTER} m AS {wider_query(world)}")
    second = world.table("m")
    columns = (*T1, column("e"), column("f", nullable=False))
    world.engine.analyses[second.definition.expanded_query] = analysis(
        Schema(columns), "t3", expanded=second.definition.expanded_query
    )
    produces(world, "SELECT a, b, c, d, d AS e, b AS f FROM t3", *T1, column("e"), column("f"))
    world.execute(f"{ALTER} m AS SELECT a, b, c, d, d AS e, b AS f FROM t3")
    world.execute(BACK)
    after = world.table("m")
    assert (after.definition.schema, after.definition.expanded_query) == (
        second.definition.schema,
        second.definition.expanded_query,
    )
    assert (after.definition.version, after.definition.declared) == (4, False)
