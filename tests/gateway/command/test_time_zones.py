"""The time zone of a table's schedule, and what CREATE says of its schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import NOW, World, analysis, name
from tests.gateway.command.tables import ALTER, refusal
from tidegate_server.core.config import Config
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.gateway.recovery.definitions import realign_workflows
from tidegate_server.gateway.scheduler.workflows import schedule_timezone

OPTION = "materialized-table.schedule.timezone"
FORMATTER = "'partition.fields.d.date-formatter'='yyyy-MM-dd'"
DAILY = "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1"
BY_DAY = (
    "CREATE MATERIALIZED TABLE m PARTITIONED BY (d) WITH ({}) {} FRESHNESS = INTERVAL '1' {} "
    "REFRESH_MODE = FULL AS SELECT * FROM t1"
)


def config(**options: str) -> Config:
    return Config(scheduler={"patience": 0, "timezone": "Europe/Berlin"}, options=options)  # type: ignore[arg-type]


def create_with_zone(option: str, zone: str) -> str:
    return BY_DAY.format(f"{FORMATTER}, '{option}'='{zone}'", "", "DAY")


# ---- which zone --------------------------------------------------------------------------------


def test_the_servers_zone_is_the_last_resort() -> None:
    world = World(config=config())
    world.execute(DAILY)
    assert world.workflow("m").timezone == "Europe/Berlin"


def test_the_session_goes_before_the_server() -> None:
    world = World(config=config(**{OPTION: "Asia/Kolkata"}))
    world.execute("SET spark.sql.session.timeZone = Asia/Shanghai")
    world.execute(DAILY)
    assert world.workflow("m").timezone == "Asia/Shanghai"
    assert world.definition("m").settings["spark.sql.session.timeZone"] == "Asia/Shanghai"


def test_the_table_goes_before_the_session() -> None:
    world = World(config=config())
    world.execute("SET spark.sql.session.timeZone = Asia/Shanghai")
    world.execute(create_with_zone(OPTION, "Asia/Tokyo"))
    assert world.workflow("m").timezone == "Asia/Tokyo"
    world.execute(f"{ALTER} m RESET ('{OPTION}')")
    assert world.workflow("m").timezone == "Asia/Shanghai"


def test_the_servers_option_goes_before_its_configuration() -> None:
    world = World(config=config(**{OPTION: "Asia/Kolkata"}))
    world.execute(DAILY)
    assert world.workflow("m").timezone == "Asia/Kolkata"


def test_a_zone_for_one_statement_is_that_of_its_table() -> None:
    world = World(config=config())
    world.execute(DAILY, overlay={"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert world.workflow("m").timezone == "Asia/Tokyo"


def test_a_zone_that_only_spark_knows_leaves_the_schedule_to_the_server() -> None:
    world = World(config=config())
    world.execute(DAILY)
    table = vary(world.table("m"), settings={"spark.sql.session.timeZone": "Nowhere/Bad"})
    assert schedule_timezone(table, "Europe/Berlin") == "Europe/Berlin"


@pytest.mark.parametrize(
    ("given", "zone"),
    [
        ({}, "UTC"),
        ({"scheduler": {"timezone": "Asia/Tokyo"}}, "Asia/Tokyo"),
        ({"engine": {"settings": {"spark.sql.session.timeZone": "Asia/Tokyo"}}}, "Asia/Tokyo"),
        ({"options": {"table.local-time-zone": "Asia/Tokyo"}}, "Asia/Tokyo"),
        ({"options": {"table.local-time-zone": "default"}}, "UTC"),
    ],
)
def test_the_servers_zone_is_that_of_its_sessions_unless_it_says_another(
    given: dict[str, object], zone: str
) -> None:
    assert Config(**given).timezone == zone  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"scheduler": {"timezone": "Mars/Base"}},
        {"scheduler": {"timezone": "UTC"}, "table": {"local-time-zone": "Mars/Base"}},
    ],
)
def test_a_server_in_an_unknown_zone_does_not_start(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="there is no time zone 'Mars/Base'"):
        Config(**given)  # type: ignore[arg-type]


# ---- table.local-time-zone ---------------------------------------------------------------------


@pytest.mark.parametrize("key", ["'table.local-time-zone'", "'TABLE.Local-Time-Zone'"])
def test_flinks_name_sets_the_sessions_zone(world: World, key: str) -> None:
    world.execute(f"SET {key} = 'Asia/Shanghai'")
    assert world.session.settings == {"spark.sql.session.timeZone": "Asia/Shanghai"}
    assert world.logged == []
    world.execute(DAILY)
    assert world.workflow("m").timezone == "Asia/Shanghai"


@pytest.mark.parametrize(
    "reset", ["RESET 'table.local-time-zone'", "SET 'table.local-time-zone' = 'default'"]
)
def test_the_sessions_zone_is_given_up_by_flinks_name(world: World, reset: str) -> None:
    world.execute("SET spark.sql.session.timeZone = Asia/Shanghai")
    world.execute(reset)
    assert world.session.settings == {}


# ---- what CREATE says --------------------------------------------------------------------------


def test_create_warns_of_a_query_in_another_zone_than_its_schedule(world: World) -> None:
    world.execute("SET spark.sql.session.timeZone = Asia/Shanghai")
    world.execute(create_with_zone(OPTION, "Asia/Tokyo"))
    warning = world.logged[0]
    assert warning.startswith(
        "Warning: the query of spark_catalog.d.m runs in the time zone Asia/Shanghai"
    )
    assert "its schedule and its date-formatters in Asia/Tokyo" in warning


def test_create_warns_of_an_engine_in_another_zone_than_the_server(world: World) -> None:
    found = replace(analysis(), time_zone="America/New_York")
    world.engine.analyses["SELECT * FROM t1"] = found
    world.execute(DAILY)
    assert "runs in the time zone America/New_York, but its schedule in UTC" in world.logged[0]


def test_alter_warns_of_a_zone_that_is_not_the_querys(world: World) -> None:
    world.execute("SET spark.sql.session.timeZone = Asia/Shanghai")
    world.execute(DAILY)
    world.execute(f"{ALTER} m SET ('{OPTION}'='Asia/Tokyo')")
    assert "zone Asia/Shanghai, but its schedule in Asia/Tokyo" in world.logged[-1]
    world.execute(f"{ALTER} m SET ('{OPTION}'='Asia/Shanghai')")
    assert len(world.logged) == 2


@pytest.mark.parametrize(
    ("query", "schedule"),
    [("Asia/Shanghai", "Asia/Shanghai"), ("Asia/Shanghai", "GMT+8"), ("Etc/UTC", "UTC")],
)
def test_the_same_time_by_another_name_is_no_warning(
    world: World, query: str, schedule: str
) -> None:
    world.execute(f"SET spark.sql.session.timeZone = {query}")
    world.execute(create_with_zone(OPTION, schedule))
    assert [line for line in world.logged if line.startswith("Warning")] == []


def test_a_table_without_a_schedule_is_not_warned_of(world: World) -> None:
    found = replace(analysis(), time_zone="America/New_York")
    world.engine.analyses["SELECT * FROM t1"] = found
    world.execute("CREATE MATERIALIZED TABLE m REFRESH_MODE = CONTINUOUS AS SELECT * FROM t1")
    assert world.logged == []


def test_create_says_when_the_first_rows_come_and_how_to_have_them_now(world: World) -> None:
    world.execute(DAILY)
    [note] = world.logged
    assert note == (
        "Note: spark_catalog.d.m is empty until its first refresh, at 2024-01-03 00:00:00 (UTC). "
        "ALTER MATERIALIZED TABLE `spark_catalog`.`d`.`m` REFRESH loads it now; with "
        "'materialized-table.initialize' = 'ON_CREATE' CREATE does."
    )


def test_the_first_fire_is_shown_in_the_schedules_zone_with_its_partition(world: World) -> None:
    world.execute(create_with_zone(OPTION, "Asia/Tokyo"))
    assert "at 2024-01-03 00:00:00 (Asia/Tokyo), of the partition d=2024-01-03." in world.logged[-1]


def test_the_first_fire_of_another_scheduler_is_told_as_well() -> None:
    world = World(config=config(**{"workflow-scheduler.type": "airflow"}))
    world.execute(DAILY)
    assert "at 2024-01-03 00:00:00 (Europe/Berlin)" in world.logged[-1]


def test_a_schedule_that_is_over_is_refused_and_leaves_nothing() -> None:
    world = World(config=config(**{"workflow-scheduler.type": "airflow"}))
    option = "WITH ('materialized-table.schedule.cron'='0 0 0 1 1 ? 2020')"
    problem = refusal(world, DAILY.replace("FRESHNESS", f"{option} FRESHNESS"))
    assert problem.code == "MT_OPTION_VALUE"
    assert "it never fires again" in problem.message
    assert world.catalog.find(name("m")) is None


def test_a_table_without_a_pace_of_its_own_waits_for_its_consumers(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = DOWNSTREAM AS SELECT * FROM t1")
    assert world.logged[0].startswith(
        "Note: spark_catalog.d.m is empty until a table that reads it is refreshed"
    )


@pytest.mark.parametrize(
    "clauses",
    [
        "REFRESH_MODE = CONTINUOUS",
        "REFRESH_MODE = FULL REFRESH_TRIGGER = ON UPDATE",
        "WITH ('materialized-table.initialize'='ON_CREATE') REFRESH_MODE = FULL",
    ],
)
def test_nothing_is_said_of_a_table_that_is_loaded_at_once(world: World, clauses: str) -> None:
    world.execute(f"CREATE MATERIALIZED TABLE m {clauses} AS SELECT * FROM t1")
    assert world.logged == []


def test_describe_shows_the_schedules_zone(world: World) -> None:
    world.execute(create_with_zone(OPTION, "Asia/Tokyo"))
    rows = dict(row[:2] for row in world.rows("DESCRIBE EXTENDED m"))
    assert rows["timezone"] == "Asia/Tokyo"


# ---- the first load ----------------------------------------------------------------------------


@pytest.mark.parametrize(("zone", "first"), [("Asia/Tokyo", "2024-01-02"), ("UTC", "2024-01-01")])
def test_the_first_load_of_a_start_mode_is_named_in_the_schedules_zone(
    world: World, zone: str, first: str
) -> None:
    # 13 hours before noon is eleven in the evening in UTC, and the next morning in Tokyo.
    assert NOW.hour == 12
    options = f"{FORMATTER}, 'materialized-table.initialize'='ON_CREATE', '{OPTION}'='{zone}'"
    start = "START_MODE = FROM_NOW(INTERVAL '13' HOUR)"
    world.execute(BY_DAY.format(options, start, "HOUR"))
    assert world.refreshed[0].recompute.partitions[0]["d"] == first


@pytest.mark.parametrize(("zone", "count"), [("Asia/Tokyo", 2), ("UTC", 1)])
def test_the_moment_of_a_start_mode_is_read_in_the_schedules_zone(
    world: World, zone: str, count: int
) -> None:
    # At noon in UTC it is nine in the evening in Tokyo: an hour ago, or still to come.
    options = f"{FORMATTER}, 'materialized-table.initialize'='ON_CREATE', '{OPTION}'='{zone}'"
    options = options.replace("yyyy-MM-dd", "yyyy-MM-dd HH")
    start = "START_MODE = FROM_TIMESTAMP(TIMESTAMP '2024-01-02 20:30:00')"
    world.execute(BY_DAY.format(options, start, "HOUR"))
    assert len(world.refreshed[0].recompute.partitions) == count


# ---- schedules of an earlier release -----------------------------------------------------------


def test_a_schedule_that_is_not_quartz_suspends_its_table_at_start(world: World) -> None:
    world.execute(DAILY)
    option = {"materialized-table.schedule.cron": "0 12 * * 1-5"}
    world.catalog.replace(vary(world.table("m"), options=option))
    assert realign_workflows(world.catalog, world.scheduler, "UTC") == (name("m"),)
    table = world.table("m")
    assert table.state.status is RefreshStatus.SUSPENDED
    assert "in Quartz it is 0 0 12 ? * MON-FRI" in (table.state.status_reason or "")
    assert not world.workflow("m").active
    assert realign_workflows(world.catalog, world.scheduler, "UTC") == ()


def test_a_cron_of_unix_is_refused_with_its_translation(world: World) -> None:
    statement = DAILY.replace(
        "FRESHNESS", "WITH ('materialized-table.schedule.cron'='{}') FRESHNESS"
    )
    problem = refusal(world, statement.format("0 12 * * 1-5"))
    assert problem.code == "MT_OPTION_VALUE"
    assert "in Quartz it is 0 0 12 ? * MON-FRI" in problem.message
    world.execute(statement.format("0 0 12 ? * 6L *"))
    assert world.workflow("m").cron == "0 0 12 ? * 6L *"
