"""CREATE TABLE ... WITH ('connector' = ...), which becomes a view of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token

from tidegate_server.core.connectors.changes import change_key
from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.connectors.columns import listed as listed_sql
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.sinks import upserts
from tidegate_server.core.connectors.tables import PROPERTY, UnknownConnectorError, view_of
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.names import quote_identifier, quote_literal, quote_pairs
from tidegate_server.core.model.types import Column, Schema, TypeKind, parse_type
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.columns import ColumnList, column_list
from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.dialect import readable
from tidegate_server.core.sql.statements import (
    ComputedColumn,
    MetadataColumn,
    Name,
    PhysicalColumn,
    RowTime,
)

_CONNECTOR = re.compile(r"'connector'\s*=", re.IGNORECASE)
_WITH = re.compile(r"\bWITH\b", re.IGNORECASE)
_TIMES = (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ)


def has_options(text: str, first: Sequence[str]) -> bool:
    """Say whether a statement is CREATE TABLE with the clause WITH ('key' = 'value').

    :param first: its first words, in capitals.
    """
    words = [word for word in first[:3] if word not in ("TEMPORARY", "TEMP")]
    if words[:2] != ["CREATE", "TABLE"] or _WITH.search(text) is None:
        return False
    at, depth = Cursor(text, readable(text)), 0
    while not at.ended and not (depth == 0 and at.sees("AS")):
        if depth == 0 and at.sees("WITH", "("):
            return True
        depth += {"(": 1, ")": -1}.get(at.spelling(), 0)
        at.advance()
    return False


def names_connector(text: str) -> bool:
    """Say whether such a statement may have the option 'connector'."""
    return _CONNECTOR.search(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A CREATE TABLE up to its options; every part may be missing."""

    name: Name
    temporary: bool
    if_not_exists: bool
    comment: str | None
    table: ConnectorTable
    name_at: int
    """The offset of the name."""
    columns_at: int
    options_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """Spark's statement for a CREATE TABLE."""

    text: str
    remarks: tuple[str, ...] = ()
    """Warnings about what has no effect."""
    row_time: RowTime | None = None
    """The watermark, which is checked before the statement runs."""


def declared(at: Cursor) -> Declared:
    """Read CREATE TABLE to the end of its options.

    :raises ServerError: PARSE_SYNTAX or NOT_SUPPORTED, with a position.
    """
    at.expect("CREATE")
    temporary = at.accept_any("TEMPORARY", "TEMP") is not None
    at.expect("TABLE")
    if temporary and at.sees("IF", "NOT", "EXISTS"):
        hint = "A temporary table of another session is none of this one's: leave it out."
        raise at.unexpected_token("the name of a table", hint=hint)
    if_not_exists = at.accept("IF", "NOT", "EXISTS")
    name_at = at.offset
    name = clauses.table_name(at)
    columns_at = at.offset
    listed = column_list(at) if at.sees("(") else ColumnList()
    comment = at.string("a comment in quotes") if at.accept("COMMENT") else None
    keys = clauses.names(at) if at.accept("PARTITIONED", "BY") else ()
    given = at.accept("WITH")
    options_at = at.offset
    table = ConnectorTable(
        columns=_columns(at, listed, columns_at),
        options=clauses.options(at) if given else {},
        primary_key=() if listed.primary_key is None else listed.primary_key.columns,
        partition_keys=keys,
        watermark=listed.watermark,
    )
    return Declared(
        name=name,
        temporary=temporary,
        if_not_exists=if_not_exists,
        comment=comment,
        table=table,
        name_at=name_at,
        columns_at=columns_at,
        options_at=options_at,
    )


