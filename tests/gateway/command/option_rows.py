"""Every option of tables, sessions and the server: a value, and where it is seen to take effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tests.gateway.command.effects import ALTER, DAYS, create, order_of
from tests.gateway.command.fakes import World
from tidegate_server.core.config import Config
from tidegate_server.core.model.dialects import DIALECT_OPTION
from tidegate_server.gateway import options as known
from tidegate_server.gateway.definition.checks import layered_setting
from tidegate_server.gateway.link import targets
from tidegate_server.gateway.link.targets import read_target
from tidegate_server.gateway.options import OPTIONS, Place, check_server_options
from tidegate_server.gateway.scheduler.workflows import table_option

Reader = Callable[[World, str], str | None]


def by_lookup(world: World, key: str) -> str | None:
    """Read as the scheduler and maintenance do."""
    return table_option(world.table("m"), world.config.options)(key)


def by_order(world: World, key: str) -> str | None:
    """Read as the engine does."""
    return order_of(world).options.get(key)


def by_table(world: World, key: str) -> str | None:
    return world.definition("m").options.get(key)


def by_key(world: World, key: str) -> str | None:
    enforced = world.table("m").enforced_key
    return None if enforced is None else enforced.violation.value


def by_session(world: World, key: str) -> str | None:
    return world.session.settings.get(key) or world.config.options.get(key)


def by_definition(world: World, key: str) -> str | None:
    """Read as CREATE and ALTER do."""
    return layered_setting(world.definition("m").options, lambda key: by_session(world, key))(key)


def by_target(world: World, key: str) -> str | None:
    return world.table("m").execution_target


def by_engine(world: World, key: str) -> str | None:
    """Read what chooses the engine of new tables, or that of the altered table."""
    target = read_target(world.table("m").execution_target)
    named = {**target.info}
    if target.mode == "yarn-session":
        named[targets.YARN_KEY] = world.config.engines[target.engine].cluster_id
    return by_session(world, key) or named.get(key)


def by_scheduler(world: World, key: str) -> str | None:
    return str(world.config.scheduler.max_concurrent)


def by_mode(world: World, key: str) -> str | None:
    """A freshness of 20 minutes is CONTINUOUS below 30 minutes, FULL above 10."""
    return "10 min" if world.definition("m").refresh_mode.value == "FULL" else None


def by_freshness(world: World, key: str) -> str | None:
    return "2 h" if world.definition("m").freshness.seconds == 7200 else None


def by_start(world: World, key: str) -> str | None:
    start = world.definition("m").start_mode
    return None if start is None else start.kind.value


def by_load(world: World, key: str) -> str | None:
    return "ON_CREATE" if world.refreshed else "ON_SCHEDULE"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A value that reaches the reader of an option, and the test of its effect."""

    value: str
    read: Reader
    test: str
    clauses: str = ""
    """Further clauses that the option needs to be read."""
    items: str = ""
    options: str = ""
    wrong: str = "soon"
    """A value that is rejected; empty if any text is accepted."""
    engines: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    """Engines beside the gateway's own."""
    altered: str = ""
    """Further options that it needs in ALTER."""


MAINTENANCE = "core/refresh/test_maintenance.py::test_options_are_read_with_their_defaults"
DEFAULTS = "gateway/command/test_option_effects.py::test_a_value_reaches_what_reads_it"


def schedule_row(value: str, test: str) -> Row:
    return Row(value=value, read=by_lookup, clauses="REFRESH_MODE = FULL", test=test)


def server_row(value: str, test: str, wrong: str = "") -> Row:
    return Row(value=value, read=by_session, test=test, wrong=wrong)


def target_row(value: str, wrong: str, *, altered: str = "", **section: object) -> Row:
    return Row(
        value=value,
        read=by_engine,
        test="gateway/link/test_targets.py::test_settings_choose_an_engine",
        wrong=wrong,
        engines={"big": {"master": "local[8]", **section}},
        altered=altered,
    )


