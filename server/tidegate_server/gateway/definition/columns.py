"""Checks clauses against the columns of the query: pure, one error each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.table import PrimaryKey
from tidegate_server.core.model.types import (
    Column,
    Schema,
    TypeKind,
    distinct_names,
    inner_kinds,
    parse_type,
    plain_type,
    sql_name,
    unknown_type,
)
from tidegate_server.core.sql.places import place_of
from tidegate_server.core.sql.statements import (
    ColumnItem,
    ColumnName,
    ComputedColumn,
    CreateMaterializedTable,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
)
from tidegate_server.gateway.definition.checks import (
    check_partition_types,
    date_formatters,
    is_text,
)
from tidegate_server.gateway.scheduler.lateness import check_lateness

_INTEGERS = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
_WIDENING = (*_INTEGERS, TypeKind.FLOAT, TypeKind.DOUBLE)
_INTERVALS = {TypeKind.INTERVAL_DAY_TIME, TypeKind.INTERVAL_YEAR_MONTH, TypeKind.INTERVAL}
_TEXTS = (TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.STRING)
_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP_NTZ, TypeKind.TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table's stored columns and a query for exactly these."""

    schema: Schema
    expanded_query: str
    partition_keys: tuple[str, ...]
    primary_key: PrimaryKey | None


def shape(
    statement: CreateMaterializedTable,
    produced: Schema,
    expanded_query: str,
    *,
    strict: bool = False,
    change_key: tuple[str, ...] = (),
) -> Shape:
    """Match declared columns, keys and partitions to the columns of the query.

    ``strict`` rejects duplicate output names instead of numbering them. ``change_key`` has the
    columns by which changes are applied; they are the primary key.

    :raises ServerError: the codes of checks V1 to V9; MT_QUERY_UNSUPPORTED for types
        that cannot be stored, MT_PARTITION_UNSUPPORTED for invalid partition types.
    """
    if strict:
        refuse_repeated(produced.names())
    schema, query = distinct(produced, expanded_query)
    answered = schema
    if statement.columns and isinstance(statement.columns[0], ColumnName):
        schema, query = _reorder(statement, schema, query)
    elif statement.columns:
        schema, query = _declared_schema(statement, schema, query)
    refuse_unstorable(schema)
    clause = _key_of_changes(statement.primary_key, change_key)
    schema, key = with_primary_key(clause, schema, answered)
    partitions = _partition_keys(statement.partition_keys, schema)
    check_formatters(statement.options, partitions, schema)
    return Shape(schema=schema, expanded_query=query, partition_keys=partitions, primary_key=key)


def check_types(items: Iterable[ColumnItem], text: str) -> None:
    """Reject declared types unknown to Spark; the error has a position in ``text``.

    :raises ServerError: UNSUPPORTED_DATATYPE.
    """
    for item in items:
        if not isinstance(item, (PhysicalColumn, MetadataColumn)):
            continue
        if (word := unknown_type(item.type)) is not None:
            problem = error(Code.UNSUPPORTED_DATATYPE, name=item.name, type=word)
            problem.line, problem.column = place_of(text, word, "TABLE") or (None, None)
            raise problem


def refuse_unstorable(schema: Schema) -> None:
    """Reject columns that Delta cannot store: intervals, and VOID within other types.

    :raises ServerError: MT_QUERY_UNSUPPORTED.
    """
    for column in schema:
        inner = inner_kinds(column.type)
        if {parse_type(column.type).kind, *inner} & _INTERVALS:
            remedy = "CAST it to STRING, or count by timestampdiff(SECOND, start, end)"
        elif TypeKind.VOID in inner:
            remedy = "CAST what is NULL or empty in it to a type"
        else:
            continue
        shown = f"column {column.name} is {sql_name(column.type)}"
        reason = f"{shown}, which a table cannot store; {remedy}"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def distinct(produced: Schema, query: str) -> tuple[Schema, str]:
    """Number duplicate output names as Flink does: a, a0, a1."""
    names = distinct_names(produced.names())
    columns = [replace(c, name=name) for c, name in zip(produced, names, strict=True)]
    schema = Schema(tuple(columns))
    if schema == produced:
        return produced, query
    listed = _list(names)
    return schema, f"SELECT {listed} FROM (\n{query}\n) AS query({listed})"


