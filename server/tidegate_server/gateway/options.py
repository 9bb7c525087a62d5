"""Tidegate's own options: their names, where each may be set, and how values are parsed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from tidegate_server.core.config import (
    MAX_CONCURRENT_OPTION,
    SCHEDULER_OPTIONS,
    SCHEDULER_TYPE_OPTION,
    STORE_KIND_OPTION,
    STORE_PATH_OPTION,
    Config,
)
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.jobs import DML_SYNC_OPTION, JOB_INTERVAL_OPTION, JOB_NAME_OPTION
from tidegate_server.core.model.dialects import DIALECT_OPTION, SqlDialect, read_dialect
from tidegate_server.core.model.freshness import Freshness, parse_duration
from tidegate_server.core.model.table import ENFORCE_OPTION
from tidegate_server.core.model.zones import LOCAL_ZONE, SESSION_ZONE, UNSET
from tidegate_server.core.refresh.eligibility import RULES_OPTION, Rule, read_rules
from tidegate_server.core.refresh.maintenance import (
    FILES_OPTION,
    INTERVAL_OPTION,
    MAINTENANCE_OPTION,
    PARTS_OPTION,
    RETENTION_OPTION,
    VERIFY_OPTION,
    VERSIONS_OPTION,
)
from tidegate_server.gateway.flink_options import (
    FLINKS_PREFIXES,
    SERVERS_OWN,
    STORED_ELSEWHERE,
    table_remark,
    without_effect,
)
from tidegate_server.gateway.freshness.retries import RETRIES_OPTION, SUSPEND_OPTION
from tidegate_server.gateway.freshness.staleness import Bound, OnStale, parse_bound
from tidegate_server.gateway.link.targets import (
    ENGINE_KEY,
    KUBERNETES_KEY,
    LOAD_ENGINE_KEY,
    MODE_KEY,
    YARN_KEY,
    check_cluster_name,
    check_mode,
    known_engine,
)
from tidegate_server.gateway.scheduler.continuous import EXCLUDE_OPTION
from tidegate_server.gateway.scheduler.cron import (
    CRON_OPTION,
    TIMEZONE_OPTION,
    check_cron,
    read_timezone,
)
from tidegate_server.gateway.scheduler.misfires import JITTER_OPTION, MISFIRE_OPTION, read_misfire
from tidegate_server.gateway.scheduler.partitions import read_policy
from tidegate_server.gateway.scheduler.workflows import ALIGNMENT_OPTION

THRESHOLD_KEY = "materialized-table.refresh-mode.freshness-threshold"
DEFAULT_CONTINUOUS_KEY = "materialized-table.default-freshness.continuous"
DEFAULT_FULL_KEY = "materialized-table.default-freshness.full"
START_MODE_KEY = "materialized-table.default-start-mode"
DUPLICATES_KEY = "materialized-table.duplicate-columns.strict"
CONVERSION_KEY = "table.materialized-table.conversion-from-table.enabled"
INITIALIZE_KEY = "materialized-table.initialize"
POLICY_KEY = "materialized-table.partition-refresh.policy"
STRICT_KEY = "materialized-table.continuous.strict"
FITTING_KEY = "materialized-table.freshness.strict"
MAX_STALENESS_KEY = "materialized-table.read.max-staleness"
READ_CONSISTENCY_KEY = "materialized-table.read.consistency"
SNAPSHOT = "SNAPSHOT"
DESCRIBE_KEY = "materialized-table.describe.format"
PROJECT_KEY = "materialized-table.project"

_OURS = ("materialized-table.", SCHEDULER_OPTIONS, "execution.", "table.")
SERVER_ONLY = (SCHEDULER_OPTIONS, "table.catalog-store.")
"""Prefixes of options that configure the server, in lower case."""
_ONLY_OURS = ("materialized-table.", "partition.field", "constraint.enforce")
"""Prefixes that only Tidegate's options have, so that an unknown name is a mistake."""
_PARTITION_OPTION = re.compile(r"partition\.fields\.(.+)\.(lateness|date-formatter)")
_PARTITION_SHAPES = (
    "partition.fields.<column>.date-formatter",
    "partition.fields.<column>.lateness",
)
_FEW = 5
_LISTED = "See the configuration page for the list of options."
_SIMILAR = 0.85
"""Least similarity at which a foreign name counts as a misspelt option."""


