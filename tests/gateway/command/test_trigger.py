"""REFRESH_TRIGGER = ON UPDATE: where it is seen, and that it stays what it was."""

from __future__ import annotations

import json

import pytest

from tests.contract.examples import source
from tests.gateway.command.fakes import World, analysis
from tests.gateway.command.test_show_create import QUERY, SOURCE, as_recreated
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import OnUpdate
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.versions import SourceKind

EVERY = "REFRESH_TRIGGER = ON UPDATE AT MOST EVERY INTERVAL '10' MINUTE"


@pytest.fixture
def triggered_world(world: World) -> World:
    world.engine.analyses[QUERY] = analysis(
        SOURCE, "src", expanded="SELECT * FROM `spark_catalog`.`d`.`src`"
    )
    world.execute(f"CREATE MATERIALIZED TABLE m REFRESH_MODE = FULL {EVERY} AS {QUERY}")
    return world


def test_the_trigger_is_kept_and_the_workflow_has_no_schedule(triggered_world: World) -> None:
    wanted = OnUpdate(at_most_every=Freshness(10, TimeUnit.MINUTE))
    assert triggered_world.definition("m").on_update == wanted
    workflow = triggered_world.workflow("m")
    assert (workflow.cron, workflow.next_fire, workflow.active) == (None, None, True)


@pytest.mark.parametrize("words", ["", "OR ALTER "])
def test_what_show_create_prints_makes_an_equal_table(triggered_world: World, words: str) -> None:
    first = triggered_world.table("m")
    [(printed,)] = triggered_world.rows(f"SHOW CREATE {words}MATERIALIZED TABLE m")
    assert f"REFRESH_MODE = FULL\n{EVERY}\nAS " in str(printed)
    again = analysis(first.definition.schema, "src", expanded=first.definition.expanded_query)
    triggered_world.engine.analyses[first.definition.expanded_query] = again
    triggered_world.execute("DROP MATERIALIZED TABLE m")
    triggered_world.execute(str(printed))
    assert triggered_world.table("m") == as_recreated(first, triggered_world.table("m"))


def test_describe_tells_what_starts_refreshes(triggered_world: World) -> None:
    [(text,)] = triggered_world.rows("DESCRIBE m AS JSON")
    facts = json.loads(str(text))
    assert facts["refresh_trigger"] == "ON UPDATE AT MOST EVERY INTERVAL '10' MINUTE"
    assert (facts["cron"], facts["next_refresh"]) == (None, None)
    assert facts["refresh_handler"].startswith("embedded:")


def test_suspend_and_resume_keep_it(triggered_world: World) -> None:
    before = triggered_world.table("m")
    triggered_world.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    assert not triggered_world.workflow("m").active
    triggered_world.execute("ALTER MATERIALIZED TABLE m RESUME")
    assert triggered_world.table("m") == before


def test_or_alter_that_leaves_it_out_goes_back_to_the_schedule(triggered_world: World) -> None:
    wanted = f"CREATE OR ALTER MATERIALIZED TABLE m REFRESH_MODE = FULL AS {QUERY}"
    rows = triggered_world.rows(f"EXPLAIN {wanted}")
    [shown] = [row for row in rows if "REFRESH_TRIGGER" in row]
    assert shown[-2:] != ("REJECTED", None)
    assert "ON SCHEDULE" in shown
    triggered_world.execute(wanted)
    assert triggered_world.definition("m").on_update is None
    assert triggered_world.workflow("m").cron == "0 0 0/1 * * ? *"
    assert triggered_world.definition("m").version == 1


def test_sources_without_versions_are_refused_where_that_is_asked_for(world: World) -> None:
    plain = source("csv", "csv", SourceKind.PLAIN)
    answer = analysis(SOURCE, "src", expanded="SELECT * FROM `spark_catalog`.`d`.`src`")
    world.engine.analyses[QUERY] = type(answer)(
        schema=answer.schema, expanded_query=answer.expanded_query, sources=(plain,)
    )
    world.execute("SET 'materialized-table.continuous.strict' = 'true'")
    with pytest.raises(ServerError) as caught:
        world.execute(f"CREATE MATERIALIZED TABLE m {EVERY} AS {QUERY}")
    assert caught.value.code == "MT_QUERY_UNSUPPORTED"
