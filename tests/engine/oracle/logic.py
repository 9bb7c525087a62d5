"""Streams in the manner of sqllogictest: many queries of few numbers, loaded in pieces; pure.

The queries are like those of SQLite's sqllogictest (select1 to select5, random and index):
expressions over five columns of numbers, CASE, subqueries that compare with ``<``, chains of joins
written as conditions, set operations, and aggregates of everything in all places.
"""

from __future__ import annotations

import random

from tests.engine.oracle.streams import Step, Stream
from tests.engine.oracle.tables import LOGIC, Layout

_COLUMNS = tuple(column.name for column in LOGIC["t1"].columns)
_COMPARISONS = ("<", "<=", "=", "<>", ">", ">=")
_MOST_ROWS = 6
"""Of one piece of a table."""


def logic_stream(number: int, tables: int, steps: int, depth: int) -> Stream:
    """Return the stream that belongs to a number: rows are only ever added."""
    source = random.Random(f"logic {number}")
    writer = _Writer(source, depth)
    return Stream(
        layouts={
            table: Layout(
                feed=source.random() < 0.5, partitioned=False, vectors=False, clustered=False
            )
            for table in LOGIC
        },
        start=_piece(source),
        queries=tuple(writer.query() for _ in range(tables)),
        steps=tuple(_piece(source) for _ in range(steps)),
    )


def _piece(source: random.Random) -> Step:
    """Return statements that add rows to some tables."""
    return tuple(
        f"INSERT INTO {{{table}}} ({', '.join(_COLUMNS)}) SELECT * FROM VALUES "
        f"{', '.join(_row(source) for _ in range(source.randint(1, _MOST_ROWS)))} "
        f"AS v({', '.join(_COLUMNS)})"
        for table in LOGIC
        if source.random() < 0.6
    )


def _row(source: random.Random) -> str:
    values = (f"{source.randint(-3, 12)}L" for _ in _COLUMNS)
    given = ("CAST(NULL AS BIGINT)" if source.random() < 0.1 else value for value in values)
    return f"({', '.join(given)})"


