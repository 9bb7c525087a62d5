"""Queries whose results are followed, and the statements that follow them.

The changes of a table are those of Delta's change data feed:
https://docs.delta.io/latest/delta-change-data-feed.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate.lexical import (
    UNCLOSED,
    Token,
    name_of,
    quote_name,
    significant_tokens,
    unquote_name,
)
from tidegate.literals import literal

OP: Final = "op"
"""The first column of a changelog: ``+I``, ``-U``, ``+U`` or ``-D``."""

_QUERIES = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES", "("})
_TAILS = frozenset(
    {"CLUSTER", "DISTRIBUTE", "GROUP", "HAVING", "LIMIT", "OFFSET", "ORDER", "QUALIFY", "SORT"}
    | {"WINDOW"}
)
_JOINS = frozenset(
    {"ANTI", "ASOF", "CROSS", "FULL", "INNER", "JOIN", "LATERAL", "LEFT", "NATURAL", "RIGHT"}
    | {"SEMI"}
)
_SETS = frozenset({"EXCEPT", "INTERSECT", "MINUS", "UNION"})
_NO_ALIASES = _TAILS | _JOINS | _SETS | {"FOR", "PIVOT", "TABLESAMPLE", "UNPIVOT", "WHERE", "WITH"}
_TRAVELS = frozenset({"SYSTEM_TIME", "SYSTEM_VERSION", "TIMESTAMP", "VERSION"})


class NotLiveError(Exception):
    """The result of a query cannot be followed; the message says why."""


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """``SELECT items FROM table [AS alias] [WHERE condition] …``.

    ``table`` has the parts of the name, unquoted. ``stars`` are the offsets in ``items`` of each
    ``*`` or ``alias.*``. ``beyond`` says what else the query has, such as GROUP BY, so that its
    changes do not follow from those of single rows; it is empty if there is nothing.
    """

    table: tuple[str, ...]
    alias: str
    items: str
    stars: tuple[tuple[int, int], ...] = ()
    condition: str = ""
    beyond: str = ""

    @property
    def name(self) -> str:
        """The quoted name of the table."""
        return ".".join(map(quote_name, self.table))

    def version_sql(self) -> str:
        """Return the statement whose row begins with the newest version and its time."""
        return f"DESCRIBE HISTORY {self.name} LIMIT 1"

    def columns_sql(self, version: int) -> str:
        """Return a query without rows that has the columns of the table."""
        return f"SELECT * FROM {self.name} VERSION AS OF {version} LIMIT 0"

    def expand(self, columns: Sequence[str]) -> LiveQuery:
        """Return the query with the names of the columns for each ``*``."""
        written = ", ".join(f"{quote_name(self.alias)}.{quote_name(column)}" for column in columns)
        items = self.items
        for start, end in reversed(self.stars):
            items = items[:start] + written + items[end:]
        return replace(self, items=items, stars=())

    def names_sql(self, version: int) -> str:
        """Return a query without rows that has the columns of the result."""
        return f"SELECT {self.items}\n{self._source(version)} LIMIT 0"

    def rows_sql(self, version: int) -> str:
        """Return the query of the rows of a version, each with its op."""
        return f"SELECT '+I' AS `{OP}`, {self.items}\n{self._source(version)}"

    def changes_sql(
        self,
        versions: tuple[int, int],
        after: int,
        names: Sequence[str],
        key: Sequence[str] = (),
    ) -> str:
        """Return the query of the changes, each with its op, in the order of the versions.

        Rows that a version removes and adds again are left out.

        :param versions: the first and the last version that are read.
        :param after: changes of versions up to this one are left out.
        :param names: of the columns of the result.
        :param key: columns of the table that identify a row. A version updates a row if it removes
            and adds rows with the same key; without a key, if the feed says so.
        """
        keys = [f"`__k{place}`" for place in range(len(key))]
        values = [f"`__c{place}`" for place in range(len(names))]
        group = ", ".join(["`__v`", *keys])
        condition = f" AND ({self.condition}\n)" if self.condition else ""
        read = [f"{quote_name(self.alias)}.{quote_name(column)}" for column in key]
        fed = (
            f"SELECT {', '.join(['_commit_version', '_change_type', *read])}, {self.items}\n"
            f"FROM table_changes({literal(self.name)}, {versions[0]}, {versions[1]}) "
            f"AS {quote_name(self.alias)} WHERE _commit_version > {after}{condition}"
        )
        grouped = ", ".join(["`__v`", *keys, *values])
        net = (
            f"SELECT {grouped}, "
            "sum(IF(`__t` IN ('insert', 'update_postimage'), 1, -1)) AS `__n`, "
            "bool_or(`__t` LIKE 'update%') AS `__u`\n"
            f"FROM ({fed}) AS `__fed`(`__v`, `__t`, {', '.join([*keys, *values])})\n"
            f"GROUP BY {grouped}"
        )
        beside = f"OVER (PARTITION BY {group})"
        updated = f"bool_or(`__n` < 0) {beside} AND bool_or(`__n` > 0) {beside}" if key else "`__u`"
        ops = "IF(`__n` < 0, IF(`__both`, '-U', '-D'), IF(`__both`, '+U', '+I'))"
        shown = [
            f"{value} AS {quote_name(name)}" for value, name in zip(values, names, strict=True)
        ]
        return (
            f"SELECT {', '.join([f'{ops} AS `{OP}`', *shown])}\n"
            f"FROM (SELECT *, {updated} AS `__both` FROM ({net}) WHERE `__n` <> 0)\n"
            "LATERAL VIEW explode(array_repeat(0, CAST(abs(`__n`) AS INT))) AS `__copy`\n"
            f"ORDER BY {group}, `__n` > 0"
        )

    def _source(self, version: int) -> str:
        where = f" WHERE {self.condition}\n" if self.condition else ""
        return f"FROM {self.name} VERSION AS OF {version} AS {quote_name(self.alias)}{where}"


def is_query(sql: str) -> bool:
    """Return whether a statement is a query, whose result could be asked to be followed."""
    return any(token.text.upper() in _QUERIES for token in _tokens(sql)[:1])


def parse_query(sql: str) -> LiveQuery:
    """Return the parts of a query on one table.

    :raises NotLiveError: if it is another query.
    """
    return _Parser(sql, _tokens(sql)).parse()


def require_rows(query: LiveQuery) -> None:
    """Require that each row of the result comes from one row of the table, as far as syntax shows.

    :raises NotLiveError: otherwise.
    """
    if query.beyond:
        raise NotLiveError(f"it has {query.beyond}")


@dataclass(slots=True)
class _Parser:
    sql: str
    tokens: list[Token]
    place: int = 0
    beyond: str = ""

    def parse(self) -> LiveQuery:
        if self._word() != "SELECT":
            raise NotLiveError("it does not begin with SELECT")
        begin = self.tokens[0].end
        self.place = 1
        if self._word() in ("ALL", "DISTINCT"):
            self._note(self._word())
        self._refuse_nested()
        end = self._find_from()
        stars = tuple(self._stars(end))
        items = self.sql[begin : self.tokens[end].start]
        self.place = end + 1
        table = self._table()
        alias = self._alias() or table[-1]
        condition = self._condition()
        offset = begin + len(items) - len(items.lstrip())
        return LiveQuery(
            table,
            alias,
            items.strip(),
            tuple(
                (self.tokens[first].start - offset, self.tokens[last].end - offset)
                for first, last, qualifier in stars
                if qualifier in ("", alias.casefold())
            ),
            condition,
            self.beyond,
        )

    def _note(self, what: str) -> None:
        self.beyond = self.beyond or what

    def _text(self, place: int) -> str:
        return self.tokens[place].text if 0 <= place < len(self.tokens) else ""

    def _word(self, place: int | None = None) -> str:
        """Return the keyword at a place, in capitals; other tokens are empty or signs."""
        return self._text(self.place if place is None else place).upper()

    def _refuse_nested(self) -> None:
        for place, token in enumerate(self.tokens[1:], start=1):
            nested = self._text(place - 1) == "(" and self._word(place) in _QUERIES - {"("}
            if nested or (token.kind == "word" and token.text.upper() == "SELECT"):
                raise NotLiveError("it has several queries")
            if token.text == "/" and self._text(place + 1) == "*":
                self._note("a hint")
            if token.text == "|" and self._text(place + 1) == ">":
                raise NotLiveError("it has a pipe")
            if token.kind == "word" and token.text.upper() == "OVER":
                self._note("a window function")

    def _find_from(self) -> int:
        depth = 0
        for place in range(self.place, len(self.tokens)):
            depth += _depth(self.tokens[place])
            # IS DISTINCT FROM is an operator.
            if not depth and self._word(place) == "FROM" and self._word(place - 1) != "DISTINCT":
                return place
        raise NotLiveError("it reads no table")

    def _stars(self, end: int) -> list[tuple[int, int, str]]:
        """Return the first and the last token of each ``*``, and the name before it."""
        found: list[tuple[int, int, str]] = []
        depth = 0
        for place in range(self.place, end):
            depth += _depth(self.tokens[place])
            before, after = self._text(place - 1), self._word(place + 1)
            if self._text(place) != "*" or not (place == self.place or before in (",", ".", "(")):
                continue
            if depth:
                counts = self._word(place - 2) == "COUNT"
                self._note("an aggregate function" if counts else "* in a function")
                continue
            if after not in (",", "FROM"):
                self._note(f"* {after}")
            if before != ".":
                found.append((place, place, ""))
            elif self._text(place - 3) != ".":
                found.append((place - 2, place, unquote_name(self._text(place - 2)).casefold()))
        return found

    def _table(self) -> tuple[str, ...]:
        parts = [self._part()]
        while self._text(self.place) == ".":
            self.place += 1
            parts.append(self._part())
        after = self._word()
        if after == "(":
            raise NotLiveError("it reads a function")
        if after in _TRAVELS and self._word(self.place + 1) == "AS":
            raise NotLiveError("it reads a fixed version")
        return tuple(parts)

    def _part(self) -> str:
        name = name_of(self.tokens[self.place]) if self.place < len(self.tokens) else None
        if name is None:
            raise NotLiveError("it does not read a table by its name")
        self.place += 1
        return name

    def _alias(self) -> str:
        word = self._word()
        if word == "AS":
            self.place += 1
        elif not word or word in _NO_ALIASES or not (word[0] == "`" or word[0].isidentifier()):
            return ""
        return self._part()

    def _condition(self) -> str:
        first = self._word()
        if first and first != "WHERE" and first not in _TAILS:
            reads_more = first == "," or first in _JOINS
            raise NotLiveError("it reads several tables" if reads_more else f"it has {first}")
        begin = self.place + 1
        depth, tail = 0, 0
        while self.place < len(self.tokens):
            depth += _depth(self.tokens[self.place])
            word = self._word()
            if not depth and word in _SETS:
                raise NotLiveError(f"it has {word}")
            if not depth and word in _TAILS:
                self._note(word)
                tail = tail or self.tokens[self.place].start
            self.place += 1
        if first != "WHERE":
            return ""
        return self.sql[self.tokens[begin - 1].end : tail or len(self.sql)].strip()


def _tokens(sql: str) -> list[Token]:
    """Return the tokens of a statement but comments.

    :raises NotLiveError: if a quote is not closed.
    """
    found = list(significant_tokens(sql))
    if any(token.kind == UNCLOSED for token in found):
        raise NotLiveError("a quote is not closed")
    return found


def _depth(token: Token) -> int:
    """Return by how much a token changes the depth of parentheses."""
    return (token.text in ("(", "[")) - (token.text in (")", "]"))