class Place(Enum):
    """Where an option may be set; the value completes "it is set ..."."""

    SERVER = "under [options] of the server's configuration"
    SESSION = "by SET"
    CREATE = "in WITH (...) of CREATE MATERIALIZED TABLE"
    ALTER = "by ALTER MATERIALIZED TABLE ... SET (...)"
    RESUME = "in WITH (...) of ALTER MATERIALIZED TABLE ... RESUME"


Check = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What an option means, how its value is checked, and where it has an effect."""

    check: Check
    places: frozenset[Place]
    meaning: str
    """A sentence for ``SET -v``."""


def is_tidegate_key(key: str) -> bool:
    """Return whether a setting is Tidegate's or Flink's, so that Spark never gets it."""
    return key.lower() == DIALECT_OPTION or key.lower().startswith((*_OURS, *FLINKS_PREFIXES))


def sparks_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with Flink's name for the session time zone replaced by Spark's."""
    found = {key: value for key, value in settings.items() if key.lower() != LOCAL_ZONE}
    for key in settings.keys() - found.keys():
        if settings[key].strip().lower() != UNSET:
            found.setdefault(SESSION_ZONE, settings[key].strip())
    return found


def spark_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are Spark's."""
    return {key: value for key, value in settings.items() if not is_tidegate_key(key)}


def dialect_in(*layers: Mapping[str, str]) -> SqlDialect:
    """Return the SQL dialect of a statement, from the first layer of settings that has it.

    An invalid value is Spark's: the statement itself will be refused for it.
    """
    value = next((each[DIALECT_OPTION] for each in layers if DIALECT_OPTION in each), None)
    try:
        return read_dialect(value)
    except ValueError:
        return SqlDialect.SPARK


def check_option(key: str, value: str) -> None:
    """Reject invalid values of Tidegate's options, and unknown ``materialized-table.*`` names.

    :raises ServerError: MT_OPTION_UNKNOWN, MT_OPTION_VALUE or MT_EXECUTION_MODE.
    """
    if option := OPTIONS.get(key):
        option.check(key, value)
    elif key.lower().startswith("materialized-table."):
        raise unknown_option_error(key)


def check_session_option(key: str, value: str, config: Config) -> str | None:
    """Return why a setting has no effect in a session; None if it may have one.

    :raises ServerError: MT_OPTION_UNKNOWN, MT_OPTION_VALUE or MT_EXECUTION_MODE for one that cannot
        be set.
    """
    if (option := OPTIONS.get(key)) is not None:
        if Place.SESSION in option.places:
            option.check(key, value)
            return check_target_option(key, value, config)
        if key.startswith((SCHEDULER_OPTIONS, "table.")):
            return SERVERS_OWN
        option.check(key, value)
        raise misplaced_option_error(key, value, option.places)
    if _PARTITION_OPTION.fullmatch(key):
        raise misplaced_option_error(key, value, (Place.CREATE, Place.ALTER))
    if (name := full_name(key)) is not None:
        raise invalid_value_error(key, value, f"the option is called {name}")
    if _is_mistaken(key, OPTIONS):
        raise unknown_option_error(key)
    return without_effect(key) if is_tidegate_key(key) else None


def check_table_option(key: str, value: str, place: Place) -> str | None:
    """Return why an option has no effect on a table; None if it may have one.

    :param place: the clause in which it is set.
    :raises ServerError: MT_OPTION_UNKNOWN or MT_OPTION_VALUE for one that is invalid there.
    """
    if (option := OPTIONS.get(key)) is not None:
        if place not in option.places:
            raise misplaced_option_error(key, value, option.places)
        option.check(key, value)
        return None
    if _PARTITION_OPTION.fullmatch(key):
        if place is Place.RESUME:
            raise misplaced_option_error(key, value, (Place.CREATE, Place.ALTER))
        return None
    if key.lower().startswith("spark."):
        if place is Place.RESUME:
            return None
        reason = "refreshes use the settings that are SET before CREATE, or in RESUME WITH"
        raise invalid_value_error(key, value, reason)
    if (name := full_name(key)) is not None:
        raise invalid_value_error(key, value, f"the option is called {name}")
    if _is_mistaken(key, OPTIONS):
        raise unknown_option_error(key)
    if (elsewhere := STORED_ELSEWHERE.get(key.lower())) is not None:
        raise invalid_value_error(key, value, elsewhere)
    return without_effect(key) or table_remark(key, value, kept=place is not Place.RESUME)


