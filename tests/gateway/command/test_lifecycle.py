"""SUSPEND, RESUME, DROP and ALTER ... SET of materialized tables."""

from __future__ import annotations

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import World, engine_lost, name
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import TableInfo
from tidegate_server.core.messages.requests import DropTable, SetTableProperties
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import LogicalRefreshMode, RefreshMode


@pytest.fixture
def full(world: World) -> World:
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1")
    return world


def refusal_code(world: World, statement: str) -> str:
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    return caught.value.code


def test_suspend_stops_the_workflow_and_resume_starts_it_again(full: World) -> None:
    cron = full.workflow("m").cron
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    assert full.table("m").state.status is RefreshStatus.SUSPENDED
    assert not full.workflow("m").active
    full.execute("ALTER MATERIALIZED TABLE m RESUME")
    assert full.table("m").state.status is RefreshStatus.ACTIVATED
    assert full.workflow("m").active
    assert full.workflow("m").cron == cron


def test_suspend_and_resume_need_no_engine(full: World) -> None:
    full.engine.ready = False
    full.engine.requests.clear()
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    full.execute("ALTER MATERIALIZED TABLE m RESUME")
    assert full.engine.requests == []


def test_statuses_that_do_not_allow_it_are_refused(full: World) -> None:
    assert refusal_code(full, "ALTER MATERIALIZED TABLE m RESUME") == Code.MT_STATE.name
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    assert refusal_code(full, "ALTER MATERIALIZED TABLE m SUSPEND") == Code.MT_STATE.name


