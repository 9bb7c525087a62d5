"""What remains of a definition when parts of its schema are dropped; pure."""

from __future__ import annotations

from dataclasses import replace

from sqlglot.errors import TokenError

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.table import DerivedColumn, MaterializedTable
from tidegate_server.core.sql.dialect import tokenize
from tidegate_server.core.sql.statements import AlterDrop, DropPart
from tidegate_server.gateway.definition.derived import find, split


def drop_columns(table: MaterializedTable, names: tuple[str, ...]) -> MaterializedTable:
    """Return the definition without these columns; only those evaluated on read can go.

    :raises ServerError: MT_DROP_COLUMN_*.
    """
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise error(Code.MT_DROP_COLUMN_REPEATED, name=name)
        seen.add(name.lower())
    for name in names:
        _check_column(table, name)
    kept = [column for column in table.visible if column.name.lower() not in seen]
    schema, derived = split(kept)
    # A computed column may be over a dropped one: Spark looks at all of them again.
    reopened = tuple(
        replace(column, type="") if column.expression is not None else column for column in derived
    )
    return replace(table, schema=schema, derived=reopened)


def drop_part(table: MaterializedTable, statement: AlterDrop) -> MaterializedTable:
    """Return the definition without a key, constraint, watermark, distribution or region.

    :raises ServerError: MT_ALTER_SCHEMA_NOT_FOUND if it has none.
    """
    match statement.part:
        case DropPart.PRIMARY_KEY:
            _need(table, "primary key", table.primary_key)
            return replace(table, primary_key=None)
        case DropPart.WATERMARK:
            _need(table, "watermark", table.watermark)
            return replace(table, watermark=None)
        case DropPart.DISTRIBUTION:
            _need(table, "distribution", table.distribution)
            return replace(table, distribution=None)
        case DropPart.IMMUTABLE:
            _need(table, "IMMUTABLE WHERE", table.immutable)
            version = table.definition_version + 1
            return replace(table, immutable=None, definition_version=version, restored_from=None)
        case None:
            return _without_constraint(table, statement.constraint or "")


def _without_constraint(table: MaterializedTable, name: str) -> MaterializedTable:
    if table.primary_key is not None and table.primary_key.name.lower() == name.lower():
        return replace(table, primary_key=None)
    asserted = tuple(a for a in table.assertions if a.name.lower() != name.lower())
    if len(asserted) < len(table.assertions):
        return replace(table, assertions=asserted)
    kept = tuple(e for e in table.expectations if e.name.lower() != name.lower())
    if len(kept) == len(table.expectations):
        raise _missing(table, f"constraint {name}")
    # Rows that it kept out come back, so that the content is another.
    version = table.definition_version + 1
    return replace(table, expectations=kept, definition_version=version, restored_from=None)


def _check_column(table: MaterializedTable, name: str) -> None:
    found = find(table.visible, name)
    if found is None:
        available = ", ".join(column.name for column in table.visible)
        raise error(Code.MT_DROP_COLUMN_NOT_FOUND, table=table.name, name=name, available=available)
    wanted = name.lower()
    uses = (
        (Code.MT_DROP_COLUMN_PARTITION_KEY, _lower(table.partition_keys)),
        (
            Code.MT_DROP_COLUMN_PRIMARY_KEY,
            _lower(table.primary_key.columns) if table.primary_key else set(),
        ),
        (
            Code.MT_DROP_COLUMN_DISTRIBUTION,
            _lower(table.distribution.columns) if table.distribution else set(),
        ),
        (Code.MT_DROP_COLUMN_WATERMARK, _watermark_names(table)),
    )
    for code, names in uses:
        if wanted in names:
            raise error(code, table=table.name, name=found.name)
    if not isinstance(found, DerivedColumn):
        raise error(Code.MT_DROP_COLUMN_QUERY, table=table.name, name=found.name)


def _lower(names: tuple[str, ...]) -> set[str]:
    return {name.lower() for name in names}


def _watermark_names(table: MaterializedTable) -> set[str]:
    """Return the names a watermark mentions; its words that are no names do no harm."""
    if table.watermark is None:
        return set()
    try:
        words = {token.text.lower() for token in tokenize(table.watermark.expression)}
    except TokenError:
        words = set()
    return words | {table.watermark.column.lower()}


def _need(table: MaterializedTable, what: str, found: object) -> None:
    if found is None:
        raise _missing(table, what)


def _missing(table: MaterializedTable, what: str) -> ServerError:
    return error(Code.MT_ALTER_SCHEMA_NOT_FOUND, table=table.name, what=what, hint="")