def check_server_options(config: Config) -> None:
    """Reject options of the server's configuration that have no effect.

    :raises ServerError: MT_OPTION_UNKNOWN, MT_OPTION_VALUE or MT_EXECUTION_MODE.
    """
    known = {key for key, option in OPTIONS.items() if Place.SERVER in option.places}
    for key, value in config.options.items():
        option = OPTIONS.get(key)
        if option is not None:
            if Place.SERVER not in option.places:
                raise misplaced_option_error(key, value, option.places)
            if key != MAX_CONCURRENT_OPTION:
                option.check(key, value)
            reason = check_target_option(key, value, config)
            if reason is not None and key != MODE_KEY:
                raise invalid_value_error(key, value, reason)
        elif key.lower().startswith("spark."):
            raise invalid_value_error(key, value, "Spark settings belong under engine.settings")
        elif (
            config.fires_itself or not key.startswith(SCHEDULER_OPTIONS) or _similar(key, known)
        ):  # scheduler plug-ins read further options
            raise unknown_option_error(key, known)


def full_name(key: str) -> str | None:
    """Return the option whose name ends with a key such as ``refresh.retries``; else None."""
    name = f"materialized-table.{key.lower()}"
    return name if name in OPTIONS else None


def unknown_option_error(key: str, known: Collection[str] | None = None) -> ServerError:
    """Return the error for an option that does not exist, suggesting the most similar one."""
    names = [*(OPTIONS if known is None else known), *(_PARTITION_SHAPES if known is None else ())]
    near = full_name(key) or _nearest(key.lower(), names)
    few = f"Options: {', '.join(sorted(names))}." if len(names) <= _FEW else _LISTED
    hint = f"Did you mean {near}?" if near else few
    return error(Code.MT_OPTION_UNKNOWN, key=key, hint=hint)


def misplaced_option_error(key: str, value: str, places: Collection[Place]) -> ServerError:
    """Return the error for an option that has no effect where it is set."""
    if places == frozenset({Place.SERVER}):
        return invalid_value_error(key, value, f"it can only be set {Place.SERVER.value}")
    written = " or ".join(place.value for place in Place if place in places)
    return invalid_value_error(key, value, f"it is set {written}")


def read_duration(key: str, value: str) -> Freshness:
    """Parse a duration in Flink's format, for example ``30 min``.

    :raises ServerError: MT_OPTION_VALUE for anything else, and for zero.
    """
    found = parse_duration(value)
    if found is None:
        raise invalid_value_error(
            key, value, "write a positive duration such as 30 min, 1 h or 10 s"
        )
    return found


def read_bound(key: str, value: str) -> Bound:
    """Parse a staleness bound, for example ``10 min REFRESH``.

    :raises ServerError: MT_OPTION_VALUE.
    """
    bound = parse_bound(value)
    if bound is None:
        actions = ", ".join(OnStale.__members__)
        reason = f"write a positive duration and one of {actions}, such as 10 min REFRESH"
        raise invalid_value_error(key, value, reason)
    return bound


def invalid_value_error(key: str, value: str, reason: str) -> ServerError:
    """Return the error for an invalid value."""
    return error(Code.MT_OPTION_VALUE, key=key, value=repr(value), reason=reason)


def _is_mistaken(key: str, known: Collection[str]) -> bool:
    """Return whether an unknown name was meant to be an option."""
    folded = key.lower()
    return folded.startswith(_ONLY_OURS) or folded in known or bool(_similar(key, known))


def _nearest(key: str, names: Collection[str]) -> str | None:
    """Return the most similar name, comparing only what follows the common prefix."""
    begin, dot, rest = key.partition(".")
    ends = {name.removeprefix(begin + dot): name for name in names if name.startswith(begin + dot)}
    near = difflib.get_close_matches(rest, ends, n=1)
    return ends[near[0]] if near else next(iter(_similar(key, names)), None)


def _similar(key: str, known: Collection[str]) -> list[str]:
    return difflib.get_close_matches(key.lower(), known, n=1, cutoff=_SIMILAR)


def check_target_option(key: str, value: str, config: Config) -> str | None:
    """Check an option that chooses an engine; return why it has no effect, if it has none.

    :raises ServerError: MT_EXECUTION_MODE or MT_OPTION_VALUE for an engine that is not configured.
    """
    master = config.engine.master
    if key == ENGINE_KEY:
        known_engine(value.strip(), config.engines)
    elif key == MODE_KEY:
        own = check_mode(value, config.engines, master)
        if own and value.strip().lower() == "remote" and master.lower().startswith("local"):
            return f"refreshes run in the gateway's own engine, on {master}"
    elif key in (KUBERNETES_KEY, YARN_KEY) and not config.engines:
        return "the configuration has no sections [engines.NAME]"
    return None


