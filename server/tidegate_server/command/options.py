"""Tidegate's own options: their names, what they may be, and how a value is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tidegate_server.errors import Code, ServerError, error
from tidegate_server.model.freshness import Freshness, TimeUnit
from tidegate_server.scheduler.partitions import read_policy

THRESHOLD_KEY = "materialized-table.refresh-mode.freshness-threshold"
DEFAULT_CONTINUOUS_KEY = "materialized-table.default-freshness.continuous"
DEFAULT_FULL_KEY = "materialized-table.default-freshness.full"
START_MODE_KEY = "materialized-table.default-start-mode"
INITIALIZE_KEY = "materialized-table.initialize"
POLICY_KEY = "materialized-table.partition-refresh.policy"
ALIGNMENT_KEY = "materialized-table.schedule.alignment"
DESCRIBE_KEY = "materialized-table.describe.format"
EXECUTION_MODE_KEY = "execution.mode"
EXECUTION_MODES = ("embedded",)

_OURS = (
    "materialized-table.",
    "workflow-scheduler.",
    "execution.",
    "table.",
    "kubernetes.",
    "yarn.",
)
_UNITS: Mapping[str, TimeUnit] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), TimeUnit.SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), TimeUnit.MINUTE),
    **dict.fromkeys(("h", "hour", "hours"), TimeUnit.HOUR),
    **dict.fromkeys(("d", "day", "days"), TimeUnit.DAY),
}
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]+)")


def is_tidegate_key(key: str) -> bool:
    """Say whether a setting is Tidegate's and never reaches Spark's configuration."""
    return key.lower().startswith(_OURS)


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


def read_duration(key: str, value: str) -> Freshness:
    """Read a duration as Flink writes it, for example ``30 min``.

    :raises ServerError: MT_OPTION_VALUE for anything else and for zero.
    """
    found = _DURATION.fullmatch(value.strip().lower())
    unit = _UNITS.get(found[2]) if found else None
    if found is None or unit is None or int(found[1]) == 0:
        raise unusable(key, value, "write a positive duration such as 30 min, 1 h or 10 s")
    return Freshness(int(found[1]), unit)


def unusable(key: str, value: str, reason: str) -> ServerError:
    """Return the error for an option's value."""
    return error(Code.MT_OPTION_VALUE, key=key, value=repr(value), reason=reason)


Check = Callable[[str, str], object]


def _one_of(*words: str, later: tuple[str, ...] = ()) -> Check:
    def check(key: str, value: str) -> None:
        word = value.strip().upper()
        if word in later:
            raise error(
                Code.NOT_SUPPORTED,
                what=f"{key} = {value}",
                hint=f"Supported: {', '.join(words)}.",
            )
        if word not in words:
            raise unusable(key, value, f"it is one of {', '.join((*words, *later))}")

    return check


def _whole_number(key: str, value: str) -> None:
    if not (value.strip().isascii() and value.strip().isdigit()):
        raise unusable(key, value, "write a whole number")


def _later(key: str, value: str) -> None:
    raise error(Code.NOT_SUPPORTED, what=f"Option {key}", hint="Use FRESHNESS instead.")


def _execution_mode(key: str, value: str) -> None:
    if value.strip().lower() not in EXECUTION_MODES:
        raise error(Code.MT_EXECUTION_MODE, mode=value, supported=", ".join(EXECUTION_MODES))


_CHECKS: Mapping[str, Check] = {
    THRESHOLD_KEY: read_duration,
    DEFAULT_CONTINUOUS_KEY: read_duration,
    DEFAULT_FULL_KEY: read_duration,
    START_MODE_KEY: _one_of(
        "FROM_BEGINNING", later=("FROM_NOW", "RESUME_OR_FROM_BEGINNING", "RESUME_OR_FROM_NOW")
    ),
    INITIALIZE_KEY: _one_of("ON_SCHEDULE", "ON_CREATE"),
    POLICY_KEY: lambda key, value: read_policy(value),
    ALIGNMENT_KEY: _one_of("CRON", later=("INTERVAL",)),
    "materialized-table.schedule.cron": _later,
    "materialized-table.schedule.timezone": _later,
    "materialized-table.suspend-after-failures": _whole_number,
    DESCRIBE_KEY: _one_of("HS2", "FLINK"),
    "materialized-table.continuous.strict": _one_of("FALSE", later=("TRUE",)),
    EXECUTION_MODE_KEY: _execution_mode,
}
