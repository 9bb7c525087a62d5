"""Random aggregates and DISTINCT over a relation; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.relations import KEYS, Below, Relation, number_columns

_ANY = ("count({0})", "count(DISTINCT {0})", "min({0})", "max({0})")
# What rounds or overflows in one order of the rows and not in another is left out, but for errors.
_AGGREGATES: dict[str, tuple[str, ...]] = {
    "key": (*_ANY, "sort_array(collect_list({0}))", "sort_array(collect_set({0}))")
    + (
        "count(DISTINCT {0} COLLATE UTF8_LCASE)",
        "CAST(max(upper({0}) COLLATE UTF8_LCASE) AS STRING)",
    )
    + ("listagg({0}, ',') WITHIN GROUP (ORDER BY {0})", "max_by({0}, {0})")
    + (
        "array_sort(array_distinct(collect_list(struct({0}, length({0})))))",
        "concat_ws('|', array_sort(filter(collect_set({0}), x -> x > 'a')))",
        "array_contains(collect_list({0}), 'a')",
    ),
    "int": (
        *_ANY,
        *("sum({0})", "avg({0})", "percentile({0}, 0.5)", "sum(DISTINCT {0})"),
        *("count_if({0} > 1)", "sum({0}) FILTER (WHERE {0} > 0)", "bit_xor({0})"),
        *("max_by({0}, {0})", "approx_count_distinct({0})", "mode({0}, true)"),
        *("size(array_agg({0}))", "array_sort(transform(collect_list({0}), x -> x % 3))"),
        *("array_min(collect_list({0}))", "count(DISTINCT {0}) FILTER (WHERE {0} <> 1)"),
        *("min({0}) FILTER (WHERE {0} % 2 = 0)", "every({0} > 0)", "corr({0}, {0} + 1)"),
        "sum(CASE WHEN {0} > 0 THEN 1 ELSE 0 END)",
    ),
    "exact": ("sum({0})", "avg({0})", "max({0})", "count(DISTINCT {0})"),
    "huge": ("sum({0})", "min({0})", "max({0})", "count(DISTINCT {0})"),
    "real": ("sum({0})", "count({0})", "min({0} + 0D)", "max({0} + 0D)"),
    "day": _ANY,
    "moment": _ANY,
    "wall": _ANY,
    "big": (*_ANY, "try_sum(CAST({0} AS DECIMAL(19, 0)))", "sum({0})"),
    "tiny": (*_ANY, "sum({0})", "bit_or({0})", "approx_count_distinct({0})", "stddev_pop({0})"),
    "single": ("count(DISTINCT {0})", "max({0} + 0D)", "count_if(isnan({0}))"),
    "bytes": _ANY,
    "struct": (
        *("count(DISTINCT {0})", "count({0})", "min({0}.a)", "count(DISTINCT {0}.d, {0}.t)"),
        "sum({0}.a)",
    ),
    "list": (*_ANY, "max(size({0}))", "sum(get({0}, 0))"),
    "map": ("count({0})", "max({0}['a'])"),
    "flag": ("bool_and({0})", "bool_or({0})", "count_if({0})", "max({0})"),
}
_NOT_DISTINCT = ("map", "variant")
_KEPT = {"min", "max"}
_SAME_SUM = {("sum", "int"), ("sum", "real")}
_GROUPED = (*KEYS, "real", "huge", "exact", "single", "bytes", "struct", "list")


_HOW = ("{}", "{}", "{}", "{}", "ALL", "ROLLUP({})", "CUBE({})", "sets")


@st.composite
def groupings(draw: st.DrawFn, below: Below) -> Relation:
    """GROUP BY with or without keys, sometimes HAVING, ROLLUP, CUBE or GROUPING SETS."""
    source = draw(below)
    groupable = source.column_names(*_GROUPED)
    most = draw(st.sampled_from((1, 2, 2, 4)))
    keys = (
        draw(st.lists(st.sampled_from(groupable), max_size=most, unique=True)) if groupable else []
    )
    aggregates = ["count(*)", *draw(st.lists(aggregations(source), max_size=2))]
    kinds = dict(source.columns)
    outputs = [(key, kinds[key]) for key in keys] + [(a, result_of(a, kinds)) for a in aggregates]
    texts = ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(outputs))
    sql = f"SELECT {texts} FROM ({source.sql})"
    how = draw(st.sampled_from(_HOW))
    listed = ", ".join(keys)
    sets = f"GROUPING SETS (({listed}), ({keys[0]}))" if keys else ""
    if keys:
        sql += f" GROUP BY {sets if how == 'sets' else how.format(listed)}"
    if keys and ("ROLLUP" in how or "CUBE" in how):
        told = draw(st.sampled_from(("grouping_id()", f"grouping({keys[-1]})", "0")))
        outputs.append((told, "int"))
        sql = sql.replace(" FROM ", f", CAST({told} AS INT) AS c{len(outputs) - 1} FROM ", 1)
    if draw(st.integers(0, 3)) == 0:
        sql += f" HAVING {draw(st.sampled_from(_having(source)))}"
    return Relation(sql, tuple((f"c{i}", kind) for i, (_, kind) in enumerate(outputs)))


# What follows from sums and counts, so that the tables of few groups add up.
_ADDED = {
    "key": ("count({0})", "min({0})", "concat(min({0}), max({0}))"),
    "int": (
        *("avg({0})", "sum({0}) - 1", "sum({0}) FILTER (WHERE {0} % 2 = 0)", "min({0}) + max({0})"),
        *("sum({0} * 2) / count(*)", "CASE WHEN sum({0}) > 3 THEN 'much' ELSE 'little' END"),
    ),
    "exact": ("avg({0})", "sum({0}) / count(*)", "max({0}) - min({0})", "sum({0})"),
    "huge": ("sum({0})", "max({0})"),
    "day": ("max({0})", "datediff(max({0}), min({0}))"),
    "moment": ("min({0})", "count({0})"),
    "flag": ("count(*) FILTER (WHERE {0})",),
}


@st.composite
def summaries(draw: st.DrawFn, below: Below) -> Relation:
    """Expressions over what can be added up, of a few groups or of all rows."""
    source = draw(below)
    groupable = source.column_names(*KEYS)
    keys = [draw(st.sampled_from(groupable))] if groupable and draw(st.booleans()) else []
    known = [column for column in source.columns if column[1] in _ADDED]
    results = ["count(*)"]
    for _ in range(draw(st.integers(1, 3)) if known else 0):
        name, kind = draw(st.sampled_from(known))
        results.append(draw(st.sampled_from(_ADDED[kind])).format(name))
    kinds = dict(source.columns)
    outputs = [*((key, kinds[key]) for key in keys), *((text, "opaque") for text in results)]
    texts = ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(outputs))
    sql = f"SELECT {texts} FROM ({source.sql})" + (f" GROUP BY {keys[0]}" if keys else "")
    if draw(st.integers(0, 3)) == 0:
        sql += f" HAVING {draw(st.sampled_from(_having(source)))}"
    return Relation(sql, tuple((f"c{i}", kind) for i, (_, kind) in enumerate(outputs)))


@st.composite
def group_comparisons(draw: st.DrawFn, below: Below) -> Relation:
    """Few groups beside each other: places and shares, or what is to be said of all of them."""
    source = draw(summaries(below))
    (first, kind), *_ = source.columns
    keyed = kind != "opaque"
    count = "c1" if keyed else "c0"
    order = f"{count} DESC, {first}" if keyed else count
    made = f"c{len(source.columns)}"
    functions = (
        f"rank() OVER (ORDER BY {count} DESC)",
        f"row_number() OVER (ORDER BY {order})",
        f"try_divide(100 * {count}, sum({count}) OVER ())",
        f"sum({count}) OVER (ORDER BY {order} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        f"lag({count}) OVER (ORDER BY {order})",
    )
    if draw(st.integers(0, 3)) > 0:
        sql = f"SELECT *, {draw(st.sampled_from(functions))} AS {made} FROM ({source.sql})"
        return Relation(sql, (*source.columns, (made, "opaque")))
    texts = (
        f"max({count}) AS c0, count(DISTINCT {count}) AS c1",
        f"median({count}) AS c0, max_by({first}, struct({order.replace(' DESC', '')})) AS c1",
        f"DISTINCT {count} AS c0, {count} > 2 AS c1",
    )
    sql = f"SELECT {draw(st.sampled_from(texts))} FROM ({source.sql})"
    return Relation(sql, (("c0", "opaque"), ("c1", "opaque")))


@st.composite
def distinct_rows(draw: st.DrawFn, below: Below) -> Relation:
    """DISTINCT."""
    source = draw(below)
    columns = (
        tuple(column for column in source.columns if column[1] not in _NOT_DISTINCT)
        or source.columns
    )
    named, kept = number_columns(columns)
    return Relation(f"SELECT DISTINCT {named} FROM ({source.sql})", kept)


@st.composite
def aggregations(draw: st.DrawFn, source: Relation) -> str:
    """Return an aggregate of one of the columns."""
    name, kind = draw(st.sampled_from(source.columns))
    return draw(st.sampled_from(_AGGREGATES.get(kind, ("count({0})",)))).format(name)


def result_of(aggregate: str, kinds: dict[str, str]) -> str:
    """Return the kind of an aggregate's values."""
    word, rest = aggregate.split("(", 1)
    if word in ("count", "count_if"):
        return "int"
    name = rest.removesuffix(")").split(" ")[0]
    kind = kinds.get(name, "opaque")
    # Sums and averages are wider than their arguments.
    return kind if word in _KEPT or (word, kind) in _SAME_SUM else "opaque"


def _having(source: Relation) -> list[str]:
    counts = ["count(*) > 1", "count(*) = 1", "count(*) < 3"]
    numbers = source.column_names("int")
    return counts + [f"sum({name}) > 2" for name in numbers[:1]]