def _one_of(*words: str) -> Check:
    def check(key: str, value: str) -> None:
        if value.strip().upper() not in words:
            raise invalid_value_error(key, value, f"use one of {', '.join(words)}")

    return check


def _whole_number(key: str, value: str) -> None:
    if not (value.strip().isascii() and value.strip().isdigit()):
        raise invalid_value_error(key, value, "use a whole number")


def _incremental_rules(key: str, value: str) -> None:
    try:
        read_rules(value)
    except ValueError as unknown:
        words = ", ".join(rule.value for rule in Rule)
        raise invalid_value_error(key, value, f"write ALL or a list of {words}") from unknown


def _dialect(key: str, value: str) -> None:
    try:
        read_dialect(value)
    except ValueError as unknown:
        words = [dialect.value for dialect in SqlDialect]
        near = difflib.get_close_matches(value.strip().lower(), words, n=1)
        reason = f"did you mean {near[0]}?" if near else f"use one of {', '.join(words)}"
        raise invalid_value_error(key, value, reason) from unknown


def _any_text(key: str, value: str) -> None:
    """Accept any value: it is checked where it is used."""


_SERVER = frozenset({Place.SERVER})
_SESSION = frozenset({Place.SERVER, Place.SESSION})
_TARGET = _SESSION | {Place.ALTER}
_STORED = frozenset({Place.SESSION, Place.CREATE, Place.ALTER, Place.RESUME})
_WITH = frozenset({Place.CREATE, Place.ALTER})
_CREATION = frozenset({Place.SERVER, Place.SESSION, Place.CREATE})
_DEFINITION = _CREATION | {Place.ALTER}
_PLACES = _DEFINITION | {Place.RESUME}


def _option(check: Check, places: frozenset[Place], meaning: str) -> Option:
    return Option(check=check, places=places, meaning=meaning)


_BOOLEAN = _one_of("FALSE", "TRUE")

