"""CONVERT TO TABLE: the rows stay under their name, everything else of the table goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import T1, World, name
from tests.gateway.command.tables import ALTER, BASE, produces, refusal
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import DropTable, EvolveTable
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.gateway.options import CONVERSION_KEY

DAY = "FRESHNESS = INTERVAL '1' DAY"
CONVERT = f"{ALTER} m CONVERT TO TABLE"


@pytest.fixture
def pair(world: World) -> World:
    world.execute(f"CREATE MATERIALIZED TABLE m COMMENT 'kept' {DAY} AS SELECT * FROM t1")
    query = produces(world, "SELECT * FROM m", *T1, source="m")
    world.execute(f"CREATE MATERIALIZED TABLE n {DAY} AS {query}")
    return world


def test_storage_stays_as_a_plain_table(pair: World) -> None:
    before = pair.engine.storage.tables[name("m")]
    pair.execute(CONVERT)
    after = pair.engine.storage.tables[name("m")]
    assert after == replace(before, properties={})
    assert pair.engine.requests_of(DropTable) == []
    assert pair.catalog.find(name("m")) is None
    assert list(pair.scheduler.workflows) == [pair.table("n").id]
    assert pair.rows("SHOW MATERIALIZED TABLES") == [("n",)]
    assert "spark_catalog.d.m is a plain table" in pair.logged[-1]


def test_properties_of_its_owner_stay(pair: World) -> None:
    stored = pair.engine.storage.tables[name("m")]
    mine = {**stored.properties, "delta.enableChangeDataFeed": "true", "team": "sales"}
    pair.engine.storage.tables[name("m")] = replace(stored, properties=mine)
    pair.execute(CONVERT)
    left = pair.engine.storage.tables[name("m")].properties
    assert left == {"delta.enableChangeDataFeed": "true", "team": "sales"}


def test_what_reads_it_has_a_plain_source(pair: World) -> None:
    before = pair.table("n")
    assert [source.materialized_table for source in before.definition.sources] == [True]
    assert pair.rows("SHOW LINEAGE n") == [
        ("spark_catalog.d.n", "spark_catalog.d.m", "MATERIALIZED_TABLE")
    ]
    pair.execute(CONVERT)
    after = pair.table("n")
    assert after == vary(
        before, sources=(replace(before.definition.sources[0], materialized_table=False),)
    )
    assert pair.rows("SHOW LINEAGE n") == [("spark_catalog.d.n", "spark_catalog.d.m", "TABLE")]
    properties = pair.engine.storage.tables[name("n")].properties
    assert '"materialized_table":false' in properties["tidegate.definition"]


def test_it_is_a_table_to_all_other_statements(pair: World) -> None:
    pair.execute(CONVERT)
    for statement in (CONVERT, f"{ALTER} m REFRESH", "DROP MATERIALIZED TABLE IF EXISTS m"):
        assert refusal(pair, statement).code == Code.MT_WRONG_KIND.name
    problem = refusal(pair, f"CREATE MATERIALIZED TABLE m {DAY} AS SELECT * FROM t1")
    assert problem.code == Code.MT_ALREADY_EXISTS.name


def test_it_can_be_taken_over_again(pair: World) -> None:
    pair.execute(CONVERT)
    pair.config = Config(scheduler={"patience": 0}, options={CONVERSION_KEY: "true"})  # type: ignore[arg-type]
    pair.execute(f"CREATE OR ALTER MATERIALIZED TABLE m {DAY} AS SELECT * FROM t1")
    assert pair.engine.storage.tables[name("m")].owner == pair.table("m").id


def test_columns_that_are_not_stored_are_dropped_first(world: World) -> None:
    world.execute(f"CREATE MATERIALIZED TABLE m (x AS upper(b)) {DAY} AS SELECT * FROM t1")
    problem = refusal(world, CONVERT)
    assert problem.code == Code.NOT_SUPPORTED.name
    assert "ALTER MATERIALIZED TABLE spark_catalog.d.m DROP (x)" in problem.hint
    world.execute(f"{ALTER} m DROP (x)")
    world.execute(CONVERT)
    assert list(world.engine.storage.tables) == [name("m")]
    assert world.engine.storage.tables[name("m")].owner is None


@pytest.mark.parametrize("busy", ["m", "n"])
def test_a_refresh_that_runs_is_waited_for(pair: World, busy: str) -> None:
    pair.ledger.leases[pair.table(busy).id] = "server-1/r"
    problem = refusal(pair, CONVERT)
    assert (problem.code, f"spark_catalog.d.{busy} is being refreshed" in problem.message) == (
        "MT_STATE",
        True,
    )


def test_a_suspended_one_may_be_converted_one_being_created_not(pair: World) -> None:
    table = pair.table("m")
    pair.catalog.drop(table.id)
    pair.catalog.create(vary(table, status=RefreshStatus.INITIALIZING))
    assert refusal(pair, CONVERT).code == Code.MT_STATE.name
    pair.execute(f"{ALTER} n SUSPEND")
    pair.execute(f"{ALTER} n CONVERT TO TABLE")
    assert pair.catalog.find(name("n")) is None


def test_unknown_tables_and_missing_schedulers_are_refused(world: World) -> None:
    assert refusal(world, CONVERT).code == Code.MT_NOT_FOUND.name
    world.execute(BASE)
    world.config = Config(scheduler={"type": "none"})  # type: ignore[arg-type]
    problem = refusal(world, f"{ALTER} base CONVERT TO TABLE")
    assert problem.code == Code.MT_NO_SCHEDULER.name


def test_what_a_server_that_died_began_is_ended_by_repeating_it(pair: World) -> None:
    stored = pair.engine.storage.tables[name("m")]
    pair.engine.storage.tables[name("m")] = replace(stored, properties={})
    pair.scheduler.workflows.pop(pair.table("m").id)
    pair.execute(CONVERT)
    assert pair.catalog.find(name("m")) is None


def test_a_storage_that_is_gone_leaves_the_table_for_a_drop(pair: World) -> None:
    workflow = pair.workflow("m")
    pair.engine.failures[EvolveTable] = error(Code.MT_DATA_LOST, table="m", reason="it is gone")
    assert refusal(pair, CONVERT).code == Code.MT_DATA_LOST.name
    assert pair.workflow("m") == workflow


def test_upstream_tables_with_freshness_downstream_follow_who_is_left(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE up FRESHNESS = DOWNSTREAM AS SELECT * FROM t1")
    query = produces(world, "SELECT * FROM up", *T1, source="up")
    for table, hours in (("m", 1), ("n", 2)):
        freshness = f"FRESHNESS = INTERVAL '{hours}' HOUR"
        world.execute(f"CREATE MATERIALIZED TABLE {table} {freshness} AS {query}")
    assert world.definition("up").freshness.value == 1
    world.execute(CONVERT)
    assert world.definition("up").freshness.value == 2
