"""ALTER ... SET and RESET: what restarts a pipeline, and what is no materialized table."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fake_storage import Stored
from tests.gateway.command.fakes import NIGHT, NOW, T1, World, name
from tests.gateway.command.tables import ALTER, BASE, CONT, refusal
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import TableInfo
from tidegate_server.core.messages.requests import EvolveTable, Request, SetTableProperties
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import RefreshMode


def record_refresh(world: World, table: str, epoch: int) -> None:
    found = world.table(table)
    world.ledger.history.append(
        RefreshRun(
            refresh_id=f"r-{epoch}",
            table_id=found.id,
            table=found.name,
            definition_version=1,
            trigger=Trigger.UPSTREAM_CHANGE,
            state=RunState.SUCCEEDED,
            queued_at=NOW,
            requested_by="ann",
            server_id="server-1",
            epoch=epoch,
        )
    )


@pytest.mark.parametrize("change", ["SET ('k'='v')", "RESET ('format')"])
def test_options_restart_a_continuous_table_alone(world: World, change: str) -> None:
    world.execute(CONT.replace(" AS", " WITH ('format'='json') AS"))
    world.execute(BASE)
    for table in ("cont", "base"):
        record_refresh(world, table, epoch=9)
        workflow = world.workflow(table)
        world.execute(f"{ALTER} {table} {change}")
        assert world.workflow(table) == workflow
        assert world.definition(table).version == 1
    assert world.table("cont").state.checkpoint_floor == 9
    assert world.table("base").state.checkpoint_floor == 0


def test_a_suspended_continuous_table_loses_its_checkpoint_and_stays(world: World) -> None:
    world.execute(CONT)
    record_refresh(world, "cont", epoch=2)
    world.execute(f"{ALTER} cont SUSPEND")
    world.execute(f"{ALTER} cont SET ('k'='v')")
    table = world.table("cont")
    assert (table.state.checkpoint_floor, table.state.status) == (2, RefreshStatus.SUSPENDED)


def test_options_that_change_nothing_restart_nothing(world: World) -> None:
    world.execute(CONT)
    record_refresh(world, "cont", epoch=2)
    world.execute(f"{ALTER} cont RESET ('unknown')")
    assert world.table("cont").state.checkpoint_floor == 0


def test_another_engine_continues_where_the_old_one_stopped(world: World) -> None:
    world.config = Config(
        scheduler={"patience": 0},  # type: ignore[arg-type]
        engines=NIGHT,  # type: ignore[arg-type]
    )
    world.startable.add("night")
    world.execute(CONT)
    record_refresh(world, "cont", epoch=2)
    before = world.table("cont")
    told: list[str] = []
    call = world.engine.call

    def note(request: Request, **options: Any) -> Any:
        if isinstance(request, SetTableProperties):
            told.append(world.table("cont").execution_target)
        return call(request, **options)

    world.engine.call = note  # type: ignore[method-assign]
    world.execute(f"{ALTER} cont SET ('execution.engine' = 'night')")
    after = world.table("cont")
    assert after == dataclasses.replace(before, execution_target="remote/night")
    assert [row[5] for row in world.rows("SHOW ENGINES")] == [0, 1]
    world.execute(f"{ALTER} cont SET ('execution.mode' = 'remote')")  # it is there already
    world.execute(f"{ALTER} cont RESET ('execution.engine')")
    assert world.table("cont") == before
    assert told == ["remote/night", "embedded"]  # the new engine writes the definition

    problem = refusal(world, f"{ALTER} cont SET ('execution.engine' = 'nigth')")
    assert "did you mean night?" in problem.message
    world.execute(f"{ALTER} cont SET ('execution.engine' = 'night', 'k' = 'v')")
    changed = world.table("cont")
    assert changed.definition.options == {"k": "v"}
    assert (changed.execution_target, changed.state.checkpoint_floor) == ("remote/night", 2)


def test_a_table_stays_in_its_engine_if_the_other_one_is_not_there(world: World) -> None:
    world.config = Config(
        scheduler={"patience": 0},  # type: ignore[arg-type]
        engines=NIGHT,  # type: ignore[arg-type]
    )
    world.execute(BASE)
    move = f"{ALTER} base SET ('execution.engine' = 'night', 'k' = 'v')"
    assert refusal(world, move).code == Code.ENGINE_UNAVAILABLE.name
    before = world.table("base")
    world.startable.add("night")
    world.engine.failures[SetTableProperties] = error(Code.ENGINE_LOST)
    with pytest.raises(ServerError, match=Code.ENGINE_LOST.name):
        world.execute(move)
    assert world.table("base") == before


def test_another_engine_for_first_loads_restarts_nothing(world: World) -> None:
    world.config = Config(
        scheduler={"patience": 0},  # type: ignore[arg-type]
        engines=NIGHT,  # type: ignore[arg-type]
    )
    world.execute(CONT)
    record_refresh(world, "cont", epoch=2)
    loads = "'execution.initial-engine' = '{}'"
    world.execute(f"{ALTER} cont SET ({loads.format('Night')})")
    world.execute(f"{ALTER} cont RESET ('execution.initial-engine')")
    altered = CONT.replace("CREATE", "CREATE OR ALTER")
    world.execute(altered.replace(" AS", f" WITH ({loads.format('night')}) AS"))
    assert world.table("cont").state.checkpoint_floor == 0
    assert world.definition("cont").options == {"execution.initial-engine": "night"}
    problem = refusal(world, f"{ALTER} cont SET ({loads.format('nigth')})")
    assert "did you mean night?" in problem.message
    world.execute(f"{ALTER} cont SET ({loads.format('night')}, 'k' = 'v')")
    assert world.table("cont").state.checkpoint_floor == 2


def test_incremental_modes_are_scheduled(world: World) -> None:
    world.execute(BASE)
    world.execute(f"{ALTER} base SET REFRESH_MODE = INCREMENTAL STRICT")
    assert world.definition("base").refresh_mode is RefreshMode.INCREMENTAL
    assert world.workflow("base").cron == "0/30 * * * * ? *"


def test_an_automatic_table_goes_there_and_back_as_one_step(world: World) -> None:
    world.execute(CONT)
    world.execute(f"{ALTER} cont SET FRESHNESS = INTERVAL '1' HOUR")
    assert (world.definition("cont").refresh_mode, world.workflow("cont").cron) == (
        RefreshMode.FULL,
        "0 0 0/1 * * ? *",
    )
    world.execute(f"{ALTER} cont SET FRESHNESS = INTERVAL '1' MINUTE")
    assert world.definition("cont").refresh_mode is RefreshMode.CONTINUOUS
    assert world.workflow("cont").cron is None


@pytest.mark.parametrize(
    "change",
    ["AS SELECT 1", "SET ('a'='b')", "RESET ('a')", "ADD x AS 1", "DROP x", "RENAME TO other"],
)
def test_statements_for_materialized_tables_refuse_plain_ones(world: World, change: str) -> None:
    world.engine.storage.tables[name("plain")] = Stored(schema=T1)
    world.engine.plain = (TableInfo(name=name("plain"), type="TABLE"),)
    problem = refusal(world, f"{ALTER} plain {change}")
    assert problem.code == Code.MT_WRONG_KIND.name


def test_a_statement_does_not_write_over_one_that_was_quicker(world: World) -> None:
    world.execute(BASE)
    found = world.table("base")
    call = world.engine.call

    def slow(request: Request, **options: Any) -> Any:
        if isinstance(request, EvolveTable):
            world.catalog.replace(vary(found, comment="quicker"))
        return call(request, **options)

    world.engine.call = slow  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="changed by another statement"):
        world.execute(f"{ALTER} base MODIFY c INT COMMENT 'slower'")
    assert world.definition("base").comment == "quicker"


def test_an_option_of_the_schedule_changes_the_schedule(world: World) -> None:
    world.execute(CONT)
    world.execute(f"{ALTER} cont SET ('materialized-table.schedule.cron'='0 15 4 * * ? *')")
    assert world.definition("cont").refresh_mode is RefreshMode.FULL
    assert world.workflow("cont").cron == "0 15 4 * * ? *"
    world.execute(f"{ALTER} cont RESET ('materialized-table.schedule.cron')")
    assert world.definition("cont").refresh_mode is RefreshMode.CONTINUOUS
    assert world.workflow("cont").cron is None


def test_names_of_storage_are_not_for_users(world: World) -> None:
    world.execute(BASE)
    for statement in (
        BASE.replace("TABLE base", "TABLE __tidegate_base"),
        BASE.replace("TABLE base", "TABLE Information_Schema.base"),
        f"{ALTER} base RENAME TO __Tidegate_x",
    ):
        assert refusal(world, statement).code == Code.NOT_SUPPORTED.name


def test_of_two_statements_at_once_the_later_one_is_told(world: World) -> None:
    world.config = Config(scheduler={"patience": 10})  # type: ignore[arg-type]
    world.execute(BASE)
    call, entered, go_on = world.engine.call, threading.Event(), threading.Event()

    def slow(request: Request, **options: Any) -> Any:
        if isinstance(request, EvolveTable) and not entered.is_set():
            entered.set()
            assert go_on.wait(10)
        return call(request, **options)

    def claim(*given: Any) -> int | None:
        epoch = original(*given)
        if epoch is None:
            go_on.set()
        return epoch

    original, world.ledger.claim = world.ledger.claim, claim  # type: ignore[method-assign]
    world.engine.call = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.execute, f"{ALTER} base MODIFY c INT COMMENT 'first'")
        assert entered.wait(10)
        second = pool.submit(world.execute, f"{ALTER} base MODIFY c INT COMMENT 'second'")
        first.result()
        with pytest.raises(ServerError, match="changed by another statement"):
            second.result()
    assert world.definition("base").schema.columns[2].comment == "first"
    assert world.engine.storage.tables[name("base")].schema == world.definition("base").schema