def test_suspending_a_continuous_table_twice_names_its_pipeline(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    world.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    with pytest.raises(ServerError, match=world.table("m").id):
        world.execute("ALTER MATERIALIZED TABLE m SUSPEND")


def test_resume_replaces_a_missing_pipeline(full: World) -> None:
    full.scheduler.workflows.clear()
    full.execute("ALTER MATERIALIZED TABLE m RESUME")
    assert full.workflow("m").active


def test_resume_with_options_holds_until_the_next_resume(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    full.execute("ALTER MATERIALIZED TABLE m RESUME WITH ('k'='v')")
    assert full.table("m").state.resume_options == {"k": "v"}
    assert full.definition("m").options == {}
    assert "'k'" not in str(full.rows("SHOW CREATE MATERIALIZED TABLE m"))
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    full.execute("ALTER MATERIALIZED TABLE m RESUME")
    assert full.table("m").state.resume_options == {}


def test_options_of_a_resume_are_checked(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    statement = "ALTER MATERIALIZED TABLE m RESUME WITH ('materialized-table.nonsense'='v')"
    assert refusal_code(full, statement) == Code.MT_OPTION_UNKNOWN.name
    assert full.table("m").state.status is RefreshStatus.SUSPENDED


def test_a_resume_that_fails_leaves_status_and_options(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    before = full.table("m")
    full.scheduler.broken = error(Code.INTERNAL, reason="down")
    statement = "ALTER MATERIALIZED TABLE m RESUME WITH ('k'='v')"
    assert refusal_code(full, statement) == Code.INTERNAL.name
    assert full.table("m") == before


def test_a_scheduler_that_fails_leaves_the_status(full: World) -> None:
    full.scheduler.broken = error(Code.INTERNAL, reason="down")
    assert refusal_code(full, "ALTER MATERIALIZED TABLE m SUSPEND") == Code.INTERNAL.name
    assert full.table("m").state.status is RefreshStatus.ACTIVATED


@pytest.mark.parametrize("action", ["SUSPEND", "RESUME", "SET ('a'='b')", "REFRESH"])
def test_an_initializing_table_cannot_be_altered(full: World, action: str) -> None:
    table = full.table("m")
    full.catalog.drop(table.id)
    full.catalog.create(vary(table, status=RefreshStatus.INITIALIZING))
    assert refusal_code(full, f"ALTER MATERIALIZED TABLE m {action}") == Code.MT_STATE.name
    assert refusal_code(full, "DROP MATERIALIZED TABLE m") == Code.MT_STATE.name


def test_drop_removes_workflow_storage_and_definition(full: World) -> None:
    table = full.table("m")
    full.execute("DROP MATERIALIZED TABLE m")
    assert full.catalog.tables() == ()
    assert full.scheduler.workflows == {}
    [drop] = full.engine.requests_of(DropTable)
    assert drop == DropTable(name=table.name, table_id=table.id, location=table.location)


def test_drop_succeeds_when_the_workflow_is_gone_already(full: World) -> None:
    full.scheduler.workflows.clear()
    full.execute("DROP MATERIALIZED TABLE m")
    assert full.catalog.tables() == ()


def test_a_drop_without_engine_keeps_the_table_whole(full: World) -> None:
    full.engine.failures[DropTable] = engine_lost()
    assert refusal_code(full, "DROP MATERIALIZED TABLE m") == Code.ENGINE_LOST.name
    assert full.workflow("m").active


def test_drop_if_exists_of_nothing_does_nothing(world: World) -> None:
    world.execute("DROP MATERIALIZED TABLE IF EXISTS nope")


def test_a_plain_table_is_never_dropped_as_materialized(world: World) -> None:
    world.engine.plain = (TableInfo(name=name("plain"), type="TABLE"),)
    statement = "DROP MATERIALIZED TABLE IF EXISTS plain"
    assert refusal_code(world, statement) == Code.MT_WRONG_KIND.name
    assert refusal_code(world, "ALTER MATERIALIZED TABLE plain SUSPEND") == Code.MT_WRONG_KIND.name


def test_set_freshness_crosses_the_threshold_in_automatic_mode(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '1' MINUTE")
    table = full.table("m")
    assert table.definition.freshness == Freshness(1, TimeUnit.MINUTE)
    assert table.definition.logical_refresh_mode is LogicalRefreshMode.AUTOMATIC
    assert table.definition.refresh_mode is RefreshMode.CONTINUOUS
    assert (full.workflow("m").cron, full.workflow("m").freshness_seconds) == (None, 60)
    full.execute("ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '1' DAY")
    assert full.definition("m").refresh_mode is RefreshMode.FULL
    assert full.workflow("m").cron == "0 0 0 * * ? *"


def test_set_freshness_keeps_an_explicit_mode(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m REFRESH_MODE = FULL AS SELECT * FROM t1")
    world.execute("ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '1' MINUTE")
    assert world.definition("m").refresh_mode is RefreshMode.FULL
    assert world.workflow("m").cron == "0 0/1 * * * ? *"


def test_set_freshness_keeps_a_suspended_table_suspended(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    full.execute("ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '2' HOUR")
    assert full.table("m").state.status is RefreshStatus.SUSPENDED
    assert not full.workflow("m").active


def test_a_freshness_that_cron_cannot_express_changes_nothing(full: World) -> None:
    before = full.table("m")
    statement = "ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '5' HOUR"
    assert refusal_code(full, statement) == Code.MT_FRESHNESS_NOT_FACTOR.name
    assert full.table("m") == before


def test_a_failed_change_restores_definition_and_workflow(full: World) -> None:
    before, workflow = full.table("m"), full.workflow("m")
    full.engine.failures[SetTableProperties] = engine_lost()
    statement = "ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '1' MINUTE"
    assert refusal_code(full, statement) == Code.ENGINE_LOST.name
    assert full.table("m") == before
    assert full.workflow("m") == workflow


def test_set_refresh_mode_makes_the_mode_explicit(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SET REFRESH_MODE = CONTINUOUS")
    table = full.table("m")
    assert table.definition.logical_refresh_mode is LogicalRefreshMode.CONTINUOUS
    assert full.workflow("m").mode is RefreshMode.CONTINUOUS


def test_options_are_set_and_reset(full: World) -> None:
    full.execute("ALTER MATERIALIZED TABLE m SET ('format'='json', 'k2'='v2', 'k2'='newV2')")
    assert full.definition("m").options == {"format": "json", "k2": "newV2"}
    full.execute("ALTER MATERIALIZED TABLE m RESET ('format', 'unknown_key')")
    assert full.definition("m").options == {"k2": "newV2"}