def connector_view(text: str, tokens: Sequence[Token]) -> Translated | None:
    """Return the statement that creates the view.

    :return: None if the table has no option 'connector'.
    :raises ServerError: PARSE_SYNTAX, INVALID_CONNECTOR, MT_WATERMARK_* or NOT_SUPPORTED, with a
        position.
    """
    at = Cursor(text, tokens)
    found = declared(at)
    table, name = found.table, found.name
    if PROPERTY not in table.options:
        return None
    if not table.columns:
        what = f"The table {'.'.join(name)} of a connector without a list of columns"
        raise unsupported(at, found.columns_at, what, "Write them after the name of the table.")
    at.end()
    _check_key(at, found)
    row_time = _row_time(at, found)
    words = ["CREATE", "TEMPORARY VIEW" if found.temporary else "VIEW"]
    words += ["IF NOT EXISTS"] if found.if_not_exists else []
    words += [".".join(map(quote_identifier, name)), f"({', '.join(map(_column, table.columns))})"]
    words += [f"COMMENT {quote_literal(found.comment)}"] if found.comment is not None else []
    try:
        view = view_of(table, temporary=found.temporary)
    except OptionError as error:
        raise at.failure(
            Code.INVALID_CONNECTOR,
            offset=found.options_at,
            connector=table.options[PROPERTY],
            reason=str(error),
        ) from error
    except UnknownConnectorError as error:
        what = f"The {error} of the table {'.'.join(name)}"
        raise unsupported(at, found.name_at, what, error.hint) from error
    if view.properties:
        words.append(f"TBLPROPERTIES ({quote_pairs(view.properties)})")
    return Translated(
        text=f"{' '.join(words)} AS {view.query}",
        remarks=tuple(_remarks(table, view.query)),
        row_time=row_time,
    )


def _remarks(table: ConnectorTable, query: str) -> Iterator[str]:
    if table.primary_key and not change_key(query) and not upserts(query):
        key = ", ".join(table.primary_key)
        yield f"The primary key ({key}) has no effect: the rows are not changes by a key."
    if table.watermark is not None:
        yield (
            f"The WATERMARK FOR {table.watermark.column} has no effect: it is recorded, but all "
            "rows are read, however late they are."
        )


def _column(column: ConnectorColumn) -> str:
    comment = "" if column.comment is None else f" COMMENT {quote_literal(column.comment)}"
    return f"{quote_identifier(column.name)}{comment}"


def _columns(at: Cursor, listed: ColumnList, offset: int) -> tuple[ConnectorColumn, ...]:
    if listed.expectations or listed.assertions:
        hint = "Write it into the materialized table that reads this one."
        raise unsupported(at, offset, "A constraint of a connector's table", hint)
    found = []
    for column in listed.columns:
        match column:
            case PhysicalColumn(name=name, type=kind, nullable=nullable, comment=comment):
                found.append(
                    ConnectorColumn(name=name, type=kind, nullable=nullable, comment=comment)
                )
            case ComputedColumn(name=name, expression=expression, comment=comment):
                found.append(ConnectorColumn(name=name, expression=expression, comment=comment))
            case MetadataColumn(name=name, type=kind, key=key, comment=comment):
                found.append(
                    ConnectorColumn(
                        name=name,
                        type=kind,
                        metadata=key or name,
                        virtual=column.virtual,
                        nullable=column.nullable,
                        comment=comment,
                    )
                )
            case other:
                what = f"The column {other.name} without a type"
                raise unsupported(at, offset, what, "Write its type.")
    return tuple(found)


def _check_key(at: Cursor, found: Declared) -> None:
    for name in found.table.primary_key:
        if found.table.find(name) is None:
            what, hint = f"A primary key on {name}", "There is no such column."
            raise unsupported(at, found.columns_at, what, hint)


def _row_time(at: Cursor, found: Declared) -> RowTime | None:
    """Return the watermark of a table with the types that are known here.

    :raises ServerError: MT_WATERMARK_COLUMN or MT_WATERMARK_TYPE.
    """
    table, watermark = found.table, found.table.watermark
    if watermark is None:
        return None
    column, offset = table.find(watermark.column), found.columns_at
    if column is None:
        available = ", ".join(each.name for each in table.columns)
        raise at.failure(
            Code.MT_WATERMARK_COLUMN, offset=offset, name=watermark.column, available=available
        )
    if column.type and parse_type(column.type).kind not in _TIMES:
        name = quote_identifier(column.name)
        raise at.failure(
            Code.MT_WATERMARK_TYPE,
            offset=offset,
            name=column.name,
            type=column.type.upper(),
            example=f"{quote_identifier(f'{column.name}_time')} AS CAST({name} AS TIMESTAMP)",
        )
    typed = tuple(Column(name=each.name, type=each.type) for each in table.columns if each.type)
    line, character = position(at.text, offset)
    return RowTime(
        watermark=watermark,
        columns=Schema(typed),
        listed=listed_sql(table),
        line=line,
        character=character,
    )


def unsupported(at: Cursor, offset: int, what: str, hint: str) -> ServerError:
    """Return the error for what a table cannot have."""
    return at.failure(Code.NOT_SUPPORTED, offset=offset, what=what, hint=hint)
