"""Random relations whose rows become columns, or columns rows; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.relations import KEYS, Below, Relation


@st.composite
def pivots(draw: st.DrawFn, below: Below) -> Relation:
    """PIVOT: values of one column become columns."""
    source = draw(below)
    keys, numbers = source.column_names(*KEYS), source.column_names("int")
    if not keys or not numbers:
        return source
    key, number = draw(st.sampled_from(keys)), draw(st.sampled_from(numbers))
    what = draw(st.sampled_from(("sum", "max", "count")))
    rows = f"SELECT * FROM (SELECT {key} AS c0, {number} AS p, {number} AS q FROM ({source.sql}))"
    if draw(st.booleans()):
        sql = f"{rows} PIVOT ({what}(q) AS s, count(*) AS n FOR p IN (0 AS c1, 1 AS c2))"
        return Relation(
            f"SELECT c0, c1_s AS c1, c2_s AS c2, c2_n AS c3 FROM ({sql})",
            (("c0", dict(source.columns)[key]), *((f"c{i}", "opaque") for i in (1, 2, 3))),
        )
    sql = f"{rows} PIVOT ({what}(q) FOR p IN (0 AS c1, 1 AS c2, 2 AS c3))"
    kind = "opaque" if what == "sum" else "int"
    return Relation(sql, (("c0", dict(source.columns)[key]), *((f"c{i}", kind) for i in (1, 2, 3))))


@st.composite
def unpivots(draw: st.DrawFn, below: Below) -> Relation:
    """Columns become rows, by UNPIVOT or by stack."""
    source = draw(below)
    keys, numbers = source.column_names(*KEYS), source.column_names("int")
    if not keys or not numbers:
        return source
    key, first = draw(st.sampled_from(keys)), draw(st.sampled_from(numbers))
    last = draw(st.sampled_from(numbers))
    kind = dict(source.columns)[key]
    chosen = f"SELECT {key} AS c0, {first} AS p, {last} + 1L AS q FROM ({source.sql})"
    nulls = draw(st.sampled_from(("", "INCLUDE NULLS ")))
    forms = (
        f"SELECT c0, c1, c2 FROM ({chosen}) UNPIVOT {nulls}(c2 FOR c1 IN (p AS `a`, q AS `b`))",
        f"SELECT c0, stack(2, 'a', CAST(p AS BIGINT), 'b', q) AS (c1, c2) FROM ({chosen})",
    )
    return Relation(draw(st.sampled_from(forms)), (("c0", kind), ("c1", "key"), ("c2", "big")))


@st.composite
def wide_generators(draw: st.DrawFn, below: Below) -> Relation:
    """Generators of several columns."""
    source = draw(below)
    numbers, lists = source.column_names("int"), source.column_names("list")
    if not numbers and not lists:
        return source
    made = draw(st.sampled_from([*(f"array({n}, 1)" for n in numbers), *lists]))
    outer = draw(st.sampled_from(("", "_outer")))
    count = len(source.columns)
    names = f"AS (c{count}, c{count + 1})"
    forms = (
        f"posexplode{outer}({made}) {names}",
        f"inline{outer}(transform({made}, (e, i) -> named_struct('i', i, 'e', e))) {names}",
        f"explode{outer}(map_from_entries(transform({made}, (e, i) -> struct(i, e)))) {names}",
    )
    text = draw(st.sampled_from(forms))
    sql = f"SELECT *, {text} FROM ({source.sql})"
    return Relation(sql, (*source.columns, (f"c{count}", "int"), (f"c{count + 1}", "int")))