ROWS: dict[str, Row] = {
    known.THRESHOLD_KEY: Row(
        value="10 min", read=by_mode, clauses="FRESHNESS = INTERVAL '20' MINUTE", test=DEFAULTS
    ),
    known.DEFAULT_CONTINUOUS_KEY: Row(value="2 h", read=by_freshness, test=DEFAULTS),
    known.DEFAULT_FULL_KEY: Row(
        value="2 h", read=by_freshness, clauses="REFRESH_MODE = FULL", test=DEFAULTS
    ),
    known.START_MODE_KEY: Row(
        value="FROM_NOW",
        read=by_start,
        clauses="REFRESH_MODE = FULL",
        options=DAYS,
        test="gateway/command/test_start.py::test_a_start_limits_the_first_load",
    ),
    known.DUPLICATES_KEY: Row(
        value="TRUE",
        read=by_definition,
        test="gateway/command/test_option_effects.py::test_repeated_names_are_refused_where_that_is_asked",
    ),
    known.INITIALIZE_KEY: Row(
        value="ON_CREATE",
        read=by_load,
        test="gateway/command/test_create.py::test_on_create_loads_before_the_statement_returns",
    ),
    known.POLICY_KEY: schedule_row(
        "WINDOW", "gateway/scheduler/test_embedded.py::test_the_policy_of_a_table_is_obeyed"
    ),
    known.ALIGNMENT_OPTION: schedule_row(
        "INTERVAL",
        "gateway/scheduler/test_cron.py::test_an_interval_that_cron_cannot_express_is_counted",
    ),
    known.CRON_OPTION: schedule_row("0 30 2 * * ? *", DEFAULTS),
    known.TIMEZONE_OPTION: schedule_row(
        "Asia/Tokyo",
        "gateway/scheduler/test_partitions.py::test_partitions_follow_the_clock_of_the_time_zone",
    ),
    known.MISFIRE_OPTION: schedule_row(
        "SKIP", "gateway/scheduler/test_firing.py::test_the_misfire_policy_is_obeyed"
    ),
    known.JITTER_OPTION: schedule_row(
        "5 min", "gateway/scheduler/test_firing.py::test_jitter_spreads_tables"
    ),
    known.RETRIES_OPTION: schedule_row(
        "7", "gateway/scheduler/test_firing.py::test_retries_can_be_turned_off"
    ),
    known.SUSPEND_OPTION: schedule_row(
        "7", "gateway/scheduler/test_firing.py::test_zero_never_suspends"
    ),
    known.RULES_OPTION: Row(
        value="LINEAR, JOIN",
        read=by_order,
        test="engine/test_incremental_rules.py::test_rules_can_be_switched_off",
    ),
    known.EXCLUDE_OPTION: Row(
        value="t1",
        read=by_table,
        test="gateway/scheduler/test_continuous.py::test_excluded_sources_start_nothing",
        wrong="",
    ),
    known.MAINTENANCE_OPTION: schedule_row("FALSE", MAINTENANCE),
    known.FILES_OPTION: schedule_row("7", MAINTENANCE),
    known.VERSIONS_OPTION: schedule_row("7", MAINTENANCE),
    known.RETENTION_OPTION: schedule_row("7 d", MAINTENANCE),
    known.INTERVAL_OPTION: schedule_row("7 d", MAINTENANCE),
    known.VERIFY_OPTION: schedule_row("7 d", MAINTENANCE),
    known.PARTS_OPTION: schedule_row("7", MAINTENANCE),
    known.ENFORCE_OPTION: Row(
        value="FAIL",
        read=by_key,
        items="(PRIMARY KEY (a) NOT ENFORCED)",
        test="gateway/command/test_enforced_key.py::test_refreshes_are_told_of_the_key",
    ),
    known.MAX_STALENESS_KEY: server_row(
        "10 min FAIL",
        "gateway/command/test_staleness.py::test_a_bound_may_come_with_the_statement_or_from_the_server",
        "soon",
    ),
    known.READ_CONSISTENCY_KEY: server_row(
        "SNAPSHOT",
        "gateway/command/test_consistency.py::"
        "test_the_option_may_come_with_the_statement_or_from_the_server",
        "soon",
    ),
    known.DESCRIBE_KEY: server_row(
        "FLINK",
        "gateway/command/test_describe.py::test_flinks_format_has_keys_extras_and_watermarks",
        "soon",
    ),
    known.STRICT_KEY: Row(
        value="TRUE",
        read=by_definition,
        test="gateway/command/test_downstream.py::test_strict_watching_needs_versions",
    ),
    known.FITTING_KEY: Row(
        value="TRUE",
        read=by_definition,
        test="gateway/command/test_downstream.py::"
        "test_freshnesses_that_do_not_fit_are_refused_where_that_is_asked_for",
    ),
    targets.MODE_KEY: Row(
        value="embedded",
        read=by_target,
        test="gateway/command/test_create.py::"
        "test_the_execution_mode_of_the_session_stays_with_the_table",
    ),
    targets.ENGINE_KEY: target_row("big", "bigg"),
    targets.KUBERNETES_KEY: target_row(
        "cluster-1",
        "Cluster_1",
        altered="'execution.engine' = 'big'",
        master="k8s://https://head:6443",
        application=True,
    ),
    targets.YARN_KEY: target_row(
        "application_1_1",
        "",
        altered="'execution.mode' = 'yarn-session'",
        master="yarn",
        cluster_id="application_1_1",
    ),
    targets.LOAD_ENGINE_KEY: Row(
        value="big",
        read=by_table,
        test="gateway/runs/test_engines.py::test_a_first_load_runs_in_the_engine_for_it",
        wrong="bigg",
        engines={"big": {"master": "local[8]"}},
    ),
    known.PROJECT_KEY: Row(
        value="sales",
        read=by_definition,
        test="gateway/command/test_projects.py::test_a_table_belongs_to_the_project_of_its_session",
        wrong="",
    ),
    DIALECT_OPTION: server_row(
        "flink",
        "gateway/command/test_dialect.py::test_a_statement_is_translated_before_anything_reads_it",
        "flick",
    ),
    known.JOB_INTERVAL_OPTION: server_row(
        "3 s", "gateway/command/test_jobs.py::test_options_are_those_of_the_session", "soon"
    ),
    known.JOB_NAME_OPTION: server_row(
        "nightly", "gateway/command/test_jobs.py::test_options_are_those_of_the_session"
    ),
    known.DML_SYNC_OPTION: server_row(
        "FALSE",
        "gateway/command/test_single_jobs.py::test_the_option_may_come_from_anywhere",
        "soon",
    ),
    known.CONVERSION_KEY: server_row(
        "TRUE",
        "gateway/command/test_convert.py::test_it_is_refused_unless_the_server_allows_it",
        "soon",
    ),
    known.MAX_CONCURRENT_OPTION: Row(
        value="5",
        read=by_scheduler,
        test="core/test_config.py::test_flinks_sections_are_read",
        wrong="",
    ),
    known.SCHEDULER_TYPE_OPTION: server_row(
        "none", "core/test_config.py::test_a_key_may_be_written_with_dots_or_as_sections"
    ),
    known.STORE_KIND_OPTION: server_row(
        "sqlite", "core/test_config.py::test_a_contradiction_is_told"
    ),
    known.STORE_PATH_OPTION: server_row("x", "core/test_config.py::test_flinks_sections_are_read"),
}
PLACED = [(key, place) for key, option in OPTIONS.items() for place in option.places]
MISPLACED = [(key, place) for key in OPTIONS for place in Place if (key, place) not in PLACED]


def write(world: World, key: str, value: str, place: Place, row: Row) -> None:
    """Define the table m with an option in one of its places."""
    pair = f"'{key}' = '{value}'"
    options = [text for text in (row.options, pair if place is Place.CREATE else "") if text]
    statement = create(
        "PARTITIONED BY (d)" if row.options else "",
        options=", ".join(options),
        items=row.items,
        after=row.clauses,
    )
    options_of_server = {key: value} if place is Place.SERVER else {}
    if row.engines or options_of_server:
        world.config = Config(
            options=options_of_server,
            scheduler={"patience": 0},  # type: ignore[arg-type]
            engines=row.engines,  # type: ignore[arg-type]
        )
    if place is Place.SERVER:
        check_server_options(world.config)
        if world.config.scheduler_type == "none":
            return
    if place is Place.SESSION:
        world.execute(f"SET {pair}")
    world.execute(statement)
    if place is Place.ALTER:
        world.startable = {"big", f"big/{value}"}
        world.execute(f"{ALTER} SET ({', '.join(filter(None, (row.altered, pair)))})")
    if place is Place.RESUME:
        world.execute(f"{ALTER} SUSPEND")
        world.execute(f"{ALTER} RESUME WITH ({pair})")
