"""Random queries of several operators that belong together; pure."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.engine.oracle.groups import groupings
from tests.engine.oracle.joins import equal, joins
from tests.engine.oracle.relations import KEYS, Below, Relation, number_columns, set_operations
from tests.engine.oracle.windows import SORTED

_OUTER = ("JOIN", "LEFT JOIN", "LEFT JOIN", "FULL JOIN")


@st.composite
def join_chains(draw: st.DrawFn, below: Below) -> Relation:
    """Three relations joined one after the other by one key, named in each way SQL has for it."""
    sides = [draw(below) for _ in range(3)]
    shared = set.intersection(*({kind for _, kind in side.columns} for side in sides)) & set(KEYS)
    if not shared:
        return sides[0]
    kind = draw(st.sampled_from(sorted(shared)))
    parts = []
    for number, side in enumerate(sides):
        key = draw(st.sampled_from(side.column_names(kind)))
        last = side.columns[-1][0]
        parts.append(f"(SELECT {key} AS k, {last} AS v{number} FROM ({side.sql})) AS s{number}")
    first, second = draw(st.sampled_from(_OUTER)), draw(st.sampled_from(_OUTER))
    a, b, c = parts
    forms = (
        f"{a} {first} {b} USING (k) {second} {c} USING (k)",
        f"{a} NATURAL {first} {b} NATURAL {second} {c}",
    )
    text = draw(st.sampled_from(forms))
    columns = (("c0", kind), *((f"c{n + 1}", s.columns[-1][1]) for n, s in enumerate(sides)))
    if draw(st.booleans()):
        text = f"{a} {first} {b} ON s0.k = s1.k {second} {c} ON s1.k <=> s2.k"
        return Relation(f"SELECT s2.k AS c0, v0 AS c1, v1 AS c2, v2 AS c3 FROM {text}", columns)
    return Relation(f"SELECT k AS c0, v0 AS c1, v1 AS c2, v2 AS c3 FROM {text}", columns)


@st.composite
def grouped_groups(draw: st.DrawFn, below: Below) -> Relation:
    """Groups joined with groups, united with them, or grouped again."""
    groups = groupings(below)
    return draw(draw(st.sampled_from((joins, set_operations, groupings)))(groups))


@st.composite
def lateral(draw: st.DrawFn, below: Below) -> Relation:
    """A subquery in FROM that reads the row beside it."""
    source, inner = draw(below), draw(below)
    pairs = equal(source, inner)
    if not pairs:
        return source
    (a, _), (b, kind) = draw(st.sampled_from(pairs))
    count = len(source.columns)
    where = f"FROM ({inner.sql}) AS i WHERE i.{b} = o.{a}"
    forms = (
        (f", LATERAL (SELECT count(*) AS c{count} {where})", "opaque"),
        (f", LATERAL (SELECT {b} AS c{count} {where})", kind),
        (f" LEFT JOIN LATERAL (SELECT {b} AS c{count} {where}) ON true", kind),
        (f" LEFT JOIN LATERAL (SELECT {b} AS c{count} {where} ORDER BY {b} LIMIT 1)", kind),
        (f", LATERAL (SELECT o.{a} AS c{count})", kind),
        (f", LATERAL explode(array(o.{a}, NULL)) AS e(c{count})", kind),
    )
    text, result = draw(st.sampled_from(forms))
    sql = f"SELECT o.*, c{count} FROM ({source.sql}) AS o{text}"
    return Relation(sql, (*source.columns, (f"c{count}", result)))


@st.composite
def wide_subqueries(draw: st.DrawFn, below: Below) -> Relation:
    """Subqueries with several columns, in HAVING, or as a column."""
    source, inner = draw(below), draw(below)
    pairs = equal(source, inner)
    if not pairs:
        return source
    (a, kind), (b, _) = draw(st.sampled_from(pairs))
    (c, _), (d, _) = draw(st.sampled_from(pairs))
    count = len(source.columns)
    where = f"FROM ({inner.sql}) AS i WHERE i.{b} = o.{a}"
    wider = (*source.columns, (f"c{count}", "flag"))
    counted = (("c0", kind), ("c1", "int"))
    of = f"FROM ({source.sql}) AS o"
    head = f"SELECT {a} AS c0, count(*) AS c1 {of} GROUP BY {a} HAVING"
    forms = (
        (f"SELECT * {of} WHERE ({a}, {c}) IN (SELECT {b}, {d} FROM ({inner.sql}))", source.columns),
        (
            f"SELECT * {of} WHERE ({a}, {c}) NOT IN (SELECT {b}, {d} FROM ({inner.sql}))",
            source.columns,
        ),
        (f"SELECT *, EXISTS (SELECT 1 {where}) AS c{count} {of}", wider),
        (f"SELECT *, {a} IN (SELECT {b} FROM ({inner.sql})) AS c{count} {of}", wider),
        (f"SELECT *, NOT EXISTS (SELECT 1 {where} AND i.{d} <=> o.{c}) AS c{count} {of}", wider),
        (f"{head} {a} IN (SELECT {b} FROM ({inner.sql}))", counted),
        (f"{head} count(*) > (SELECT count(*) FROM ({inner.sql}) AS i WHERE i.{b} = {a})", counted),
        (f"{head} count(*) <= (SELECT count(DISTINCT {b}) FROM ({inner.sql}))", counted),
    )
    return Relation(*draw(st.sampled_from(forms)))


@st.composite
def common_tables(draw: st.DrawFn, below: Below) -> Relation:
    """Common table expressions that read each other, also recursively."""
    source = draw(below)
    keys = source.column_names(*KEYS)
    if not keys:
        return source
    key = draw(st.sampled_from(keys))
    kind = dict(source.columns)[key]
    inner = (
        f"WITH a AS ({source.sql}), b AS (SELECT {key} AS x, count(*) AS y FROM a GROUP BY {key})"
    )
    forms = (
        f"{inner} SELECT a.{key} AS c0, b.y AS c1 FROM a LEFT JOIN b ON a.{key} = b.x",
        (
            f"{inner}, c AS (SELECT * FROM b WHERE y > 1) SELECT b.x AS c0, c.y AS c1 FROM b"
            " LEFT JOIN c ON b.x <=> c.x"
        ),
        (
            f"{inner} SELECT x AS c0, y AS c1 FROM b WHERE x IN"
            " (WITH a AS (SELECT x FROM b WHERE y = 1) SELECT x FROM a)"
        ),
        (
            f"WITH RECURSIVE r(c0, c1) AS (SELECT {key}, 0L FROM ({source.sql}) UNION ALL"
            " SELECT c0, c1 + 1 FROM r WHERE c1 < 2) SELECT c0, c1 FROM r"
        ),
    )
    return Relation(draw(st.sampled_from(forms)), (("c0", kind), ("c1", "opaque")))


@st.composite
def leading(draw: st.DrawFn, below: Below) -> Relation:
    """The first rows in some order of which every column is part."""
    source = draw(below)
    if (sortable := _sortable(source)) is None:
        return source
    words = ("", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST")
    names = [name for name, _ in sortable.columns]
    if draw(st.booleans()):  # the columns that those of the result are made of
        names = [f"q.{name}" for name, kind in source.columns if kind in SORTED]
    order = [f"{name} {draw(st.sampled_from(words))}" for name in draw(st.permutations(names))]
    limit = draw(st.sampled_from((1, 2, 3, 5, 8, 30)))
    return replace(sortable, sql=f"{sortable.sql} ORDER BY {', '.join(order)} LIMIT {limit}")


@st.composite
def limits(draw: st.DrawFn, below: Below) -> Relation:
    """The first rows of all, every column breaking ties, or all rows in some order."""
    source = draw(below)
    if (sortable := _sortable(source)) is None:
        return source
    order = ", ".join(name for name, _ in sortable.columns)
    rest = draw(st.sampled_from(("", f"LIMIT {draw(st.integers(0, 4))}", "LIMIT 2 OFFSET 1")))
    words = draw(st.sampled_from(("ORDER BY", "ORDER BY", "DISTRIBUTE BY")))
    if words != "ORDER BY":
        rest = ""
    return replace(sortable, sql=f"{sortable.sql} {words} {order} {rest}".strip())


def _sortable(source: Relation) -> Relation | None:
    """Return a relation's columns that can be sorted by; None if there are none."""
    columns = tuple(column for column in source.columns if column[1] in SORTED)
    named, kept = number_columns(columns)
    return Relation(f"SELECT {named} FROM ({source.sql}) AS q", kept) if columns else None
