"""IMMUTABLE WHERE and BACKFILL FROM in statements: where they are seen, and what refuses them."""

from __future__ import annotations

import json

import pytest

from tests.gateway.command.fakes import T1, World, analysis, name
from tests.gateway.command.tables import column
from tests.gateway.command.test_show_create import QUERY, SOURCE, as_recreated
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import CheckExpressions
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.types import Schema
from tidegate_server.core.refresh.request import Backfill, Recompute

PREDICATE = "a < 5 -- old"
CREATE = "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY"
REGION = f"IMMUTABLE WHERE ({PREDICATE}\n)"
ALTER = "ALTER MATERIALIZED TABLE m"


def refusal_without_effect(world: World, text: str) -> ServerError:
    before = world.catalog.tables(), dict(world.engine.storage.tables)
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    assert (world.catalog.tables(), dict(world.engine.storage.tables)) == before
    return caught.value


# ---- IMMUTABLE WHERE ---------------------------------------------------------------------------


def test_the_clause_is_kept_checked_and_told(world: World) -> None:
    world.execute(f"{CREATE} {REGION} AS SELECT * FROM t1")
    table = world.table("m")
    assert (table.definition.immutable, table.definition.backfilled_from) == ("a < 5", None)
    (request,) = world.engine.requests_of(CheckExpressions)
    assert isinstance(request, CheckExpressions)
    assert (request.region, request.columns) == ("a < 5", table.definition.schema)
    [(text,)] = world.rows("DESCRIBE m AS JSON")
    facts = json.loads(str(text))
    assert (facts["immutable"], facts["backfilled_from"]) == ("a < 5", None)


@pytest.mark.parametrize("words", ["", "OR ALTER "])
def test_what_show_create_prints_makes_an_equal_table(world: World, words: str) -> None:
    world.engine.analyses[QUERY] = analysis(
        SOURCE, "src", expanded="SELECT * FROM `spark_catalog`.`d`.`src`"
    )
    world.execute(f"{CREATE} IMMUTABLE WHERE (ds < '2024') AS {QUERY}")
    first = world.table("m")
    [(printed,)] = world.rows(f"SHOW CREATE {words}MATERIALIZED TABLE m")
    assert "\nIMMUTABLE WHERE (ds < '2024')\nAS " in str(printed)
    again = analysis(first.definition.schema, "src", expanded=first.definition.expanded_query)
    world.engine.analyses[first.definition.expanded_query] = again
    world.execute("DROP MATERIALIZED TABLE m")
    world.execute(str(printed))
    assert world.table("m") == as_recreated(first, world.table("m"))


@pytest.mark.parametrize(
    "text", [f"{CREATE} {REGION} AS SELECT * FROM t1", f"{ALTER} SET {REGION}"]
)
def test_a_condition_that_is_no_use_is_refused_at_its_place(world: World, text: str) -> None:
    if text.startswith("ALTER"):
        world.execute(f"{CREATE} AS SELECT * FROM t1")
    world.engine.storage.unusable["a < 5"] = ServerError(
        code="UNRESOLVED_COLUMN", sqlstate="42703", message="there is no a.", line=1, column=3
    )
    problem = refusal_without_effect(world, text)
    assert (problem.code, problem.line) == (Code.MT_PREDICATE.name, 1)
    assert problem.column == text.index("a < 5") + 1
    assert "a < 5 cannot choose rows of the table: there is no a." in problem.message
    reason = "it reads other tables"
    world.engine.storage.unusable["a < 5"] = error(
        Code.MT_PREDICATE, predicate="a < 5", reason=reason
    )
    problem = refusal_without_effect(world, text)
    assert (problem.code, problem.column) == (Code.MT_PREDICATE.name, text.index("a < 5") + 1)
    world.engine.storage.unusable["a < 5"] = error(Code.ENGINE_LOST)
    assert refusal_without_effect(world, text).code == Code.ENGINE_LOST.name


def test_setting_and_dropping_it_make_definition_versions(world: World) -> None:
    world.execute(f"{CREATE} AS SELECT * FROM t1")
    world.execute(f"{ALTER} SET IMMUTABLE WHERE (a < 5)")
    world.execute(f"{ALTER} SET IMMUTABLE WHERE (a < 5)")
    assert (world.definition("m").immutable, world.definition("m").version) == ("a < 5", 2)
    world.execute(f"{ALTER} DROP IMMUTABLE")
    assert (world.definition("m").immutable, world.definition("m").version) == (None, 3)
    [third, second, _] = world.rows("SHOW VERSIONS m DEFINITION")
    changed = {"object": "IMMUTABLE WHERE", "before": None, "after": "a < 5"}
    assert json.loads(str(second[4])) == [changed]
    assert json.loads(str(third[4])) == [{**changed, "before": "a < 5", "after": None}]
    world.engine.analyses[world.definition("m").expanded_query] = analysis()
    world.execute(f"{ALTER} ROLLBACK DEFINITION")
    assert (world.definition("m").immutable, world.definition("m").version) == ("a < 5", 4)


