"""ALTER MATERIALIZED TABLE ... ADD, MODIFY and DROP of columns, key, watermark, distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import assert_never

from sqlglot.errors import TokenError

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import Distribution, Watermark
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import DerivedColumn, MaterializedTable
from tidegate_server.core.model.types import Column, plain_type
from tidegate_server.core.sql.dialect import tokenize
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterDrop,
    AlterModify,
    ColumnChange,
    ColumnItem,
    ColumnName,
    ComputedColumn,
    DropPart,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    SchemaChange,
)
from tidegate_server.gateway.command.alter import restart_with
from tidegate_server.gateway.command.redefine import alterable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.checks import check_enforced
from tidegate_server.gateway.definition.columns import (
    castable,
    casting,
    check_types,
    is_stored,
    selecting,
    shown_type,
    with_primary_key,
)
from tidegate_server.gateway.definition.derived import (
    Visible,
    check_distribution,
    check_watermark,
    derive,
    find,
    put,
    split,
    storage_table,
    with_types,
)
from tidegate_server.gateway.definition.notices import metadata_notices, warn, watermark_notices
from tidegate_server.gateway.definition.transaction import apply_definition


def add(statement: AlterAdd, text: str, context: Context) -> Result:
    """Add columns evaluated on read, a key, a watermark or a distribution.

    :raises ServerError: MT_ALTER_SCHEMA_*, MT_PERSISTED_COLUMN_NOT_IN_QUERY for a stored column,
        UNSUPPORTED_DATATYPE.
    """
    table = alterable(statement.name, context)
    check_types(_columns(statement.changes), text)
    changed = reduce(_Change(_column_added, _refuse_second), statement.changes, table)
    return _put(table, changed, context)


def modify(statement: AlterModify, text: str, context: Context) -> Result:
    """Change comments, positions, types to wider ones, expressions, key or watermark.

    :raises ServerError: MT_ALTER_SCHEMA_*, UNSUPPORTED_DATATYPE.
    """
    table = alterable(statement.name, context)
    check_types(_columns(statement.changes), text)
    changed = reduce(_Change(_column_modified, _need), statement.changes, table)
    warn(metadata_notices(_columns(statement.changes)), context)
    return _put(table, changed, context)


def drop(statement: AlterDrop, context: Context) -> Result:
    """Drop columns evaluated on read, the key, the watermark, the distribution, a constraint or
    IMMUTABLE WHERE.

    :raises ServerError: MT_DROP_COLUMN_*, MT_ALTER_SCHEMA_NOT_FOUND.
    """
    table = alterable(statement.name, context)
    if statement.columns:
        return _put(table, drop_columns(table, statement.columns), context)
    return _put(table, drop_part(table, statement), context)


def _columns(changes: Sequence[SchemaChange]) -> list[ColumnItem]:
    return [change.column for change in changes if isinstance(change, ColumnChange)]


def _put(before: MaterializedTable, changed: MaterializedTable, context: Context) -> Result:
    """Check the definition with Spark and apply it."""
    if changed == before:
        return nothing()
    check_enforced(changed)
    code = Code.MT_ALTER_SCHEMA_EXPRESSION
    derived = with_types(changed.schema, changed.derived, context, code=code)
    after = replace(
        changed,
        declared=True,
        derived=derived,
        expanded_query=_query(before, changed),
    )
    after = replace(after, storage_table=storage_table(after))
    if after.watermark != before.watermark:
        check_watermark(after.watermark, after.visible, context, code=code)
        warn(watermark_notices(after.watermark), context)
    if _content(before) != _content(after):
        return restart_with(before, after, context)
    apply_definition(before, after, context)
    return nothing()


def _content(table: MaterializedTable) -> tuple[object, ...]:
    """Return parts whose change restarts a CONTINUOUS pipeline."""
    types = {column.name: column.type for column in table.schema}
    parts = (table.primary_key, table.watermark, table.distribution, table.expectations)
    return types, *parts, table.immutable


def _query(before: MaterializedTable, changed: MaterializedTable) -> str:
    """Return the query with the stored columns' order and types."""
    query = before.expanded_query
    if before.schema.names() == changed.schema.names():
        return casting(before.schema, changed.schema, query)
    return selecting(before.schema, changed.schema, query)


@dataclass(frozen=True, slots=True)
class _Change:
    """How a part is added or modified."""

    column: Callable[[MaterializedTable, ColumnChange], MaterializedTable]
    check: Callable[[MaterializedTable, str, object], None]
    """Rejects a part that exists, or one that is missing."""

    def __call__(self, table: MaterializedTable, change: SchemaChange) -> MaterializedTable:
        match change:
            case ColumnChange():
                return self.column(table, change)
            case PrimaryKeyClause():
                self.check(table, "primary key", table.primary_key)
                schema, key = with_primary_key(change, table.schema, table.schema)
                return replace(table, schema=schema, primary_key=key)
            case Watermark():
                self.check(table, "watermark", table.watermark)
                return replace(table, watermark=change)
            case Distribution():
                self.check(table, "distribution", table.distribution)
                check_distribution(change, table.schema)
                return replace(table, distribution=change)
            case _:
                assert_never(change)


