"""Checks of CREATE and ALTER: small and pure, one error each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate_server.core.config_sections import EngineTargetSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import OnUpdate
from tidegate_server.core.model.freshness import (
    DEFAULT_CONTINUOUS,
    DEFAULT_FULL,
    THRESHOLD,
    Freshness,
)
from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.table import (
    ENFORCE_OPTION,
    Definition,
    LogicalRefreshMode,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.model.types import Schema, TypeKind, parse_type
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.refresh.waves import Consumers, Find
from tidegate_server.core.sql.statements import Downstream, RequestedMode
from tidegate_server.gateway.freshness.downstream import misfits
from tidegate_server.gateway.link.targets import LOAD_ENGINE_KEY, known_engine
from tidegate_server.gateway.options import (
    DEFAULT_CONTINUOUS_KEY,
    DEFAULT_FULL_KEY,
    FITTING_KEY,
    STRICT_KEY,
    THRESHOLD_KEY,
    Place,
    check_table_option,
    read_duration,
)
from tidegate_server.gateway.scheduler.cron import CRON_OPTION
from tidegate_server.gateway.scheduler.partitions import pattern_grain
from tidegate_server.gateway.scheduler.workflows import schedule_for

Setting = Callable[[str], str | None]

_FORMATTER_PREFIX, _FORMATTER_SUFFIX = "partition.fields.", ".date-formatter"
_TEXTS = (TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.STRING)
_PLAIN_STRINGS = ("string", "string collate utf8_binary")
_PARTITION_TYPES = frozenset(
    {
        *_TEXTS,
        *(TypeKind.BOOLEAN, TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT),
        *(TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL),
        *(TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ),
    }
)
"""Types whose values survive Delta's text form of partition values, except for those that each
refresh checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshCadence:
    """A table's freshness and how it is achieved."""

    freshness: Freshness
    logical_mode: LogicalRefreshMode
    mode: RefreshMode
    downstream: bool = False
    """Whether the consumers determine the freshness; they are unknown here."""
    on_update: OnUpdate | None = None

    @property
    def watched(self) -> bool:
        """Whether source changes trigger refreshes."""
        return self.mode is RefreshMode.CONTINUOUS or self.on_update is not None


# ---- freshness and mode ----------------------------------------------------------------------


def pace(
    freshness: Freshness | Downstream | None,
    requested: RequestedMode | None,
    setting: Setting,
    on_update: OnUpdate | None = None,
) -> RefreshCadence:
    """Apply defaults and choose the refresh mode.

    :raises ServerError: MT_FRESHNESS_* if cron cannot express a FULL table's freshness,
        MT_OPTION_VALUE for a CONTINUOUS table with a schedule or FRESHNESS = DOWNSTREAM,
        MT_TRIGGER_UNSUPPORTED for a trigger with any of these.
    """
    logical = logical_mode(requested)
    cron = setting(CRON_OPTION)
    if on_update is not None:
        return _on_update(on_update, freshness, logical, setting)
    if isinstance(freshness, Downstream):
        if logical is LogicalRefreshMode.CONTINUOUS or cron is not None:
            reason = "such a table is refreshed when its consumers are, and has no pace of its own"
            key, value = "FRESHNESS", freshness.value
            raise error(Code.MT_OPTION_VALUE, key=key, value=value, reason=reason)
        shown = _default_freshness(LogicalRefreshMode.FULL, setting)
        scheduled = logical is LogicalRefreshMode.AUTOMATIC
        mode = RefreshMode.FULL if scheduled else physical_mode(logical, shown, setting)
        return RefreshCadence(freshness=shown, logical_mode=logical, mode=mode, downstream=True)
    if freshness is None:
        freshness = _default_freshness(logical, setting)
    mode = physical_mode(logical, freshness, setting)
    if cron is not None and logical is LogicalRefreshMode.AUTOMATIC:
        mode = RefreshMode.FULL
    if mode.scheduled:
        schedule_for(freshness, setting)
    elif cron is not None:
        reason = "a CONTINUOUS table has no schedule"
        raise error(Code.MT_OPTION_VALUE, key=CRON_OPTION, value=repr(cron), reason=reason)
    return RefreshCadence(freshness=freshness, logical_mode=logical, mode=mode)


