"""The checks of CREATE and ALTER: small, pure, one error each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidegate_server.command.options import (
    DEFAULT_CONTINUOUS_KEY,
    DEFAULT_FULL_KEY,
    THRESHOLD_KEY,
    check_option,
    read_duration,
)
from tidegate_server.errors import Code, error
from tidegate_server.model.clauses import StartKind, StartMode
from tidegate_server.model.freshness import (
    DEFAULT_CONTINUOUS,
    DEFAULT_FULL,
    THRESHOLD,
    Freshness,
)
from tidegate_server.model.names import quote_identifier
from tidegate_server.model.table import LogicalRefreshMode, PrimaryKey, RefreshMode
from tidegate_server.model.types import Column, Schema, TypeKind, parse_type
from tidegate_server.scheduler.cron import freshness_to_cron
from tidegate_server.scheduler.partitions import pattern_grain
from tidegate_server.sql.statements import (
    ColumnName,
    ComputedColumn,
    CreateMaterializedTable,
    Downstream,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    RequestedMode,
)

Setting = Callable[[str], str | None]

_FORMATTER_PREFIX, _FORMATTER_SUFFIX = "partition.fields.", ".date-formatter"
_INTEGERS = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
_WIDENING = (*_INTEGERS, TypeKind.FLOAT, TypeKind.DOUBLE)
_TEXTS = (TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.STRING)
_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP_NTZ, TypeKind.TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fresh a table is to be and how that is reached."""

    freshness: Freshness
    logical_mode: LogicalRefreshMode
    mode: RefreshMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table's columns and the query that produces exactly them."""

    schema: Schema
    expanded_query: str
    partition_keys: tuple[str, ...]
    primary_key: PrimaryKey | None


# ---- freshness and mode ----------------------------------------------------------------------


def pace(
    freshness: Freshness | Downstream | None, requested: RequestedMode | None, setting: Setting
) -> Pace:
    """Fill in defaults and choose the refresh mode.

    :raises ServerError: MT_FRESHNESS_* if cron cannot express a FULL table's freshness,
        NOT_SUPPORTED for DOWNSTREAM and INCREMENTAL.
    """
    if isinstance(freshness, Downstream):
        raise not_yet("FRESHNESS = DOWNSTREAM", "Write FRESHNESS = INTERVAL '...'.")
    logical = logical_mode(requested)
    if freshness is None:
        freshness = _default_freshness(logical, setting)
    mode = physical_mode(logical, freshness, setting)
    if mode.scheduled:
        freshness_to_cron(freshness)
    return Pace(freshness=freshness, logical_mode=logical, mode=mode)


def logical_mode(requested: RequestedMode | None) -> LogicalRefreshMode:
    """Return the mode that was asked for."""
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
    """Return what is done: an explicit mode stays, AUTOMATIC follows the threshold."""
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


def check_clauses(statement: CreateMaterializedTable) -> None:
    """Check what needs neither the query's schema nor the catalog.

    :raises ServerError: MT_START_MODE_CREATE, MT_OPTION_VALUE, MT_DATE_FORMATTER_PATTERN, or
        NOT_SUPPORTED for clauses that cannot be carried out.
    """
    if statement.start_mode is not None:
        check_start_mode(statement.start_mode, or_alter=statement.or_alter)
    if statement.distribution is not None:
        raise not_yet("DISTRIBUTED BY", "Leave the clause out; Delta lays out its own files.")
    if statement.watermark is not None:
        raise not_yet("WATERMARK", "Leave the clause out; refreshes read whole source versions.")
    for column in statement.columns:
        if isinstance(column, ComputedColumn):
            raise not_yet(f"The computed column {column.name}", "Compute it in the query.")
        if isinstance(column, MetadataColumn) and column.virtual:
            raise not_yet(f"The METADATA VIRTUAL column {column.name}", "Select it in the query.")
    check_options(statement.options)


def check_start_mode(mode: StartMode, *, or_alter: bool) -> None:
    """Refuse start modes that cannot be carried out."""
    if not or_alter and mode.kind.value.startswith("RESUME_OR_"):
        raise error(Code.MT_START_MODE_CREATE, kind=mode.kind.value)
    if mode.kind is not StartKind.FROM_BEGINNING:
        raise not_yet(f"START_MODE = {mode.kind.value}", "Use FROM_BEGINNING or leave it out.")


