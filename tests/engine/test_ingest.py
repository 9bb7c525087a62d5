"""Streams taken in by refreshes: exactly once, whatever happens in between."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from tests.support.fixtures.spark import Lake
from tests.support.materialized import new_order, task_of
from tests.support.waiting import wait_until
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.access import Access, Act, Features, ObjectKind
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.request import Recompute, RefreshOrder, RefreshOutcome
from tidegate_server.engine.definition.analyze import analyze
from tidegate_server.engine.refresh.plan import explain
from tidegate_server.engine.refresh.rollback import roll_back
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.statement.survey import survey
from tidegate_server.engine.storage.base import Written
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.delta.format import DeltaFormat

pytestmark = pytest.mark.spark


class Died(Exception):  # noqa: N818  it stands for a process, not for an error
    """Stands for a process that died there."""


class DiesBeforeCommit(DeltaFormat):
    def ingest(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int | None
    ) -> Written:
        frame.count()
        raise Died


class DiesAfterCommit(DeltaFormat):
    def ingest(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int | None
    ) -> Written:
        super().ingest(frame, order, record, base=base)
        raise Died


class Ingested:
    """The table ``raw`` over a stream."""

    def __init__(self, lake: Lake, query: str, *keys: str) -> None:
        self.lake = lake
        self.keys = keys
        self.id = str(uuid.uuid4())
        self.epoch = 0
        analysis = analyze(Child(lake.session), query, lake.format)
        self.query, self.sources = analysis.expanded_query, analysis.sources
        self.columns = analysis.schema.names()
        lake.format.create(
            lake.stored("raw"), analysis.schema, keys, None, {"tidegate.id": self.id}
        )

    def order(self, **changed: object) -> RefreshOrder:
        self.epoch += 1
        name, given = self.lake.stored("raw"), {"partition_keys": self.keys, **changed}
        return new_order(self.id, name, self.query, self.columns, self.sources, self.epoch, **given)

    def refresh(self, format: DeltaFormat | None = None, **changed: object) -> RefreshOutcome:
        order = self.order(**changed)
        operation = Operation(order.refresh_id)
        task, written_by = task_of(changed), format or self.lake.format
        return refresh(order, task, self.lake.root, written_by, operation)

    def rows(self) -> list[tuple[object, ...]]:
        return self.lake.rows(f"SELECT * FROM {self.lake.stored('raw').quoted()}")


class Folder:
    """A directory in which files arrive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def arrive(self, *values: int) -> None:
        self.count += 1
        lines = (json.dumps({"a": value, "b": f"n{value}"}) for value in values)
        hidden = self.path / f".{self.count}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self.path / f"{self.count}.json")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    found = Folder(tmp_path / "in")
    found.path.mkdir()
    found.arrive(1, 2)
    yield found


def over(folder: Folder, select: str = "a", rest: str = "") -> str:
    call = f"read_files('{folder.path}', format => 'json', schema => 'a INT, b STRING')"
    return f"SELECT {select} FROM STREAM {call} {rest}"


def test_what_arrives_is_taken_in_once(lake: Lake, folder: Folder) -> None:
    raw = Ingested(lake, over(folder, "*", "WHERE a <> 4"))
    first = raw.refresh()
    assert (first.plan.strategy, first.metrics.rows_written) == (Strategy.INGEST, 2)
    nothing = raw.refresh()
    assert (nothing.plan.strategy, nothing.to_version) == (Strategy.NO_DATA, first.to_version)
    folder.arrive(3, 4)
    folder.arrive(5)
    assert raw.refresh().metrics.rows_written == 2
    assert raw.rows() == [(1, "n1"), (2, "n2"), (3, "n3"), (5, "n5")]
    assert explain(raw.order(), Recompute(), lake.root, lake.format).strategy is Strategy.INGEST


