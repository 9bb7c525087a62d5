"""Tidegate's own options: their names, what they may be, and how a value is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegate_server.config import MAX_CONCURRENT_OPTION, SCHEDULER_OPTIONS
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.model.freshness import Freshness, parse_duration
from tidegate_server.model.table import ENFORCE_OPTION
from tidegate_server.model.zones import LOCAL_ZONE, SESSION_ZONE, UNSET
from tidegate_server.refresh.eligibility import RULES_OPTION, Rule, read_rules
from tidegate_server.refresh.retries import RETRIES_OPTION, SUSPEND_OPTION
from tidegate_server.refresh.staleness import Bound, OnStale, parse_bound
from tidegate_server.refresh.upkeep import (
    FILES_OPTION,
    INTERVAL_OPTION,
    PARTS_OPTION,
    RETENTION_OPTION,
    UPKEEP_OPTION,
    VERIFY_OPTION,
    VERSIONS_OPTION,
)
from tidegate_server.scheduler.continuous import EXCLUDE_OPTION
from tidegate_server.scheduler.cron import CRON_OPTION, TIMEZONE_OPTION, check_cron, read_timezone
from tidegate_server.scheduler.fires import JITTER_OPTION, MISFIRE_OPTION, read_misfire
from tidegate_server.scheduler.partitions import read_policy
from tidegate_server.scheduler.workflows import ALIGNMENT_OPTION

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
EXECUTION_MODE_KEY = "execution.mode"
EXECUTION_MODES = ("embedded", "remote")
"""Both are the gateway's engine; the second is Flink's word for a cluster that runs already."""
CLUSTER_MODES: Mapping[str, str] = {
    "yarn-session": "yarn",
    "yarn-application": "yarn",
    "kubernetes-session": "k8s://",
    "kubernetes-application": "k8s://",
}
"""Flink's words for clusters, with how ``engine.master`` begins where the engine works on one."""

_OURS = (
    "materialized-table.",
    SCHEDULER_OPTIONS,
    "execution.",
    "table.",
    "kubernetes.",
    "yarn.",
)


def is_tidegate_key(key: str) -> bool:
    """Say whether a setting is Tidegate's and never reaches Spark's configuration."""
    return key.lower().startswith(_OURS)


def sparks_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with Flink's name of the session's time zone respelled as Spark's."""
    found = {key: value for key, value in settings.items() if key.lower() != LOCAL_ZONE}
    for key in settings.keys() - found.keys():
        if settings[key].strip().lower() != UNSET:
            found.setdefault(SESSION_ZONE, settings[key].strip())
    return found


def spark_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are Spark's."""
    return {key: value for key, value in settings.items() if not is_tidegate_key(key)}


def check_option(key: str, value: str) -> None:
    """Refuse a value that a Tidegate option cannot have.

    :raises ServerError: MT_OPTION_VALUE or MT_EXECUTION_MODE.
    """
    if check := _CHECKS.get(key):
        check(key, value)
    elif key.startswith("materialized-table."):
        raise unusable(key, value, "there is no such option")


def check_server_options(options: Mapping[str, str]) -> None:
    """Refuse what cannot stand among the server's own options.

    :raises ServerError: MT_OPTION_VALUE or MT_EXECUTION_MODE.
    """
    for key, value in options.items():
        if not is_tidegate_key(key):
            reason = "there is no such option; settings of Spark stand under engine.settings"
            raise unusable(key, value, reason)
        if key != MAX_CONCURRENT_OPTION:
            check_option(key, value)


def check_target(mode: str, master: str) -> str:
    """Return the execution target that a mode means for an engine; an engine works in one place.

    :raises ServerError: MT_EXECUTION_MODE.
    """
    word = mode.strip().lower()
    place = CLUSTER_MODES.get(word)
    if word in EXECUTION_MODES or (place is not None and master.lower().startswith(place)):
        return word
    hint = f"Supported: {', '.join(EXECUTION_MODES)}."
    if place is not None:
        wanted = "k8s://https://host:port" if place == "k8s://" else place
        hint += (
            f" This gateway's engine works on {master}; started with engine.master = '{wanted}' "
            f"it refreshes every table there, and knows {word}."
        )
    raise error(Code.MT_EXECUTION_MODE, mode=mode, hint=hint)


def whole_name(key: str) -> str | None:
    """Return the option of which a key is the end, such as ``refresh.retries``; None for others."""
    name = f"materialized-table.{key.lower()}"
    return name if name in _CHECKS else None