def _on_update(
    on_update: OnUpdate,
    freshness: Freshness | Downstream | None,
    logical: LogicalRefreshMode,
    setting: Setting,
) -> RefreshCadence:
    """Return the cadence of an ON UPDATE table; its freshness need not map to cron."""
    if isinstance(freshness, Downstream):
        reason = "with FRESHNESS = DOWNSTREAM a table is refreshed when its consumers are"
        raise _no_trigger(reason, "Write a FRESHNESS, or leave the trigger out.")
    if logical is LogicalRefreshMode.CONTINUOUS:
        reason = "a CONTINUOUS table follows every change of its sources already"
        raise _no_trigger(reason, "Leave the trigger out, or use FULL or INCREMENTAL.")
    if setting(CRON_OPTION) is not None:
        reason = f"{CRON_OPTION} gives the table a schedule"
        raise _no_trigger(reason, "Use one of the two.")
    every = on_update.at_most_every
    if freshness is None:
        default = _default_freshness(LogicalRefreshMode.FULL, setting)
        longer = every is not None and every.seconds > default.seconds
        freshness = every if every is not None and longer else default
    if every is not None and every.seconds > freshness.seconds:
        reason = f"AT MOST EVERY {every} cannot keep FRESHNESS = {freshness}"
        raise _no_trigger(reason, "Write a shorter interval or a longer FRESHNESS.")
    scheduled = logical is LogicalRefreshMode.AUTOMATIC
    mode = RefreshMode.FULL if scheduled else physical_mode(logical, freshness, setting)
    return RefreshCadence(freshness=freshness, logical_mode=logical, mode=mode, on_update=on_update)


def _no_trigger(reason: str, hint: str) -> ServerError:
    return error(Code.MT_TRIGGER_UNSUPPORTED, reason=reason, hint=hint)


def check_versions(sources: Sequence[Source], setting: Setting, *, watched: bool) -> None:
    """Reject watching unversioned sources if the strict option is set.

    :raises ServerError: MT_QUERY_UNSUPPORTED.
    """
    strict = (setting(STRICT_KEY) or "").strip().upper() == "TRUE"
    plain = [str(source.name) for source in sources if source.kind is SourceKind.PLAIN]
    if strict and plain and watched:
        reason = f"it reads {', '.join(plain)} without versions, which {STRICT_KEY} forbids"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def check_neighbours(
    table: MaterializedTable, consumers: Consumers, find: Find, setting: Setting
) -> None:
    """Reject a freshness that does not fit the neighbours, if the option is set.

    :raises ServerError: MT_FRESHNESS_NEIGHBOUR.
    """
    if (setting(FITTING_KEY) or "").strip().upper() == "TRUE":
        for line in misfits(table, consumers, find):
            raise error(Code.MT_FRESHNESS_NEIGHBOUR, reason=line, key=FITTING_KEY)


def layered_setting(options: Mapping[str, str], setting: Setting) -> Setting:
    """Return a lookup in which table options override session settings."""
    return lambda key: options[key] if key in options else setting(key)


def logical_mode(requested: RequestedMode | None) -> LogicalRefreshMode:
    """Return the requested logical mode."""
    match requested:
        case None:
            return LogicalRefreshMode.AUTOMATIC
        case RequestedMode.FULL:
            return LogicalRefreshMode.FULL
        case RequestedMode.CONTINUOUS:
            return LogicalRefreshMode.CONTINUOUS
        case RequestedMode.INCREMENTAL:
            return LogicalRefreshMode.INCREMENTAL
        case RequestedMode.INCREMENTAL_STRICT:
            return LogicalRefreshMode.INCREMENTAL_STRICT


def physical_mode(
    logical: LogicalRefreshMode, freshness: Freshness, setting: Setting
) -> RefreshMode:
    """Return the refresh mode: AUTOMATIC is resolved by the threshold."""
    match logical:
        case LogicalRefreshMode.FULL:
            return RefreshMode.FULL
        case LogicalRefreshMode.CONTINUOUS:
            return RefreshMode.CONTINUOUS
        case LogicalRefreshMode.INCREMENTAL | LogicalRefreshMode.INCREMENTAL_STRICT:
            return RefreshMode.INCREMENTAL
        case LogicalRefreshMode.AUTOMATIC:
            limit = _duration(THRESHOLD_KEY, THRESHOLD, setting)
            below = freshness.seconds < limit.seconds
            return RefreshMode.CONTINUOUS if below else RefreshMode.FULL