def _reorder(
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
    refuse_repeated(names)
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


def _declared_schema(
    statement: CreateMaterializedTable, produced: Schema, query: str
) -> tuple[Schema, str]:
    declared = {c.name.lower(): c for c in statement.columns}
    refuse_repeated([column.name for column in statement.columns])
    _check_produced(statement, produced)
    columns = []
    for position, column in enumerate(produced, start=1):
        wanted = declared.get(column.name.lower())
        if isinstance(wanted, (PhysicalColumn, MetadataColumn)) and is_stored(wanted):
            column = _cast(column, wanted, position)
        columns.append(column)
    return Schema(tuple(columns)), casting(produced, Schema(tuple(columns)), query)


def selecting(produced: Schema, wanted: Schema, query: str) -> str:
    """Return a query for the wanted columns in order, matched by name."""
    found = [(column, produced.find(column.name)) for column in wanted]
    columns = ", ".join(
        quote_identifier(column.name)
        if source is not None and plain_type(source.type) == plain_type(column.type)
        else f"CAST({quote_identifier(column.name)} AS {column.type}) "
        f"AS {quote_identifier(column.name)}"
        for column, source in found
    )
    return f"SELECT {columns} FROM (\n{query}\n)"


def casting(produced: Schema, wanted: Schema, query: str) -> str:
    """Return a query for the wanted types, matched by position."""
    if [plain_type(c.type) for c in wanted] == [plain_type(c.type) for c in produced]:
        return query
    casts = ", ".join(
        f"CAST({quote_identifier(c.name)} AS {c.type}) AS {quote_identifier(c.name)}"
        for c in wanted
    )
    return f"SELECT {casts} FROM (\n{query}\n)"


def _check_produced(statement: CreateMaterializedTable, produced: Schema) -> None:
    words = "CREATE OR ALTER" if statement.or_alter else "CREATE"
    for column in statement.columns:
        if is_stored(column) and produced.find(column.name) is None:
            metadata = isinstance(column, MetadataColumn)
            raise error(
                Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY,
                statement=f"{words} MATERIALIZED TABLE",
                kind="metadata persisted" if metadata else "physical",
                name=column.name,
                available=available(produced),
            )


def is_stored(item: ColumnItem) -> bool:
    """Say whether the query has to produce a declared column."""
    virtual = isinstance(item, MetadataColumn) and item.virtual
    return not virtual and not isinstance(item, ComputedColumn)


def _cast(column: Column, wanted: PhysicalColumn | MetadataColumn, position: int) -> Column:
    tightened = column.nullable and not wanted.nullable
    if tightened or not castable(column.type, wanted.type):
        raise error(
            Code.MT_INCOMPATIBLE_TYPE,
            name=wanted.name,
            position=position,
            declared=shown_type(wanted.type, wanted.nullable),
            produced=shown_type(column.type, column.nullable),
        )
    same = plain_type(column.type) == plain_type(wanted.type)
    return Column(
        name=column.name,
        type=column.type if same else wanted.type.lower(),
        nullable=wanted.nullable,
        comment=wanted.comment if wanted.comment is not None else column.comment,
    )


def castable(source: str, target: str) -> bool:
    """Say whether a type casts implicitly: widening only, as in Flink."""
    start, end = parse_type(source), parse_type(target)
    if plain_type(source) == plain_type(target) or start.kind is TypeKind.VOID:
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


def _key_of_changes(
    clause: PrimaryKeyClause | None, change_key: tuple[str, ...]
) -> PrimaryKeyClause | None:
    """Return the primary key, which is that of the changes if the query reads some.

    :raises ServerError: NOT_SUPPORTED if another one was declared.
    """
    if not change_key:
        return clause
    if clause is None:
        return PrimaryKeyClause(columns=change_key)
    if {name.lower() for name in clause.columns} != {name.lower() for name in change_key}:
        shown = ", ".join(change_key)
        what = f"A primary key other than ({shown}), by which the query's changes are applied,"
        raise error(Code.NOT_SUPPORTED, what=what, hint=f"Write PRIMARY KEY ({shown}).")
    return clause


def with_primary_key(
    clause: PrimaryKeyClause | None, schema: Schema, produced: Schema
) -> tuple[Schema, PrimaryKey | None]:
    """Make key columns NOT NULL, which the query has to guarantee."""
    if clause is None:
        return schema, None
    name = clause.name or f"PK_{'_'.join(clause.columns)}"
    refuse_repeated(clause.columns)
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
    refuse_repeated(wanted)
    found = []
    for name in wanted:
        column = schema.find(name)
        if column is None:
            raise error(Code.MT_PARTITION_COLUMN_NOT_FOUND, name=name, available=available(schema))
        found.append(column.name)
    check_partition_types(found, schema)
    return tuple(found)


def check_formatters(
    options: Mapping[str, str], partition_keys: tuple[str, ...], schema: Schema
) -> None:
    """Check that date-formatters refer to partition columns of type STRING.

    :raises ServerError: MT_DATE_FORMATTER_*, or MT_OPTION_VALUE for an invalid lateness.
    """
    check_lateness(options)
    keys = {key.lower() for key in partition_keys}
    for name in date_formatters(options):
        column = schema.find(name)
        if name.lower() not in keys or column is None:
            shown = ", ".join(partition_keys) or "none"
            raise error(Code.MT_DATE_FORMATTER_NOT_PARTITION, name=name, available=shown)
        if not is_text(column.type):
            raise error(Code.MT_DATE_FORMATTER_TYPE, name=name, type=column.type.upper())


def available(schema: Schema) -> str:
    """Format column names for messages."""
    return ", ".join(schema.names()) or "nothing"


def refuse_repeated(names: list[str] | tuple[str, ...]) -> None:
    """Reject duplicate names; raises MT_DUPLICATE_COLUMN."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise error(Code.MT_DUPLICATE_COLUMN, name=name)
        seen.add(name.lower())


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def shown_type(data_type: str, nullable: bool) -> str:
    """Format a type for messages."""
    return data_type.upper() if nullable else f"{data_type.upper()} NOT NULL"
