"""Superset's statements for Tidegate: parsed for checks, but sent as written."""

from __future__ import annotations

import copy
import re
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from superset.exceptions import SupersetParseError
from superset.sql.parse import LimitMethod, SQLStatement

from tidegate.cli.split import split
from tidegate.lexical import OPAQUE, compile_tokens, find_tokens

ENGINE = "tidegate"

_READING = frozenset(
    {"SHOW", "DESCRIBE", "DESC", "EXPLAIN", "VERIFY", "USE", "SET", "RESET", "LIST"}
)
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
_READ_ONLY = (exp.Query, exp.Values, exp.Describe, exp.Show, exp.Set, exp.Use)
_QUERY_AFTER_AS = re.compile(r"\bAS\s+(?=(?:SELECT|WITH|FROM|VALUES)\b|\()", re.IGNORECASE)
_NOTHING_BUT_COMMENTS = compile_tokens(r"(?P<never> (?!) )")


class TidegateSQL(Spark):
    """Spark SQL as Spark 4 reads it: a doubled quote in a literal is one quote."""

    class Tokenizer(Spark.Tokenizer):
        """The tokens."""

        STRING_ESCAPES = ["\\", "'", '"']


class TidegateStatement(SQLStatement):  # type: ignore[misc]  # Superset has no types here
    """A statement whose text is sent unchanged, or wrapped in a query with a LIMIT.

    Superset generates other statements from its parser's tree, which changes literals and knows
    no materialized tables. Here the tree only tells which tables are read and changed.
    """

    def __init__(
        self,
        statement: str | None = None,
        engine: str = ENGINE,
        ast: exp.Expression | None = None,
    ) -> None:
        self._source = None if statement is None else statement.strip().rstrip(";").rstrip()
        self._limit: int | None = None
        super().__init__(statement, engine, ast)

    @classmethod
    def split_script(cls, script: str, engine: str) -> list[TidegateStatement]:
        """Return the statements of a script, split as the command line splits it."""
        return [cls(part.sql, engine) for part in split(script) if part.sql]

    @classmethod
    def _parse_statement(cls, statement: str, engine: str) -> exp.Expression:
        """Parse one statement; a statement of Tidegate's becomes a command.

        :raises SupersetParseError: for a query that cannot be parsed: its tables are unknown.
        """
        try:
            parsed: list[exp.Expression] = [tree for tree in cls._parse(statement, engine) if tree]
        except SupersetParseError:
            first, _, rest = _without_comments(statement).strip().partition(" ")
            if first.upper() in _QUERIES or first.startswith("("):
                raise
            return exp.Command(this=first.upper(), expression=exp.Literal.string(rest))
        if len(parsed) != 1:
            raise SupersetParseError(
                statement, engine, message="SQLStatement should have exactly one statement"
            )
        return parsed[0]

    @classmethod
    def _extract_tables_from_statement(cls, parsed: exp.Expression, engine: str) -> set[Any]:
        """Return the tables that a statement, or the query in a command, reads.

        :raises SupersetParseError: for a query that cannot be parsed.
        """
        tables: set[Any] = super()._extract_tables_from_statement(parsed, engine)
        if isinstance(parsed, exp.Command) and parsed.name.upper() not in _READING:
            # sqlglot itself has plain text there, this class a literal.
            text = str(getattr(parsed.expression, "name", parsed.expression))
            if (found := _QUERY_AFTER_AS.search(text)) is not None:
                tables |= cls(text[found.end() :], engine).tables
        return tables

    def is_mutating(self) -> bool:
        """Return whether the statement may change data: all but queries and listings may."""
        if isinstance(self._parsed, exp.Command):
            return self._parsed.name.upper() not in _READING
        return not isinstance(self._parsed, _READ_ONLY) or bool(super().is_mutating())

    def format(self, comments: bool = True) -> str:
        """Return the text of the statement; a query with a limit is wrapped in another one."""
        if self._source is None:
            return str(super().format(comments))
        text = self._source if comments else _without_comments(self._source)
        # The appended text must not become part of a trailing comment.
        end = "\n" if "--" in text.rpartition("\n")[2] else ""
        if self._limit is None:
            return text + end
        # On the first line, so that errors have the lines of the text.
        return f"SELECT * FROM ({text}\n) LIMIT {self._limit}"

    def set_limit_value(self, limit: int, method: LimitMethod = LimitMethod.FORCE_LIMIT) -> None:
        """Limit the rows of a query; those of other statements are limited by the fetch."""
        if self._source is None:
            super().set_limit_value(limit, method)
        elif isinstance(self._parsed, exp.Query):
            self._limit = limit

    def optimize(self) -> TidegateStatement:
        """Return the statement as it is: Spark optimizes it."""
        return copy.deepcopy(self)

    def apply_rls(self, *arguments: Any, **options: Any) -> None:
        """Add the predicates of row level security, with the text generated from the tree."""
        before = self._parsed.sql(dialect=TidegateSQL)
        super().apply_rls(*arguments, **options)
        if self._parsed.sql(dialect=TidegateSQL) != before:
            self._source = None
            if self._limit is not None:
                super().set_limit_value(self._limit, LimitMethod.WRAP_SQL)


def _without_comments(sql: str) -> str:
    pieces: list[str] = []
    position = 0
    for token in find_tokens(_NOTHING_BUT_COMMENTS, sql):
        if token.kind == OPAQUE and token.text.startswith(("--", "/*")):
            pieces += (sql[position : token.start], " ")
            position = token.end
    return "".join([*pieces, sql[position:]])
