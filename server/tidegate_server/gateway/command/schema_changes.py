"""ALTER MATERIALIZED TABLE ... ADD, MODIFY and DROP of columns, key, watermark, distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import assert_never

from sqlglot.errors import TokenError

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import Distribution, Watermark
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import Definition, DerivedColumn, MaterializedTable
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
    change = _Change(table.name, _column_added, _refuse_second)
    changed = reduce(change, statement.changes, table.definition)
    return _put(table, changed, context)


def modify(statement: AlterModify, text: str, context: Context) -> Result:
    """Change comments, positions, types to wider ones, expressions, key or watermark.

    :raises ServerError: MT_ALTER_SCHEMA_*, UNSUPPORTED_DATATYPE.
    """
    table = alterable(statement.name, context)
    check_types(_columns(statement.changes), text)
    change = _Change(table.name, _column_modified, _need)
    changed = reduce(change, statement.changes, table.definition)
    warn(metadata_notices(_columns(statement.changes)), context)
    return _put(table, changed, context)


def drop(statement: AlterDrop, context: Context) -> Result:
    """Drop columns evaluated on read, the key, the watermark, the distribution, a constraint or
    IMMUTABLE WHERE.

    :raises ServerError: MT_DROP_COLUMN_*, MT_ALTER_SCHEMA_NOT_FOUND.
    """
    table = alterable(statement.name, context)
    if statement.columns:
        changed = drop_columns(table.name, table.definition, statement.columns)
    else:
        changed = drop_part(table.name, table.definition, statement)
    return _put(table, changed, context)


def _columns(changes: Sequence[SchemaChange]) -> list[ColumnItem]:
    return [change.column for change in changes if isinstance(change, ColumnChange)]


def _put(before: MaterializedTable, changed: Definition, context: Context) -> Result:
    """Check a definition with Spark and apply it."""
    old = before.definition
    if changed == old:
        return nothing()
    check_enforced(before.name, changed)
    code = Code.MT_ALTER_SCHEMA_EXPRESSION
    definition = replace(
        changed,
        declared=True,
        derived=with_types(changed.schema, changed.derived, context, code=code),
        expanded_query=_query(old, changed),
    )
    if definition.watermark != old.watermark:
        check_watermark(definition.watermark, definition.visible, context, code=code)
        warn(watermark_notices(definition.watermark), context)
    storage = storage_table(before.name, definition)
    after = replace(before, definition=definition, storage_table=storage)
    if _content(old) != _content(definition):
        return restart_with(before, after, context)
    apply_definition(before, after, context)
    return nothing()


def _content(definition: Definition) -> tuple[object, ...]:
    """Return parts whose change restarts a CONTINUOUS pipeline."""
    types = {column.name: column.type for column in definition.schema}
    parts = (
        definition.primary_key,
        definition.watermark,
        definition.distribution,
        definition.expectations,
    )
    return types, *parts, definition.immutable


def _query(before: Definition, changed: Definition) -> str:
    """Return the query with the stored columns' order and types."""
    query = before.expanded_query
    if before.schema.names() == changed.schema.names():
        return casting(before.schema, changed.schema, query)
    return selecting(before.schema, changed.schema, query)


@dataclass(frozen=True, slots=True)
class _Change:
    """How a part is added or modified."""

    table: TableName
    column: Callable[[TableName, Definition, ColumnChange], Definition]
    check: Callable[[TableName, str, object], None]
    """Rejects a part that exists, or one that is missing."""

    def __call__(self, definition: Definition, change: SchemaChange) -> Definition:
        match change:
            case ColumnChange():
                return self.column(self.table, definition, change)
            case PrimaryKeyClause():
                self.check(self.table, "primary key", definition.primary_key)
                schema, key = with_primary_key(change, definition.schema, definition.schema)
                return replace(definition, schema=schema, primary_key=key)
            case Watermark():
                self.check(self.table, "watermark", definition.watermark)
                return replace(definition, watermark=change)
            case Distribution():
                self.check(self.table, "distribution", definition.distribution)
                check_distribution(change, definition.schema)
                return replace(definition, distribution=change)
            case _:
                assert_never(change)


# ---- ADD -------------------------------------------------------------------------------------


def _column_added(table: TableName, definition: Definition, change: ColumnChange) -> Definition:
    item = change.column
    _refuse_second(table, f"column {item.name}", find(definition.visible, item.name))
    if is_stored(item):
        raise error(
            Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY,
            statement="ALTER MATERIALIZED TABLE ... ADD",
            kind="metadata persisted" if isinstance(item, MetadataColumn) else "physical",
            name=item.name,
            available=", ".join(definition.schema.names()),
        )
    return _with_visible(
        definition, _place(table, definition, definition.visible, derive(item), change)
    )


def _place(
    table: TableName,
    definition: Definition,
    visible: Sequence[Visible],
    column: Visible,
    change: ColumnChange,
) -> list[Visible]:
    if change.after is not None and find(visible, change.after) is None:
        available = ", ".join(c.name for c in definition.visible)
        raise error(
            Code.MT_ALTER_SCHEMA_POSITION,
            table=table,
            name=change.after,
            available=available,
        )
    return put(visible, column, first=change.first, after=change.after)


def _with_visible(definition: Definition, visible: Sequence[Visible]) -> Definition:
    schema, derived = split(visible)
    return replace(definition, schema=schema, derived=derived)


def _refuse_second(table: TableName, what: str, found: object) -> None:
    if found is not None:
        raise error(
            Code.MT_ALTER_SCHEMA_EXISTS,
            table=table,
            what=f"a {what}",
            hint="Use MODIFY to change it.",
        )


# ---- MODIFY ----------------------------------------------------------------------------------


