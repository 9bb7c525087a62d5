"""Options that are not Tidegate's own are refused or warned of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from tests.gateway.command.effects import ALTER, DAYS, FULL, create, order_of, refusal, warned
from tests.gateway.command.fakes import World
from tests.gateway.command.option_rows import Row, by_table, write
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import CheckSettings
from tidegate_server.gateway import options as known
from tidegate_server.gateway.flink_options import FLINKS_PREFIXES, STORED_ELSEWHERE
from tidegate_server.gateway.options import Place, check_server_options

TABLE_PLACES = (Place.CREATE, Place.ALTER, Place.RESUME)
ANY = Row(value="1", read=by_table, test="")


@pytest.mark.parametrize("place", TABLE_PLACES)
@pytest.mark.parametrize("key", [*STORED_ELSEWHERE, "Connector"])
def test_an_option_that_sends_rows_elsewhere_is_refused(
    world: World, key: str, place: Place
) -> None:
    with pytest.raises(ServerError) as caught:
        write(world, key, "kafka", place, ANY)
    assert caught.value.code == Code.MT_OPTION_VALUE.name
    assert "Delta table of the warehouse" in caught.value.message


@pytest.mark.parametrize("place", TABLE_PLACES)
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("format", "debezium-json", "whose files are Parquet"),
        ("bucket", "4", "DISTRIBUTED INTO n BUCKETS"),
        ("sink.parallelism", "10", "DISTRIBUTED INTO n BUCKETS"),
        ("no.such.option", "1", "not a Tidegate option"),
        ("owner-team", "finance", "not a Tidegate option"),
        ("delta.logRetentionDuration", "9 days", "materialized-table.upkeep."),
        ("pipeline.jars", "p", "SHOW REFRESH HISTORY"),
        ("execution.checkpointing.timeout", "1 s", "each commit"),
    ],
)
def test_an_option_without_effect_is_warned_of(
    world: World, key: str, value: str, said: str, place: Place
) -> None:
    write(world, key, value, place, ANY)
    assert warned(world, f"option {key} changes nothing: ")
    assert warned(world, said)


def test_the_format_that_is_used_needs_no_warning(world: World) -> None:
    write(world, "format", "delta", Place.CREATE, ANY)
    assert not warned(world, "format")


@pytest.mark.parametrize("place", [Place.CREATE, Place.ALTER])
def test_settings_of_spark_are_no_options_of_a_table(world: World, place: Place) -> None:
    with pytest.raises(ServerError, match="RESUME WITH"):
        write(world, "spark.sql.shuffle.partitions", "8", place, ANY)


def test_a_resume_lets_spark_judge_its_settings(world: World) -> None:
    key = "spark.sql.session.timeZone"
    world.execute(create())
    world.execute(f"{ALTER} SUSPEND")
    world.engine.failures[CheckSettings] = bad = error(Code.INTERNAL, reason="no such zone")
    assert refusal(world, f"{ALTER} RESUME WITH ('{key}' = 'Nowhere/Bad')") is bad
    assert world.table("m").state.resume_options == {}
    world.engine.failures.clear()
    world.execute(f"{ALTER} RESUME WITH ('{key}' = 'Asia/Tokyo')")
    assert by_order_settings(world)[key] == "Asia/Tokyo"


def test_a_setting_that_spark_does_not_know_is_warned_of(world: World) -> None:
    world.engine.similar = {"spark.sql.ansi.enable": "spark.sql.ansi.enabled"}
    world.execute("SET spark.sql.ansi.enable = false")
    assert warned(world, "did you mean spark.sql.ansi.enabled?")


@pytest.mark.parametrize("begin", FLINKS_PREFIXES)
def test_a_setting_of_flinks_is_warned_of(world: World, begin: str) -> None:
    key = begin + "other" if begin.endswith(".") else begin
    assert world.rows(f"SET '{key}' = 'x'") == [(key, "x")]
    assert warned(world, f"{key} changes nothing here: ")


@pytest.mark.parametrize("end", ["date-formatter", "lateness"])
def test_options_of_partitions_belong_to_a_table(world: World, end: str) -> None:
    key = f"partition.fields.d.{end}"
    assert refusal(world, f"SET '{key}' = 'yyyy'").code == Code.MT_OPTION_VALUE.name
    with pytest.raises(ServerError, match="no option"):
        check_server_options(Config(options={key: "yyyy"}))
    days = dataclasses.replace(ANY, options=DAYS)
    with pytest.raises(ServerError, match="CREATE MATERIALIZED TABLE"):
        write(world, key, "yyyy", Place.RESUME, days)


def test_a_lateness_that_the_sessions_policy_passes_over_is_warned_of(world: World) -> None:
    world.execute(f"SET '{known.POLICY_KEY}' = 'WINDOW'")
    lateness = "'partition.fields.d.lateness' = 'PT6H'"
    world.execute(create("PARTITIONED BY (d)", options=f"{DAYS}, {lateness}", after=FULL))
    assert warned(world, "option partition.fields.d.lateness changes nothing")


@pytest.mark.parametrize("place", [Place.CREATE, Place.ALTER])
@pytest.mark.parametrize("key", ["partition.fields.d.date-formater", "partition.field.d.lateness"])
def test_a_misspelt_option_of_partitions_is_refused(world: World, key: str, place: Place) -> None:
    with pytest.raises(ServerError, match="There is no option"):
        write(world, key, "yyyy", place, ANY)


@pytest.mark.parametrize("key", ["Materialized-Table.Initialize", "materialised-table.initialize"])
def test_other_spellings_are_no_variables(world: World, key: str) -> None:
    problem = refusal(world, f"SET '{key}' = 'ON_CREATE'")
    assert problem.hint == "Did you mean materialized-table.initialize?"


def test_remote_says_which_engine_runs(world: World) -> None:
    world.execute("SET 'execution.mode' = 'remote'")
    assert warned(world, "refreshes run in the gateway's own engine, on local[*]")
    world.logged.clear()
    world.config = Config(engine={"master": "yarn"})  # type: ignore[arg-type]
    world.execute("SET 'execution.mode' = 'remote'")
    assert world.logged == []


@pytest.mark.parametrize(
    ("key", "value"), [("execution.mode", "nowhere"), ("materialized-table.nonsense", "1")]
)
def test_settings_of_one_statement_are_checked_like_those_of_set(
    world: World, key: str, value: str
) -> None:
    set_by_statement = refusal(world, f"SET '{key}' = '{value}'")
    with pytest.raises(ServerError) as caught:
        world.execute("SELECT 1", {key: value})
    assert str(caught.value) == str(set_by_statement)


def by_order_settings(world: World) -> Mapping[str, str]:
    return order_of(world).settings