# ---- ADD -------------------------------------------------------------------------------------


def _column_added(table: MaterializedTable, change: ColumnChange) -> MaterializedTable:
    item = change.column
    _refuse_second(table, f"column {item.name}", find(table.visible, item.name))
    if is_stored(item):
        raise error(
            Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY,
            statement="ALTER MATERIALIZED TABLE ... ADD",
            kind="metadata persisted" if isinstance(item, MetadataColumn) else "physical",
            name=item.name,
            available=", ".join(table.schema.names()),
        )
    return _with_visible(table, _place(table, table.visible, derive(item), change))


def _place(
    table: MaterializedTable, visible: Sequence[Visible], column: Visible, change: ColumnChange
) -> list[Visible]:
    if change.after is not None and find(visible, change.after) is None:
        available = ", ".join(c.name for c in table.visible)
        raise error(
            Code.MT_ALTER_SCHEMA_POSITION,
            table=table.name,
            name=change.after,
            available=available,
        )
    return put(visible, column, first=change.first, after=change.after)


def _with_visible(table: MaterializedTable, visible: Sequence[Visible]) -> MaterializedTable:
    schema, derived = split(visible)
    return replace(table, schema=schema, derived=derived)


def _refuse_second(table: MaterializedTable, what: str, found: object) -> None:
    if found is not None:
        raise error(
            Code.MT_ALTER_SCHEMA_EXISTS,
            table=table.name,
            what=f"a {what}",
            hint="Use MODIFY to change it.",
        )


# ---- MODIFY ----------------------------------------------------------------------------------


def _column_modified(table: MaterializedTable, change: ColumnChange) -> MaterializedTable:
    item = change.column
    found = find(table.visible, item.name)
    _need(table, f"column {item.name}", found)
    if found is None or _kind(found) != _kind_of(item):
        shown = _kind(found) if found is not None else "missing"
        raise error(
            Code.MT_ALTER_SCHEMA_KIND,
            table=table.name,
            name=item.name,
            found=shown,
            wanted=_kind_of(item),
        )
    if isinstance(found, Column):
        changed: Visible = _stored_column(table, found, item)
    else:
        changed = replace(derive(item), name=found.name, position=found.position)
    if change.first or change.after is not None:
        others = [c for c in table.visible if c.name != found.name]
        return _with_visible(table, _place(table, others, changed, change))
    return _with_visible(table, [changed if c.name == found.name else c for c in table.visible])


def _stored_column(table: MaterializedTable, found: Column, item: ColumnItem) -> Column:
    """Return a stored column with a MODIFY's comment and, if wider, its type."""
    if not isinstance(item, (PhysicalColumn, MetadataColumn)):
        return found
    same = plain_type(found.type) == plain_type(item.type)
    tightened = found.nullable and not item.nullable
    if tightened or not (same or castable(found.type, item.type)):
        raise error(
            Code.MT_ALTER_SCHEMA_CAST,
            table=table.name,
            name=found.name,
            found=shown_type(found.type, found.nullable),
            wanted=shown_type(item.type, item.nullable),
        )
    comment = item.comment if item.comment is not None else found.comment
    return replace(found, type=found.type if same else item.type.lower(), comment=comment)


def _kind(column: Visible) -> str:
    if isinstance(column, DerivedColumn):
        return "computed" if column.metadata_key is None else "METADATA VIRTUAL"
    return "physical"


def _kind_of(item: ColumnItem) -> str:
    match item:
        case ComputedColumn():
            return "computed"
        case MetadataColumn(virtual=True):
            return "METADATA VIRTUAL"
        case MetadataColumn() | PhysicalColumn() | ColumnName():
            return "physical"
        case _:
            assert_never(item)


def _need(table: MaterializedTable, what: str, found: object) -> None:
    if found is None:
        raise error(
            Code.MT_ALTER_SCHEMA_NOT_FOUND,
            table=table.name,
            what=what,
            hint="Use ADD for a new one.",
        )


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
    # A computed column may use a dropped one: Spark checks all of them again.
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
            _need_kept(table, "primary key", table.primary_key)
            return replace(table, primary_key=None)
        case DropPart.WATERMARK:
            _need_kept(table, "watermark", table.watermark)
            return replace(table, watermark=None)
        case DropPart.DISTRIBUTION:
            _need_kept(table, "distribution", table.distribution)
            return replace(table, distribution=None)
        case DropPart.IMMUTABLE:
            _need_kept(table, "IMMUTABLE WHERE", table.immutable)
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
    # Rows that it filtered out return, so the content changes.
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
    """Return the words of a watermark; those that are not names do no harm."""
    if table.watermark is None:
        return set()
    try:
        words = {token.text.lower() for token in tokenize(table.watermark.expression)}
    except TokenError:
        words = set()
    return words | {table.watermark.column.lower()}


def _need_kept(table: MaterializedTable, what: str, found: object) -> None:
    if found is None:
        raise _missing(table, what)


def _missing(table: MaterializedTable, what: str) -> ServerError:
    return error(Code.MT_ALTER_SCHEMA_NOT_FOUND, table=table.name, what=what, hint="")
