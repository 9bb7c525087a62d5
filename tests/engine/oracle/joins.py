"""Random joins and subqueries; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.relations import JOINED, KEYS, Below, Column, Relation, scans

_KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_ONE_SIDED = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")


@st.composite
def joins(draw: st.DrawFn, below: Below) -> Relation:
    """A join of any kind on equal keys, sometimes with NULL as a key or a further condition."""
    left, right = draw(below), draw(below)
    pairs = equal(left, right)
    if not pairs:
        return left
    how = draw(st.sampled_from(_KINDS))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique=True))
    sign = draw(st.sampled_from(("=", "=", "=", "<=>")))
    condition = " AND ".join(f"l.{a[0]} {sign} r.{b[0]}" for a, b in chosen)
    numbers = [(a, b) for a in left.column_names("int") for b in right.column_names("int")]
    if numbers and draw(st.integers(0, 3)) == 0:
        a, b = draw(st.sampled_from(numbers))
        condition += f" AND l.{a} <= r.{b}"
    outputs = [("l", c) for c in left.columns]
    if how not in _ONE_SIDED:
        outputs += [("r", c) for c in right.columns]
    texts = ", ".join(f"{side}.{c[0]} AS c{i}" for i, (side, c) in enumerate(outputs))
    sql = f"SELECT {texts} FROM ({left.sql}) AS l {how} ({right.sql}) AS r ON {condition}"
    return Relation(sql, tuple((f"c{i}", c[1]) for i, (_, c) in enumerate(outputs)))


@st.composite
def cross_joins(draw: st.DrawFn, below: Below) -> Relation:
    """A few columns of two relations, every row with every row, or those in some order."""
    left, right = draw(below), draw(scans())
    numbers = [(a, b) for a in left.column_names("int") for b in right.column_names("int")]
    how = "CROSS JOIN"
    on = ""
    if numbers and draw(st.booleans()):
        a, b = draw(st.sampled_from(numbers))
        how, on = draw(st.sampled_from(("JOIN", "LEFT JOIN"))), f" ON l.{a} < r.{b}"
    sql = (
        f"SELECT l.{left.columns[0][0]} AS c0, r.{right.columns[-1][0]} AS c1"
        f" FROM ({left.sql}) AS l {how} ({right.sql}) AS r{on}"
    )
    return Relation(sql, (("c0", left.columns[0][1]), ("c1", right.columns[-1][1])))


@st.composite
def subquery_conditions(draw: st.DrawFn, below: Below) -> Relation:
    """A subquery in a condition."""
    source, inner = draw(below), draw(below)
    pairs = equal(source, inner)
    if not pairs:
        return source
    (a, _), (b, _) = draw(st.sampled_from(pairs))
    forms = (
        f"{a} IN (SELECT {b} FROM ({inner.sql}))",
        f"{a} NOT IN (SELECT {b} FROM ({inner.sql}))",
        f"EXISTS (SELECT 1 FROM ({inner.sql}) AS i WHERE i.{b} = o.{a})",
        f"NOT EXISTS (SELECT 1 FROM ({inner.sql}) AS i WHERE i.{b} = o.{a})",
        f"EXISTS (SELECT 1 FROM ({inner.sql}) AS i WHERE i.{b} = o.{a}) OR {a} IS NULL",
        f"{a} = (SELECT max({b}) FROM ({inner.sql}))",
        f"{a} <= (SELECT max({b}) FROM ({inner.sql}) WHERE {b} > (SELECT min({a}) FROM s))",
        f"(SELECT count(*) FROM ({inner.sql}) AS i WHERE i.{b} = o.{a}) <> 1",
    )
    condition = draw(st.sampled_from(forms))
    sql = f"SELECT * FROM s AS o WHERE {condition}"
    return Relation(f"WITH s AS ({source.sql}) {sql}", source.columns)


@st.composite
def looked_up(draw: st.DrawFn, below: Below) -> Relation:
    """A scalar subquery as a column."""
    source, inner = draw(below), draw(below)
    pairs = equal(source, inner)
    if not pairs:
        return source
    (a, _), (b, _) = draw(st.sampled_from(pairs))
    number = len(source.columns)
    what = draw(st.sampled_from((f"max({b})", "count(*)", f"min({b})")))
    kind = "int" if what == "count(*)" else dict(inner.columns)[b]
    which = draw(st.sampled_from((f" WHERE i.{b} = o.{a}", f" WHERE i.{b} = o.{a}", "")))
    sql = (
        f"SELECT *, (SELECT {what} FROM ({inner.sql}) AS i{which}) AS c{number}"
        f" FROM ({source.sql}) AS o"
    )
    return Relation(sql, (*source.columns, (f"c{number}", kind)))


@st.composite
def common(draw: st.DrawFn, below: Below) -> Relation:
    """A common table expression read twice: a self join."""
    source = draw(below)
    keys = source.column_names(*KEYS)
    if not keys:
        return source
    key = draw(st.sampled_from(keys))
    how = draw(st.sampled_from(("JOIN", "JOIN", "LEFT JOIN", "FULL JOIN")))
    last = source.columns[-1]
    sql = (
        f"WITH w AS ({source.sql}) SELECT a.{key} AS c0, a.{last[0]} AS c1, b.{last[0]} AS c2"
        f" FROM w AS a {how} w AS b ON a.{key} = b.{key}"
    )
    return Relation(sql, (("c0", dict(source.columns)[key]), ("c1", last[1]), ("c2", last[1])))


def equal(left: Relation, right: Relation) -> list[tuple[Column, Column]]:
    """Return the pairs of columns of two relations that may be equated."""
    return [(a, b) for a in left.columns for b in right.columns if a[1] == b[1] in JOINED]
