"""Random queries over the oracle's tables, as text; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.server.engine.oracle.tables import TABLES

Column = tuple[str, str]
"""A name and a kind: key, int, exact, huge, real, day."""

_KEYS = ("key", "int", "day")
_AGGREGATES: dict[str, tuple[str, ...]] = {
    "key": ("min({0})", "max({0})", "count({0})", "count(DISTINCT {0})"),
    "int": ("sum({0})", "avg({0})", "count({0})", "min({0})", "count(DISTINCT {0})"),
    "exact": ("sum({0})", "avg({0})", "max({0})"),
    "huge": ("min({0})", "max({0})", "count(DISTINCT {0})"),
    "real": ("sum({0})", "count({0})", "min({0} + 0D)"),
    "day": ("min({0})", "max({0})"),
}
_RESULTS = {"min": None, "max": None, "count": "int", "sum": None, "avg": "opaque"}


@dataclass(frozen=True)
class Relation:
    """A SELECT with its columns; table names stand in braces."""

    sql: str
    columns: tuple[Column, ...]

    def named(self, *kinds: str) -> list[str]:
        """Return the names of the columns of some kinds."""
        return [name for name, kind in self.columns if kind in kinds]


@st.composite
def queries(draw: st.DrawFn, depth: int = 3) -> str:
    """Return a query whose result is the same whenever it is computed from the same rows."""
    return draw(relations(depth)).sql


def relations(depth: int) -> st.SearchStrategy[Relation]:
    """Return relations of at most so many operators above a table."""
    if depth == 0:
        return scans()
    below = relations(depth - 1)
    return st.one_of(scans(), *(operator(below) for operator in OPERATORS))


@st.composite
def scans(draw: st.DrawFn) -> Relation:
    """Return a table's own rows."""
    table = draw(st.sampled_from(sorted(TABLES)))
    columns = tuple((f"c{i}", c.kind) for i, c in enumerate(TABLES[table].columns))
    named = ", ".join(f"{c.name} AS c{i}" for i, c in enumerate(TABLES[table].columns))
    return Relation(f"SELECT {named} FROM {{{table}}}", columns)


Below = st.SearchStrategy[Relation]


@st.composite
def filtered(draw: st.DrawFn, below: Below) -> Relation:
    """WHERE."""
    source = draw(below)
    return Relation(
        f"SELECT * FROM ({source.sql}) WHERE {draw(conditions(source))}", source.columns
    )


@st.composite
def projected(draw: st.DrawFn, below: Below) -> Relation:
    """Some columns, passed through or computed."""
    source = draw(below)
    chosen = draw(st.lists(st.sampled_from(source.columns), min_size=1, max_size=4, unique=True))
    columns, texts = [], []
    for number, (name, kind) in enumerate(chosen):
        text, result = draw(st.sampled_from(_expressions(name, kind)))
        texts.append(f"{text} AS c{number}")
        columns.append((f"c{number}", result))
    return Relation(f"SELECT {', '.join(texts)} FROM ({source.sql})", tuple(columns))


@st.composite
def exploded(draw: st.DrawFn, below: Below) -> Relation:
    """A generator of rows."""
    source = draw(below)
    names = source.named("int", "key")
    if not names:
        return source
    name = draw(st.sampled_from(names))
    how = draw(st.sampled_from(("explode", "explode_outer")))
    lists = ("array({0}, {0})", "filter(array({0}), e -> e IS NOT NULL)", "array({0}, NULL)")
    made = draw(st.sampled_from(lists)).format(name)
    number = len(source.columns)
    kind = dict(source.columns)[name]
    sql = f"SELECT *, {how}({made}) AS c{number} FROM ({source.sql})"
    return Relation(sql, (*source.columns, (f"c{number}", kind)))


@st.composite
def united(draw: st.DrawFn, below: Below) -> Relation:
    """A set operation, with or without duplicates."""
    word = draw(
        st.sampled_from(
            (
                "UNION ALL",
                "UNION ALL",
                "UNION",
                "INTERSECT",
                "INTERSECT ALL",
                "EXCEPT",
                "EXCEPT ALL",
            )
        )
    )
    left, right = draw(below), draw(below)
    pairs = _pairs(left, right)
    if not pairs:
        return left
    lefts = ", ".join(f"{a[0]} AS c{i}" for i, (a, _) in enumerate(pairs))
    rights = ", ".join(f"{b[0]} AS c{i}" for i, (_, b) in enumerate(pairs))
    sql = f"SELECT {lefts} FROM ({left.sql}) {word} SELECT {rights} FROM ({right.sql})"
    return Relation(sql, tuple((f"c{i}", a[1]) for i, (a, _) in enumerate(pairs)))


