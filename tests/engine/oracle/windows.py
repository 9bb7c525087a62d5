"""Random window functions over a relation; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.relations import KEYS, Below, Relation, number_columns

ORDERED = ("int", "exact", "day", "moment", "big", "tiny", "wall")
"""Kinds in whose order windows are made."""
_SUMMED = ("int", "exact", "tiny")
SORTED = (*KEYS, "exact", "huge", "real", "single", "bytes", "struct", "list")
"""Kinds by whose values rows can be ordered."""
CHANCE = "/* chance */"
"""Marks a query whose result is a matter of chance where rows tie that differ."""


@st.composite
def window_functions(draw: st.DrawFn, below: Below) -> Relation:
    """A window function whose value does not depend on the order of equal rows."""
    source = draw(below)
    keys, numbers = source.column_names(*KEYS, "struct"), source.column_names(*ORDERED)
    if not keys or not numbers:
        return source
    partition = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True))
    number = draw(st.sampled_from(numbers))
    text, kind = draw(st.sampled_from(_functions(source, ", ".join(partition), number)))
    name = f"c{len(source.columns)}"
    sql = f"SELECT *, {text} AS {name} FROM ({source.sql})"
    relation = Relation(sql, (*source.columns, (name, kind)))
    if kind == "int" and draw(st.booleans()):
        return Relation(f"SELECT * FROM ({sql}) WHERE {name} <= 1", relation.columns)
    return relation


@st.composite
def top_rows(draw: st.DrawFn, below: Below) -> Relation:
    """The first rows of each key, all columns breaking ties."""
    source = draw(below)
    keys = source.column_names(*KEYS)
    columns = tuple(column for column in source.columns if column[1] in SORTED)
    if not keys:
        return source
    key = draw(st.sampled_from(keys))
    down = draw(st.sampled_from(("", " DESC", " DESC NULLS LAST", " NULLS LAST")))
    first = draw(st.sampled_from(columns))[0]
    order = ", ".join((f"{first}{down}", *(name for name, _ in columns if name != first)))
    named, kept = number_columns(columns)
    most = draw(st.integers(1, 3))
    sql = (
        f"SELECT {named} FROM (SELECT *, row_number() OVER (PARTITION BY {key}"
        f" ORDER BY {order}) AS place FROM (SELECT {', '.join(n for n, _ in columns)}"
        f" FROM ({source.sql}))) WHERE place <= {most}"
    )
    return Relation(sql, kept)


@st.composite
def ranks(draw: st.DrawFn, below: Below) -> Relation:
    """Places of groups within a key; the rest of the groups' keys alone breaks ties."""
    source = draw(below)
    keys, values = source.column_names(*KEYS), source.column_names(*ORDERED)
    if len(keys) < 2 or not values:
        return source
    first, second = draw(st.permutations(keys))[:2]
    value = draw(st.sampled_from(values))
    kinds = dict(source.columns)
    rows = (
        f"SELECT {first} AS c0, {second} AS c1, count(*) AS c2, max({value}) AS c3"
        f" FROM ({source.sql}) GROUP BY {first}, {second}"
    )
    beside = draw(st.sampled_from(("", "", "LEFT JOIN", "JOIN")))
    if beside:
        other = f"SELECT {first} AS j, min({value}) AS c3 FROM ({source.sql}) GROUP BY {first}"
        rows = (
            f"SELECT g.c0, g.c1, g.c2, o.c3 FROM ({rows}) AS g {beside} ({other}) AS o"
            " ON g.c0 = o.j"
        )
    elif draw(st.booleans()):
        rows = f"SELECT c0, c1, c2, coalesce(c3, c3) AS c3 FROM ({rows}) WHERE c2 < 4"
    order = draw(st.sampled_from(("c1", "c1 DESC NULLS LAST", "c2 DESC, c1", "c3, c1", "c2")))
    over = f"(PARTITION BY c0 ORDER BY {order})"
    function, kind = draw(
        st.sampled_from(
            (
                ("row_number()", "int"),
                ("row_number()", "int"),
                ("ntile(2)", "int"),
                ("lag(c3)", kinds[value]),
                ("last_value(c3)", kinds[value]),
            )
        )
    )
    columns = (("c0", kinds[first]), ("c1", kinds[second]), ("c2", "int"), ("c3", kinds[value]))
    if order == "c2":  # where counts tie, any order is right
        function, kind = "rank()", "int"
    sql = f"SELECT *, {function} OVER {over} AS c4 FROM ({rows})"
    if kind == "int" and draw(st.booleans()):
        sql = f"SELECT * FROM ({sql}) WHERE c4 <= 2"
    return Relation(sql, (*columns, ("c4", kind)))


