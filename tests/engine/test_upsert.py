"""Changes by key: the newest event of each key, exactly once, whatever happens in between."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.engine.test_ingest import Died, Ingested
from tests.support.fixtures.spark import IcebergLake, Lake
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import Written
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.delta.format import DeltaFormat
from tidegate_server.engine.storage.row_change import RowChange

pytestmark = pytest.mark.spark

Event = tuple[int, str | None, int]
"""Key, value and number; a value of None deletes the row."""


class DiesAfterCommit(DeltaFormat):
    def change_rows(
        self,
        session: SparkSession,
        change: RowChange,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        base: int,
    ) -> Written:
        super().change_rows(session, change, order, record, base=base)
        raise Died


class Topic:
    """Events, which arrive in files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0

    def arrive(self, *events: Event) -> None:
        self.files += 1
        lines = (json.dumps({"a": a, "b": b, "n": n}) for a, b, n in events)
        hidden = self.path / f".{self.files}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self.path / f"{self.files}.json")

    @property
    def table(self) -> str:
        """The query that a connector's table of changes is."""
        schema = "a INT NOT NULL, b STRING, n BIGINT"
        call = f"STREAM read_files('{self.path}', format => 'json', schema => '{schema}')"
        events = f"SELECT a, b, b IS NULL AS __deleted, n AS __sequence FROM {call}"
        return f"(SELECT a, b /* changes by `a` */ FROM ({events})) AS t"


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    found = Topic(tmp_path / "in")
    found.path.mkdir()
    return found


def insert_update_and_delete(lake: Lake, topic: Topic) -> None:
    """Let events arrive, and require the newest row of each key."""
    topic.arrive((1, "a", 1), (2, "b", 2), (1, "c", 3), (3, "x", 4), (3, None, 5))
    raw = Ingested(lake, f"SELECT * FROM {topic.table}")
    assert raw.refresh().plan.strategy is Strategy.INGEST
    assert raw.rows() == [(1, "c"), (2, "b")]
    topic.arrive((2, "d", 6), (2, "d", 6), (1, None, 8), (1, "late", 7), (4, "e", 9))
    changed = raw.refresh()
    assert raw.rows() == [(2, "d"), (4, "e")]
    assert changed.metrics is not None
    assert (changed.metrics.rows_inserted, changed.metrics.rows_deleted) == (2, 2)
    assert raw.refresh().plan.strategy is Strategy.NO_DATA
    topic.arrive((4, "e", 10), (5, None, 11))  # no row changes, but the position does
    raw.refresh()
    assert raw.rows() == [(2, "d"), (4, "e")]
    assert raw.refresh().plan.strategy is Strategy.NO_DATA


def test_events_insert_update_and_delete_by_key(lake: Lake, topic: Topic) -> None:
    insert_update_and_delete(lake, topic)


def test_an_iceberg_table_follows_events_too(iceberg_lake: IcebergLake, topic: Topic) -> None:
    insert_update_and_delete(iceberg_lake, topic)


def test_a_row_that_the_condition_excludes_is_removed(lake: Lake, topic: Topic) -> None:
    topic.arrive((1, "a", 1), (2, "keep", 2))
    inner = f"SELECT *, upper(b) AS c FROM {topic.table} WHERE b <> 'never'"
    raw = Ingested(lake, f"SELECT c, a FROM ({inner}) WHERE c LIKE 'K%' -- only these")
    raw.refresh()
    assert raw.rows() == [("KEEP", 2)]
    topic.arrive((1, "kind", 3), (2, "other", 4))
    raw.refresh()
    assert raw.rows() == [("KIND", 1)]


@pytest.mark.parametrize("seed", [1])
def test_deaths_lose_and_double_nothing(lake: Lake, topic: Topic, seed: int) -> None:
    chance, expected, number = random.Random(seed), dict[int, str](), 0
    raw = Ingested(lake, f"SELECT * FROM {topic.table}")
    for turn in range(3):
        events: list[Event] = []
        for _ in range(30):
            number += 1
            key = chance.randrange(12)
            value = None if chance.random() < 0.3 else f"v{number}"
            events += [(key, value, number)] * chance.choice((1, 1, 1, 2))
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        chance.shuffle(events)
        topic.arrive(*events)
        if turn % 2:
            with pytest.raises(Died):
                raw.refresh(DiesAfterCommit(lake.root))
        raw.refresh()
        assert dict(raw.rows()) == expected


def test_expectations_hold_for_changed_rows(lake: Lake, topic: Topic) -> None:
    topic.arrive((1, "a", 1))
    raw = Ingested(lake, f"SELECT * FROM {topic.table}")
    failing = Expectation(name="short", condition="length(b) < 3", violation=Violation.FAIL)
    raw.refresh(expectations=(failing,))
    topic.arrive((1, "long", 2))
    with pytest.raises(ServerError) as caught:
        raw.refresh(expectations=(failing,))
    assert caught.value.code == "MT_EXPECTATION_FAILED"
    topic.arrive((1, "b", 3))
    raw.refresh(expectations=(failing,))
    assert raw.rows() == [(1, "b")]


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ("b", "select a, too"),
        ("a, explode(array(1, 2)) AS e", "over changes a query is"),
        ("* EXCEPT (b)", "over changes a query is"),
    ],
)
def test_queries_without_one_row_per_event_are_rejected(
    lake: Lake, topic: Topic, select: str, words: str
) -> None:
    topic.arrive((1, "a", 1))
    with pytest.raises(ServerError, match=words) as caught:
        Ingested(lake, f"SELECT {select} FROM {topic.table}")
    assert caught.value.code == "MT_QUERY_UNSUPPORTED"


def test_a_key_without_a_value_is_an_error_and_loses_nothing(lake: Lake, topic: Topic) -> None:
    topic.arrive((1, "a", 1))
    raw = Ingested(lake, f"SELECT * FROM {topic.table}")
    raw.refresh()
    lines: list[dict[str, Any]] = [{"b": "x", "n": 2}, {"a": 2, "b": "y", "n": 3}]
    (topic.path / "bad.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(Exception, match="(?i)null"):
        raw.refresh()
    assert raw.rows() == [(1, "a")]