def check_options(options: Mapping[str, str]) -> None:
    """Check the values of Tidegate's options and the patterns of date-formatters."""
    for key, value in options.items():
        check_option(key, value)
    for pattern in date_formatters(options).values():
        pattern_grain(pattern)


def date_formatters(options: Mapping[str, str]) -> dict[str, str]:
    """Return the date pattern by the column name in its option's key."""
    return {
        key.removeprefix(_FORMATTER_PREFIX).removesuffix(_FORMATTER_SUFFIX): pattern
        for key, pattern in options.items()
        if key.startswith(_FORMATTER_PREFIX) and key.endswith(_FORMATTER_SUFFIX)
    }


def not_yet(what: str, hint: str) -> Exception:
    """Return the error for grammar that is known but cannot be carried out."""
    return error(Code.NOT_SUPPORTED, what=what, hint=hint)


# ---- clauses against the query's schema ------------------------------------------------------


def shape(statement: CreateMaterializedTable, produced: Schema, expanded_query: str) -> Shape:
    """Fit the declared columns, keys and partitions to what the query produces.

    :raises ServerError: the codes of checks V1 to V9.
    """
    schema, query = _distinct(produced, expanded_query)
    answered = schema
    if statement.columns and isinstance(statement.columns[0], ColumnName):
        schema, query = _reordered(statement, schema, query)
    elif statement.columns:
        schema, query = _declared(statement, schema, query)
    schema, key = _keyed(statement.primary_key, schema, answered)
    partitions = _partition_keys(statement.partition_keys, schema)
    _check_formatters(statement.options, partitions, schema)
    return Shape(schema=schema, expanded_query=query, partition_keys=partitions, primary_key=key)


def _distinct(produced: Schema, query: str) -> tuple[Schema, str]:
    """Give repeated output names a number, as Flink does: a, a0, a1."""
    taken = {column.name.lower() for column in produced}
    seen: set[str] = set()
    columns: list[Column] = []
    for column in produced:
        name, number = column.name, 0
        if name.lower() in seen:
            while (name := f"{column.name}{number}").lower() in taken:
                number += 1
        taken.add(name.lower())
        seen.add(name.lower())
        columns.append(replace(column, name=name))
    schema = Schema(tuple(columns))
    if schema == produced:
        return produced, query
    names = _list(schema.names())
    return schema, f"SELECT {names} FROM (\n{query}\n) AS query({names})"


def _reordered(
    statement: CreateMaterializedTable, produced: Schema, query: str
) -> tuple[Schema, str]:
    names = [column.name for column in statement.columns]
    if len(names) != len(produced):
        raise error(
            Code.MT_COLUMN_COUNT,
            declared=len(names),
            produced=len(produced),
            available=available(produced),
        )
    _refuse_repeated(names)
    columns = []
    for name in names:
        column = produced.find(name)
        if column is None:
            raise error(Code.MT_COLUMN_NOT_FOUND, name=name, available=available(produced))
        columns.append(column)
    schema = Schema(tuple(columns))
    if schema == produced:
        return produced, query
    return schema, f"SELECT {_list(schema.names())} FROM (\n{query}\n)"


def _declared(
    statement: CreateMaterializedTable, produced: Schema, query: str
) -> tuple[Schema, str]:
    declared = {c.name.lower(): c for c in statement.columns}
    _refuse_repeated([column.name for column in statement.columns])
    _check_produced(statement, produced)
    columns = []
    for position, column in enumerate(produced, start=1):
        wanted = declared.get(column.name.lower())
        if isinstance(wanted, (PhysicalColumn, MetadataColumn)):
            column = _cast(column, wanted, position)
        columns.append(column)
    schema = Schema(tuple(columns))
    if [_plain(c.type) for c in schema] == [_plain(c.type) for c in produced]:
        return schema, query
    casts = ", ".join(
        f"CAST({quote_identifier(c.name)} AS {c.type}) AS {quote_identifier(c.name)}"
        for c in schema
    )
    return schema, f"SELECT {casts} FROM (\n{query}\n)"


def _check_produced(statement: CreateMaterializedTable, produced: Schema) -> None:
    words = "CREATE OR ALTER" if statement.or_alter else "CREATE"
    for column in statement.columns:
        if isinstance(column, (PhysicalColumn, MetadataColumn)) and not produced.find(column.name):
            metadata = isinstance(column, MetadataColumn)
            raise error(
                Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY,
                statement=f"{words} MATERIALIZED TABLE",
                kind="metadata persisted" if metadata else "physical",
                name=column.name,
                available=available(produced),
            )


