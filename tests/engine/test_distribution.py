"""DISTRIBUTED BY says in how many files a refresh writes, and which rows share one."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized, Stored
from tidegate_server.core.model.clauses import Distribution, Expectation, Violation

pytestmark = pytest.mark.spark

ROWS = "SELECT CAST(id AS INT) AS a, CAST(id % 20 AS INT) AS b FROM range(0, 1000, 1, 2)"


def distribution(kind: str | None, buckets: int | None, *columns: str) -> Distribution:
    return Distribution(kind=kind, buckets=buckets, columns=columns)


def files(lake: Lake, column: str) -> dict[str, set[object]]:
    """Return the values of a column by the file that holds them."""
    found: dict[str, set[object]] = defaultdict(set)
    for name, value in lake.rows(f"SELECT _metadata.file_name, {column} FROM mt"):
        found[str(name)].add(value)
    return found


@pytest.mark.parametrize(
    "wanted",
    [
        distribution(None, 7, "b"),
        distribution("HASH", 7, "b"),
        distribution("RANGE", 7, "b"),
    ],
)
def test_rows_of_one_value_share_one_of_n_files(lake: Lake, wanted: Distribution) -> None:
    table = Stored(lake, ROWS)
    table.fill(distribution=wanted)
    found = files(lake, "b")
    assert 5 <= len(found) <= 7
    assert sum(len(values) for values in found.values()) == 20
    if wanted.kind == "RANGE":
        bounds = sorted((min(v), max(v)) for v in found.values())  # type: ignore[type-var]
        assert all(one[1] < next_[0] for one, next_ in zip(bounds, bounds[1:], strict=False))


def test_buckets_alone_say_how_many_files_there_are(lake: Lake) -> None:
    table = Stored(lake, ROWS)
    table.fill()
    assert len(files(lake, "a")) < 5
    table.fill(distribution=distribution(None, 5))
    assert [len(values) for values in files(lake, "a").values()] == [200] * 5


def test_each_partition_has_up_to_so_many_files(lake: Lake) -> None:
    query = "SELECT CAST(id AS INT) AS a, CAST(id % 2 AS INT) AS p FROM range(1000)"
    table = Stored(lake, query, "p")
    table.fill(distribution=distribution(None, 3, "a"))
    by_file = files(lake, "p")
    assert len(by_file) == 6
    assert sorted(next(iter(values)) for values in by_file.values()) == [0, 0, 0, 1, 1, 1]  # type: ignore[type-var]


def test_ranges_leave_the_count_of_broken_expectations_as_it_is(lake: Lake) -> None:
    small = Expectation(name="small", condition="b < 15", violation=Violation.DROP_ROW)
    table = Stored(lake, ROWS, expectations=[small])
    written = table.fill(distribution=distribution("RANGE", 4, "b"))
    assert written.expectations == {"small": 250}
    assert len(lake.rows("SELECT * FROM mt")) == 750


def test_incremental_refreshes_keep_rows_of_one_hash_together(lake: Lake) -> None:
    lake.sql(f"CREATE TABLE src USING delta AS {ROWS}")
    table = Materialized(lake, "SELECT a, b FROM src")
    hashed = distribution("HASH", 4, "b")
    table.refresh(distribution=hashed)
    before = files(lake, "b")
    lake.sql("INSERT INTO src SELECT a + 1000, b FROM src", "DELETE FROM src WHERE a % 100 = 7")
    outcome = table.refresh(distribution=hashed)
    assert outcome.plan.strategy.value == "INCREMENTAL"
    assert lake.rows("SELECT * FROM mt") == lake.rows("SELECT * FROM src")
    buckets = {frozenset(values) for values in before.values()}
    for values in files(lake, "b").values():
        assert any(values <= bucket for bucket in buckets)