def without_effect(key: str) -> str | None:
    """Return why a setting that is taken changes nothing; None for one that may."""
    folded = key.lower()
    if folded.startswith((SCHEDULER_OPTIONS, "table.")):
        return "the server alone has it, in its configuration"
    if folded.startswith(("kubernetes.", "yarn.")):
        return "the engine works where engine.master says"
    if folded in _CHECKPOINTS:
        return "the versions of all sources stand in each commit of a table"
    if folded.startswith("execution.") and folded != EXECUTION_MODE_KEY:
        return "there is no such option"
    return None


def read_duration(key: str, value: str) -> Freshness:
    """Read a duration as Flink writes it, for example ``30 min``.

    :raises ServerError: MT_OPTION_VALUE for anything else and for zero.
    """
    found = parse_duration(value)
    if found is None:
        raise unusable(key, value, "write a positive duration such as 30 min, 1 h or 10 s")
    return found


def read_bound(key: str, value: str) -> Bound:
    """Read the greatest age that may be read, for example ``10 min REFRESH``.

    :raises ServerError: MT_OPTION_VALUE.
    """
    bound = parse_bound(value)
    if bound is None:
        actions = ", ".join(OnStale.__members__)
        reason = f"write a positive duration and one of {actions}, such as 10 min REFRESH"
        raise unusable(key, value, reason)
    return bound


def unusable(key: str, value: str, reason: str) -> ServerError:
    """Return the error for an option's value."""
    return error(Code.MT_OPTION_VALUE, key=key, value=repr(value), reason=reason)


Check = Callable[[str, str], object]


def _one_of(*words: str) -> Check:
    def check(key: str, value: str) -> None:
        if value.strip().upper() not in words:
            raise unusable(key, value, f"it is one of {', '.join(words)}")

    return check


def _whole_number(key: str, value: str) -> None:
    if not (value.strip().isascii() and value.strip().isdigit()):
        raise unusable(key, value, "write a whole number")


def _incremental_rules(key: str, value: str) -> None:
    try:
        read_rules(value)
    except ValueError as unknown:
        words = ", ".join(rule.value for rule in Rule)
        raise unusable(key, value, f"write ALL or a list of {words}") from unknown


def _execution_mode(key: str, value: str) -> None:
    if value.strip().lower() not in CLUSTER_MODES:
        check_target(value, "")


def _servers_own(key: str, value: str) -> None:
    raise unusable(key, value, "it is the server's own, under [options] of its configuration")


_CHECKPOINTS = ("execution.checkpointing.savepoint-dir", "execution.checkpointing.interval")
_CHECKS: Mapping[str, Check] = {
    THRESHOLD_KEY: read_duration,
    DEFAULT_CONTINUOUS_KEY: read_duration,
    DEFAULT_FULL_KEY: read_duration,
    START_MODE_KEY: _one_of(
        "FROM_BEGINNING", "FROM_NOW", "RESUME_OR_FROM_BEGINNING", "RESUME_OR_FROM_NOW"
    ),
    DUPLICATES_KEY: _one_of("FALSE", "TRUE"),
    INITIALIZE_KEY: _one_of("ON_SCHEDULE", "ON_CREATE"),
    POLICY_KEY: lambda key, value: read_policy(value),
    ALIGNMENT_OPTION: _one_of("CRON", "INTERVAL"),
    CRON_OPTION: lambda key, value: check_cron(value.strip()),
    TIMEZONE_OPTION: lambda key, value: read_timezone(value.strip()),
    MISFIRE_OPTION: lambda key, value: read_misfire(value),
    JITTER_OPTION: read_duration,
    RETRIES_OPTION: _whole_number,
    SUSPEND_OPTION: _whole_number,
    RULES_OPTION: _incremental_rules,
    EXCLUDE_OPTION: lambda key, value: None,
    UPKEEP_OPTION: _one_of("FALSE", "TRUE"),
    FILES_OPTION: _whole_number,
    VERSIONS_OPTION: _whole_number,
    RETENTION_OPTION: read_duration,
    INTERVAL_OPTION: read_duration,
    VERIFY_OPTION: read_duration,
    PARTS_OPTION: _whole_number,
    ENFORCE_OPTION: _one_of("WARN", "FAIL"),
    MAX_STALENESS_KEY: read_bound,
    READ_CONSISTENCY_KEY: _one_of("LATEST", SNAPSHOT),
    DESCRIBE_KEY: _one_of("HS2", "FLINK"),
    STRICT_KEY: _one_of("FALSE", "TRUE"),
    FITTING_KEY: _one_of("FALSE", "TRUE"),
    EXECUTION_MODE_KEY: _execution_mode,
    MAX_CONCURRENT_OPTION: _servers_own,
}