class _Writer:
    """Writes queries and their parts, each alias with the columns ``a`` to ``e``."""

    def __init__(self, source: random.Random, depth: int) -> None:
        self._source = source
        self._depth = depth

    def query(self) -> str:
        """Return a query."""
        forms = (
            *(self._columns, self._columns, self._chain, self._chain, self._sets),
            *(self._aggregates, self._groups, self._groups, self._distinct, self._members),
        )
        return self._source.choice(forms)()

    # ---- queries ---------------------------------------------------------------------------

    def _columns(self) -> str:
        """Expressions over one table, as in select1 to select3."""
        values = [self._value("x", self._depth) for _ in range(self._source.randint(1, 5))]
        conditions = [self._condition("x", self._depth) for _ in range(self._source.randint(0, 3))]
        return f"SELECT {_list(values)} FROM {self._table()} AS x{_where(conditions)}"

    def _chain(self) -> str:
        """Joins of up to five tables, written as conditions, as in select5."""
        aliases = [f"x{n}" for n in range(self._source.randint(2, 5))]
        tables = ", ".join(f"{self._table()} AS {alias}" for alias in aliases)
        equal = [
            f"{before}.{self._column()} = {after}.{self._column()}"
            for before, after in zip(aliases, aliases[1:], strict=False)
        ]
        equal += [
            self._condition(self._one_of(*aliases), 1) for _ in range(self._source.randint(0, 2))
        ]
        values = [self._value(alias, 1) for alias in aliases[:4]]
        return f"SELECT {_list(values)} FROM {tables}{_where(equal)}"

    def _sets(self) -> str:
        """Set operations between several tables, as in select4."""
        words = ("UNION", "UNION ALL", "INTERSECT", "EXCEPT")
        text = self._branch()
        for _ in range(self._source.randint(1, 3)):
            text = f"{text} {self._one_of(*words)} {self._branch()}"
        return text

    def _branch(self) -> str:
        conditions = [self._condition("x", 1)] * self._source.randint(0, 1)
        return f"SELECT {self._value('x', 1)} AS c0 FROM {self._table()} AS x{_where(conditions)}"

    def _aggregates(self) -> str:
        """Aggregates of everything, as in random/aggregates."""
        values = [self._aggregate("x") for _ in range(self._source.randint(1, 3))]
        conditions = [self._condition("x", self._depth)] * self._source.randint(0, 1)
        return f"SELECT {_list(values)} FROM {self._tables()}{_where(conditions)}"

    def _groups(self) -> str:
        """Groups by columns or expressions, as in random/groupby."""
        keys = [self._value("x", 1) for _ in range(self._source.randint(1, 2))]
        values = [self._aggregate("x") for _ in range(self._source.randint(1, 2))]
        conditions = [self._condition("x", self._depth)] * self._source.randint(0, 1)
        having = self._one_of(
            "", "", f" HAVING {self._aggregate('x')} {self._comparison()} {self._constant()}"
        )
        grouped = ", ".join(str(number) for number in range(1, len(keys) + 1))
        return (
            f"SELECT {_list([*keys, *values])} FROM {self._tables()}{_where(conditions)}"
            f" GROUP BY {grouped}{having}"
        )

    def _distinct(self) -> str:
        values = [self._value("x", 1), self._value("y", 1)]
        tables = f"{self._table()} AS x {self._join()} {self._table()} AS y"
        if "CROSS" not in tables:
            tables += f" ON x.{self._column()} {self._comparison()} y.{self._column()}"
        return f"SELECT {self._one_of('', 'DISTINCT ')}{_list(values)} FROM {tables}"

    def _members(self) -> str:
        """Nested IN below OR and NOT, as in index."""
        inner = f"SELECT z.{self._column()} FROM {self._table()} AS z"
        inner += _where([self._condition("z", 1)] * self._source.randint(0, 1))
        nested = f"x.{self._column()} {self._one_of('IN', 'NOT IN')} ({inner})"
        other = self._condition("x", self._depth)
        how = self._one_of("{0} AND {1}", "{0} OR {1}", "NOT ({0} OR {1})", "NOT ({0} AND {1})")
        condition = how.format(nested, other)
        return f"SELECT x.a AS c0, x.e AS c1 FROM {self._table()} AS x WHERE {condition}"

    # ---- expressions -----------------------------------------------------------------------

    def _value(self, alias: str, depth: int) -> str:
        """Return a number made of the columns of an alias."""
        if depth == 0:
            return self._one_of(f"{alias}.{self._column()}", self._constant())
        a, b, c = (self._value(alias, depth - 1) for _ in range(3))
        condition = self._condition(alias, depth - 1)
        column, other = (f"{alias}.{self._column()}" for _ in range(2))
        inner = f"FROM {self._table()} AS s"
        return self._one_of(
            *(column, column, f"{a} + {b}", f"{a} - {b}", f"- ({a})", f"abs({a} - {b})"),
            *(f"{column} + {other} * 2", f"coalesce({a}, {b}, 7)", f"nullif({a}, {b})"),
            f"CASE WHEN {condition} THEN {a} WHEN {a} <= {b} THEN 222 ELSE {c} END",
            f"CASE {a} + 1 WHEN {b} THEN 111 WHEN {c} THEN 222 ELSE 333 END",
            f"(SELECT count(*) {inner} WHERE s.{self._column()} < {column})",
            f"(SELECT max(s.{self._column()}) {inner} WHERE s.{self._column()} = {column})",
            f"(SELECT sum(s.{self._column()}) {inner})",
        )

    def _condition(self, alias: str, depth: int) -> str:
        """Return a condition on the columns of an alias."""
        below = max(depth - 1, 0)
        a, b, c = (self._value(alias, below) for _ in range(3))
        column = f"{alias}.{self._column()}"
        inner = f"FROM {self._table()} AS s"
        simple = [
            *(f"{a} {self._comparison()} {b}", f"{column} {self._comparison()} {b}"),
            *(f"{a} {self._one_of('', 'NOT ')}BETWEEN {b} AND {c}", f"{a} IS NULL"),
            f"{column} {self._one_of('', 'NOT ')}IN ({self._constant()}, {self._constant()}, 3)",
        ]
        if depth == 0:
            return self._one_of(*simple)
        first, second = (self._condition(alias, depth - 1) for _ in range(2))
        return self._one_of(
            *simple,
            *(f"({first} OR {second})", f"({first} AND {second})", f"NOT ({first})"),
            f"EXISTS (SELECT 1 {inner} WHERE s.{self._column()} < {column})",
            f"NOT EXISTS (SELECT 1 {inner} WHERE s.{self._column()} = {column})",
            f"{column} IN (SELECT s.{self._column()} {inner} WHERE s.{self._column()} > 2)",
            f"{a} > (SELECT avg(s.{self._column()}) {inner})",
        )

    def _aggregate(self, alias: str) -> str:
        value = self._value(alias, 1)
        name = self._one_of("count", "sum", "min", "max", "count", "sum")
        distinct = self._one_of("", "", "DISTINCT ") if name in ("count", "sum") else ""
        return self._one_of("count(*)", *(3 * [f"{name}({distinct}{value})"]))

    def _tables(self) -> str:
        """Return the tables of a FROM clause: one named ``x``, or another one beside it."""
        one = f"{self._table()} AS x"
        equal = f"ON x.{self._column()} = y.{self._column()}"
        return self._one_of(
            one,
            one,
            f"{one} CROSS JOIN {self._table()} AS y",
            f"{one} LEFT JOIN {self._table()} AS y {equal}",
        )

    def _table(self) -> str:
        return f"{{{self._one_of(*LOGIC)}}}"

    def _column(self) -> str:
        return self._one_of(*_COLUMNS)

    def _constant(self) -> str:
        return str(self._source.randint(-3, 12))

    def _comparison(self) -> str:
        return self._one_of(*_COMPARISONS)

    def _join(self) -> str:
        return self._one_of("CROSS JOIN", "JOIN", "LEFT JOIN", "FULL JOIN")

    def _one_of(self, *given: str) -> str:
        return self._source.choice(given)


def _list(values: list[str]) -> str:
    return ", ".join(f"{value} AS c{number}" for number, value in enumerate(values))


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
