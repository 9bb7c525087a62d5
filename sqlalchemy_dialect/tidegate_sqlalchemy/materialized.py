"""Reflection of materialized tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import exc

from tidegate.lexical import Token, name_of, significant_tokens
from tidegate_sqlalchemy.ddl import CreateMaterializedTable

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_NESTED: Final = frozenset({"ARRAY", "MAP", "STRUCT"})
_CLAUSES: Final = frozenset(
    {
        "COMMENT",
        "DISTRIBUTED",
        "PARTITIONED",
        "WITH",
        "START_MODE",
        "FRESHNESS",
        "REFRESH_MODE",
        "REFRESH_TRIGGER",
        "EXECUTE",
        "IMMUTABLE",
        "BACKFILL",
        "AS",
    }
)


@dataclass(frozen=True)
class MaterializedTable:
    """A materialized table of the server: what it contains, and how it is defined."""

    table: sa.Table
    """Its columns with types and comments, primary key and comment, for queries."""
    definition: CreateMaterializedTable
    """The element that creates an equal one; its query is text with qualified names."""

    @classmethod
    def reflect(
        cls,
        name: str,
        metadata: sa.MetaData,
        bind: sa.Engine | sa.Connection,
        *,
        schema: str | None = None,
    ) -> MaterializedTable:
        """Read a materialized table; the ``sa.Table`` is added to ``metadata``.

        :raises NoSuchTableError: if there is no materialized table of that name.
        """
        if isinstance(bind, sa.Engine):
            with bind.connect() as connection:
                return cls.reflect(name, metadata, connection, schema=schema)
        dialect: Any = bind.dialect
        statement = dialect.get_materialized_table_definition(bind, name, schema)
        table = sa.Table(name, metadata, schema=schema, autoload_with=bind)
        return cls(table, read_definition(statement, name, schema))


@dataclass(frozen=True)
class _Part:
    """Tokens of a statement, with their text in it."""

    sql: str
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        """The text from the first token to the last one."""
        return self.sql[self.tokens[0].start : self.tokens[-1].end]

    @property
    def word(self) -> str:
        """The first word in capitals."""
        return self.tokens[0].text.upper()

    def after(self, *words: str) -> str:
        """Return the text after some words or signs at the beginning."""
        assert [token.text.upper() for token in self.tokens[: len(words)]] == list(words)
        return replace(self, tokens=self.tokens[len(words) :]).text

    def inside(self) -> _Part:
        """Return what is in the first parentheses."""
        opening = next(i for i, token in enumerate(self.tokens) if token.text == "(")
        return replace(self, tokens=self.tokens[opening + 1 : _closing(self.tokens, opening)])

    def inner_text(self) -> str:
        """Return the text in the first parentheses, with comments at its end."""
        opening = next(i for i, token in enumerate(self.tokens) if token.text == "(")
        closing = _closing(self.tokens, opening)
        return self.sql[self.tokens[opening].end : self.tokens[closing].start]

    def items(self) -> Iterator[_Part]:
        """Yield what commas separate."""
        begin, depth, angles = 0, 0, 0
        for at, token in enumerate(self.tokens):
            depth += (token.text == "(") - (token.text == ")")
            # Elsewhere they compare.
            of_type = at > 0 and self.tokens[at - 1].text.upper() in _NESTED
            angles += token.text == "<" and of_type
            angles -= token.text == ">" and angles > 0
            if token.text == "," and depth == angles == 0:
                yield replace(self, tokens=self.tokens[begin:at])
                begin = at + 1
        yield replace(self, tokens=self.tokens[begin:])

    def names(self) -> list[str]:
        """Return the names in the first parentheses."""
        return [name_of(token) or "" for token in self.inside().tokens if token.text != ","]


def read_definition(
    statement: str, name: str, schema: str | None = None
) -> CreateMaterializedTable:
    """Return a statement of SHOW CREATE MATERIALIZED TABLE as the element that renders it.

    ``name`` and ``schema`` replace the table's.

    :raises ArgumentError: if the statement is not one that the server prints.
    """
    tokens = tuple(significant_tokens(statement))
    head, *clauses = _clauses(statement, tokens)
    if not clauses or clauses[-1].word != "AS" or "MATERIALIZED" not in _words(head):
        raise exc.ArgumentError(f"not a CREATE MATERIALIZED TABLE: {statement[:200]!r}")
    given: dict[str, Any] = {}
    if any(token.text == "(" for token in head.tokens):
        given["items"] = [item.text for item in head.inside().items()]
    for clause in clauses:
        given.update(_argument(clause))
    query = given.pop("query")
    return CreateMaterializedTable(name, query, schema=schema, **given)


def _argument(clause: _Part) -> dict[str, Any]:
    """Return the argument of CreateMaterializedTable that stands for a clause."""
    match clause.word:
        case "COMMENT":
            return {"comment": _value(clause.tokens[1])}
        case "DISTRIBUTED":
            return {"distribution": clause.after("DISTRIBUTED")}
        case "PARTITIONED":
            return {"partitioned_by": clause.names()}
        case "WITH":
            pairs = (item.tokens for item in clause.inside().items())
            return {"options": {_value(pair[0]): _value(pair[-1]) for pair in pairs}}
        case "START_MODE" | "FRESHNESS" | "REFRESH_MODE" | "REFRESH_TRIGGER" as word:
            return {word.lower(): clause.after(word, "=")}
        case "EXECUTE":
            user = clause.tokens[-1]
            return {"execute_as": _value(user)} if user.text.startswith("'") else {}
        case "IMMUTABLE":
            return {"immutable_where": clause.inner_text()}
        case "BACKFILL":
            return {"backfill_from": clause.after("BACKFILL", "FROM")}
        case _:
            return {"query": clause.sql[clause.tokens[0].end :].lstrip()}


def _clauses(sql: str, tokens: tuple[Token, ...]) -> Iterator[_Part]:
    """Yield the head with the list of columns, then each clause, the query as the last one."""
    begin, depth = 0, 0
    for at, token in enumerate(tokens):
        word = token.text.upper()
        depth += (word == "(") - (word == ")")
        if depth or word not in _CLAUSES or tokens[at - 1].text.upper() == "EXECUTE":
            continue
        yield _Part(sql, tokens[begin:at])
        begin = at
        if word == "AS":
            break
    yield _Part(sql, tokens[begin:])


def _closing(tokens: tuple[Token, ...], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if depth == 0:
            return at
    raise exc.ArgumentError("a parenthesis is not closed")


def _words(part: _Part) -> list[str]:
    return [token.text.upper() for token in part.tokens if token.kind == "word"]


def _value(token: Token) -> str:
    """Return the value of a string literal of the server, which escapes with backslashes."""
    return _ESCAPED.sub(r"\1", token.text[1:-1])
