"""ALTER MATERIALIZED TABLE ... ADD, MODIFY and DROP of columns, key, watermark, distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import assert_never

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.clauses import Distribution, Watermark
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import DerivedColumn, MaterializedTable
from tidegate_server.core.model.types import Column, plain_type
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterDrop,
    AlterModify,
    ColumnChange,
    ColumnItem,
    ColumnName,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    SchemaChange,
)
from tidegate_server.gateway.command.alter import restart_with
from tidegate_server.gateway.command.dropped import drop_columns, drop_part
from tidegate_server.gateway.command.redefine import alterable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.checks import check_enforced
from tidegate_server.gateway.definition.columns import (
    castable,
    casting,
    check_types,
    is_stored,
    keyed,
    selecting,
    shown_type,
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
    typed,
)
from tidegate_server.gateway.definition.notices import metadata_notices, warn, watermark_notices
from tidegate_server.gateway.definition.transaction import put_in_place


def add(statement: AlterAdd, text: str, context: Context) -> Result:
    """Add columns that are evaluated on read, a key, a watermark or a distribution.

    :raises ServerError: MT_ALTER_SCHEMA_*, MT_PERSISTED_COLUMN_NOT_IN_QUERY for a stored column,
        UNSUPPORTED_DATATYPE.
    """
    table = alterable(statement.name, context)
    check_types(_columns(statement.changes), text)
    changed = reduce(_Change(_column_added, _refuse_second), statement.changes, table)
    return _put(table, changed, context)


def modify(statement: AlterModify, text: str, context: Context) -> Result:
    """Change what is there: comments, places, wider types, expressions, key, watermark.

    :raises ServerError: MT_ALTER_SCHEMA_*, UNSUPPORTED_DATATYPE.
    """
    table = alterable(statement.name, context)
    check_types(_columns(statement.changes), text)
    changed = reduce(_Change(_column_modified, _need), statement.changes, table)
    warn(metadata_notices(_columns(statement.changes)), context)
    return _put(table, changed, context)


def drop(statement: AlterDrop, context: Context) -> Result:
    """Drop columns that are evaluated on read, the key, the watermark, the distribution, a
    constraint or IMMUTABLE WHERE.

    :raises ServerError: MT_DROP_COLUMN_*, MT_ALTER_SCHEMA_NOT_FOUND.
    """
    table = alterable(statement.name, context)
    if statement.columns:
        return _put(table, drop_columns(table, statement.columns), context)
    return _put(table, drop_part(table, statement), context)


def _columns(changes: Sequence[SchemaChange]) -> list[ColumnItem]:
    return [change.column for change in changes if isinstance(change, ColumnChange)]


def _put(before: MaterializedTable, changed: MaterializedTable, context: Context) -> Result:
    """Check the whole with Spark and put it in place."""
    if changed == before:
        return nothing()
    check_enforced(changed)
    code = Code.MT_ALTER_SCHEMA_EXPRESSION
    derived = typed(changed.schema, changed.derived, context, code=code)
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
    put_in_place(before, after, context)
    return nothing()


def _content(table: MaterializedTable) -> tuple[object, ...]:
    """Return what a CONTINUOUS pipeline has to start afresh for."""
    types = {column.name: column.type for column in table.schema}
    parts = (table.primary_key, table.watermark, table.distribution, table.expectations)
    return types, *parts, table.immutable


def _query(before: MaterializedTable, changed: MaterializedTable) -> str:
    """Return the query that gives the stored columns in their order and types."""
    query = before.expanded_query
    if before.schema.names() == changed.schema.names():
        return casting(before.schema, changed.schema, query)
    return selecting(before.schema, changed.schema, query)


@dataclass(frozen=True, slots=True)
class _Change:
    """How one part is added, or how it is modified."""

    column: Callable[[MaterializedTable, ColumnChange], MaterializedTable]
    check: Callable[[MaterializedTable, str, object], None]
    """Refuses a part for being there, or for not being there."""

    def __call__(self, table: MaterializedTable, change: SchemaChange) -> MaterializedTable:
        match change:
            case ColumnChange():
                return self.column(table, change)
            case PrimaryKeyClause():
                self.check(table, "primary key", table.primary_key)
                schema, key = keyed(change, table.schema, table.schema)
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
    return _with_visible(table, _placed(table, table.visible, derive(item), change))


def _placed(
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
        changed: Visible = _stored(table, found, item)
    else:
        changed = replace(derive(item), name=found.name, position=found.position)
    if change.first or change.after is not None:
        others = [c for c in table.visible if c.name != found.name]
        return _with_visible(table, _placed(table, others, changed, change))
    return _with_visible(table, [changed if c.name == found.name else c for c in table.visible])


def _stored(table: MaterializedTable, found: Column, item: ColumnItem) -> Column:
    """Return a stored column with the type, if that is wider, and the comment of a MODIFY."""
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
