"""FRESHNESS = DOWNSTREAM, and warnings about neighbours that do not fit."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import NOW, T1, World, analysis
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import SourceVersions
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import HeldVersion
from tidegate_server.core.refresh.request import RefreshRequest


def make(world: World, table: str, source: str, freshness: str) -> None:
    query = f"SELECT * FROM {source}"
    world.engine.analyses[query] = analysis(T1, source)
    mode = "" if freshness == "DOWNSTREAM" else "REFRESH_MODE = FULL"
    world.execute(f"CREATE MATERIALIZED TABLE {table} FRESHNESS = {freshness} {mode} AS {query}")


def scheduled_request(world: World, table: str) -> RefreshRequest:
    return RefreshRequest(
        table_id=world.table(table).id, trigger=Trigger.SCHEDULED, requested_by="ann"
    )


@pytest.fixture
def chain(world: World) -> World:
    """A base as fresh as its consumers need, and two of them."""
    make(world, "base", "t1", "DOWNSTREAM")
    make(world, "often", "base", "INTERVAL '10' MINUTE")
    make(world, "rarely", "base", "INTERVAL '1' HOUR")
    return world


def test_a_table_without_consumers_has_no_schedule_and_says_so(world: World) -> None:
    make(world, "base", "t1", "DOWNSTREAM")
    assert world.definition("base").downstream
    assert world.workflow("base").cron is None
    assert any("refreshed only by REFRESH" in line for line in world.logged)


def test_the_freshness_is_the_least_of_the_consumers(chain: World) -> None:
    assert chain.definition("base").freshness.seconds == 600
    assert chain.workflow("base").freshness_seconds == 600
    chain.execute("DROP MATERIALIZED TABLE often")
    assert chain.definition("base").freshness.seconds == 3600
    chain.execute("ALTER MATERIALIZED TABLE rarely SET FRESHNESS = INTERVAL '5' MINUTE")
    assert chain.definition("base").freshness.seconds == 300


def test_the_freshness_comes_through_tables_without_their_own(world: World) -> None:
    make(world, "base", "t1", "DOWNSTREAM")
    make(world, "middle", "base", "DOWNSTREAM")
    make(world, "top", "middle", "INTERVAL '2' HOUR")
    assert world.definition("base").freshness.seconds == 7200
    assert world.definition("middle").freshness.seconds == 7200


def test_a_table_gets_and_loses_its_own_freshness(chain: World) -> None:
    chain.execute("ALTER MATERIALIZED TABLE rarely SET FRESHNESS = DOWNSTREAM")
    assert chain.definition("rarely").downstream
    assert chain.workflow("rarely").cron is None
    chain.execute("ALTER MATERIALIZED TABLE rarely SET FRESHNESS = INTERVAL '2' HOUR")
    assert not chain.definition("rarely").downstream
    assert chain.workflow("rarely").cron == "0 0 0/2 * * ? *"


def test_such_a_table_is_refreshed_as_a_part_of_its_consumers_runs(chain: World) -> None:
    run = chain.waves.refresh(scheduled_request(chain, "often"))
    assert run.table.table == "often"
    first, second = chain.refreshed
    assert (first.table_id, first.trigger) == (chain.table("base").id, Trigger.CASCADE)
    assert (second.table_id, second.trigger) == (chain.table("often").id, Trigger.SCHEDULED)
    assert first.wave_id == second.wave_id is not None


def test_a_refresh_by_hand_takes_that_part_along_too(chain: World) -> None:
    rows = chain.rows("ALTER MATERIALIZED TABLE often REFRESH")
    assert [job for job, _ in rows] == [f"op{chain.operations}.u1", f"op{chain.operations}"]
    assert [r.table_id for r in chain.refreshed] == [
        chain.table("base").id,
        chain.table("often").id,
    ]


def test_a_consumer_is_not_refreshed_when_that_part_failed(chain: World) -> None:
    chain.refresh_failure = error(Code.MT_DATA_LOST, table="spark_catalog.d.base", reason="gone")
    run = chain.waves.refresh(scheduled_request(chain, "often"))
    assert (run.state, run.reason_code) == (RunState.UPSTREAM_FAILED, "UPSTREAM_FAILED")


def test_a_suspended_part_is_left_as_it_is(chain: World) -> None:
    chain.execute("ALTER MATERIALIZED TABLE base SUSPEND")
    chain.waves.refresh(scheduled_request(chain, "often"))
    assert [r.table_id for r in chain.refreshed] == [chain.table("often").id]


def test_a_part_with_a_held_version_is_left_as_it_is(chain: World) -> None:
    held = HeldVersion(refresh_id="r", since=NOW, reason="too few rows")
    chain.catalog.record_held_version(chain.table("base").id, held)
    chain.waves.refresh(scheduled_request(chain, "often"))
    assert [r.table_id for r in chain.refreshed] == [chain.table("often").id]


def test_without_an_engine_the_run_itself_says_so(chain: World) -> None:
    chain.engine.failures[SourceVersions] = error(Code.ENGINE_UNAVAILABLE, reason="down")
    chain.waves.refresh(scheduled_request(chain, "often"))
    assert [r.table_id for r in chain.refreshed] == [chain.table("often").id]
    assert chain.queue.waiting == {}


def test_other_tables_are_not_refreshed_along(world: World) -> None:
    make(world, "base", "t1", "INTERVAL '1' HOUR")
    make(world, "top", "base", "INTERVAL '1' HOUR")
    world.waves.refresh(scheduled_request(world, "top"))
    assert [r.table_id for r in world.refreshed] == [world.table("top").id]


def test_a_consumer_fresher_than_its_source_is_warned_of(world: World) -> None:
    make(world, "base", "t1", "INTERVAL '1' HOUR")
    for name in ("one", "two"):
        make(world, name, "base", "INTERVAL '10' MINUTE")
    found = [line for line in world.logged if line.startswith("Warning")]
    assert len(found) == 2
    assert (
        "spark_catalog.d.two (10 MINUTE) reads spark_catalog.d.base, "
        "which is refreshed for 1 HOUR only" in found[1]
    )


def test_a_freshness_that_is_no_multiple_is_warned_of(world: World) -> None:
    make(world, "base", "t1", "INTERVAL '20' MINUTE")
    make(world, "top", "base", "INTERVAL '30' MINUTE")
    assert any("no multiple" in line for line in world.logged)


def test_freshnesses_that_do_not_fit_are_refused_where_that_is_asked_for(world: World) -> None:
    make(world, "base", "t1", "INTERVAL '20' MINUTE")
    world.execute("SET 'materialized-table.freshness.strict' = 'true'")
    for freshness, told in (("'10' MINUTE", "20 MINUTE only"), ("'30' MINUTE", "no multiple")):
        with pytest.raises(ServerError, match=told) as caught:
            make(world, "top", "base", f"INTERVAL {freshness}")
        assert caught.value.code == Code.MT_FRESHNESS_NEIGHBOUR.name
    make(world, "top", "base", "INTERVAL '1' HOUR")
    with pytest.raises(ServerError, match="2 HOUR only"):
        world.execute("ALTER MATERIALIZED TABLE base SET FRESHNESS = INTERVAL '2' HOUR")
    assert world.definition("base").freshness.seconds == 1200


def test_strict_watching_needs_versions(world: World) -> None:
    query = "SELECT * FROM files"
    found = analysis(T1, "files")
    plain = tuple(
        type(s)(name=s.name, kind=type(s.kind).PLAIN, table_id=s.table_id) for s in found.sources
    )
    world.engine.analyses[query] = type(found)(
        schema=found.schema, expanded_query=query, sources=plain
    )
    world.execute("SET 'materialized-table.continuous.strict' = 'true'")
    with pytest.raises(ServerError, match=r"spark_catalog\.d\.files without versions"):
        world.execute(f"CREATE MATERIALIZED TABLE m REFRESH_MODE = CONTINUOUS AS {query}")
    world.execute(f"CREATE MATERIALIZED TABLE m REFRESH_MODE = FULL AS {query}")