def test_a_continuous_table_starts_afresh_with_it(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    world.execute(f"{ALTER} SET IMMUTABLE WHERE (a < 5)")
    assert world.definition("m").version == 2
    world.execute(f"{ALTER} DROP IMMUTABLE")
    assert world.definition("m").immutable is None


def test_or_alter_brings_the_clause_and_takes_it_away(world: World) -> None:
    world.execute(f"{CREATE} AS SELECT * FROM t1")
    wanted = CREATE.replace("CREATE", "CREATE OR ALTER") + " IMMUTABLE WHERE (a < 5)"
    [change, *_] = world.rows(f"EXPLAIN {wanted} AS SELECT * FROM t1")
    assert change[:4] == ("IMMUTABLE WHERE", None, "a < 5", "NEXT_REFRESH")
    world.execute(f"{wanted} AS SELECT * FROM t1")
    assert (world.definition("m").immutable, world.definition("m").version) == ("a < 5", 2)
    world.execute(CREATE.replace("CREATE", "CREATE OR ALTER") + " AS SELECT * FROM t1")
    assert world.definition("m").immutable is None


def test_a_new_query_keeps_the_region(world: World) -> None:
    world.execute(f"{CREATE} IMMUTABLE WHERE (a < 5) AS SELECT * FROM t1")
    world.engine.analyses["SELECT 2"] = analysis(Schema((*T1, column("e"))), expanded="SELECT 2")
    world.execute(f"{ALTER} AS SELECT 2")
    assert world.definition("m").immutable == "a < 5"


# ---- BACKFILL FROM -----------------------------------------------------------------------------

BACKFILL = f"{CREATE} IMMUTABLE WHERE (a < 5) BACKFILL FROM old"
COPIED = "SELECT * FROM `spark_catalog`.`d`.`old`"


def test_rows_are_copied_before_anything_else_is_loaded(world: World) -> None:
    text = BACKFILL.replace("FRESH", "WITH ('materialized-table.initialize'='ON_CREATE') FRESH")
    world.execute(f"{text} AS SELECT * FROM t1")
    copy, load = world.refreshed
    assert (copy.trigger, copy.task) == (Trigger.BACKFILL, Backfill(source=name("old")))
    assert (load.trigger, load.task) == (Trigger.INITIAL, Recompute())
    assert world.definition("m").backfilled_from == name("old")
    [(described,)] = world.rows("DESCRIBE m AS JSON")
    assert json.loads(str(described))["backfilled_from"] == "spark_catalog.d.old"
    [(printed,)] = world.rows("SHOW CREATE MATERIALIZED TABLE m")
    assert "BACKFILL" not in str(printed)
    world.execute(f"{ALTER} DROP IMMUTABLE")
    assert world.definition("m").backfilled_from == name("old")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (T1.columns[:3], "it has no column d; it has a, b, c"),
        ((*T1.columns[:2], column("C", "string"), column("d")), "its column C is STRING, which"),
    ],
)
def test_a_source_that_does_not_fit_is_refused_by_its_column(
    world: World, columns: tuple[object, ...], reason: str
) -> None:
    world.engine.analyses[COPIED] = analysis(Schema(columns))  # type: ignore[arg-type]
    problem = refusal_without_effect(world, f"{BACKFILL} AS SELECT * FROM t1")
    assert (problem.code, problem.line) == (Code.MT_BACKFILL.name, 1)
    assert problem.column == BACKFILL.index("old") + 1
    assert reason in problem.message


def test_columns_are_matched_by_name_and_may_be_narrower(world: World) -> None:
    columns = (column("C", "smallint"), column("x"), column("d"), column("b"), column("a", "int"))
    world.engine.analyses[COPIED] = analysis(Schema(columns))
    world.execute(f"{BACKFILL} AS SELECT * FROM t1")
    assert world.definition("m").schema == T1


def test_nothing_is_left_when_the_copy_fails(world: World) -> None:
    world.refresh_failure = error(Code.ENGINE_LOST)
    assert (
        refusal_without_effect(world, f"{BACKFILL} AS SELECT * FROM t1").code
        == Code.ENGINE_LOST.name
    )


def test_a_table_that_exists_is_not_filled_again(world: World) -> None:
    world.execute(f"{BACKFILL} AS SELECT * FROM t1")
    world.refreshed.clear()
    again = BACKFILL.replace("CREATE", "CREATE OR ALTER").replace("old", "other")
    world.execute(f"{again} AS SELECT * FROM t1")
    assert world.definition("m").backfilled_from == name("old")
    assert world.refreshed == []
    said = "spark_catalog.d.m exists: BACKFILL FROM copies rows only when it is created."
    assert f"Warning: {said}" in world.logged


def test_a_plain_table_is_not_taken_over_with_a_region(world: World) -> None:
    world.execute(f"{CREATE} AS SELECT * FROM t1")
    world.execute(f"{ALTER} CONVERT TO TABLE")
    world.config.options["table.materialized-table.conversion-from-table.enabled"] = "true"
    text = CREATE.replace("CREATE", "CREATE OR ALTER") + " IMMUTABLE WHERE (a < 5)"
    problem = refusal_without_effect(world, f"{text} AS SELECT * FROM t1")
    assert problem.code == Code.NOT_SUPPORTED.name
    assert "BACKFILL FROM" in problem.hint
