"""Random predicates with subqueries, in every place that takes one, where NULL is a value; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.joins import equal
from tests.engine.oracle.relations import Below, Column, Relation, conditions

Pairs = list[tuple[Column, Column]]

_AROUND = (
    *("NOT ({0})", "NOT ({0})", "NOT (NOT ({0}))", "({0}) = false", "({0}) <> true"),
    *("({0}) = true", "({0}) <> false", "true = ({0})", "({0}) IS NOT TRUE", "({0}) IS TRUE"),
    *("({0}) IS FALSE", "({0}) IS NOT FALSE", "({0}) IS NULL", "({0}) IS NOT NULL"),
    *("({0}) <=> true", "({0}) <=> false", "({0}) <=> NULL", "({0}) = CAST(NULL AS BOOLEAN)"),
    *("coalesce({0}, false)", "coalesce({0}, true)", "nvl({0}, false)", "if({0}, false, true)"),
    *("nullif({0}, true)", "CASE WHEN {0} THEN true END", "CASE WHEN {0} THEN NULL ELSE true END"),
)
_BESIDE = (
    *("NOT (({0}) AND {1})", "NOT (({0}) OR {1})", "({0}) AND {1}", "({0}) OR {1}"),
    *("({0}) = ({1})", "({0}) <=> ({1})", "({1}) <> ({0})", "coalesce({0}, {1})"),
    *("CASE WHEN {0} THEN {1} ELSE NOT ({1}) END", "CASE WHEN {1} THEN {0} ELSE NOT ({0}) END"),
    *("if({0}, {1}, NULL)", "if({1}, {0}, false)", "NOT (NOT ({0}) AND NOT ({1}))"),
)
_SAFE = (
    *("NOT ({0})", "({0}) = false", "({0}) <> true", "NOT (NOT ({0}))", "({0}) IS NOT TRUE"),
    *("coalesce({0}, false)", "NOT (({0}) AND {1})", "NOT (({0}) OR {1})", "({0}) OR {1}"),
    *("CASE WHEN {0} THEN {1} ELSE NOT ({1}) END", "NOT (NOT ({0}) AND NOT ({1}))"),
)
"""Forms in which NULL often comes to the same as false, so that refreshes stay incremental."""


@st.composite
def subquery_predicates(draw: st.DrawFn, below: Below) -> Relation:
    """A predicate with a subquery in a condition, a column, an aggregate or a join."""
    source, inner = draw(below), draw(below)
    pairs = equal(source, inner)
    if not pairs:
        return source
    made = draw(predicates(source, inner, pairs))
    count = len(source.columns)
    of = f"FROM ({source.sql}) AS o"
    (key, kind), _ = draw(st.sampled_from(pairs))
    wider = (*source.columns, (f"c{count}", "flag"))
    chosen = (*source.columns, (f"c{count}", "int"))
    ranked = f"rank() OVER (PARTITION BY c{count} ORDER BY {key}) AS c{count + 1}"
    grouped = (("c0", kind), ("c1", "int"))
    head = f"SELECT o.{key} AS c0"
    by = f"{of} GROUP BY o.{key}"
    forms = (
        (f"SELECT * {of} WHERE {made}", source.columns),
        (f"SELECT * {of} WHERE {made}", source.columns),
        (f"SELECT * {of} WHERE {made}", source.columns),
        (f"SELECT *, {made} AS c{count} {of}", wider),
        (f"SELECT *, {made} AS c{count} {of}", wider),
        (f"SELECT *, CASE WHEN {made} THEN 1 ELSE 2 END AS c{count} {of}", chosen),
        (f"{head}, count_if({made}) AS c1 {by}", grouped),
        (f"{head}, count(*) FILTER (WHERE {made}) AS c1 {by}", grouped),
        (f"{head}, sum(if({made}, 1, 0)) AS c1 {by}", grouped),
        (f"{head}, CAST(bool_or({made}) AS INT) AS c1 {by}", grouped),
        (f"SELECT {made} AS c0, count(*) AS c1 {of} GROUP BY 1", (("c0", "flag"), ("c1", "int"))),
        (f"SELECT DISTINCT {made} AS c0, o.{key} AS c1 {of}", (("c0", "flag"), ("c1", kind))),
        (f"SELECT * FROM (SELECT *, {made} AS c{count} {of}) WHERE NOT c{count}", wider),
        (f"SELECT * FROM (SELECT *, {made} AS c{count} {of}) WHERE c{count} IS NULL", wider),
        (
            f"SELECT *, {ranked} FROM (SELECT *, {made} AS c{count} {of})",
            (*wider, (f"c{count + 1}", "int")),
        ),
    )
    return Relation(*draw(st.sampled_from(forms)))


@st.composite
def judged_groups(draw: st.DrawFn, below: Below) -> Relation:
    """A predicate with a subquery in HAVING."""
    source, inner = draw(below), draw(below)
    pairs = equal(source, inner)
    if not pairs:
        return source
    (key, kind), column = draw(st.sampled_from(pairs))
    groups = Relation(source.sql, ((key, kind),))
    made = draw(predicates(groups, inner, [((key, kind), column)], beside=("count(*) > 1",)))
    sql = (
        f"SELECT {key} AS c0, count(*) AS c1 FROM ({source.sql}) AS o GROUP BY {key} HAVING {made}"
    )
    return Relation(sql, (("c0", kind), ("c1", "int")))


@st.composite
def judged_pairs(draw: st.DrawFn, below: Below) -> Relation:
    """A predicate with a subquery in what a join is made on."""
    left, right, inner = draw(below.map(_with_unique_names)), draw(below), draw(below)
    keys, pairs = equal(left, right), equal(left, inner)
    if not keys or not pairs:
        return left
    (a, kind), (b, _) = draw(st.sampled_from(keys))
    made = draw(predicates(left, inner, pairs))
    how = draw(st.sampled_from(("JOIN", "LEFT JOIN", "RIGHT JOIN", "LEFT SEMI JOIN", "FULL JOIN")))
    last = f", r.{b} AS c1" if how != "LEFT SEMI JOIN" else f", o.{a} AS c1"
    sql = (
        f"SELECT o.{a} AS c0{last} FROM ({left.sql}) AS o {how} ({right.sql}) AS r"
        f" ON o.{a} = r.{b} AND {made}"
    )
    return Relation(sql, (("c0", kind), ("c1", kind)))


def _with_unique_names(source: Relation) -> Relation:
    """Return a relation whose columns have names that no other one has."""
    named = ", ".join(f"{name} AS j{number}" for number, (name, _) in enumerate(source.columns))
    columns = tuple((f"j{number}", kind) for number, (_, kind) in enumerate(source.columns))
    return Relation(f"SELECT {named} FROM ({source.sql})", columns)


@st.composite
def predicates(
    draw: st.DrawFn,
    source: Relation,
    inner: Relation,
    pairs: Pairs,
    *,
    beside: tuple[str, ...] = (),
) -> str:
    """Return a predicate over the columns of ``source``, whose alias is ``o``.

    :param beside: conditions that may stand beside a subquery; those of columns if there are none.
    """
    made = draw(st.sampled_from(_atoms(inner, draw(st.permutations(pairs)))))
    safe = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        other = draw(st.sampled_from(beside)) if beside else draw(conditions(source))
        if not beside and draw(st.integers(0, 5)) == 0:
            other = draw(st.sampled_from(_atoms(inner, pairs)))
        around = _SAFE if safe else draw(st.sampled_from((_AROUND, _BESIDE)))
        made = draw(st.sampled_from(around)).format(made, f"({other})")
    return f"({made})"


def _atoms(inner: Relation, pairs: Pairs) -> list[str]:
    """Return predicates with one subquery; IN comes most often."""
    ((a, _), (b, _)), ((c, _), (d, _)) = pairs[0], pairs[-1]
    rows = f"FROM ({inner.sql}) AS i"
    one = [
        f"o.{a} IN (SELECT {b} {rows})",
        f"o.{a} NOT IN (SELECT {b} {rows})",
        f"o.{a} IN (SELECT {b} {rows} WHERE {b} IS NOT NULL)",
    ]
    correlated = f"{rows} WHERE i.{d} = o.{c}"
    return [
        *(*one, *one, *one),
        f"o.{a} IN (SELECT {b} {correlated})",
        f"o.{a} NOT IN (SELECT {b} {rows} WHERE i.{d} <=> o.{c})",
        f"(o.{a}, o.{c}) IN (SELECT {b}, {d} {rows})",
        f"(o.{a}, o.{c}) NOT IN (SELECT {b}, {d} {rows})",
        f"EXISTS (SELECT 1 {correlated})",
        f"NOT EXISTS (SELECT 1 {correlated})",
        f"o.{a} = (SELECT max({b}) {correlated})",
        f"(SELECT count_if({b} IS NOT NULL) {correlated}) > 0",
        f"(SELECT max({b}) {correlated}) IS NULL",
    ]
