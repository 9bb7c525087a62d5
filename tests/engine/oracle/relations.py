"""Random relations as text, and the operators that treat rows one by one; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.engine.oracle.tables import TABLES, VIEWS

Column = tuple[str, str]
"""A name and a kind, which is a column's of the tables; opaque for any other."""

KEYS = ("key", "int", "day", "flag", "moment", "big", "tiny", "wall")
_UNEQUAL = ("opaque", "map", "variant")
JOINED = (*KEYS, "bytes", "struct", "list")
"""Kinds that may be equated."""


@dataclass(frozen=True)
class Relation:
    """A SELECT with its columns; table names are in braces."""

    sql: str
    columns: tuple[Column, ...]

    def column_names(self, *kinds: str) -> list[str]:
        """Return the names of the columns of some kinds."""
        return [name for name, kind in self.columns if kind in kinds]


Below = st.SearchStrategy[Relation]


def number_columns(columns: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
    """Return some columns under the names c0, c1 and so on: as a list in SQL, and as columns."""
    named = ", ".join(f"{name} AS c{number}" for number, (name, _) in enumerate(columns))
    return named, tuple((f"c{number}", kind) for number, (_, kind) in enumerate(columns))


@st.composite
def scans(draw: st.DrawFn) -> Relation:
    """Return the own rows of a table or a view."""
    table = draw(st.sampled_from((*TABLES, *TABLES, *VIEWS)))
    if table in VIEWS:
        known = VIEWS[table][1]
        return Relation(f"SELECT {', '.join(n for n, _ in known)} FROM {{{table}}}", known)
    columns = tuple((f"c{i}", c.kind) for i, c in enumerate(TABLES[table].columns))
    named = ", ".join(f"{c.quoted} AS c{i}" for i, c in enumerate(TABLES[table].columns))
    return Relation(f"SELECT {named} FROM {{{table}}}", columns)


@st.composite
def filters(draw: st.DrawFn, below: Below) -> Relation:
    """WHERE."""
    source = draw(below)
    return Relation(
        f"SELECT * FROM ({source.sql}) WHERE {draw(conditions(source))}", source.columns
    )


@st.composite
def projections(draw: st.DrawFn, below: Below) -> Relation:
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
def row_generators(draw: st.DrawFn, below: Below) -> Relation:
    """A generator of rows."""
    source = draw(below)
    names = source.column_names("int", "key")
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
def set_operations(draw: st.DrawFn, below: Below) -> Relation:
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
        "key": ("{0} = 'a'", "{0} IS NULL", "{0} <> 'b'", "{0} IN ('a', 'c')", "{0} LIKE 'a%'")
        + ("{0} COLLATE UTF8_LCASE = 'a'",),
        "int": ("{0} > 1", "{0} IS NOT NULL", "{0} % 2 = 0", "{0} <= 2 OR {0} IS NULL"),
        "day": ("{0} > DATE '2026-01-01'", "{0} IS NOT NULL"),
        "real": ("isnan({0})", "{0} >= 0", "{0} IS NULL OR {0} < 1"),
        "moment": ("{0} > TIMESTAMP '2026-01-01 00:00:00'", "{0} IS NOT NULL"),
        "flag": ("{0}", "NOT {0}", "{0} IS NULL", "{0} IS NOT TRUE"),
        "big": ("{0} > 0", "{0} IN (1, -3, NULL)", "{0} BETWEEN -3 AND 1"),
        "tiny": ("{0} > 0", "{0} = 127", "{0} IS NOT NULL"),
        "single": ("{0} < 1", "isnan({0})", "{0} IS DISTINCT FROM 0"),
        "wall": (
            "{0} - TIMESTAMP_NTZ '2026-01-01 00:00:00' < INTERVAL '1' HOUR",
            "{0} + INTERVAL '1' MONTH > TIMESTAMP_NTZ '2026-01-31 00:00:00'",
            "extract(MINUTE FROM {0}) = 0",
        ),
        "bytes": ("{0} = X'61'", "length({0}) > 0"),
        "struct": ("{0}.a = 1", "{0} IS NOT NULL", "{0}.t IS NULL", "isnan({0}.d)"),
        "list": ("size({0}) > 1", "array_contains({0}, 1)", "{0} = array(1, 2)", "get({0}, 0) = 3"),
        "map": ("size({0}) > 0", "{0}['a'] = 1", "map_contains_key({0}, 'b')"),
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
        "big": [(f"CAST({name} AS STRING)", "key"), (f"try_add({name}, 1L)", "big")],
        "tiny": [(f"CAST({name} AS INT)", "int"), (f"CAST({name} AS BIGINT)", "big")],
        "single": [(f"CAST({name} AS DOUBLE)", "real"), (f"{name} = 0", "flag")],
        "wall": [
            (f"CAST({name} AS DATE)", "day"),
            (f"date_trunc('HOUR', {name})", "wall"),
            (f"{name} + INTERVAL '1 02:03:04' DAY TO SECOND", "wall"),
        ],
        "bytes": [(f"hex({name})", "key"), (f"length({name})", "int")],
        "struct": [
            (f"{name}.a", "int"),
            (f"{name}.t", "key"),
            (f"{name}.d", "real"),
            (f"to_json({name})", "key"),
            (f"array({name}.a, 1)", "list"),
            (f"parse_json(to_json({name}))", "variant"),
            (f"variant_get(parse_json(to_json({name})), '$.a', 'INT')", "int"),
        ],
        "list": [
            (f"size({name})", "int"),
            (f"array_sort({name})", "list"),
            (f"transform({name}, e -> try_add(e, 1))", "list"),
            (f"aggregate({name}, 0, (a, e) -> coalesce(try_add(a, e), a))", "int"),
            (f"named_struct('a', get({name}, 0), 'd', 0.5D, 't', 'x')", "struct"),
        ],
        "map": [
            (f"{name}['a']", "int"),
            (f"array_sort(map_values({name}))", "list"),
            (f"element_at({name}, 'b')", "int"),
            (f"to_json({name})", "opaque"),
        ],
        "variant": [(f"CAST({name} AS STRING)", "key"), (f"variant_get({name}, '$.a')", "variant")],
    }
    made["key"] += [
        (f"get_json_object(concat('[', length({name}), ']'), '$[0]')", "key"),
        (f"from_json(concat('[', length({name}), ', null]'), 'ARRAY<INT>')", "list"),
        (f"regexp_replace({name}, '[a-b]+', '-')", "key"),
        (f"split({name}, '')[0]", "key"),
    ]
    made["int"] += [
        (f"named_struct('a', {name}, 'd', CAST({name} AS DOUBLE), 't', 'a')", "struct"),
        (f"array({name}, NULL, 1)", "list"),
        (f"if({name} = 1, map('a', {name}), map('b', 2))", "map"),
        (f"CAST({name} AS BIGINT)", "big"),
        (f"cast({name} AS DOUBLE) / 2", "real"),
    ]
    made["day"] += [(f"CAST({name} AS TIMESTAMP_NTZ)", "wall"), (f"last_day({name})", "day")]
    return [(name, kind), (name, kind), *made.get(kind, [])]


def _pairs(left: Relation, right: Relation) -> list[tuple[Column, Column]]:
    """Pair columns of the same kind, each once, at most three."""
    rest = list(right.columns)
    found = []
    for column in left.columns:
        match = next((o for o in rest if o[1] == column[1] not in _UNEQUAL), None)
        if match is not None:
            rest.remove(match)
            found.append((column, match))
    return found[:3]