@st.composite
def row_choices(draw: st.DrawFn, below: Below) -> Relation:
    """One of the rows of each key, or values that depend on their order, whatever ties."""
    source = draw(below)
    columns = [column for column in source.columns if column[1] in SORTED]
    keys = source.column_names(*KEYS)
    if not keys:
        return source
    key = draw(st.sampled_from(keys))
    ordered = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4, unique=True))
    down = draw(st.sampled_from(("", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")))
    rows = f"SELECT {', '.join(name for name, _ in columns)} FROM ({source.sql})"
    if draw(st.booleans()):
        rows = rows.replace("SELECT", "SELECT DISTINCT", 1)
    by = ", ".join(f"{name}{down}" for name, _ in ordered)
    over = f"(PARTITION BY {key} ORDER BY {by})"
    shown = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    value = shown[0][0]
    if draw(st.integers(0, 2)) == 0:
        by = f"struct({', '.join(name for name, _ in ordered)})"
        texts = [f"max_by({value}, {by})", f"min_by({value}, {by}) FILTER (WHERE {key} <> {value})"]
        texts += [f"any_value({value})", f"first({value}, true)", f"last({value})"]
        function = draw(st.sampled_from(texts if shown[0][1] == dict(columns)[key] else texts[:1]))
        kinds = dict(source.columns)
        sql = f"SELECT {CHANCE} {key} AS c0, {function} AS c1 FROM ({rows}) GROUP BY {key}"
        return Relation(sql, (("c0", kinds[key]), ("c1", kinds[value])))
    named, kept = number_columns(shown)
    functions = ("row_number()", f"lag({value})", "ntile(2)", f"first_value({value})", "count(*)")
    function = draw(st.sampled_from(("row_number()", *functions)))
    if function == "count(*)":
        over = over.replace(")", " ROWS 1 PRECEDING)")
    made = f"SELECT *, {function} OVER {over} AS place FROM ({rows})"
    if function != "row_number()" or draw(st.booleans()):
        named, kept = (
            f"{named}, CAST(place AS STRING) AS c{len(kept)}",
            (*kept, (f"c{len(kept)}", "opaque")),
        )
    sql = f"SELECT {CHANCE} {named} FROM ({made})"
    if function == "row_number()":
        sql += f" WHERE place {draw(st.sampled_from(('= 1', '= 1', '<= 2', '< 3', '> 1', '= 2')))}"
    return Relation(sql, kept)


def _functions(source: Relation, partition: str, number: str) -> list[tuple[str, str]]:
    kind = dict(source.columns)[number]
    over = f"PARTITION BY {partition}"
    ordered = f"{over} ORDER BY {number}"
    named = [name for name, kind in source.columns if kind in SORTED]
    whole = f"{over} ORDER BY {', '.join(named)}"
    found = [
        (f"rank() OVER ({ordered})", "int"),
        (f"dense_rank() OVER ({ordered} DESC NULLS LAST)", "int"),
        (f"percent_rank() OVER ({ordered})", "opaque"),
        (f"cume_dist() OVER ({ordered})", "opaque"),
        (f"count(*) OVER ({over})", "int"),
        (f"count(*) FILTER (WHERE {number} IS NOT NULL) OVER ({over})", "int"),
        (f"count({number}) OVER ({ordered})", "int"),
        (f"max({number}) OVER ({over})", kind),
        (f"min({number}) OVER ({ordered} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", kind),
        (f"rank() OVER (ORDER BY {number})", "int"),
        (f"max({number}) OVER ({over}) IS NOT DISTINCT FROM {number}", "flag"),
    ]
    if len(named) == len(source.columns):
        found += _unique(whole, number, kind)
    if kind in _SUMMED:
        found += [
            (f"sum({number}) OVER ({over})", "opaque"),
            (f"sum({number}) OVER ({ordered})", "opaque"),
            (f"sum({number}) OVER ({ordered} RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)", "opaque"),
            (f"{number} - avg({number}) OVER ({over})", "opaque"),
        ]
    return found


def _unique(whole: str, number: str, kind: str) -> list[tuple[str, str]]:
    """Return functions for an order in which only equal rows tie."""
    near = f"{whole} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"
    found = [
        (f"lag({number}) OVER ({whole})", kind),
        (f"lead({number}, 2) OVER ({whole})", kind),
        (f"lag({number}) IGNORE NULLS OVER ({whole})", kind),
        (f"ntile(2) OVER ({whole})", "int"),
        (f"nth_value({number}, 2) OVER ({whole})", kind),
        (f"first_value({number}) OVER ({whole})", kind),
        (f"first_value({number}) IGNORE NULLS OVER ({whole})", kind),
        (f"last_value({number}) OVER ({near})", kind),
        (f"row_number() OVER ({whole})", "int"),
        (f"count(*) OVER ({near})", "int"),
    ]
    if kind in _SUMMED:
        found += [
            (f"sum({number}) OVER ({whole} ROWS UNBOUNDED PRECEDING)", "opaque"),
            (f"avg({number}) OVER ({whole} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", "opaque"),
        ]
    return found
