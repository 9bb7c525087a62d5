"""Random operators that have no keys by which the affected rows could be found; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.groups import aggregations, result_of
from tests.engine.oracle.relations import Below, Column, Relation, number_columns
from tests.engine.oracle.windows import CHANCE, ORDERED, SORTED

_COMPARED = ("key", "int", "day", "moment", "big", "tiny", "wall", "exact", "real")
_OUTER = ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


@st.composite
def everything(draw: st.DrawFn, below: Below) -> Relation:
    """Aggregates of all rows beside other rows, or beside other such aggregates."""
    source, inner = draw(below), draw(below)
    chosen = draw(st.lists(aggregations(inner), min_size=1, max_size=2))
    kinds = dict(inner.columns)
    totals = ", ".join(f"{text} AS t{number}" for number, text in enumerate(chosen))
    last, kind = source.columns[-1]
    columns: list[Column] = [("c0", source.columns[0][1]), ("c1", kind)]
    if draw(st.integers(0, 2)) == 0:
        source = Relation(f"SELECT count(*) AS c0, count(DISTINCT {last}) AS c1 FROM"
                          f" ({source.sql})", (("c0", "int"), ("c1", "int")))  # fmt: skip
        last, columns = "c1", [*source.columns]
    how = draw(st.sampled_from(("CROSS JOIN", "CROSS JOIN", "LEFT JOIN")))
    on = " ON true" if how == "LEFT JOIN" else ""
    columns += [(f"c{number + 2}", result_of(text, kinds)) for number, text in enumerate(chosen)]
    shown = ", ".join(f"t.t{number} AS c{number + 2}" for number in range(len(chosen)))
    sql = (
        f"SELECT q.{source.columns[0][0]} AS c0, q.{last} AS c1, {shown} FROM ({source.sql}) AS q"
        f" {how} (SELECT {totals} FROM ({inner.sql})) AS t{on}"
    )
    return Relation(sql, tuple(columns))


@st.composite
def single_values(draw: st.DrawFn, below: Below) -> Relation:
    """Scalar subqueries over all rows, in each place that takes one."""
    source, inner = draw(below), draw(below)
    kinds = [kind for _, kind in source.columns if kind in _COMPARED]
    pairs = [(a, b) for a in source.columns for b in inner.columns if a[1] == b[1] in kinds]
    if not pairs:
        return source
    (a, kind), (b, _) = draw(st.sampled_from(pairs))
    rows = f"FROM ({inner.sql}) AS i"
    value = draw(
        st.sampled_from(
            (
                f"(SELECT max({b}) {rows})",
                f"(SELECT min({b}) {rows})",
                f"(SELECT {b} {rows} WHERE {b} IS NOT NULL ORDER BY {b} LIMIT 1)",
                f"(SELECT max({b}) {rows} WHERE {b} < (SELECT max({b}) {rows}))",
            )
        )
    )
    count = len(source.columns)
    sign = draw(st.sampled_from(("=", "<", ">=", "<=>", "<>")))
    of = f"FROM ({source.sql}) AS o"
    grouped = (("c0", kind), ("c1", "int"))
    forms = (
        (f"SELECT * {of} WHERE {a} {sign} {value}", source.columns),
        (f"SELECT * {of} WHERE {a} {sign} {value} OR {a} IS NULL", source.columns),
        (f"SELECT *, {value} AS c{count} {of}", (*source.columns, (f"c{count}", kind))),
        (
            f"SELECT *, {a} {sign} {value} AS c{count} {of}",
            (*source.columns, (f"c{count}", "flag")),
        ),
        (
            f"SELECT {a} AS c0, count(*) AS c1 {of} GROUP BY {a} HAVING {a} {sign} {value}",
            grouped,
        ),
        (
            f"SELECT {a} AS c0, count(*) + (SELECT count(*) {rows}) AS c1 {of} GROUP BY {a}",
            (("c0", kind), ("c1", "opaque")),
        ),
        (
            f"SELECT {a} AS c0, count(*) FILTER (WHERE {a} {sign} {value}) AS c1 {of} GROUP BY {a}",
            grouped,
        ),
    )
    return Relation(*draw(st.sampled_from(forms)))


@st.composite
def whole_windows(draw: st.DrawFn, below: Below) -> Relation:
    """A window function without PARTITION BY."""
    source = draw(below)
    numbers = source.column_names(*ORDERED)
    named = [name for name, kind in source.columns if kind in SORTED]
    if not numbers:
        return source
    number = draw(st.sampled_from(numbers))
    kind = dict(source.columns)[number]
    order = ", ".join([number, *(name for name in named if name != number)])
    some = draw(st.sampled_from((number, order)))  # in the order of a number alone, rows may tie
    functions = [
        (f"rank() OVER (ORDER BY {number} DESC)", "int"),
        (f"dense_rank() OVER (ORDER BY {number})", "int"),
        ("count(*) OVER ()", "int"),
        (f"max({number}) OVER ()", kind),
        (f"min({number}) OVER (ORDER BY {number} DESC)", kind),
        (f"row_number() OVER (ORDER BY {some})", "int"),
        (f"lag({number}) OVER (ORDER BY {some})", kind),
        (f"count(*) OVER (ORDER BY {some} ROWS 1 PRECEDING)", "int"),
        (f"first_value({named[0]}) OVER (ORDER BY {some})", dict(source.columns)[named[0]]),
    ]
    if kind in {"int", "exact", "tiny"}:
        functions += [
            (f"sum({number}) OVER ()", "opaque"),
            (f"sum({number}) OVER (ORDER BY {some} ROWS UNBOUNDED PRECEDING)", "opaque"),
            (f"{number} - avg({number}) OVER ()", "opaque"),
        ]
    text, result = draw(st.sampled_from(functions))
    name = f"c{len(source.columns)}"
    sql = f"SELECT {CHANCE} *, {text} AS {name} FROM ({source.sql})"
    if result == "int" and draw(st.booleans()):
        sql = f"SELECT * FROM ({sql}) WHERE {name} <= 2"
    return Relation(sql, (*source.columns, (name, result)))


@st.composite
def places(draw: st.DrawFn, below: Below) -> Relation:
    """Rows by their place in an order, in which rows may tie that differ."""
    source = draw(below)
    columns = tuple(column for column in source.columns if column[1] in SORTED)
    if not columns:
        return source
    named, kept = number_columns(columns)
    down = draw(st.sampled_from(("", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")))
    names = draw(st.permutations([name for name, _ in kept]))
    if draw(st.integers(0, 2)) == 0:
        names = names[:1]
    order = ", ".join(f"{name}{down}" for name in names)
    rest = draw(
        st.sampled_from(("LIMIT 2", "LIMIT 3 OFFSET 1", "OFFSET 2", "LIMIT 4", "LIMIT 2 OFFSET 3"))
    )
    sql = f"SELECT {CHANCE} {named} FROM ({source.sql}) ORDER BY {order} {rest}"
    return Relation(f"SELECT * FROM ({sql})" if draw(st.booleans()) else sql, kept)


@st.composite
def inequalities(draw: st.DrawFn, below: Below) -> Relation:
    """An outer, semi or anti join that equates nothing."""
    left, right = draw(below), draw(below)
    pairs = [(a, b) for a in left.columns for b in right.columns if a[1] == b[1] in _COMPARED]
    if not pairs:
        return left
    (a, kind), (b, _) = draw(st.sampled_from(pairs))
    sign = draw(st.sampled_from(("<", ">=", "<>", "<")))
    how = draw(st.sampled_from(_OUTER))
    first, last = left.columns[0], right.columns[-1]
    if how in {"LEFT SEMI JOIN", "LEFT ANTI JOIN"}:
        sql = f"SELECT l.* FROM ({left.sql}) AS l {how} ({right.sql}) AS r ON l.{a} {sign} r.{b}"
        return Relation(sql, left.columns)
    sql = (
        f"SELECT l.{first[0]} AS c0, l.{a} AS c1, r.{last[0]} AS c2 FROM ({left.sql}) AS l"
        f" {how} ({right.sql}) AS r ON l.{a} {sign} r.{b}"
    )
    return Relation(sql, (("c0", first[1]), ("c1", kind), ("c2", last[1])))


KEYLESS = (everything, single_values, whole_windows, places, inequalities)