@st.composite
def joined(draw: st.DrawFn, below: Below) -> Relation:
    """A join of any kind on equal keys, sometimes with NULL as a key or a further condition."""
    left, right = draw(below), draw(below)
    pairs = [(a, b) for a in left.columns for b in right.columns if a[1] == b[1] in _KEYS]
    if not pairs:
        return left
    how = draw(
        st.sampled_from(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
    )
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique=True))
    equal = draw(st.sampled_from(("=", "=", "=", "<=>")))
    condition = " AND ".join(f"l.{a[0]} {equal} r.{b[0]}" for a, b in chosen)
    numbers = [(a, b) for a in left.named("int") for b in right.named("int")]
    if numbers and draw(st.integers(0, 3)) == 0:
        a, b = draw(st.sampled_from(numbers))
        condition += f" AND l.{a} <= r.{b}"
    one_sided = how in ("SEMI JOIN", "ANTI JOIN")
    outputs = [("l", c) for c in left.columns] + (
        [] if one_sided else [("r", c) for c in right.columns]
    )
    texts = ", ".join(f"{side}.{c[0]} AS c{i}" for i, (side, c) in enumerate(outputs))
    how = how.replace("SEMI", "LEFT SEMI").replace("ANTI", "LEFT ANTI")
    sql = f"SELECT {texts} FROM ({left.sql}) AS l {how} ({right.sql}) AS r ON {condition}"
    return Relation(sql, tuple((f"c{i}", c[1]) for i, (_, c) in enumerate(outputs)))


@st.composite
def crossed(draw: st.DrawFn, below: Below) -> Relation:
    """A few columns of two relations, every row with every row."""
    left, right = draw(below), draw(below)
    sql = (
        f"SELECT l.{left.columns[0][0]} AS c0, r.{right.columns[-1][0]} AS c1"
        f" FROM ({left.sql}) AS l CROSS JOIN ({right.sql}) AS r"
    )
    return Relation(sql, (("c0", left.columns[0][1]), ("c1", right.columns[-1][1])))


@st.composite
def grouped(draw: st.DrawFn, below: Below) -> Relation:
    """GROUP BY with or without keys, sometimes HAVING, ROLLUP or CUBE."""
    source = draw(below)
    groupable = source.named(*_KEYS, "real", "huge", "exact")
    keys = draw(st.lists(st.sampled_from(groupable), max_size=2, unique=True)) if groupable else []
    aggregates = ["count(*)"] + draw(st.lists(_aggregates(source), max_size=2))
    kinds = dict(source.columns)
    outputs = [(key, kinds[key]) for key in keys] + [(a, _result(a, kinds)) for a in aggregates]
    texts = ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(outputs))
    sql = f"SELECT {texts} FROM ({source.sql})"
    if keys:
        how = draw(st.sampled_from(("{}", "{}", "{}", "ROLLUP({})", "CUBE({})")))
        sql += " GROUP BY " + how.format(", ".join(keys))
    if draw(st.integers(0, 3)) == 0:
        sql += f" HAVING count(*) {draw(st.sampled_from(('> 1', '= 1', '< 3')))}"
    return Relation(sql, tuple((f"c{i}", kind) for i, (_, kind) in enumerate(outputs)))


@st.composite
def deduplicated(draw: st.DrawFn, below: Below) -> Relation:
    """DISTINCT."""
    source = draw(below)
    return Relation(f"SELECT DISTINCT * FROM ({source.sql})", source.columns)


@st.composite
def windowed(draw: st.DrawFn, below: Below) -> Relation:
    """A window function whose value does not depend on the order of equal rows."""
    source = draw(below)
    keys, numbers = source.named(*_KEYS), source.named("int", "exact", "day")
    if not keys or not numbers:
        return source
    key, number = draw(st.sampled_from(keys)), draw(st.sampled_from(numbers))
    kind = dict(source.columns)[number]
    over = f"PARTITION BY {key}"
    ordered = f"{over} ORDER BY {number}"
    choices = [
        (f"rank() OVER ({ordered})", "int"),
        (f"dense_rank() OVER ({ordered} DESC NULLS LAST)", "int"),
        (f"count(*) OVER ({over})", "int"),
        (f"max({number}) OVER ({over})", kind),
        (f"min({number}) OVER ({ordered} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", kind),
        (f"rank() OVER (ORDER BY {number})", "int"),
    ]
    text, result = draw(st.sampled_from(choices))
    name = f"c{len(source.columns)}"
    sql = f"SELECT *, {text} AS {name} FROM ({source.sql})"
    relation = Relation(sql, (*source.columns, (name, result)))
    if result == "int" and draw(st.booleans()):
        return Relation(f"SELECT * FROM ({sql}) WHERE {name} <= 1", relation.columns)
    return relation


