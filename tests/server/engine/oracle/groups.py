"""Random aggregates, windows and DISTINCT over a relation; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.server.engine.oracle.relations import KEYS, Below, Relation

_ANY = ("count({0})", "count(DISTINCT {0})", "min({0})", "max({0})")
_AGGREGATES: dict[str, tuple[str, ...]] = {
    "key": (*_ANY, "sort_array(collect_list({0}))", "sort_array(collect_set({0}))"),
    "int": (
        *_ANY,
        *("sum({0})", "avg({0})", "percentile({0}, 0.5)", "sum(DISTINCT {0})"),
        *("count_if({0} > 1)", "sum({0}) FILTER (WHERE {0} > 0)", "bit_xor({0})"),
        "max_by({0}, {0})",
    ),
    "exact": ("sum({0})", "avg({0})", "max({0})", "count(DISTINCT {0})"),
    "huge": ("min({0})", "max({0})", "count(DISTINCT {0})", "try_sum({0})"),
    "real": ("sum({0})", "count({0})", "min({0} + 0D)", "max({0} + 0D)"),
    "day": _ANY,
    "moment": _ANY,
    "flag": ("bool_and({0})", "bool_or({0})", "count_if({0})", "max({0})"),
}
_KEPT = {"min", "max"}
_SAME_SUM = {("sum", "int"), ("sum", "real")}


@st.composite
def grouped(draw: st.DrawFn, below: Below) -> Relation:
    """GROUP BY with or without keys, sometimes HAVING, ROLLUP, CUBE or GROUPING SETS."""
    source = draw(below)
    groupable = source.named(*KEYS, "real", "huge", "exact")
    keys = draw(st.lists(st.sampled_from(groupable), max_size=2, unique=True)) if groupable else []
    aggregates = ["count(*)", *draw(st.lists(aggregated(source), max_size=2))]
    kinds = dict(source.columns)
    outputs = [(key, kinds[key]) for key in keys] + [(a, result_of(a, kinds)) for a in aggregates]
    texts = ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(outputs))
    sql = f"SELECT {texts} FROM ({source.sql})"
    if keys:
        listed = ", ".join(keys)
        how = draw(st.sampled_from(("{}", "{}", "{}", "ROLLUP({})", "CUBE({})", "sets")))
        sets = f"GROUPING SETS (({listed}), ({keys[0]}))"
        sql += f" GROUP BY {sets if how == 'sets' else how.format(listed)}"
    if draw(st.integers(0, 3)) == 0:
        sql += f" HAVING {draw(st.sampled_from(_having(source)))}"
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
    keys, numbers = source.named(*KEYS), source.named("int", "exact", "day", "moment")
    if not keys or not numbers:
        return source
    key, number = draw(st.sampled_from(keys)), draw(st.sampled_from(numbers))
    kind = dict(source.columns)[number]
    over = f"PARTITION BY {key}"
    ordered = f"{over} ORDER BY {number}"
    whole = ", ".join(name for name, _ in source.columns)
    choices = [
        (f"rank() OVER ({ordered})", "int"),
        (f"dense_rank() OVER ({ordered} DESC NULLS LAST)", "int"),
        (f"count(*) OVER ({over})", "int"),
        (f"count({number}) OVER ({ordered})", "int"),
        (f"max({number}) OVER ({over})", kind),
        (f"min({number}) OVER ({ordered} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", kind),
        (f"lag({number}) OVER ({ordered})", kind),
        (f"row_number() OVER ({over} ORDER BY {whole})", "int"),
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
def aggregated(draw: st.DrawFn, source: Relation) -> str:
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
    # Sums and averages are wider than what they are made of.
    return kind if word in _KEPT or (word, kind) in _SAME_SUM else "opaque"


def _having(source: Relation) -> list[str]:
    counts = ["count(*) > 1", "count(*) = 1", "count(*) < 3"]
    numbers = source.named("int")
    return counts + [f"sum({name}) > 2" for name in numbers[:1]]
