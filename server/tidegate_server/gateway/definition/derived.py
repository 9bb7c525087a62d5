"""Columns evaluated on read, the watermark and the distribution, with their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import ExpressionsChecked
from tidegate_server.core.messages.requests import CheckExpressions, DropView, PutView, ViewColumn
from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    Violation,
    Watermark,
)
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    TableName,
    quote_identifier,
    quote_literal,
    storage_name,
)
from tidegate_server.core.model.table import Definition, DerivedColumn, MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.statements import (
    ColumnItem,
    ComputedColumn,
    MetadataColumn,
    RowTime,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.columns import available, castable, is_stored, shown_type
from tidegate_server.gateway.spark_session import ensure_session

Visible = Column | DerivedColumn

METADATA_KEYS: Mapping[str, str] = {
    "file_path": "string",
    "file_name": "string",
    "file_size": "bigint",
    "file_block_start": "bigint",
    "file_block_length": "bigint",
    "file_modification_time": "timestamp",
}
"""Fields of Spark's ``_metadata`` about a row's file, with their types."""

VIOLATED_COLUMN = "__violated"
"""Column of the quarantine view: the expectations that a row violates."""

_INCOMPARABLE = ("map<", "variant")
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_EXAMPLE = "Write for example ts - INTERVAL '5' SECOND."
_COMMENT = 1000
_PREFIX = "_metadata."
_NOT_ABOUT_THE_TEXT = frozenset(
    {
        *(code.name for code in (Code.ENGINE_UNAVAILABLE, Code.ENGINE_LOST, Code.INTERNAL)),
        *(code.name for code in (Code.OPERATION_CANCELED, Code.OPERATION_TIMEOUT)),
        *(code.name for code in (Code.INVALID_SESSION_HANDLE, Code.INVALID_REQUEST)),
        *(code.name for code in (Code.OUT_OF_MEMORY, Code.DISK_FULL)),
        "INTERNAL_ERROR",
    }
)


def derived_columns(items: Sequence[ColumnItem], schema: Schema) -> tuple[DerivedColumn, ...]:
    """Return the derived columns of a list, each after the column declared before it.

    The type of a computed column is not yet set.

    :raises ServerError: MT_DUPLICATE_COLUMN, MT_METADATA_KEY, MT_INCOMPATIBLE_TYPE.
    """
    visible: list[Visible] = list(schema)
    previous: str | None = None
    for item in items:
        if not is_stored(item):
            if find(visible, item.name) is not None:
                raise error(Code.MT_DUPLICATE_COLUMN, name=item.name)
            visible = put(visible, derive(item), first=previous is None, after=previous)
        previous = item.name
    return split(visible)[1]


def derive(item: ColumnItem) -> DerivedColumn:
    """Return the column declared by a computed or METADATA VIRTUAL item."""
    if isinstance(item, ComputedColumn):
        return DerivedColumn(
            name=item.name, type="", position=0, expression=item.expression, comment=item.comment
        )
    if not isinstance(item, MetadataColumn):
        raise error(Code.INTERNAL, reason=f"{item.name} is not evaluated on read")
    key = (item.key or item.name).lower().removeprefix(_PREFIX)
    known = METADATA_KEYS.get(key)
    if known is None:
        raise error(
            Code.MT_METADATA_KEY, name=item.name, key=key, available=", ".join(METADATA_KEYS)
        )
    if not castable(known, item.type):
        raise error(
            Code.MT_INCOMPATIBLE_TYPE,
            name=item.name,
            position=1,
            declared=shown_type(item.type, item.nullable),
            produced=shown_type(known, True),
        )
    return DerivedColumn(
        name=item.name,
        type=item.type.lower(),
        position=0,
        metadata_key=key,
        nullable=item.nullable,
        comment=item.comment,
    )


# ---- places ----------------------------------------------------------------------------------


def find(visible: Iterable[Visible], name: str) -> Visible | None:
    """Return the visible column with this name."""
    return next((c for c in visible if c.name.lower() == name.lower()), None)


def put(
    visible: Sequence[Visible], column: Visible, *, first: bool = False, after: str | None = None
) -> list[Visible]:
    """Insert a column: first, after another, or last."""
    if first:
        return [column, *visible]
    names = [c.name.lower() for c in visible]
    index = names.index(after.lower()) + 1 if after is not None else len(names)
    return [*visible[:index], column, *visible[index:]]


def split(visible: Sequence[Visible]) -> tuple[Schema, tuple[DerivedColumn, ...]]:
    """Separate stored and derived columns; the derived ones get their positions."""
    stored = tuple(c for c in visible if isinstance(c, Column))
    derived = tuple(
        replace(c, position=position)
        for position, c in enumerate(visible)
        if isinstance(c, DerivedColumn)
    )
    return Schema(stored), derived


def visible_schema(visible: Sequence[Visible]) -> Schema:
    """Return visible columns as a schema."""
    return Schema(
        tuple(
            Column(name=c.name, type=c.type, nullable=c.nullable, comment=c.comment)
            for c in visible
        )
    )


def view_columns(definition: Definition) -> tuple[ViewColumn, ...]:
    """Return the columns of the view over a table's storage."""
    return tuple(
        ViewColumn(
            name=column.name,
            expression=_expression(column) if isinstance(column, DerivedColumn) else None,
            metadata=isinstance(column, DerivedColumn) and column.metadata_key is not None,
            comment=column.comment,
        )
        for column in definition.visible
    )