@st.composite
def nested(draw: st.DrawFn, below: Below) -> Relation:
    """A subquery in a condition."""
    source, inner = draw(below), draw(below)
    pairs = [(a, b) for a in source.columns for b in inner.columns if a[1] == b[1] in _KEYS]
    if not pairs:
        return source
    (a, _), (b, _) = draw(st.sampled_from(pairs))
    forms = (
        f"{a} IN (SELECT {b} FROM ({inner.sql}))",
        f"{a} NOT IN (SELECT {b} FROM ({inner.sql}))",
        f"EXISTS (SELECT 1 FROM ({inner.sql}) AS i WHERE i.{b} = o.{a})",
        f"NOT EXISTS (SELECT 1 FROM ({inner.sql}) AS i WHERE i.{b} = o.{a})",
        f"{a} = (SELECT max({b}) FROM ({inner.sql}))",
    )
    condition = draw(st.sampled_from(forms))
    return Relation(f"SELECT * FROM ({source.sql}) AS o WHERE {condition}", source.columns)


@st.composite
def common(draw: st.DrawFn, below: Below) -> Relation:
    """A common table expression read twice: a self join."""
    source = draw(below)
    keys = source.named(*_KEYS)
    if not keys:
        return source
    key = draw(st.sampled_from(keys))
    last = source.columns[-1]
    sql = (
        f"SELECT a.{key} AS c0, a.{last[0]} AS c1, b.{last[0]} AS c2"
        f" FROM ({source.sql}) AS a JOIN ({source.sql}) AS b ON a.{key} = b.{key}"
    )
    return Relation(sql, (("c0", dict(source.columns)[key]), ("c1", last[1]), ("c2", last[1])))


OPERATORS: tuple[Callable[[Below], st.SearchStrategy[Relation]], ...] = (
    filtered,
    projected,
    exploded,
    united,
    joined,
    crossed,
    grouped,
    grouped,
    deduplicated,
    windowed,
    nested,
    common,
)


@st.composite
def conditions(draw: st.DrawFn, source: Relation) -> str:
    """Return a condition over a relation's columns."""
    name, kind = draw(st.sampled_from(source.columns))
    forms = {
        "key": ("{0} = 'a'", "{0} IS NULL", "{0} <> 'b'", "{0} IN ('a', 'c')"),
        "int": ("{0} > 1", "{0} IS NOT NULL", "{0} % 2 = 0", "{0} <= 2 OR {0} IS NULL"),
        "day": ("{0} > DATE '2026-01-02'", "{0} IS NOT NULL"),
        "real": ("isnan({0})", "{0} >= 0", "{0} IS NULL OR {0} < 1"),
    }
    return draw(st.sampled_from(forms.get(kind, ("{0} IS NOT NULL", "{0} IS NULL")))).format(name)


@st.composite
def _aggregates(draw: st.DrawFn, source: Relation) -> str:
    name, kind = draw(st.sampled_from(source.columns))
    return draw(st.sampled_from(_AGGREGATES.get(kind, ("count({0})",)))).format(name)


def _result(aggregate: str, kinds: dict[str, str]) -> str:
    word, rest = aggregate.split("(", 1)
    if word == "count":
        return "int"
    name = rest.removesuffix(")").split(" ")[0]
    kind = kinds.get(name, "opaque")
    # Sums and averages are wider than what they are made of.
    return (
        kind
        if word in ("min", "max") or (word, kind) in (("sum", "int"), ("sum", "real"))
        else "opaque"
    )


def _expressions(name: str, kind: str) -> list[tuple[str, str]]:
    """Return what may be made of a column, each with its kind."""
    made = {
        "key": [(f"upper({name})", "key"), (f"coalesce({name}, 'z')", "key")],
        "int": [(f"{name} + 1", "int"), (f"abs({name}) % 3", "int"), (f"nullif({name}, 0)", "int")],
        "exact": [(f"{name} * 2", "opaque")],
        "real": [(f"CAST({name} AS STRING)", "opaque"), (f"{name} * -1", "real")],
        "day": [(f"date_add({name}, 1)", "day"), (f"year({name})", "opaque")],
    }
    return [(name, kind), (name, kind), *made.get(kind, [])]


def _pairs(left: Relation, right: Relation) -> list[tuple[Column, Column]]:
    """Pair columns of the same kind, each once, at most three."""
    rest = list(right.columns)
    found = []
    for column in left.columns:
        match = next((other for other in rest if other[1] == column[1] != "opaque"), None)
        if match is not None:
            rest.remove(match)
            found.append((column, match))
    return found[:3]
