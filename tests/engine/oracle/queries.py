"""Random queries: operators stacked on the oracle's tables or on a materialized table; pure."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.engine.oracle.combined import (
    common_tables,
    grouped_groups,
    join_chains,
    lateral,
    leading,
    limits,
    wide_subqueries,
)
from tests.engine.oracle.groups import distinct_rows, group_comparisons, groupings, summaries
from tests.engine.oracle.joins import common, cross_joins, joins, looked_up, subquery_conditions
from tests.engine.oracle.keyless import KEYLESS
from tests.engine.oracle.moments import time_windows
from tests.engine.oracle.predicates import judged_groups, judged_pairs, subquery_predicates
from tests.engine.oracle.relations import (
    Below,
    Relation,
    filters,
    projections,
    row_generators,
    scans,
    set_operations,
)
from tests.engine.oracle.reshaped import pivots, unpivots, wide_generators
from tests.engine.oracle.windows import ranks, row_choices, top_rows, window_functions

OPERATORS: tuple[Callable[[Below], Below], ...] = (
    *(
        filters,
        projections,
        projections,
        row_generators,
        set_operations,
        joins,
        joins,
        joins,
        cross_joins,
    ),
    *(
        groupings,
        groupings,
        groupings,
        distinct_rows,
        window_functions,
        window_functions,
        top_rows,
        ranks,
        subquery_conditions,
    ),
    *(
        common,
        time_windows,
        pivots,
        unpivots,
        wide_generators,
        join_chains,
        grouped_groups,
        lateral,
        wide_subqueries,
        wide_subqueries,
    ),
    *(
        common_tables,
        limits,
        summaries,
        summaries,
        group_comparisons,
        looked_up,
        row_choices,
        row_choices,
    ),
    *(subquery_predicates, subquery_predicates, subquery_predicates, judged_groups, judged_pairs),
    *KEYLESS,
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