def views(table: MaterializedTable) -> tuple[PutView, ...]:
    """Return the views over a table's storage: quarantine, then its own, or none.

    The order lets recovery detect by the first view that a server died in between.
    """
    definition = table.definition
    if table.storage_table is None:
        return ()
    own = PutView(
        name=table.name,
        table_id=table.id,
        storage=table.storage,
        columns=view_columns(definition),
        comment=definition.comment,
        settings=definition.settings,
        quarantining=definition.quarantining,
    )
    return (own,) if table.quarantine is None else (_quarantine(table, table.quarantine), own)


def drop_view(view: PutView) -> DropView:
    """Return the request to drop a view."""
    return DropView(name=view.name, table_id=view.table_id)


def storage_table(name: TableName, definition: Definition) -> TableName | None:
    """Return the storage name if the table itself has to be a view.

    :raises ServerError: NOT_SUPPORTED in a catalog that has no views over its tables.
    """
    if not definition.derived and not definition.quarantining:
        return None
    if name.is_foreign:
        parts = "Computed and METADATA VIRTUAL columns"
        if not definition.derived:
            parts = "Expectations with ON VIOLATION QUARANTINE"
        raise error(
            Code.NOT_SUPPORTED,
            what=f"{parts} of a materialized table in the catalog {name.catalog}",
            hint=f"Select the columns in the query, use DROP ROW, or create it in "
            f"{DEFAULT_CATALOG}.",
        )
    return storage_name(name)


def _quarantine(table: MaterializedTable, name: TableName) -> PutView:
    definition = table.definition
    stored = tuple(ViewColumn(name=c.name, comment=c.comment) for c in definition.schema)
    broken = ", ".join(
        f"CASE WHEN {e.broken} THEN {quote_literal(e.name)} END" for e in definition.quarantining
    )
    listed = ", ".join(f"{e.name} EXPECT ({e.condition})" for e in definition.quarantining)
    violated = ViewColumn(
        name=VIOLATED_COLUMN,
        expression=f"array_compact(array({broken}))",
        comment="the expectations that the row breaks",
    )
    return PutView(
        name=name,
        table_id=table.id,
        storage=table.storage,
        columns=(*stored, violated),
        comment=f"Rows that {table.name} holds out: {listed}"[:_COMMENT],
        settings=definition.settings,
        quarantining=definition.quarantining,
        quarantine_of=table.name,
    )


def _expression(column: DerivedColumn) -> str | None:
    if column.metadata_key is None:
        return column.expression
    return f"CAST(_metadata.{quote_identifier(column.metadata_key)} AS {column.type})"


# ---- checks with Spark -----------------------------------------------------------------------


def with_types(
    schema: Schema,
    derived: tuple[DerivedColumn, ...],
    context: Context,
    *,
    code: Code = Code.MT_COLUMN_EXPRESSION,
) -> tuple[DerivedColumn, ...]:
    """Fill in missing types of computed columns.

    :raises ServerError: ``code`` for an invalid expression.
    """
    below = Schema((*schema, *visible_schema([c for c in derived if c.expression is None])))
    found = []
    for column in derived:
        if column.expression is not None and not column.type:
            request = CheckExpressions(
                session_id="", columns=below, computed=((column.name, column.expression),)
            )
            [made] = _check(request, column.name, code, context).computed
            column = replace(column, type=made.type, nullable=made.nullable)
        found.append(column)
    return tuple(found)


def check_watermark(
    watermark: Watermark | None,
    visible: Sequence[Visible],
    context: Context,
    *,
    code: Code = Code.MT_COLUMN_EXPRESSION,
) -> None:
    """Check the column and the expression of a watermark.

    :raises ServerError: MT_WATERMARK_COLUMN, MT_WATERMARK_TYPE, or ``code``.
    """
    if watermark is None:
        return
    columns = visible_schema(visible)
    column = columns.find(watermark.column)
    if column is None:
        raise error(Code.MT_WATERMARK_COLUMN, name=watermark.column, available=available(columns))
    if column.type.lower() not in _TIMES:
        raise _not_a_time(column)
    request = CheckExpressions(session_id="", columns=columns, watermark=watermark.expression)
    _check(request, f"the watermark for {watermark.column}", code, context)


