"""CREATE TABLE ... WITH ('connector' = ...), which becomes a view of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.connectors.changes import change_key
from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.tables import PROPERTY, UnknownConnectorError, view_of
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.columns import ColumnList, column_list
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable
from tidegate_server.core.sql.statements import ComputedColumn, MetadataColumn, PhysicalColumn

_CONNECTOR = re.compile(r"'connector'\s*=", re.IGNORECASE)
_WITH = re.compile(r"\bWITH\b", re.IGNORECASE)


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


def connector_view(text: str, tokens: Sequence[Token]) -> tuple[str, tuple[str, ...]] | None:
    """Return the statement that creates the view, and warnings about what has no effect.

    :return: None if the table has no option 'connector'.
    :raises ServerError: PARSE_SYNTAX, INVALID_CONNECTOR or NOT_SUPPORTED, with a position.
    """
    at = Cursor(text, tokens)
    at.expect("CREATE")
    temporary = at.accept_any("TEMPORARY", "TEMP") is not None
    at.expect("TABLE")
    if temporary and at.sees("IF", "NOT", "EXISTS"):
        hint = "A temporary table of another session is none of this one's: leave it out."
        raise at.unexpected_token("the name of a table", hint=hint)
    if_not_exists = at.accept("IF", "NOT", "EXISTS")
    name_at = at.offset
    name = clauses.table_name(at)
    if not at.sees("("):
        raise at.unexpected_token("(", hint="A table of a connector has a list of columns.")
    columns_at = at.offset
    listed = column_list(at)
    comment = at.string("a comment in quotes") if at.accept("COMMENT") else None
    keys = clauses.names(at) if at.accept("PARTITIONED", "BY") else ()
    at.expect("WITH")
    options_at = at.offset
    options = clauses.options(at)
    at.end()
    if PROPERTY not in options:
        return None
    table = ConnectorTable(
        columns=_columns(at, listed, columns_at),
        options=options,
        primary_key=_key(at, listed, columns_at),
        partition_keys=keys,
    )
    words = ["CREATE", "TEMPORARY VIEW" if temporary else "VIEW"]
    words += ["IF NOT EXISTS"] if if_not_exists else []
    words += [".".join(map(quote_identifier, name)), f"({', '.join(map(_column, table.columns))})"]
    words += [f"COMMENT {quote_literal(comment)}"] if comment is not None else []
    try:
        view = view_of(table, temporary=temporary)
    except OptionError as error:
        raise at.failure(
            Code.INVALID_CONNECTOR,
            offset=options_at,
            connector=options[PROPERTY],
            reason=str(error),
        ) from error
    except UnknownConnectorError as error:
        what = f"The {error} of the table {'.'.join(name)}"
        raise unsupported(at, name_at, what, error.hint) from error
    if view.properties:
        words.append(f"TBLPROPERTIES ({', '.join(pairs(view.properties))})")
    return f"{' '.join(words)} AS {view.query}", tuple(_remarks(table, view.query))


def _remarks(table: ConnectorTable, query: str) -> Iterator[str]:
    if table.primary_key and not change_key(query):
        key = ", ".join(table.primary_key)
        yield f"The primary key ({key}) has no effect: the rows are not changes by a key."


def pairs(given: Mapping[str, str]) -> Iterator[str]:
    """Yield properties as SQL."""
    return (f"{quote_literal(key)} = {quote_literal(value)}" for key, value in given.items())


def _column(column: ConnectorColumn) -> str:
    comment = "" if column.comment is None else f" COMMENT {quote_literal(column.comment)}"
    return f"{quote_identifier(column.name)}{comment}"


def _columns(at: Cursor, listed: ColumnList, offset: int) -> tuple[ConnectorColumn, ...]:
    if listed.watermark is not None:
        hint = "Leave it out: all rows are read, however late they are."
        raise unsupported(at, offset, "A WATERMARK of a connector's table", hint)
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


def _key(at: Cursor, listed: ColumnList, offset: int) -> tuple[str, ...]:
    if listed.primary_key is None:
        return ()
    names = {column.name.lower() for column in listed.columns}
    for name in listed.primary_key.columns:
        if name.lower() not in names:
            raise unsupported(at, offset, f"A primary key on {name}", "There is no such column.")
    return listed.primary_key.columns


def unsupported(at: Cursor, offset: int, what: str, hint: str) -> ServerError:
    """Return the error for what a table cannot have."""
    return at.failure(Code.NOT_SUPPORTED, offset=offset, what=what, hint=hint)
