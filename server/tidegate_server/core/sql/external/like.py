"""CREATE TABLE ... LIKE other, which takes the definition of another table.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/create/#like
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.connectors.definition import definition_sql
from tidegate_server.core.connectors.merging import (
    DEFAULT,
    OVERWRITABLE,
    Feature,
    MergeError,
    Merging,
    merge,
)
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.types import Schema, sql_name
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.dialect import readable
from tidegate_server.core.sql.external.connector_tables import declared
from tidegate_server.core.sql.external.statements import CreateTableLike

_LIKE = re.compile(r"\bLIKE\b", re.IGNORECASE)
_ALL = "ALL"
_ENDS = ("AS", "FROM", "SELECT", "USING", "VALUES", "IDENTIFIER")
"""Words before which LIKE stands, if it belongs to CREATE TABLE."""
_SPARKS = ("USING", "TBLPROPERTIES", "LOCATION", "STORED", "ROW")
"""What follows the other table in Spark's own form."""


def names_other(text: str, first: Sequence[str]) -> bool:
    """Say whether a statement is CREATE TABLE ... LIKE.

    :param first: its first words, in capitals.
    """
    words = [word for word in first[:3] if word not in ("TEMPORARY", "TEMP")]
    if words[:2] != ["CREATE", "TABLE"] or _LIKE.search(text) is None:
        return False
    at, depth = Cursor(text, readable(text)), 0
    while not at.ended and not (depth == 0 and at.spelling() in _ENDS):
        if depth == 0 and at.sees("LIKE"):
            return at.sees_name(1)
        depth += {"(": 1, ")": -1}.get(at.spelling(), 0)
        at.advance()
    return False


def table_like(text: str, tokens: Sequence[Token]) -> CreateTableLike | None:
    """Read the statement.

    :return: None for a form that Spark alone has, such as ``LIKE other USING parquet``.
    :raises ServerError: PARSE_SYNTAX or NOT_SUPPORTED, with a position.
    """
    at = Cursor(text, tokens)
    found = declared(at)
    table = found.table
    at.expect("LIKE")
    line, column = position(text, at.offset)
    other = clauses.table_name(at)
    plain = not (found.temporary or found.comment is not None or table.columns or table.options)
    if plain and at.spelling() in _SPARKS:
        return None
    how = _features(at) if at.sees("(") else None
    at.end()
    return CreateTableLike(
        name=found.name,
        other=other,
        own=table,
        how=DEFAULT if how is None else how,
        temporary=found.temporary,
        if_not_exists=found.if_not_exists,
        comment=found.comment,
        # Spark has this form, too, for other tables than those of connectors.
        bare=plain and how is None and not (table.primary_key or table.partition_keys),
        line=line,
        column=column,
    )


def _features(at: Cursor) -> Mapping[Feature, Merging]:
    """Read ``( INCLUDING ALL  OVERWRITING OPTIONS ... )``, each feature once."""
    given: dict[str, Merging] = {}
    at.expect("(")
    while not (given and at.accept(")")):
        word = at.accept_any(*(each.value for each in Merging))
        if word is None:
            raise at.unexpected_token()
        merging, offset = Merging(word), at.offset
        name = at.accept_any(_ALL, *(each.value for each in Feature))
        if name is None:
            raise at.unexpected_token()
        if name in given:
            raise _unexpected(at, offset, name, "another feature, each once")
        if merging is Merging.OVERWRITING and name not in {each.value for each in OVERWRITABLE}:
            features = ", ".join(each.value for each in OVERWRITABLE)
            raise _unexpected(at, offset, name, f"after OVERWRITING one of {features}")
        given[name] = merging
    everything = given.get(_ALL)
    return {
        each: given.get(each.value, DEFAULT[each] if everything is None else everything)
        for each in Feature
    }


def _unexpected(at: Cursor, offset: int, found: str, expected: str) -> ServerError:
    return at.failure(Code.PARSE_SYNTAX, offset=offset, found=found, expected=expected, hint="")


# ---- the merged table --------------------------------------------------------------------------


def read_definition(definition: str) -> ConnectorTable:
    """Return a definition that a view records.

    :raises ServerError: PARSE_SYNTAX or NOT_SUPPORTED if it is not one.
    """
    text = f"CREATE TABLE t {definition}"
    at = Cursor(text, readable(text))
    found = declared(at)
    at.end()
    return found.table


def plain_definition(
    columns: Schema, primary_key: Sequence[str], partition_keys: Sequence[str]
) -> ConnectorTable:
    """Return the definition of a table of Spark, without options."""
    return ConnectorTable(
        columns=tuple(
            ConnectorColumn(
                name=each.name,
                type=sql_name(each.type),
                nullable=each.nullable,
                comment=each.comment,
            )
            for each in columns
        ),
        options={},
        primary_key=tuple(primary_key),
        partition_keys=tuple(partition_keys),
    )


def merged_sql(statement: CreateTableLike, other: ConnectorTable) -> str:
    """Return CREATE TABLE ... WITH (...) with what is taken from the other table.

    :raises ServerError: INVALID_LIKE, at the name of the other table.
    """
    try:
        table = merge(other, statement.own, statement.how)
    except MergeError as problem:
        raise error(
            Code.INVALID_LIKE,
            other=".".join(statement.other),
            reason=str(problem),
            hint=problem.hint,
            line=statement.line,
            column=statement.column,
        ) from problem
    words = ["CREATE", "TEMPORARY TABLE" if statement.temporary else "TABLE"]
    words += ["IF NOT EXISTS"] if statement.if_not_exists else []
    words += [".".join(map(quote_identifier, statement.name))]
    return f"{' '.join(words)} {definition_sql(table, statement.comment)}"
