"""A source whose directory was put back from a copy has another history from there on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized, row_counts
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import Strategy

pytestmark = pytest.mark.spark


def test_the_same_version_of_another_history_is_another_table(lake: Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE t (k STRING) USING delta", "INSERT INTO t VALUES ('a')")
    place, copy = lake.path("t"), tmp_path / "copy"
    shutil.copytree(place, copy)

    def put_back() -> None:
        shutil.rmtree(place)
        shutil.copytree(copy, place)

    lake.sql("INSERT INTO t VALUES ('lost')")
    mt = Materialized(lake, "SELECT k FROM t")
    mt.refresh()
    begun = time.monotonic()
    assert mt.refresh().plan.strategy is Strategy.NO_DATA
    assert time.monotonic() - begun < 0.5
    source = mt.sources[0]
    recorded = mt.last()
    assert recorded.record.source_commits == {
        source.table_id: lake.format.commit_id(source.name, 2)
    }

    put_back()
    lake.sql("INSERT INTO t VALUES ('b')")
    outcome = mt.refresh()
    assert (outcome.plan.strategy, outcome.plan.reason_code) == (Strategy.FULL, "SOURCES_REPLACED")
    assert outcome.plan.vector == recorded.record.vector
    assert mt.content() == row_counts([("a",), ("b",)])
    with pytest.raises(ServerError, match="has another history"):
        mt.verify(recorded.version)

    put_back()
    lake.sql("INSERT INTO t VALUES ('x')", "INSERT INTO t VALUES ('y')")
    assert mt.refresh().plan.reason_code == "SOURCES_REPLACED"
    assert mt.content() == row_counts([("a",), ("x",), ("y",)])

    put_back()
    assert mt.refresh().plan.strategy is Strategy.FULL
    assert mt.content() == row_counts([("a",)])
    (place / "_delta_log" / f"{1:020d}.json").unlink()
    assert lake.format.commit_id(source.name, 1) is None
