"""The text of definitions: CREATE MATERIALIZED TABLE and its clauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartMode,
    Watermark,
)
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.sql.statements import (
    ColumnItem,
    ColumnName,
    ComputedColumn,
    CreateMaterializedTable,
    Downstream,
    MetadataColumn,
    Name,
    PhysicalColumn,
    PrimaryKeyClause,
)


def render_create(statement: CreateMaterializedTable, *, start_note: str | None = None) -> str:
    """Return a CREATE, one clause a line; ``start_note`` is a comment after START_MODE."""
    words = "OR ALTER MATERIALIZED" if statement.or_alter else "MATERIALIZED"
    guard = "IF NOT EXISTS " if statement.if_not_exists else ""
    lines = [f"CREATE {words} TABLE {guard}{_name(statement.name)}{_column_list(statement)}"]
    if statement.comment is not None:
        lines.append(f"COMMENT {quote_literal(statement.comment)}")
    if statement.distribution is not None:
        lines.append(f"DISTRIBUTED {render_distribution(statement.distribution)}")
    if statement.partition_keys:
        lines.append(f"PARTITIONED BY ({_names(statement.partition_keys)})")
    if statement.options:
        pairs = ",\n".join(f"  {pair}" for pair in _pairs(statement.options))
        lines.append(f"WITH (\n{pairs}\n)")
    if statement.start_mode is not None:
        note = f" /* {start_note} */" if start_note else ""
        lines.append(f"START_MODE = {render_start_mode(statement.start_mode)}{note}")
    if statement.freshness is not None:
        lines.append(f"FRESHNESS = {render_freshness(statement.freshness)}")
    if statement.refresh_mode is not None:
        lines.append(f"REFRESH_MODE = {statement.refresh_mode.value}")
    if statement.on_update is not None:
        lines.append(f"REFRESH_TRIGGER = {render_trigger(statement.on_update)}")
    if statement.execute_as is not None:
        lines.append(render_execute_as(statement.execute_as))
    if statement.immutable is not None:
        lines.append(render_immutable(statement.immutable))
    if statement.backfill_from is not None:
        lines.append(f"BACKFILL FROM {_name(statement.backfill_from)}")
    return "\n".join([*lines, f"AS {statement.query}"])


def _column_list(statement: CreateMaterializedTable) -> str:
    items = [render_column(column) for column in statement.columns]
    if statement.watermark is not None:
        items.append(render_watermark(statement.watermark))
    if statement.primary_key is not None:
        items.append(render_primary_key(statement.primary_key))
    items += [_constraint(each, "EXPECT") for each in statement.expectations]
    items += [_constraint(each, "ASSERT") for each in statement.assertions]
    return " (\n" + ",\n".join(f"  {item}" for item in items) + "\n)" if items else ""


def render_column(column: ColumnItem) -> str:
    name = quote_identifier(column.name)
    match column:
        case ColumnName():
            return name
        case PhysicalColumn():
            return f"{name} {column.type}{_null(column.nullable)}{_comment(column.comment)}"
        case MetadataColumn():
            source = f" FROM {quote_literal(column.key)}" if column.key is not None else ""
            virtual = " VIRTUAL" if column.virtual else ""
            head = f"{name} {column.type}{_null(column.nullable)} METADATA"
            return f"{head}{source}{virtual}{_comment(column.comment)}"
        case ComputedColumn():
            return f"{name} AS {column.expression}{_comment(column.comment)}"
        case _:
            assert_never(column)


def _null(nullable: bool) -> str:
    return "" if nullable else " NOT NULL"


def _comment(comment: str | None) -> str:
    return f" COMMENT {quote_literal(comment)}" if comment is not None else ""


def render_primary_key(key: PrimaryKeyClause) -> str:
    constraint = f"CONSTRAINT {quote_identifier(key.name)} " if key.name is not None else ""
    return f"{constraint}PRIMARY KEY ({_names(key.columns)}) NOT ENFORCED"


def _constraint(stated: Expectation | Assertion, word: str) -> str:
    head = f"CONSTRAINT {quote_identifier(stated.name)} {word} ({stated.condition})"
    return f"{head} ON VIOLATION {stated.violation.value}"


def render_watermark(watermark: Watermark) -> str:
    return f"WATERMARK FOR {quote_identifier(watermark.column)} AS {watermark.expression}"


def render_distribution(distribution: Distribution) -> str:
    """Return what follows DISTRIBUTED or DISTRIBUTION."""
    into = f"INTO {distribution.buckets} BUCKETS" if distribution.buckets is not None else ""
    if not distribution.columns:
        return into
    by = f"BY {distribution.kind or ''}({_names(distribution.columns)})"
    return f"{by} {into}".rstrip()


def render_start_mode(mode: StartMode) -> str:
    """Return what follows START_MODE."""
    if mode.interval is not None:
        return f"{mode.kind.value}({mode.interval})"
    if mode.timestamp is not None:
        zone = " WITH LOCAL TIME ZONE" if mode.local_zone else ""
        return f"{mode.kind.value}(TIMESTAMP{zone} {quote_literal(mode.timestamp)})"
    return mode.kind.value


def render_freshness(freshness: object) -> str:
    return "DOWNSTREAM" if isinstance(freshness, Downstream) else str(freshness)


def render_execute_as(user: str | None) -> str:
    """Return the clause EXECUTE AS; None is OWNER."""
    return f"EXECUTE AS {'OWNER' if user is None else f'USER {quote_literal(user)}'}"


def render_trigger(on_update: OnUpdate | None) -> str:
    """Return what follows REFRESH_TRIGGER; None is ON SCHEDULE."""
    if on_update is None:
        return "ON SCHEDULE"
    every = on_update.at_most_every
    return "ON UPDATE" if every is None else f"ON UPDATE AT MOST EVERY {every}"


def render_immutable(predicate: str) -> str:
    return f"IMMUTABLE WHERE ({predicate})"


def _name(name: Name) -> str:
    return ".".join(quote_identifier(part) for part in name)


def _names(names: Iterable[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _pairs(options: Mapping[str, str]) -> list[str]:
    """Return ``'key' = 'value'`` for every option, sorted by key."""
    return [f"{quote_literal(key)} = {quote_literal(options[key])}" for key in sorted(options)]
