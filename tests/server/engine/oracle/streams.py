"""Streams: tables, queries over them, and steps of changes; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.server.engine.oracle.relations import queries
from tests.server.engine.oracle.tables import TABLES, Layout, changes, inserts, layouts

Step = tuple[str, ...]
"""Statements between two refreshes."""


@dataclass(frozen=True)
class Stream:
    """Everything one run of the oracle does; table names stand in braces."""

    layouts: Mapping[str, Layout]
    start: Step
    queries: tuple[str, ...]
    steps: tuple[Step, ...]


@st.composite
def streams(draw: st.DrawFn, tables: int, steps: int, depth: int = 2) -> Stream:
    """Return a stream of so many materialized tables and steps.

    ``depth`` is how many operators a query stacks on a table at most.
    Some tables start empty; a step changes one table or several.
    """
    names = sorted(TABLES)
    filled = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    start = tuple(draw(inserts(name, 8)) for name in filled)
    # Hypothesis begins with the simplest stream, which must not be all that a short run sees.
    wide = queries(depth).filter(lambda query: query.count("SELECT") > 1)
    return Stream(
        layouts={name: draw(layouts) for name in names},
        start=start,
        queries=tuple(draw(st.lists(wide, min_size=tables, max_size=tables, unique=True))),
        steps=tuple(
            tuple(
                draw(changes(draw(st.sampled_from(names)))) for _ in range(draw(st.integers(1, 3)))
            )
            for _ in range(steps)
        ),
    )
