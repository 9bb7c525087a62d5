"""Streams: tables, queries over them, and steps of changes; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.engine.oracle.changes import changes
from tests.engine.oracle.queries import queries, queries_on
from tests.engine.oracle.tables import TABLES, Layout, inserts, layouts

Step = tuple[str, ...]
"""Statements between two refreshes."""


@dataclass(frozen=True)
class Stream:
    """Everything that one run of the oracle does; table names are in braces.

    ``queries`` define the materialized tables ``{mt0}``, ``{mt1}`` and so on; later ones may read
    earlier ones.
    """

    layouts: Mapping[str, Layout]
    start: Step
    queries: tuple[str, ...]
    steps: tuple[Step, ...]
    compiled: bool = False
    """Whether Spark compiles and adapts its plans, as it does where it is not set up for tests."""


@st.composite
def streams(draw: st.DrawFn, tables: int, steps: int, depth: int = 2) -> Stream:
    """Return a stream of so many materialized tables and steps.

    ``depth`` is how many operators a query stacks on a table at most.
    Some tables start empty; a step changes one table or several.
    """
    names = sorted(TABLES)
    filled = draw(st.lists(st.sampled_from(names), min_size=2, unique=True))
    return Stream(
        layouts={name: draw(layouts) for name in names},
        start=tuple(draw(inserts(name, 8)) for name in filled),
        queries=draw(_definitions(tables, depth)),
        steps=tuple(draw(_step(names)) for _ in range(steps)),
        compiled=draw(st.sampled_from((False, False, False, False, True))),
    )


def stream_of(number: int, tables: int, steps: int, depth: int) -> Stream:
    """Return the stream that belongs to a number."""
    seen: list[Stream] = []

    @seed(number)
    @settings(
        max_examples=3,
        deadline=None,
        phases=(Phase.generate,),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(stream=streams(tables, steps, depth))
    def record(stream: Stream) -> None:
        seen.append(stream)

    record()
    # The first one is the simplest there is, whatever the number.
    return seen[-1]


@st.composite
def _definitions(draw: st.DrawFn, tables: int, depth: int) -> tuple[str, ...]:
    """Return queries, about every fifth on the table of another one."""
    above = tables // 5
    base = draw(
        st.lists(
            st.integers(1, depth).flatmap(queries),
            min_size=tables - above,
            max_size=tables - above,
            unique_by=lambda relation: relation.sql,
        )
    )
    found = [relation.sql for relation in base]
    for _ in range(above):
        number = draw(st.integers(0, len(base) - 1))
        found.append(draw(queries_on(f"mt{number}", base[number])).sql)
    return tuple(found)


@st.composite
def _step(draw: st.DrawFn, names: list[str]) -> Step:
    """Change a few tables or most of them; changes are cheap beside what is compared."""
    least, most = draw(st.sampled_from(((2, 3), (5, 9), (5, 9))))
    changed = draw(st.lists(st.sampled_from(names), min_size=least, max_size=most))
    made = [draw(changes(table)) for table in changed]
    return tuple(statement for change in made for statement in change)