def _cast(column: Column, wanted: PhysicalColumn | MetadataColumn, position: int) -> Column:
    tightened = column.nullable and not wanted.nullable
    if tightened or not castable(column.type, wanted.type):
        raise error(
            Code.MT_INCOMPATIBLE_TYPE,
            name=wanted.name,
            position=position,
            declared=_shown(wanted.type, wanted.nullable),
            produced=_shown(column.type, column.nullable),
        )
    same = _plain(column.type) == _plain(wanted.type)
    return Column(
        name=column.name,
        type=column.type if same else wanted.type.lower(),
        nullable=wanted.nullable,
        comment=wanted.comment if wanted.comment is not None else column.comment,
    )


def castable(source: str, target: str) -> bool:
    """Say whether a type turns into another by itself: widening only, as in Flink."""
    start, end = parse_type(source), parse_type(target)
    if _plain(source) == _plain(target) or start.kind is TypeKind.VOID:
        return True
    if TypeKind.OTHER in (start.kind, end.kind):
        return False
    if end.kind is TypeKind.DECIMAL:
        return start.kind in _INTEGERS or start.kind is TypeKind.DECIMAL
    if start.kind is TypeKind.DECIMAL:
        return end.kind in (TypeKind.FLOAT, TypeKind.DOUBLE)
    return any(
        start.kind in order
        and end.kind in order
        and order.index(start.kind) < order.index(end.kind)
        for order in (_WIDENING, _TEXTS, _MOMENTS)
    )


def _keyed(
    clause: PrimaryKeyClause | None, schema: Schema, produced: Schema
) -> tuple[Schema, PrimaryKey | None]:
    """Check a key; its columns become NOT NULL, which the query must already promise."""
    if clause is None:
        return schema, None
    name = clause.name or f"PK_{'_'.join(clause.columns)}"
    _refuse_repeated(clause.columns)
    keys = []
    for wanted in clause.columns:
        column = produced.find(wanted)
        if column is None:
            raise error(Code.MT_PK_NOT_FOUND, name=wanted, available=available(produced))
        if column.nullable:
            raise error(Code.MT_PK_NULLABLE, key=name, name=column.name)
        keys.append(column.name)
    columns = tuple(replace(c, nullable=c.nullable and c.name not in keys) for c in schema)
    return Schema(columns), PrimaryKey(name=name, columns=tuple(keys))


def _partition_keys(wanted: tuple[str, ...], schema: Schema) -> tuple[str, ...]:
    _refuse_repeated(wanted)
    found = []
    for name in wanted:
        column = schema.find(name)
        if column is None:
            raise error(Code.MT_PARTITION_COLUMN_NOT_FOUND, name=name, available=available(schema))
        found.append(column.name)
    return tuple(found)


def _check_formatters(
    options: Mapping[str, str], partition_keys: tuple[str, ...], schema: Schema
) -> None:
    keys = {key.lower() for key in partition_keys}
    for name in date_formatters(options):
        column = schema.find(name)
        if name.lower() not in keys or column is None:
            shown = ", ".join(partition_keys) or "none"
            raise error(Code.MT_DATE_FORMATTER_NOT_PARTITION, name=name, available=shown)
        if not is_text(column.type):
            raise error(Code.MT_DATE_FORMATTER_TYPE, name=name, type=column.type.upper())


def is_text(data_type: str) -> bool:
    """Say whether a type is STRING, VARCHAR or CHAR."""
    return parse_type(data_type).kind in _TEXTS


def available(schema: Schema) -> str:
    """Return column names for a message."""
    return ", ".join(schema.names()) or "nothing"


def _refuse_repeated(names: list[str] | tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise error(Code.MT_DUPLICATE_COLUMN, name=name)
        seen.add(name.lower())


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _plain(data_type: str) -> str:
    kind = parse_type(data_type)
    text = kind.text if kind.kind in (TypeKind.DECIMAL, TypeKind.CHAR, TypeKind.VARCHAR) else ""
    if kind.kind in (TypeKind.ARRAY, TypeKind.MAP, TypeKind.STRUCT, TypeKind.OTHER):
        text = kind.text
    if "interval" in data_type.lower():
        text = kind.text
    return kind.kind.value + "".join(text.lower().split())


def _shown(data_type: str, nullable: bool) -> str:
    return data_type.upper() if nullable else f"{data_type.upper()} NOT NULL"
