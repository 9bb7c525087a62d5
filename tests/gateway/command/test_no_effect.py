"""Nothing is accepted that does nothing: every option and clause has an effect that is seen here,
is refused, or is warned of. A new one without its row fails a test."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

import tidegate_server
from tests.gateway.command.fakes import World
from tests.gateway.command.tables import column, produces
from tidegate_server.core.config import FLINKS_SECTIONS, Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import CheckSettings
from tidegate_server.core.model.clauses import StartKind
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.refresh.request import Backfill, RefreshOrder, RefreshRequest
from tidegate_server.core.sql.alter import ALTER_RULES
from tidegate_server.core.sql.statements import ColumnItem, CreateMaterializedTable, SchemaChange
from tidegate_server.gateway import options as known
from tidegate_server.gateway.definition.checks import layered
from tidegate_server.gateway.flink_options import FLINKS_PREFIXES, STORED_ELSEWHERE
from tidegate_server.gateway.options import OPTIONS, Place, check_server_options
from tidegate_server.gateway.runs.orders import refresh_order
from tidegate_server.gateway.scheduler.workflows import table_option

TESTS = Path(__file__).parents[2]
CODE = Path(str(tidegate_server.__file__)).parent
ALTER = "ALTER MATERIALIZED TABLE m"


def create(
    *before: str,
    options: str = "",
    items: str = "",
    after: str = "",
    query: str = "SELECT * FROM t1",
) -> str:
    """Return a statement with clauses that stand before and after WITH."""
    parts = ("CREATE MATERIALIZED TABLE m", items, *before)
    written = f"WITH ({options})" if options else ""
    return " ".join(filter(None, (*parts, written, after, f"AS {query}")))


def refusal(world: World, statement: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    return caught.value


def warned(world: World, word: str) -> bool:
    return any(line.startswith("Warning: ") and word in line for line in world.logged)


# ---- options: a value reaches what reads it, from every place where it may be written -----------

Reader = Callable[[World, str], str | None]


def by_lookup(world: World, key: str) -> str | None:
    """Read as the scheduler and the upkeep do."""
    return table_option(world.table("m"), world.config.options)(key)


def by_order(world: World, key: str) -> str | None:
    """Read as the engine does."""
    return order_of(world).options.get(key)


def by_table(world: World, key: str) -> str | None:
    return world.table("m").options.get(key)


def by_key(world: World, key: str) -> str | None:
    enforced = world.table("m").enforced_key
    return None if enforced is None else enforced.violation.value


def by_session(world: World, key: str) -> str | None:
    return world.session.settings.get(key) or world.config.options.get(key)


def by_definition(world: World, key: str) -> str | None:
    """Read as CREATE and ALTER do."""
    return layered(world.table("m").options, lambda key: by_session(world, key))(key)


def by_target(world: World, key: str) -> str | None:
    return world.table("m").execution_target


def by_scheduler(world: World, key: str) -> str | None:
    return str(world.config.scheduler.max_concurrent)


def by_mode(world: World, key: str) -> str | None:
    """A freshness of 20 minutes is CONTINUOUS below 30 minutes, FULL above 10."""
    return "10 min" if world.table("m").refresh_mode.value == "FULL" else None


def by_freshness(world: World, key: str) -> str | None:
    return "2 h" if world.table("m").freshness.seconds == 7200 else None


def by_start(world: World, key: str) -> str | None:
    start = world.table("m").start_mode
    return None if start is None else start.kind.value


def by_load(world: World, key: str) -> str | None:
    return "ON_CREATE" if world.refreshed else "ON_SCHEDULE"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How an option is proven: a value that reaches its reader, and the test of what that does."""

    value: str
    read: Reader
    test: str
    clauses: str = ""
    """What a definition needs besides for the option to be read."""
    items: str = ""
    options: str = ""
    wrong: str = "soon"
    """A value that is refused; empty if any text is taken."""


DAYS = "'partition.fields.d.date-formatter' = 'yyyy-MM-dd'"
UPKEEP = "core/refresh/test_upkeep.py::test_options_are_read_with_their_defaults"
DEFAULTS = "gateway/command/test_no_effect.py::test_a_value_reaches_what_reads_it"


