"""Random relations as text, and the operators that treat rows one by one; pure."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.server.engine.oracle.tables import TABLES

Column = tuple[str, str]
"""A name and a kind: key, int, exact, huge, real, day, moment, flag; opaque for any other."""

KEYS = ("key", "int", "day", "flag", "moment")


@dataclass(frozen=True)
class Relation:
    """A SELECT with its columns; table names stand in braces."""

    sql: str
    columns: tuple[Column, ...]

    def named(self, *kinds: str) -> list[str]:
        """Return the names of the columns of some kinds."""
        return [name for name, kind in self.columns if kind in kinds]


Below = st.SearchStrategy[Relation]


@st.composite
def scans(draw: st.DrawFn) -> Relation:
    """Return a table's own rows."""
    table = draw(st.sampled_from(sorted(TABLES)))
    columns = tuple((f"c{i}", c.kind) for i, c in enumerate(TABLES[table].columns))
    named = ", ".join(f"{c.quoted} AS c{i}" for i, c in enumerate(TABLES[table].columns))
    return Relation(f"SELECT {named} FROM {{{table}}}", columns)


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
    if draw(st.booleans()):
        sql = f"SELECT *, {how}({made}) AS c{number} FROM ({source.sql})"
    else:
        outer = "OUTER " if how == "explode_outer" else ""
        sql = f"SELECT * FROM ({source.sql}) LATERAL VIEW {outer}explode({made}) e AS c{number}"
    return Relation(sql, (*source.columns, (f"c{number}", kind)))


@st.composite
def united(draw: st.DrawFn, below: Below) -> Relation:
    """A set operation, with or without duplicates."""
    word = draw(
        st.sampled_from(
            (
                *("UNION ALL", "UNION ALL", "UNION"),
                *("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"),
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
def conditions(draw: st.DrawFn, source: Relation) -> str:
    """Return a condition over a relation's columns."""
    name, kind = draw(st.sampled_from(source.columns))
    forms = {
        "key": ("{0} = 'a'", "{0} IS NULL", "{0} <> 'b'", "{0} IN ('a', 'c')", "{0} LIKE 'a%'"),
        "int": ("{0} > 1", "{0} IS NOT NULL", "{0} % 2 = 0", "{0} <= 2 OR {0} IS NULL"),
        "day": ("{0} > DATE '2026-01-01'", "{0} IS NOT NULL"),
        "real": ("isnan({0})", "{0} >= 0", "{0} IS NULL OR {0} < 1"),
        "moment": ("{0} > TIMESTAMP '2026-01-01 00:00:00'", "{0} IS NOT NULL"),
        "flag": ("{0}", "NOT {0}", "{0} IS NULL", "{0} IS NOT TRUE"),
    }
    return draw(st.sampled_from(forms.get(kind, ("{0} IS NOT NULL", "{0} IS NULL")))).format(name)


def _expressions(name: str, kind: str) -> list[tuple[str, str]]:
    """Return what may be made of a column, each with its kind."""
    made = {
        "key": [
            (f"upper({name})", "key"),
            (f"coalesce({name}, 'z')", "key"),
            (f"length({name})", "int"),
        ],
        "int": [
            (f"try_add({name}, 1)", "int"),
            (f"abs({name}) % 3", "int"),
            (f"nullif({name}, 0)", "int"),
            (f"CASE WHEN {name} > 1 THEN 'a' WHEN {name} IS NULL THEN NULL ELSE 'b' END", "key"),
        ],
        "exact": [(f"{name} * 2", "opaque"), (f"CAST({name} AS STRING)", "key")],
        "huge": [(f"CAST({name} AS STRING)", "key"), (f"{name} > 0", "flag")],
        "real": [(f"CAST({name} AS STRING)", "opaque"), (f"{name} * -1", "real")],
        "day": [(f"date_add({name}, 1)", "day"), (f"year({name})", "int")],
        "moment": [(f"CAST({name} AS DATE)", "day"), (f"date_trunc('DAY', {name})", "moment")],
        "flag": [(f"NOT {name}", "flag"), (f"CAST({name} AS INT)", "int")],
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