def check_row_time(found: RowTime, context: Context) -> None:
    """Check the watermark of a connector's table.

    :raises ServerError: MT_WATERMARK_TYPE or MT_COLUMN_EXPRESSION, placed at its columns.
    """
    watermark = found.watermark
    what = f"the watermark for {watermark.column}"
    request = CheckExpressions(
        session_id="",
        columns=found.columns,
        listed=found.listed,
        watermark=watermark.expression,
    )
    try:
        checked = _check(request, what, Code.MT_COLUMN_EXPRESSION, context)
        column = checked.computed.find(watermark.column)
        if column is not None and column.type.lower() not in _TIMES:
            raise _not_a_time(column)
        if checked.watermark.lower() not in _TIMES:
            reason = f"it is {checked.watermark.upper()} instead of a TIMESTAMP"
            raise error(Code.MT_COLUMN_EXPRESSION, name=what, reason=reason, hint=_EXAMPLE)
    except ServerError as problem:
        problem.line, problem.column = found.line, found.character
        raise


def _not_a_time(column: Column) -> ServerError:
    return error(
        Code.MT_WATERMARK_TYPE,
        name=column.name,
        type=column.type.upper(),
        example=f"{quote_identifier(f'{column.name}_time')} AS "
        f"CAST({quote_identifier(column.name)} AS TIMESTAMP)",
    )


def check_distribution(distribution: Distribution | None, schema: Schema) -> None:
    """Check that the columns of a distribution exist and are comparable.

    :raises ServerError: MT_COLUMN_NOT_FOUND or MT_DISTRIBUTION_TYPE.
    """
    for name in distribution.columns if distribution is not None else ():
        column = schema.find(name)
        if column is None:
            raise error(Code.MT_COLUMN_NOT_FOUND, name=name, available=available(schema))
        if any(word in column.type.lower() for word in _INCOMPARABLE):
            raise error(Code.MT_DISTRIBUTION_TYPE, name=name, type=column.type.upper())


def check_expectations(
    expectations: tuple[Expectation, ...], schema: Schema, context: Context
) -> None:
    """Check that every expectation is a condition over the stored columns.

    A quarantine condition is evaluated on every read, so it has to be stable.

    :raises ServerError: MT_COLUMN_EXPRESSION, or MT_DUPLICATE_COLUMN if a stored column has the
        name of the quarantine column.
    """
    for expectation in expectations:
        held = expectation.violation is Violation.QUARANTINE
        if held and schema.find(VIOLATED_COLUMN) is not None:
            raise error(Code.MT_DUPLICATE_COLUMN, name=VIOLATED_COLUMN)
        request = CheckExpressions(
            session_id="", columns=schema, conditions=(expectation.condition,), stable=held
        )
        name = f"the expectation {expectation.name}"
        _check(request, name, Code.MT_COLUMN_EXPRESSION, context)


def check_assertions(assertions: tuple[Assertion, ...], schema: Schema, context: Context) -> None:
    """Check that every assertion is a condition over aggregates of the stored columns.

    :raises ServerError: MT_COLUMN_EXPRESSION.
    """
    for assertion in assertions:
        request = CheckExpressions(session_id="", columns=schema, assertions=(assertion.condition,))
        name = f"the assertion {assertion.name}"
        _check(request, name, Code.MT_COLUMN_EXPRESSION, context)


def refuse_view(table: MaterializedTable, statement: str) -> None:
    """Reject a statement that does not support tables with a view over their rows.

    :raises ServerError: NOT_SUPPORTED for columns evaluated on read or quarantined rows.
    """
    definition = table.definition
    if definition.derived:
        names = ", ".join(column.name for column in definition.derived)
        raise error(
            Code.NOT_SUPPORTED,
            what=f"{statement} of {table.name}, whose columns {names} are not stored,",
            hint=f"Drop them first: ALTER MATERIALIZED TABLE {table.name} DROP ({names}).",
        )
    if definition.quarantining:
        raise error(
            Code.NOT_SUPPORTED,
            what=f"{statement} of {table.name}, which holds rows out,",
            hint="Drop the expectations with ON VIOLATION QUARANTINE first, or use DROP ROW.",
        )


def refuse_foreign(table: MaterializedTable, statement: str) -> None:
    """Reject a statement that only tables of the session catalog support; raises NOT_SUPPORTED."""
    if table.name.is_foreign:
        raise error(
            Code.NOT_SUPPORTED,
            what=f"{statement} of {table.name}, a table of another catalog,",
            hint=f"Only materialized tables in {DEFAULT_CATALOG} have it.",
        )


def not_about_the_text(problem: ServerError) -> bool:
    """Say whether an engine error is unrelated to the expression's text."""
    return problem.code in _NOT_ABOUT_THE_TEXT


def _check(
    request: CheckExpressions, name: str, code: Code, context: Context
) -> ExpressionsChecked:
    session_id, user = ensure_session(context), context.session.user
    request = replace(request, session_id=session_id, user=user, features=context.features)
    try:
        answer = context.engine.call(request)
    except ServerError as problem:
        if not_about_the_text(problem) or problem.code == code.name:
            raise
        reason = problem.message.rstrip(".")
        if problem.code == Code.MT_COLUMN_EXPRESSION.name:
            reason = reason.partition(" is invalid: ")[2]
        raise error(code, name=name, reason=reason, hint=problem.hint) from problem
    return answer