@pytest.mark.parametrize("dies", [DiesBeforeCommit, DiesAfterCommit])
def test_a_death_loses_and_doubles_nothing(
    lake: Lake, folder: Folder, dies: type[DeltaFormat]
) -> None:
    raw = Ingested(lake, over(folder))
    dying = dies(lake.root)
    wanted = [1, 2]
    for value in (3, 5):
        with pytest.raises(Died):
            raw.refresh(dying)
        folder.arrive(value)
        raw.refresh()
        assert raw.refresh().plan.strategy is Strategy.NO_DATA
        wanted.append(value)
        assert raw.rows() == [(one,) for one in wanted]
        folder.arrive(value + 1)
        wanted.append(value + 1)


def test_a_refresh_that_outlived_its_lease_writes_nothing(lake: Lake, folder: Folder) -> None:
    raw = Ingested(lake, over(folder))
    late = raw.order()

    class Overtaken(DeltaFormat):
        def ingest(
            self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int | None
        ) -> Written:
            raw.refresh()
            return super().ingest(frame, order, record, base=base)

    with pytest.raises(ServerError) as caught:
        refresh(late, Recompute(), lake.root, Overtaken(lake.root), Operation(late.refresh_id))
    assert caught.value.code == "MT_REFRESH_FENCED"
    assert raw.rows() == [(1,), (2,)]


def test_rollback_takes_in_again_what_came_since(lake: Lake, folder: Folder) -> None:
    raw = Ingested(lake, over(folder))
    version = raw.refresh().to_version
    for value in range(3, 16):
        folder.arrive(value)
        raw.refresh()
    assert version is not None
    order = raw.order()
    roll_back(order, version, lake.root, lake.format, Operation(order.refresh_id))
    assert raw.rows() == [(1,), (2,)]
    raw.refresh()
    assert len(raw.rows()) == 15


def test_expectations_hold_for_what_is_taken_in(lake: Lake, folder: Folder) -> None:
    raw = Ingested(lake, over(folder))
    dropping = Expectation(name="small", condition="a < 3", violation=Violation.DROP_ROW)
    folder.arrive(3, 4)
    outcome = raw.refresh(expectations=(dropping,))
    assert (outcome.metrics.expectations, raw.rows()) == ({"small": 2}, [(1,), (2,)])
    folder.arrive(5)
    failing = replace(dropping, violation=Violation.FAIL)
    with pytest.raises(ServerError) as caught:
        raw.refresh(expectations=(failing,))
    assert caught.value.code == "MT_EXPECTATION_FAILED"
    assert raw.refresh().metrics.rows_written == 1


def test_columns_of_files_are_found_once(lake: Lake, folder: Folder) -> None:
    raw = Ingested(lake, f"SELECT * FROM STREAM read_files('{folder.path}', format => 'json')")
    assert "schema => 'a BIGINT,b STRING'" in raw.query
    assert raw.sources[0].kind is SourceKind.STREAM
    raw.refresh()
    assert raw.rows() == [(1, "n1"), (2, "n2")]


