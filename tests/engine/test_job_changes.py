"""Changes of a table that a job writes: the net change by key, and what a version adds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tests.support.fixtures.spark import Lake
from tidegate_server.core.connectors.changes import DELETED
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.streams import find_stream
from tidegate_server.engine.jobs.changes import net_by_key, net_rows
from tidegate_server.engine.jobs.running import error_of
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.query.streams import stream_view
from tidegate_server.engine.query.table_changes import (
    CHANGE,
    VERSION,
    check_source,
    locate_changes,
    read_changes,
    unreadable_error,
)
from tidegate_server.engine.storage.exact import WEIGHT

pytestmark = pytest.mark.spark

Change = tuple[int, float | None, str, int]
SCHEMA = f"k INT, v DOUBLE, {CHANGE} STRING, {VERSION} BIGINT"


def frame(lake: Lake, changes: Sequence[Change]) -> DataFrame:
    """The changes in any order, in several partitions."""
    mixed = random.Random(len(changes)).sample(changes, len(changes))
    return lake.session.createDataFrame(mixed, SCHEMA).repartition(2)


def changed(table: dict[int, float | None], version: int, rng: random.Random) -> list[Change]:
    """Change a table in one version, and return how Delta records that."""
    before = dict(table)
    for key in rng.sample(range(8), 4):
        match rng.choice(("set", "set", "delete", "move")):
            case "set":
                table[key] = rng.choice((None, 0.0, -0.0, float(rng.randrange(5))))
            case "delete":
                table.pop(key, None)
            case "move" if key in table:
                table[rng.randrange(8)] = table.pop(key)
    whole = rng.random() < 0.3  # as a full refresh, which removes and adds all rows
    found: list[Change] = []
    for key, value in before.items():
        gone = key not in table
        if whole or gone or repr(table[key]) != repr(value):
            updated = not gone and not whole and rng.random() < 0.5
            found.append((key, value, "update_preimage" if updated else "delete", version))
            if not gone:
                kind = "update_postimage" if updated else "insert"
                found.append((key, table[key], kind, version))
    return found + [(k, v, "insert", version) for k, v in table.items() if k not in before]


def test_a_target_with_the_net_changes_equals_the_table(lake: Lake) -> None:
    rng = random.Random(7)
    table: dict[int, float | None] = {}
    # What a condition includes is another table: rows enter and leave it.
    targets: list[dict[int, str]] = [{}, {}]
    version = 0
    for _ in range(4):
        batch: list[Change] = []
        for _ in range(rng.randrange(1, 4)):
            version += 1
            batch += changed(table, version, rng)
        for target, condition in zip(targets, ("true", "v >= 2 AND k < 6"), strict=True):
            rows = net_by_key(frame(lake, batch).where(condition), ["k"]).collect()
            assert len(rows) == len({row.k for row in rows})
            for row in rows:
                if row[DELETED]:
                    target.pop(row.k, None)
                else:
                    target[row.k] = repr(row.v)
        assert targets[0] == {k: repr(v) for k, v in table.items()}
        wanted = {k: repr(v) for k, v in table.items() if v is not None and v >= 2 and k < 6}
        assert targets[1] == wanted


def test_rows_that_stay_are_not_written_again_and_keys_are_unique(lake: Lake) -> None:
    replaced = [(k, v, kind, 2) for k, v in ((1, 1.0), (2, None)) for kind in ("delete", "insert")]
    zero: list[Change] = [(3, 0.0, "delete", 2), (3, -0.0, "insert", 2)]
    [row] = net_by_key(frame(lake, replaced + zero), ["k"]).collect()
    assert (row.k, repr(row.v), row[DELETED]) == (3, "-0.0", False)
    twice: list[Change] = [(1, 1.0, "insert", 3), (1, 1.0, "insert", 4), (1, 2.0, "insert", 4)]
    [row] = net_by_key(frame(lake, twice), ["k"]).collect()
    assert row[-1] == 4


def test_a_version_that_replaces_all_rows_only_adds_the_new_ones(lake: Lake) -> None:
    changes: list[Change] = [
        *((1, 1.0, kind, 2) for kind in ("delete", "insert", "insert")),
        *((2, None, kind, 2) for kind in ("update_preimage", "update_postimage")),
        (3, 3.0, "delete", 3),
        (3, 3.0, "insert", 4),
    ]
    found = net_rows(frame(lake, changes)).select("k", VERSION, WEIGHT).collect()
    assert sorted(map(tuple, found)) == [(1, 2, 1), (3, 3, -1), (3, 4, 1)]


class Reader:
    """Reads the changes of a table as a job does, and keeps the batches."""

    def __init__(self, lake: Lake, query: str, place: str) -> None:
        self.lake, self.query, self.place = lake, query, place
        stream = find_stream(query)
        assert stream is not None
        self.stream, self.id = locate_changes(lake.session, stream, query, lake.format)
        self.batches: list[list[tuple[object, ...]]] = []
        self.failure: Exception | None = None

    def start(self) -> StreamingQuery:
        check_source(self.lake.format, self.stream, self.id)
        session = self.lake.session
        with stream_view(session, self.stream, self.query, runs=True):
            changes = read_changes(session, self.stream, self.query, self.lake.format)
        assert changes.columns[-2:] == [CHANGE, VERSION]
        writer = changes.writeStream.foreachBatch(self.keep)
        return writer.option("checkpointLocation", self.place).trigger(availableNow=True).start()

    def keep(self, rows: DataFrame, number: int) -> None:
        try:
            self.batches.append(sorted(map(tuple, rows.collect()), key=repr))
        except Exception as caught:
            self.failure = caught
            raise

    def take(self) -> list[list[tuple[object, ...]]]:
        """Read what there is, and return its batches."""
        self.batches.clear()
        query = self.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as caught:
            problem = to_server_error(self.failure or error_of(query))
            raise unreadable_error(problem, self.stream) from caught
        return self.batches


def refused(reader: Reader) -> str:
    with pytest.raises(ServerError) as caught:
        reader.take()
    assert caught.value.code == "MT_CHANGES_UNREADABLE"
    return caught.value.message


def test_changes_pass_through_the_query(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("changes")
    lake.sql(
        "CREATE TABLE t (id INT, `a b` STRING, n INT) TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name')",
        "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2), (3, 'z', 3)",
    )
    query = (
        "SELECT s, i + 1 AS j FROM (SELECT id AS i, upper(`a b`) AS s, n FROM STREAM t AS c) q "
        "WHERE n >= 2"
    )
    reader = Reader(lake, query, str(place / "all"))
    late = Reader(
        lake, "SELECT id FROM STREAM(t) WITH ('startingVersion' = 'latest')", str(place / "late")
    )
    assert late.take() == [[]]
    assert reader.take() == [[("Y", 3, "insert", 1), ("Z", 4, "insert", 1)]]
    lake.sql("UPDATE t SET n = 3 - n WHERE id < 3", "INSERT OVERWRITE t SELECT * FROM t")
    [batch] = reader.take()
    assert batch == [
        ("X", 2, "delete", 3),
        ("X", 2, "insert", 3),
        ("X", 2, "update_postimage", 2),
        ("Y", 3, "update_preimage", 2),
        ("Z", 4, "delete", 3),
        ("Z", 4, "insert", 3),
    ]
    assert {row[-1] for batch in late.take() for row in batch} == {2, 3}


@pytest.mark.thorough
def test_changes_that_are_gone_are_an_error(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("changes")
    readers = []
    for name in ("replaced", "dropped", "unfed", "vacuumed"):
        lake.sql(f"CREATE TABLE {name} (id INT)", f"INSERT INTO {name} VALUES (1)")
        readers.append(Reader(lake, f"SELECT * FROM STREAM {name}", str(place / name)))
        if name in ("unfed", "vacuumed"):
            assert len(readers[-1].take()) == 1
    lake.sql(
        "CREATE OR REPLACE TABLE replaced AS SELECT 2 AS id",
        "DROP TABLE dropped",
        "ALTER TABLE unfed SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        "INSERT INTO unfed VALUES (2)",
        "INSERT OVERWRITE vacuumed VALUES (2)",
        "INSERT OVERWRITE vacuumed VALUES (3)",
        "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
        "VACUUM vacuumed RETAIN 0 HOURS",
    )
    said = ("dropped or replaced", "dropped or replaced", "feed was off", "are gone")
    for reader, words in zip(readers, said, strict=True):
        assert words in refused(reader)
    for query, words in (
        ("SELECT * FROM STREAM unfed", "its change feed is off"),
        ("SELECT * FROM STREAM vacuumed WITH ('startingVersion' = 99)", "newest version is"),
    ):
        with pytest.raises(ServerError, match=words):
            Reader(lake, query, "")
    lake.sql("CREATE VIEW v AS SELECT 1 AS id", "CREATE TEMPORARY VIEW dropped AS SELECT 1 AS id")
    for query in (
        "SELECT * FROM STREAM v",
        "SELECT * FROM STREAM dropped",
        "SELECT * FROM STREAM delta.`/tmp`",
        "SELECT *, _change_type FROM STREAM vacuumed",
    ):
        with pytest.raises(ServerError) as caught:
            Reader(lake, query, "")
        assert caught.value.code in ("NOT_SUPPORTED", "MT_QUERY_UNSUPPORTED")
