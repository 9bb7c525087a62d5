"""Results that are too large for one answer: what is written is what is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tests.support.fixtures.spark import Lake
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import Execute
from tidegate_server.engine.results import store as result_store
from tidegate_server.engine.results.projection import arrow_schema
from tidegate_server.engine.results.spool import Spool
from tidegate_server.engine.results.staging import Staging
from tidegate_server.engine.results.store import ResultStore, write_files
from tidegate_server.engine.session.operations import Operation

ROWS = 1000


def store(lake: Lake, spool: Spool, staging: Staging | None = None) -> int:
    """Run a query whose rows are spooled; return how many rows the answer promises."""
    request = Execute(session_id="s", operation_id="o", sql="", inline_bytes=0, owner="ann")
    frame = lake.session.range(0, ROWS, 1, 3).select("id", F.col("id").alias("ID"))
    results = ResultStore(spool, direct_bytes=1, staging=staging)
    return results.store(frame, Operation("o"), request).rows


def write(frame: DataFrame, place: Path) -> int:
    return write_files(frame, arrow_schema(frame, "UTC"), str(place))


def test_every_task_counts_the_rows_it_wrote(lake: Lake, tmp_path: Path) -> None:
    frame = lake.session.range(0, ROWS, 1, 3)
    assert write(frame, tmp_path / "made") == ROWS
    assert write(frame.where("id % 10 = 0"), tmp_path / "some") == ROWS // 10
    assert write(frame.where("id < 0"), tmp_path / "none") == 0
    # Plans with an exchange, sorts, limits and of one row are executed in other ways.
    joined = frame.join(lake.session.range(0, ROWS, 1, 2), "id")
    for number, (made, rows) in enumerate(
        (
            (joined, ROWS),
            (joined.groupBy((F.col("id") % 7).alias("k")).count(), 7),
            (frame.orderBy("id"), ROWS),
            (frame.orderBy(F.desc("id")).limit(5), 5),
            (frame.agg(F.max("id")), 1),
            (frame.union(joined).distinct(), ROWS),
            (lake.session.sql("SELECT 1 AS a UNION ALL SELECT 2"), 2),
            (lake.session.createDataFrame([(1,), (2,), (3,)], "a INT"), 3),
            (joined.where("false"), 0),
        )
    ):
        assert write(made, tmp_path / str(number)) == rows, made


def test_a_whole_result_is_given_out(lake: Lake, tmp_path: Path) -> None:
    assert store(lake, Spool(tmp_path, quota=1 << 30)) == ROWS


def test_what_executors_wrote_elsewhere_is_fetched_and_deleted(lake: Lake, tmp_path: Path) -> None:
    shared, own, small = (tmp_path / name for name in ("shared", "own", "small"))
    own.mkdir()
    small.mkdir()
    staging = Staging(lake.session, f"file:{shared}")
    assert store(lake, Spool(own, quota=1 << 30), staging) == ROWS
    [result] = own.iterdir()
    assert {file.suffix for file in result.iterdir()} == {".arrow", ""}
    assert list(shared.iterdir()) == []
    with pytest.raises(ServerError) as caught:
        store(lake, Spool(small, quota=10, elsewhere=staging.bytes), staging)
    assert caught.value.code == "RESULT_TOO_LARGE"
    assert list(shared.iterdir()) == []


def _all(place: Path) -> None:
    for file in place.glob("part-*"):
        file.unlink()


def _one(place: Path) -> None:
    next(place.glob("part-*")).unlink()


@pytest.mark.parametrize("lose", [_all, _one])
def test_a_result_that_lost_rows_is_an_error_and_is_deleted(
    lake: Lake, tmp_path: Path, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def written_elsewhere(frame: DataFrame, schema: pa.Schema, place: str) -> int:
        written = write_files(frame, schema, place)
        lose(Path(place.removeprefix("file:")))
        return written

    monkeypatch.setattr(result_store, "write_files", written_elsewhere)
    with pytest.raises(ServerError, match=f"{ROWS} rows were written") as caught:
        store(lake, Spool(tmp_path, quota=1 << 30))
    assert caught.value.code == "RESULT_INCOMPLETE"
    assert list(tmp_path.iterdir()) == []