def scheduled(value: str, test: str) -> Row:
    return Row(value=value, read=by_lookup, clauses="REFRESH_MODE = FULL", test=test)


def of_server(value: str, test: str, wrong: str = "") -> Row:
    return Row(value=value, read=by_session, test=test, wrong=wrong)


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
        test="gateway/command/test_no_effect.py::test_repeated_names_are_refused_where_that_is_asked",
    ),
    known.INITIALIZE_KEY: Row(
        value="ON_CREATE",
        read=by_load,
        test="gateway/command/test_create.py::test_on_create_loads_before_the_statement_returns",
    ),
    known.POLICY_KEY: scheduled(
        "WINDOW", "gateway/scheduler/test_embedded.py::test_the_policy_of_a_table_is_obeyed"
    ),
    known.ALIGNMENT_OPTION: scheduled(
        "INTERVAL",
        "gateway/scheduler/test_cron.py::test_an_interval_that_cron_cannot_express_is_counted",
    ),
    known.CRON_OPTION: scheduled("0 30 2 * * ? *", DEFAULTS),
    known.TIMEZONE_OPTION: scheduled(
        "Asia/Tokyo",
        "gateway/scheduler/test_partitions.py::test_partitions_follow_the_clock_of_the_time_zone",
    ),
    known.MISFIRE_OPTION: scheduled(
        "SKIP", "gateway/scheduler/test_firing.py::test_the_misfire_policy_is_obeyed"
    ),
    known.JITTER_OPTION: scheduled(
        "5 min", "gateway/scheduler/test_firing.py::test_jitter_spreads_tables"
    ),
    known.RETRIES_OPTION: scheduled(
        "7", "gateway/scheduler/test_firing.py::test_retries_can_be_turned_off"
    ),
    known.SUSPEND_OPTION: scheduled(
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
    known.UPKEEP_OPTION: scheduled("FALSE", UPKEEP),
    known.FILES_OPTION: scheduled("7", UPKEEP),
    known.VERSIONS_OPTION: scheduled("7", UPKEEP),
    known.RETENTION_OPTION: scheduled("7 d", UPKEEP),
    known.INTERVAL_OPTION: scheduled("7 d", UPKEEP),
    known.VERIFY_OPTION: scheduled("7 d", UPKEEP),
    known.PARTS_OPTION: scheduled("7", UPKEEP),
    known.ENFORCE_OPTION: Row(
        value="FAIL",
        read=by_key,
        items="(PRIMARY KEY (a) NOT ENFORCED)",
        test="gateway/command/test_enforced_key.py::test_refreshes_are_told_of_the_key",
    ),
    known.MAX_STALENESS_KEY: of_server(
        "10 min FAIL",
        "gateway/command/test_staleness.py::test_a_bound_may_come_with_the_statement_or_from_the_server",
        "soon",
    ),
    known.READ_CONSISTENCY_KEY: of_server(
        "SNAPSHOT",
        "gateway/command/test_consistency.py::"
        "test_the_option_may_come_with_the_statement_or_from_the_server",
        "soon",
    ),
    known.DESCRIBE_KEY: of_server(
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
    known.EXECUTION_MODE_KEY: Row(
        value="embedded",
        read=by_target,
        test="gateway/command/test_create.py::"
        "test_the_execution_mode_of_the_session_stays_with_the_table",
    ),
    known.CONVERSION_KEY: of_server(
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
    known.SCHEDULER_TYPE_OPTION: of_server(
        "none", "core/test_config.py::test_a_key_may_be_written_with_dots_or_as_sections"
    ),
    known.STORE_KIND_OPTION: of_server(
        "sqlite", "core/test_config.py::test_a_contradiction_is_told"
    ),
    known.STORE_PATH_OPTION: of_server("x", "core/test_config.py::test_flinks_sections_are_read"),
}
PLACED = [(key, place) for key, option in OPTIONS.items() for place in option.places]
MISPLACED = [(key, place) for key in OPTIONS for place in Place if (key, place) not in PLACED]


def named(parameters: tuple[str, Place]) -> str:
    return f"{parameters[0]}-{parameters[1].name}"


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
    if place is Place.SERVER:
        world.config = Config(options={key: value}, scheduler={"patience": 0})  # type: ignore[arg-type]
        check_server_options(world.config.options)
        if world.config.scheduler_type == "none":
            return
    if place is Place.SESSION:
        world.execute(f"SET {pair}")
    world.execute(statement)
    if place is Place.ALTER:
        world.execute(f"{ALTER} SET ({pair})")
    if place is Place.RESUME:
        world.execute(f"{ALTER} SUSPEND")
        world.execute(f"{ALTER} RESUME WITH ({pair})")


def test_every_option_has_a_row_and_every_row_a_test() -> None:
    assert ROWS.keys() == OPTIONS.keys()
    for row in ROWS.values():
        file, _, test = row.test.partition("::")
        assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8"), row.test


@pytest.mark.parametrize(("key", "place"), PLACED, ids=map(named, PLACED))
def test_a_value_reaches_what_reads_it(world: World, key: str, place: Place) -> None:
    row = ROWS[key]
    write(world, key, row.value, place, row)
    assert row.read(world, key) == row.value
    assert not any("changes nothing" in line and key in line for line in world.logged)


@pytest.mark.parametrize("key", [key for key, place in PLACED if place is Place.CREATE])
def test_without_it_another_value_is_read(world: World, key: str) -> None:
    row = ROWS[key]
    before = "PARTITIONED BY (d)" if row.options else ""
    world.execute(create(before, options=row.options, items=row.items, after=row.clauses))
    assert row.read(world, key) != row.value


@pytest.mark.parametrize(("key", "place"), PLACED, ids=map(named, PLACED))
def test_a_value_that_cannot_be_is_refused(world: World, key: str, place: Place) -> None:
    row = ROWS[key]
    if row.wrong:
        with pytest.raises(ServerError) as caught:
            write(world, key, row.wrong, place, row)
        assert caught.value.code in ("MT_OPTION_VALUE", "MT_EXECUTION_MODE")


@pytest.mark.parametrize(("key", "place"), PLACED, ids=map(named, PLACED))
def test_a_misspelt_name_is_answered_with_the_nearest(world: World, key: str, place: Place) -> None:
    with pytest.raises(ServerError) as caught:
        write(world, f"{key}x", ROWS[key].value, place, ROWS[key])
    assert caught.value.code == Code.MT_OPTION_UNKNOWN.name
    assert caught.value.hint == f"Did you mean {key}?"


@pytest.mark.parametrize(("key", "place"), MISPLACED, ids=map(named, MISPLACED))
def test_elsewhere_it_is_refused_or_warned_of(world: World, key: str, place: Place) -> None:
    row = ROWS[key]
    if place is Place.SESSION and key.startswith(("workflow-scheduler.", "table.")):
        write(world, key, row.value, place, row)
        assert warned(world, f"{key} changes nothing here: it can only be set in the server")
        return
    with pytest.raises(ServerError) as caught:
        write(world, key, row.value, place, row)
    assert caught.value.code == Code.MT_OPTION_VALUE.name
    right = OPTIONS[key].places
    words = {"the server's own"} if right == {Place.SERVER} else {each.value for each in right}
    assert all(word in caught.value.message for word in words)


def test_repeated_names_are_refused_where_that_is_asked(world: World) -> None:
    query = produces(world, "SELECT a, a FROM t3", column("a"), column("a"))
    strict = f"'{known.DUPLICATES_KEY}' = 'true'"
    assert refusal(world, create(options=strict, query=query)).code == "MT_DUPLICATE_COLUMN"
    world.execute(create(query=query))
    world.execute(f"{ALTER} SET ({strict})")
    other = produces(world, "SELECT b, b FROM t3", column("b"), column("b"))
    assert refusal(world, f"{ALTER} AS {other}").code == "MT_DUPLICATE_COLUMN"


# ---- options that are none of ours ---------------------------------------------------------------

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
        ("pipeline.name", "p", "SHOW REFRESH HISTORY"),
        ("execution.checkpointing.interval", "1 s", "each commit"),
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
    assert world.table("m").resume_options == {}
    world.engine.failures.clear()
    world.execute(f"{ALTER} RESUME WITH ('{key}' = 'Asia/Tokyo')")
    assert by_order_settings(world)[key] == "Asia/Tokyo"


def test_a_setting_that_spark_does_not_know_is_warned_of(world: World) -> None:
    world.engine.similar = {"spark.sql.ansi.enable": "spark.sql.ansi.enabled"}
    world.execute("SET spark.sql.ansi.enable = false")
    assert warned(world, "did you mean spark.sql.ansi.enabled?")


@pytest.mark.parametrize("begin", FLINKS_PREFIXES)
def test_a_setting_of_flinks_is_warned_of(world: World, begin: str) -> None:
    key = begin + "name" if begin.endswith(".") else begin
    assert world.rows(f"SET '{key}' = 'x'") == [(key, "x")]
    assert warned(world, f"{key} changes nothing here: ")


@pytest.mark.parametrize("end", ["date-formatter", "lateness"])
def test_options_of_partitions_belong_to_a_table(world: World, end: str) -> None:
    key = f"partition.fields.d.{end}"
    assert refusal(world, f"SET '{key}' = 'yyyy'").code == Code.MT_OPTION_VALUE.name
    with pytest.raises(ServerError, match="no option"):
        check_server_options({key: "yyyy"})
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


# ---- clauses -------------------------------------------------------------------------------------

Proof = Callable[[World], object]
"""Returns something true once the clause has had its effect, or was warned of."""


def said(word: str) -> Proof:
    return lambda world: warned(world, word)


FULL = "REFRESH_MODE = FULL"
CLAUSES: dict[str, tuple[str, Proof]] = {
    "name": (create(), lambda w: w.table("m")),
    "query": (create(), lambda w: w.table("m").original_query == "SELECT * FROM t1"),
    "or_alter": (
        create().replace("CREATE", "CREATE OR ALTER", 1),
        lambda w: (
            w.execute(create("COMMENT 'y'").replace("CREATE", "CREATE OR ALTER", 1))
            and w.table("m").comment == "y"
        ),
    ),
    "if_not_exists": (
        create(),
        lambda w: (
            w.execute(create().replace("TABLE", "TABLE IF NOT EXISTS"))
            and any("exists already" in line for line in w.logged)
        ),
    ),
    "columns": (create(items="(d, c, b, a)"), lambda w: w.table("m").schema.names()[0] == "d"),
    "primary_key": (
        create(items="(PRIMARY KEY (a) NOT ENFORCED)"),
        lambda w: w.table("m").primary_key,
    ),
    "watermark": (
        create(items="(t AS current_timestamp, WATERMARK FOR t AS t)"),
        said("the watermark for t keeps no row out"),
    ),
    "expectations": (
        create(items="(CONSTRAINT e EXPECT (a > 0))"),
        lambda w: order_of(w).expectations,
    ),
    "assertions": (
        create(items="(CONSTRAINT e ASSERT (count(*) > 0))"),
        lambda w: order_of(w).assertions,
    ),
    "comment": (create("COMMENT 'x'"), lambda w: w.table("m").comment == "x"),
    "distribution": (
        create("DISTRIBUTED BY HASH (a) INTO 3 BUCKETS"),
        lambda w: order_of(w).distribution,
    ),
    "partition_keys": (
        create("PARTITIONED BY (d)"),
        lambda w: order_of(w).partition_keys == ("d",),
    ),
    "options": (
        create(options="'materialized-table.schedule.timezone' = 'Asia/Tokyo'", after=FULL),
        lambda w: w.workflow("m").timezone == "Asia/Tokyo",
    ),
    "start_mode": (
        create("PARTITIONED BY (d)", options=DAYS, after=f"START_MODE = FROM_NOW {FULL}"),
        said("START_MODE = FROM_NOW changes nothing"),
    ),
    "freshness": (
        create(after="FRESHNESS = INTERVAL '2' HOUR"),
        lambda w: w.workflow("m").freshness_seconds == 7200,
    ),
    "refresh_mode": (create(after=FULL), lambda w: w.workflow("m").cron),
    "on_update": (
        create(after=f"{FULL} REFRESH_TRIGGER = ON UPDATE"),
        lambda w: w.table("m").watched,
    ),
    "execute_as": (
        create(after="EXECUTE AS USER bob"),
        lambda w: w.table("m").execute_as == "bob",
    ),
    "immutable": (create(after="IMMUTABLE WHERE (a < 1)"), lambda w: order_of(w).immutable),
    "backfill_from": (
        create(after="IMMUTABLE WHERE (a < 1) BACKFILL FROM t1"),
        lambda w: isinstance(w.refreshed[0].task, Backfill),
    ),
}
COLUMNS: dict[str, tuple[str, Proof]] = {
    "ColumnName": ("(d, c, b, a)", lambda w: w.table("m").schema.names()[0] == "d"),
    "PhysicalColumn": ("(c BIGINT)", lambda w: kind_of(w, "c") == "bigint"),
    "MetadataColumn": (
        "(b STRING METADATA FROM 'file_name')",
        said("METADATA of column b changes nothing"),
    ),
    "MetadataColumn VIRTUAL": (
        "(f STRING METADATA FROM 'file_name' VIRTUAL)",
        lambda w: w.table("m").derived[0].metadata_key == "file_name",
    ),
    "ComputedColumn": ("(f AS a + 1)", lambda w: w.table("m").derived[0].expression == "a + 1"),
}
CHANGES: dict[str, tuple[str, Proof]] = {
    "ColumnChange": ("ADD f AS a + 1", lambda w: w.table("m").derived),
    "PrimaryKeyClause": ("ADD PRIMARY KEY (a) NOT ENFORCED", lambda w: w.table("m").primary_key),
    "Watermark": (
        "ADD (t AS current_timestamp, WATERMARK FOR t AS t)",
        said("the watermark for t keeps no row out"),
    ),
    "Distribution": ("ADD DISTRIBUTION INTO 3 BUCKETS", lambda w: order_of(w).distribution),
}
ACTIONS: dict[str, str] = {
    "ADD": "gateway/command/test_no_effect.py::test_a_change_has_an_effect_or_is_warned_of",
    "AS": "gateway/command/test_evolve.py::",
    "CANCEL": "gateway/command/test_refresh.py::",
    "CONVERT": "gateway/command/test_convert_to_table.py::",
    "DISCARD": "gateway/command/test_held.py::",
    "DROP": "gateway/command/test_schema_changes.py::",
    "MODIFY": "gateway/command/test_schema_changes.py::",
    "PUBLISH": "gateway/command/test_held.py::",
    "REFRESH": "gateway/command/test_refresh.py::",
    "RENAME": "gateway/command/test_rename.py::",
    "RESET": "gateway/command/test_lifecycle.py::test_options_are_set_and_reset",
    "RESUME": "gateway/command/test_lifecycle.py::",
    "ROLLBACK": "gateway/command/test_rollback.py::",
    "SET": "gateway/command/test_lifecycle.py::test_options_are_set_and_reset",
    "SUSPEND": "gateway/command/test_lifecycle.py::",
    "SWAP": "gateway/command/test_swap.py::",
}


def order_of(world: World) -> RefreshOrder:
    table = world.table("m")
    request = RefreshRequest(table_id=table.id, trigger=Trigger.MANUAL, requested_by="ann")
    return refresh_order(table, request, refresh_id="r", epoch=1, asked_at=table.created_at)


def by_order_settings(world: World) -> Mapping[str, str]:
    return order_of(world).settings


def kind_of(world: World, name: str) -> str:
    found = world.table("m").schema.find(name)
    assert found is not None
    return found.type


def test_every_clause_every_column_and_every_action_has_a_row() -> None:
    assert CLAUSES.keys() == {field.name for field in dataclasses.fields(CreateMaterializedTable)}
    kinds = {kind.__name__ for kind in get_args(ColumnItem)}
    assert {name.split()[0] for name in COLUMNS} == kinds
    assert CHANGES.keys() == {kind.__name__ for kind in get_args(SchemaChange)}
    assert ACTIONS.keys() == ALTER_RULES.keys()
    for word, proof in ACTIONS.items():
        file, _, test = proof.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text if test else re.search(rf"\b{word}\b", text), proof


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_has_an_effect_or_is_warned_of(world: World, clause: str) -> None:
    statement, proof = CLAUSES[clause]
    world.execute(statement)
    assert proof(world)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_has_an_effect_or_is_warned_of(world: World, kind: str) -> None:
    items, proof = COLUMNS[kind]
    world.execute(create(items=items))
    assert proof(world)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_has_an_effect_or_is_warned_of(world: World, kind: str) -> None:
    change, proof = CHANGES[kind]
    world.execute(create())
    world.execute(f"{ALTER} {change}")
    assert proof(world)


def test_metadata_of_a_stored_column_is_warned_of_in_modify_too(world: World) -> None:
    world.execute(create())
    world.execute(f"{ALTER} MODIFY b STRING METADATA FROM 'file_name'")
    assert warned(world, "METADATA of column b changes nothing")


@pytest.mark.parametrize("kind", StartKind)
@pytest.mark.parametrize("loads", ["ON_CREATE", "ON_SCHEDULE"])
def test_a_start_mode_counts_where_create_loads(world: World, kind: StartKind, loads: str) -> None:
    argument = "(TIMESTAMP '2024-01-01 00:00:00')" if "TIMESTAMP" in kind.value else ""
    statement = create(
        "PARTITIONED BY (d)",
        options=f"{DAYS}, 'materialized-table.initialize' = '{loads}'",
        after=f"START_MODE = {kind.value}{argument} {FULL}",
    )
    world.execute(statement.replace("CREATE", "CREATE OR ALTER", 1))
    assert warned(world, f"START_MODE = {kind.value}") == (loads == "ON_SCHEDULE")


def test_a_start_mode_says_nothing_of_a_table_that_exists(world: World) -> None:
    world.execute(create(after=FULL))
    again = create(after=f"START_MODE = FROM_BEGINNING {FULL}")
    world.execute(again.replace("CREATE", "CREATE OR ALTER", 1))
    assert warned(world, "START_MODE = FROM_BEGINNING changes nothing: the table exists")


@pytest.mark.parametrize("type", ["map<string,int>", "array<map<string,int>>", "variant"])
def test_rows_are_not_distributed_by_what_cannot_be_compared(world: World, type: str) -> None:
    query = produces(world, "SELECT x FROM t3", column("x", type))
    problem = refusal(world, create("DISTRIBUTED BY (x) INTO 2 BUCKETS", query=query))
    assert problem.code == Code.MT_DISTRIBUTION_TYPE.name


# ---- the server's configuration ------------------------------------------------------------------

SECTIONS = {
    name: field.annotation.model_fields
    for name, field in Config.model_fields.items()
    if hasattr(field.annotation, "model_fields")
}
KEYS = [(section, key) for section, fields in SECTIONS.items() for key in fields]


def read_attributes() -> set[str]:
    """Return the attributes that the server's code reads, outside of the configuration itself."""
    return {
        node.attr
        for file in CODE.rglob("*.py")
        if file.name != "config.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


READ_BY_CONFIG = {
    ("server", "http_port"): "rest_port",
    ("scheduler", "type"): "scheduler_type",
    ("store", "url"): "store_url",
}
"""Keys that are read through another attribute of the configuration."""


def test_every_key_of_the_configuration_is_read() -> None:
    found = read_attributes()
    unread = [key for key in KEYS if READ_BY_CONFIG.get(key, key[1]) not in found]
    assert unread == []
    assert {name for name in Config.model_fields if name not in found} == set()


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_a_misspelt_key_of_the_configuration_is_refused(section: str, key: str) -> None:
    given: Any = {section: {f"{key}x": "1"}}
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config(**given)


@pytest.mark.parametrize("section", [*Config.model_fields, *FLINKS_SECTIONS])
def test_a_misspelt_section_of_the_configuration_is_refused(section: str) -> None:
    given: Any = {f"{section}x": {"key": "1"}}
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config(**given)
