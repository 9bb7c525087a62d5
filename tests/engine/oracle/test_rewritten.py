"""The plan that an incremental refresh reads gives the rows of its query, where IN is NULL too."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.engine.oracle.predicates import judged_groups, judged_pairs, subquery_predicates
from tests.engine.oracle.queries import relations
from tests.engine.oracle.replay import bag
from tests.engine.oracle.tables import TABLES, VIEWS, rows, values_query
from tests.support.full_run import FULL
from tests.support.spark_settings import SMALL
from tidegate_server.engine.incremental.analysis.simplify import push_down_filters, simplify
from tidegate_server.engine.incremental.analysis.windows import window_refusals
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.storage.jvm import kind

pytestmark = pytest.mark.spark

QUERIES = int(os.environ.get("TIDEGATE_ORACLE_QUERIES", "2000" if FULL else "20"))
FIRST = 1 if os.environ.get("CI") else random.SystemRandom().randrange(10**9)
T = TypeVar("T")
_LONGEST = 2_500
"""So many characters a query has at most; longer ones nest other operators."""


@st.composite
def _cases(draw: st.DrawFn) -> str:
    """Return a query with a predicate subquery, over a table or one operator."""
    form = draw(
        st.sampled_from((subquery_predicates, subquery_predicates, judged_groups, judged_pairs))
    )
    return draw(form(relations(draw(st.sampled_from((0, 0, 1)))))).sql


def _draw_examples(strategy: st.SearchStrategy[T], number: int, count: int) -> list[T]:
    """Return the examples that belong to a number."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        phases=(Phase.generate,),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def record(each: T) -> None:
        found.append(each)

    record()
    return found


@pytest.fixture(scope="module")
def oracle_session(spark_root: SparkSession) -> Iterator[SparkSession]:
    """A session in which the oracle's tables and views have rows, without any storage."""
    session = spark_root.newSession()
    for key, value in SMALL.items():
        session.conf.set(key, value)
    for table in TABLES:
        (content,) = _draw_examples(st.lists(rows(table), min_size=12, max_size=20), FIRST, 2)[1:]
        frame = session.sql(values_query(table, content)).coalesce(1).localCheckpoint()
        frame.createOrReplaceTempView(table)
    for name, (text, _) in VIEWS.items():
        session.sql(f"CREATE TEMP VIEW {name} AS {_with_plain_names(text)}")
    yield session
    for name in (*TABLES, *VIEWS):
        session.catalog.dropTempView(name)


@pytest.mark.timeout(0 if FULL else 900)
def test_a_simplified_plan_gives_the_rows_of_the_query(oracle_session: SparkSession) -> None:
    catalyst = Catalyst(oracle_session)
    found: Counter[str] = Counter()
    for text in dict.fromkeys(_draw_examples(_cases(), FIRST, QUERIES)):
        if len(text) > _LONGEST or "(SELECT" not in text:
            continue
        try:
            frame = oracle_session.sql(_with_plain_names(text))
            wanted = bag(frame.collect())
        except PySparkException:
            found["refused by Spark"] += 1
            continue
        simple = simplify(catalyst, catalyst.analyzed_plan(frame))
        if simple.obstacles or _refuses_window(simple.plan):
            found["refreshed fully"] += 1
            continue
        rewritten = catalyst.frame(push_down_filters(catalyst, simple.plan))
        assert (text, bag(rewritten.collect())) == (text, wanted), f"queries of {FIRST}"
        found["compared"] += 1
    assert found["compared"] > QUERIES // 10, found


def _refuses_window(plan: Any) -> bool:
    """Say whether a window makes every refresh full, such as one that Spark made of LIMIT in a
    lateral subquery: it has no order, which is an error in a plan that is analyzed again."""
    windows = (node for node in descend(plan) if kind(node) == "Window")
    return any(True for window in windows for _ in window_refusals(window))


def _with_plain_names(text: str) -> str:
    for name in (*TABLES, *VIEWS):
        text = text.replace(f"{{{name}}}", name)
    return text