OPTIONS: Mapping[str, Option] = {
    THRESHOLD_KEY: _option(
        read_duration,
        _DEFINITION,
        "Tables with a freshness below it are CONTINUOUS unless REFRESH_MODE is given.",
    ),
    DEFAULT_CONTINUOUS_KEY: _option(
        read_duration, _CREATION, "Freshness of tables without FRESHNESS, unless they are FULL."
    ),
    DEFAULT_FULL_KEY: _option(
        read_duration, _CREATION, "Freshness of FULL tables without FRESHNESS."
    ),
    START_MODE_KEY: _option(
        _one_of("FROM_BEGINNING", "FROM_NOW", "RESUME_OR_FROM_BEGINNING", "RESUME_OR_FROM_NOW"),
        _CREATION,
        "START_MODE of statements without one.",
    ),
    DUPLICATES_KEY: _option(
        _BOOLEAN,
        _DEFINITION,
        "Whether duplicate output names of a query are an error; otherwise they are numbered.",
    ),
    INITIALIZE_KEY: _option(
        _one_of("ON_SCHEDULE", "ON_CREATE"),
        _CREATION,
        "When a table is loaded first: ON_SCHEDULE, or ON_CREATE before CREATE returns.",
    ),
    POLICY_KEY: _option(
        lambda key, value: read_policy(value),
        _PLACES,
        "Which partitions a scheduled refresh covers: SCHEDULE_TIME, WINDOW_START or WINDOW.",
    ),
    ALIGNMENT_OPTION: _option(
        _one_of("CRON", "INTERVAL"),
        _PLACES,
        "CRON, or INTERVAL for a freshness that cron cannot express.",
    ),
    CRON_OPTION: _option(
        lambda key, value: check_cron(value.strip()),
        _PLACES,
        "Cron expression of the schedule, instead of one from the freshness.",
    ),
    TIMEZONE_OPTION: _option(
        lambda key, value: read_timezone(value.strip()), _PLACES, "Time zone of the schedule."
    ),
    MISFIRE_OPTION: _option(
        lambda key, value: read_misfire(value),
        _PLACES,
        "What follows missed refreshes: ONCE, SKIP or ALL.",
    ),
    JITTER_OPTION: _option(
        read_duration, _PLACES, "Maximum delay of scheduled refreshes, which spreads their load."
    ),
    RETRIES_OPTION: _option(
        _whole_number,
        _PLACES,
        "How often a scheduled refresh is retried after a transient failure.",
    ),
    SUSPEND_OPTION: _option(
        _whole_number,
        _PLACES,
        "Consecutive failures after which a table is suspended; 0 for never.",
    ),
    RULES_OPTION: _option(
        _incremental_rules,
        _STORED,
        "Rules that incremental refreshes may use, separated by commas.",
    ),
    EXCLUDE_OPTION: _option(_any_text, _WITH, "Sources whose changes trigger no refresh."),
    MAINTENANCE_OPTION: _option(_BOOLEAN, _PLACES, "Whether the files of tables are maintained."),
    FILES_OPTION: _option(
        _whole_number,
        _PLACES,
        "Number of excess files from which a table is compacted; 0 for never.",
    ),
    VERSIONS_OPTION: _option(
        _whole_number,
        _PLACES,
        "Maximum number of versions kept within the retention; 0 for no limit.",
    ),
    RETENTION_OPTION: _option(read_duration, _PLACES, "How long versions of a table are kept."),
    INTERVAL_OPTION: _option(
        read_duration, _PLACES, "Time between removals of files that no version needs."
    ),
    VERIFY_OPTION: _option(read_duration, _PLACES, "Time between two verifications of a table."),
    PARTS_OPTION: _option(
        _whole_number,
        _PLACES,
        "Parts into which rows are divided; each incremental refresh verifies one.",
    ),
    ENFORCE_OPTION: _option(
        _one_of("WARN", "FAIL"),
        _WITH | {Place.RESUME},
        "Whether rows that violate the primary key fail a refresh or only warn.",
    ),
    MAX_STALENESS_KEY: _option(
        read_bound, _SESSION, "Maximum age of rows that are read, and what follows for older ones."
    ),
    READ_CONSISTENCY_KEY: _option(
        _one_of("LATEST", SNAPSHOT),
        _SESSION,
        "LATEST, or SNAPSHOT to read several tables at versions that agree.",
    ),
    DESCRIBE_KEY: _option(
        _one_of("HS2", "FLINK"),
        _SESSION,
        "Columns of DESCRIBE: those of Hive (HS2) or of Flink (FLINK).",
    ),
    STRICT_KEY: _option(
        _BOOLEAN,
        _DEFINITION,
        "Whether a freshness that does not match those of other tables is an error.",
    ),
    FITTING_KEY: _option(
        _BOOLEAN, _DEFINITION, "Whether CONTINUOUS over sources without versions is an error."
    ),
    MODE_KEY: _option(
        _any_text, _TARGET, "In which engine new tables are refreshed, as Flink names its targets."
    ),
    ENGINE_KEY: _option(
        _any_text,
        _TARGET,
        "In which engine new tables are refreshed, by its section of the configuration.",
    ),
    KUBERNETES_KEY: _option(
        check_cluster_name,
        _TARGET,
        "The cluster of a session, or the name of an application, on Kubernetes.",
    ),
    YARN_KEY: _option(_any_text, _TARGET, "The application of a session on YARN."),
    LOAD_ENGINE_KEY: _option(_any_text, _WITH, "The engine that runs the first load of a table."),
    PROJECT_KEY: _option(
        _any_text, _WITH | {Place.SESSION}, "The project to which tables that are created belong."
    ),
    DIALECT_OPTION: _option(
        _dialect, _SESSION, "Whether statements are Spark's SQL or Flink's: SPARK or FLINK."
    ),
    JOB_INTERVAL_OPTION: _option(read_duration, _SESSION, "How often a job commits."),
    JOB_NAME_OPTION: _option(_any_text, _SESSION, "The name of the next job."),
    DML_SYNC_OPTION: _option(
        _BOOLEAN, _SESSION, "Whether INSERT, UPDATE, DELETE and MERGE wait, or become jobs."
    ),
    CONVERSION_KEY: _option(_BOOLEAN, _SERVER, "Whether CREATE OR ALTER converts plain tables."),
    MAX_CONCURRENT_OPTION: _option(_any_text, _SERVER, "How many refreshes run at once."),
    SCHEDULER_TYPE_OPTION: _option(_any_text, _SERVER, "The scheduler of refreshes."),
    STORE_KIND_OPTION: _option(_any_text, _SERVER, "Where catalogs are kept."),
    STORE_PATH_OPTION: _option(_any_text, _SERVER, "The directory in which catalogs are kept."),
}
"""Every option except ``partition.fields.<column>.*``."""
