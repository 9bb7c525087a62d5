"""Random queries: operators stacked on the oracle's tables or on a materialized table; pure."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.engine.oracle.combined import (
    asked,
    chained,
    lateral,
    layered,
    leading,
    limited,
    tallied,
)
from tests.engine.oracle.groups import compared, deduplicated, grouped, summarised
from tests.engine.oracle.joins import common, crossed, joined, looked_up, nested
from tests.engine.oracle.moments import timed
from tests.engine.oracle.predicates import judged, judged_groups, judged_pairs
from tests.engine.oracle.relations import (
    Below,
    Relation,
    exploded,
    filtered,
    projected,
    scans,
    united,
)
from tests.engine.oracle.reshaped import generated, pivoted, unpivoted
from tests.engine.oracle.windows import chosen, placed, topped, windowed

OPERATORS: tuple[Callable[[Below], Below], ...] = (
    *(filtered, projected, projected, exploded, united, joined, joined, joined, crossed),
    *(grouped, grouped, grouped, deduplicated, windowed, windowed, topped, placed, nested),
    *(common, timed, pivoted, unpivoted, generated, chained, tallied, lateral, asked, asked),
    *(layered, limited, summarised, summarised, compared, looked_up, chosen, chosen),
    *(judged, judged, judged, judged_groups, judged_pairs),
)


@st.composite
def queries(draw: st.DrawFn, depth: int = 3) -> Relation:
    """Return a query whose result is the same whenever it is computed from the same rows."""
    relation = draw(relations(depth).filter(_wanted))
    return draw(leading(st.just(relation))) if draw(st.integers(0, 7)) == 7 else relation


@st.composite
def queries_on(draw: st.DrawFn, table: str, upstream: Relation) -> Relation:
    """Return a query of a materialized table, alone or together with the oracle's tables."""
    named = ", ".join(name for name, _ in upstream.columns)
    read = Relation(f"SELECT {named} FROM {{{table}}}", upstream.columns)
    below = st.one_of(st.just(read), st.just(read), scans())
    operator = draw(st.sampled_from(OPERATORS))
    return draw(operator(below).filter(lambda made: f"{{{table}}}" in made.sql))


def relations(depth: int) -> Below:
    """Return relations of at most so many operators above a table."""
    if depth == 0:
        return scans()
    below = relations(depth - 1)
    return st.one_of(scans(), *(operator(below) for operator in OPERATORS))


def _wanted(relation: Relation) -> bool:
    """Refuse a bare table, with which Hypothesis begins, and what multiplies rows too often."""
    text = relation.sql
    if text.count("SELECT") == 1 or text.count("{") > 5 or len(relation.columns) > 12:
        return False
    return text.count("CROSS JOIN") + text.count("WITH ") + text.count("l.c0 <") <= 1