def _column_modified(table: TableName, definition: Definition, change: ColumnChange) -> Definition:
    item = change.column
    found = find(definition.visible, item.name)
    _need(table, f"column {item.name}", found)
    if found is None or _kind(found) != _kind_of(item):
        shown = _kind(found) if found is not None else "missing"
        raise error(
            Code.MT_ALTER_SCHEMA_KIND,
            table=table,
            name=item.name,
            found=shown,
            wanted=_kind_of(item),
        )
    if isinstance(found, Column):
        changed: Visible = _stored_column(table, found, item)
    else:
        changed = replace(derive(item), name=found.name, position=found.position)
    if change.first or change.after is not None:
        others = [c for c in definition.visible if c.name != found.name]
        return _with_visible(definition, _place(table, definition, others, changed, change))
    return _with_visible(
        definition, [changed if c.name == found.name else c for c in definition.visible]
    )


def _stored_column(table: TableName, found: Column, item: ColumnItem) -> Column:
    """Return a stored column with a MODIFY's comment and, if wider, its type."""
    if not isinstance(item, (PhysicalColumn, MetadataColumn)):
        return found
    same = plain_type(found.type) == plain_type(item.type)
    tightened = found.nullable and not item.nullable
    if tightened or not (same or castable(found.type, item.type)):
        raise error(
            Code.MT_ALTER_SCHEMA_CAST,
            table=table,
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


def _need(table: TableName, what: str, found: object) -> None:
    if found is None:
        raise error(
            Code.MT_ALTER_SCHEMA_NOT_FOUND,
            table=table,
            what=what,
            hint="Use ADD for a new one.",
        )


def drop_columns(table: TableName, definition: Definition, names: tuple[str, ...]) -> Definition:
    """Return the definition without these columns; only those evaluated on read can go.

    :raises ServerError: MT_DROP_COLUMN_*.
    """
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise error(Code.MT_DROP_COLUMN_REPEATED, name=name)
        seen.add(name.lower())
    for name in names:
        _check_column(table, definition, name)
    kept = [column for column in definition.visible if column.name.lower() not in seen]
    schema, derived = split(kept)
    # A computed column may use a dropped one: Spark checks all of them again.
    reopened = tuple(
        replace(column, type="") if column.expression is not None else column for column in derived
    )
    return replace(definition, schema=schema, derived=reopened)


def drop_part(table: TableName, definition: Definition, statement: AlterDrop) -> Definition:
    """Return the definition without a key, constraint, watermark, distribution or region.

    :raises ServerError: MT_ALTER_SCHEMA_NOT_FOUND if it has none.
    """
    match statement.part:
        case DropPart.PRIMARY_KEY:
            _need_kept(table, "primary key", definition.primary_key)
            return replace(definition, primary_key=None)
        case DropPart.WATERMARK:
            _need_kept(table, "watermark", definition.watermark)
            return replace(definition, watermark=None)
        case DropPart.DISTRIBUTION:
            _need_kept(table, "distribution", definition.distribution)
            return replace(definition, distribution=None)
        case DropPart.IMMUTABLE:
            _need_kept(table, "IMMUTABLE WHERE", definition.immutable)
            version = definition.version + 1
            return replace(definition, immutable=None, version=version, restored_from=None)
        case None:
            return _without_constraint(table, definition, statement.constraint or "")


def _without_constraint(table: TableName, definition: Definition, name: str) -> Definition:
    if definition.primary_key is not None and definition.primary_key.name.lower() == name.lower():
        return replace(definition, primary_key=None)
    asserted = tuple(a for a in definition.assertions if a.name.lower() != name.lower())
    if len(asserted) < len(definition.assertions):
        return replace(definition, assertions=asserted)
    kept = tuple(e for e in definition.expectations if e.name.lower() != name.lower())
    if len(kept) == len(definition.expectations):
        raise _missing(table, f"constraint {name}")
    # Rows that it filtered out return, so the content changes.
    version = definition.version + 1
    return replace(definition, expectations=kept, version=version, restored_from=None)


def _check_column(table: TableName, definition: Definition, name: str) -> None:
    found = find(definition.visible, name)
    if found is None:
        available = ", ".join(column.name for column in definition.visible)
        raise error(Code.MT_DROP_COLUMN_NOT_FOUND, table=table, name=name, available=available)
    wanted = name.lower()
    uses = (
        (Code.MT_DROP_COLUMN_PARTITION_KEY, _lower(definition.partition_keys)),
        (
            Code.MT_DROP_COLUMN_PRIMARY_KEY,
            _lower(definition.primary_key.columns) if definition.primary_key else set(),
        ),
        (
            Code.MT_DROP_COLUMN_DISTRIBUTION,
            _lower(definition.distribution.columns) if definition.distribution else set(),
        ),
        (Code.MT_DROP_COLUMN_WATERMARK, _watermark_names(definition)),
    )
    for code, names in uses:
        if wanted in names:
            raise error(code, table=table, name=found.name)
    if not isinstance(found, DerivedColumn):
        raise error(Code.MT_DROP_COLUMN_QUERY, table=table, name=found.name)


def _lower(names: tuple[str, ...]) -> set[str]:
    return {name.lower() for name in names}


def _watermark_names(definition: Definition) -> set[str]:
    """Return the words of a watermark; those that are not names do no harm."""
    if definition.watermark is None:
        return set()
    try:
        words = {token.text.lower() for token in tokenize(definition.watermark.expression)}
    except TokenError:
        words = set()
    return words | {definition.watermark.column.lower()}


def _need_kept(table: TableName, what: str, found: object) -> None:
    if found is None:
        raise _missing(table, what)


def _missing(table: TableName, what: str) -> ServerError:
    return error(Code.MT_ALTER_SCHEMA_NOT_FOUND, table=table, what=what, hint="")