def _default_freshness(logical: LogicalRefreshMode, setting: Setting) -> Freshness:
    if logical not in (LogicalRefreshMode.AUTOMATIC, LogicalRefreshMode.CONTINUOUS):
        return _duration(DEFAULT_FULL_KEY, DEFAULT_FULL, setting)
    return _duration(DEFAULT_CONTINUOUS_KEY, DEFAULT_CONTINUOUS, setting)


def _duration(key: str, default: Freshness, setting: Setting) -> Freshness:
    value = setting(key)
    return default if value is None else read_duration(key, value)


# ---- clauses without the query ---------------------------------------------------------------


def check_options(options: Mapping[str, str], place: Place) -> tuple[str, ...]:
    """Check a table's options and return warnings about those without effect.

    :param place: the clause that contains them.
    :raises ServerError: MT_OPTION_UNKNOWN, MT_OPTION_VALUE or MT_DATE_FORMATTER_PATTERN.
    """
    reasons = {key: check_table_option(key, value, place) for key, value in options.items()}
    for pattern in date_formatters(options).values():
        pattern_grain(pattern)
    return tuple(f"option {key} changes nothing: {why}" for key, why in reasons.items() if why)


def check_load_engine(
    options: Mapping[str, str], engines: Mapping[str, EngineTargetSection]
) -> None:
    """Reject an engine for first loads that is not configured.

    :raises ServerError: MT_OPTION_VALUE with the nearest name.
    """
    if (name := options.get(LOAD_ENGINE_KEY)) is not None:
        known_engine(name.strip(), engines, LOAD_ENGINE_KEY)


def check_partition_types(keys: Sequence[str], schema: Schema) -> None:
    """Reject partition columns of unsupported types.

    :raises ServerError: MT_PARTITION_UNSUPPORTED.
    """
    for name in keys:
        column = schema.find(name)
        if column is None or _is_partition_type(column.type):
            continue
        written = quote_identifier(column.name)
        match parse_type(column.type).kind:
            case TypeKind.BINARY:
                remedy = f"Partition by hex({written})"
            case TypeKind.STRING:
                remedy = f"Partition by {written} COLLATE UTF8_BINARY"
            case TypeKind.ARRAY | TypeKind.MAP | TypeKind.STRUCT | TypeKind.VARIANT:
                remedy = f"Partition by one of its values, or by to_json({written})"
            case _:
                remedy = f"Partition by CAST({written} AS STRING)"
        hint = f"{remedy} as a column of the query, or leave PARTITIONED BY out."
        raise error(
            Code.MT_PARTITION_UNSUPPORTED, name=column.name, type=column.type.upper(), hint=hint
        )


def _is_partition_type(data_type: str) -> bool:
    word = data_type.strip().lower()
    if parse_type(word).kind is TypeKind.STRING:
        return word in _PLAIN_STRINGS
    return parse_type(word).kind in _PARTITION_TYPES or word.startswith("character")


def check_enforced(table: TableName, definition: Definition) -> None:
    """Reject enforcing a primary key that is missing or cannot be checked.

    :raises ServerError: MT_OPTION_VALUE.
    """
    word = definition.options.get(ENFORCE_OPTION)
    if word is None:
        return
    key = definition.primary_key
    if key is None:
        reason = f"{table} has no primary key; RESET the option to be without one"
        raise error(Code.MT_OPTION_VALUE, key=ENFORCE_OPTION, value=repr(word), reason=reason)
    if any(each.name.lower() == key.name.lower() for each in definition.constraints):
        other = "an expectation or assertion"
        reason = f"{key.name} is also the name of {other}, and both are counted by name"
        raise error(Code.MT_OPTION_VALUE, key=ENFORCE_OPTION, value=repr(word), reason=reason)
    for name in key.columns:
        column = definition.schema.find(name)
        if column is not None and parse_type(column.type).kind is TypeKind.VARIANT:
            reason = f"values of {name}, of type VARIANT, cannot be compared"
            raise error(Code.MT_OPTION_VALUE, key=ENFORCE_OPTION, value=repr(word), reason=reason)


def date_formatters(options: Mapping[str, str]) -> dict[str, str]:
    """Return date patterns by the column names in the option keys."""
    return {
        key.removeprefix(_FORMATTER_PREFIX).removesuffix(_FORMATTER_SUFFIX): pattern
        for key, pattern in options.items()
        if key.startswith(_FORMATTER_PREFIX) and key.endswith(_FORMATTER_SUFFIX)
    }


def is_text(data_type: str) -> bool:
    """Say whether a type is STRING, VARCHAR or CHAR."""
    return parse_type(data_type).kind in _TEXTS