def test_rate_is_a_stream(lake: Lake) -> None:
    raw = Ingested(lake, "SELECT value FROM STREAM rate(rowsPerSecond => 100) r")

    def values() -> list[int]:
        raw.refresh()
        return [row[0] for row in lake.session.sql("SELECT value FROM raw").collect()]

    # A second passes before the stream has rows, and another one before it has more.
    wait_until(lambda: bool(values()), "no rows came")
    count = len(values())
    wait_until(lambda: len(values()) > count, "no more rows came")
    found = values()
    assert sorted(found) == list(range(len(found)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("select", "rest", "found"),
    [
        ("a, count(*)", "GROUP BY a", "GROUP BY"),
        ("count(*)", "", "an aggregate"),
        ("DISTINCT a", "", "DISTINCT"),
        ("a", "ORDER BY a", "ORDER BY"),
        ("a", "LIMIT 1", "LIMIT"),
        ("x.a", "AS x JOIN (SELECT 1 a) y ON x.a = y.a", "JOIN"),
        ("a, row_number() OVER (ORDER BY a)", "", "a window"),
        ("a", "WHERE a IN (SELECT 1)", "a subquery"),
        ("a", "UNION ALL SELECT 1", "UNION"),
    ],
)
def test_what_looks_at_more_than_one_row_is_refused(
    lake: Lake, folder: Folder, select: str, rest: str, found: str
) -> None:
    with pytest.raises(ServerError) as caught:
        Ingested(lake, over(folder, select, rest))
    assert (caught.value.code, found in caught.value.message) == ("MT_STREAM_QUERY", True)
    assert caught.value.line == 1


def test_rows_are_not_computed_anew(lake: Lake, folder: Folder) -> None:
    raw = Ingested(lake, over(folder))
    with pytest.raises(ServerError) as caught:
        raw.refresh(force=True)
    assert caught.value.code == "MT_STREAM_UNSUPPORTED"


def surveyed(lake: Lake, text: str) -> Surveyed:
    return survey(Child(lake.session), Survey(session_id="", sql=text, features=Features()))


def features(found: Surveyed) -> set[str]:
    return {access.catalog for access in found.accesses if access.kind is ObjectKind.FEATURE}


def test_the_survey_tells_where_a_stream_comes_from(lake: Lake, folder: Folder) -> None:
    told = surveyed(lake, over(folder))
    assert told.readings[-1].location == str(folder.path)
    place = Access(act=Act.READ, kind=ObjectKind.PATH, name=f"file:{folder.path}")
    assert place in told.accesses
    assert features(surveyed(lake, "SELECT value FROM STREAM rate()")) == set()
    kafka = "STREAM read_kafka(bootstrapServers => 'h:1', subscribe => 't')"
    assert features(surveyed(lake, f"SELECT * FROM {kafka}")) == {"paths"}
    lake.sql("CREATE TABLE stream (x INT, y INT) USING delta")
    named = surveyed(lake, "SELECT a FROM stream rate(a, b)")
    assert [one.name.table for one in named.readings if one.name] == ["stream"]


def test_a_missing_source_is_told(lake: Lake) -> None:
    with pytest.raises(ServerError) as caught:
        Ingested(
            lake, "SELECT * FROM STREAM read_kafka(bootstrapServers => 'h:1', subscribe => 't')"
        )
    assert caught.value.code == "MT_STREAM_SOURCE"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("format", "options", "stored"),
    [
        ("parquet", "", "SELECT id AS a, concat('n', id) AS b FROM range({})"),
        ("orc", "", "SELECT id AS a, concat('n', id) AS b FROM range({})"),
        ("csv", ", header => true", "SELECT id AS a, concat('n', id) AS b FROM range({})"),
        ("text", "", "SELECT concat('n', id) AS value FROM range({})"),
    ],
)
def test_every_format_brings_its_columns(
    lake: Lake, tmp_path: Path, format: str, options: str, stored: str
) -> None:
    def arrive(rows: int) -> None:
        writer = lake.session.sql(stored.format(rows)).coalesce(1).write
        writer.option("header", "true").format(format).mode("append").save(str(tmp_path))

    arrive(2)
    call = f"read_files('{tmp_path}', format => '{format}'{options})"
    raw = Ingested(lake, f"SELECT * FROM STREAM {call}")
    raw.refresh()
    arrive(1)
    raw.refresh()
    names = ["n0", "n0", "n1"]
    wanted = [(n,) for n in names] if format == "text" else [(int(n[1:]), n) for n in names]
    assert raw.rows() == wanted


def test_a_partition_value_that_storage_would_lose_stops_a_refresh(
    lake: Lake, folder: Folder
) -> None:
    raw = Ingested(lake, over(folder, "a, if(a < 3, b, '') AS b"), "b")
    raw.refresh()
    folder.arrive(3)
    with pytest.raises(ServerError, match="MT_PARTITION_VALUE"):
        raw.refresh()
    assert raw.rows() == [(1, "n1"), (2, "n2")]
