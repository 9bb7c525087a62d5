"""Materialized tables over Iceberg tables of a catalog, refreshed as the engine does it."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.fixtures.spark import Lake
from tests.support.full_run import FULL
from tests.support.materialized import OverCatalog
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import ChangeMethod, Strategy
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.request import Recompute, RefreshOrder
from tidegate_server.engine.refresh.plan import source_versions
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.jvm import java, string_array

pytestmark = pytest.mark.spark

INCREMENTAL, FULLY = Strategy.INCREMENTAL, Strategy.FULL
GROUPS = "SELECT k, sum(n) AS n, count(*) AS c FROM ice.db.{} GROUP BY k"
ROWS = "SELECT id, n + 1 AS n FROM ice.db.{} WHERE n > 0"
MODES = {
    "cow": {"format-version": "2"},
    "deletes": {"format-version": "2", "mode": "merge-on-read"},
    "vectors": {"format-version": "3", "mode": "merge-on-read"},
}
STREAMS, STEPS = (40, 12) if FULL else (1, 3)


@pytest.fixture(scope="module")
def catalog(spark_root: SparkSession, ice: None) -> None:
    """The catalog ``ice`` with the schema ``db``."""
    spark_root.sql("CREATE SCHEMA ice.db")


class Iceberg:
    """An Iceberg table ``ice.db.name``."""

    def __init__(self, lake: Lake, name: str, mode: str = "cow") -> None:
        self.lake, self.name = lake, f"ice.db.{name}"
        given = dict(MODES[mode])
        self.equality = mode == "deletes"
        written = given.pop("mode", "copy-on-write")
        for operation in ("delete", "update", "merge"):
            given[f"write.{operation}.mode"] = written
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        lake.sql(
            f"DROP TABLE IF EXISTS {self.name}",
            f"CREATE TABLE {self.name} (id INT, k STRING, n INT) TBLPROPERTIES ({listed})",
        )

    def insert(self, *rows: tuple[object, ...]) -> None:
        """Add rows in one file."""
        values = ", ".join(map(repr, rows))
        self.lake.sql(f"INSERT INTO {self.name} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")

    def upsert(self, *ids: int, rows: Sequence[tuple[int, str, int]] = ()) -> None:
        """Delete the rows of some ids, and add others, in one snapshot, as Flink does.

        Spark reads equality deletes, and writes none.
        """
        spark = self.lake.root
        jvm, gateway = java(spark), spark.sparkContext._gateway
        iceberg = jvm.org.apache.iceberg
        assert gateway is not None
        table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, self.name)
        key = table.schema().select(string_array(spark, ["id"]))
        fields = gateway.new_array(gateway.jvm.int, 1)
        fields[0] = table.schema().findField("id").fieldId()
        parquet = iceberg.FileFormat.PARQUET
        factory = (
            iceberg.data.GenericFileWriterFactory.Builder(table)
            .dataSchema(table.schema())
            .dataFileFormat(parquet)
            .deleteFileFormat(parquet)
            .equalityFieldIds(fields)
            .equalityDeleteRowSchema(key)
            .build()
        )

        def written(writer: Any, columns: Any, records: list[dict[str, object]]) -> None:
            for values in records:
                record = iceberg.data.GenericRecord.create(columns)
                for column, value in values.items():
                    record.setField(column, value)
                writer.write(record)
            writer.close()

        def place() -> Any:
            path = f"{table.location()}/data/{uuid.uuid4().hex}.parquet"
            file = table.io().newOutputFile(path)
            return iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(file)

        delta = table.newRowDelta()
        if ids:
            deletes = factory.newEqualityDeleteWriter(place(), table.spec(), None)
            written(deletes, key, [{"id": each} for each in ids])
            delta.addDeletes(deletes.toDeleteFile())
        if rows:
            data = factory.newDataWriter(place(), table.spec(), None)
            written(data, table.schema(), [{"id": i, "k": k, "n": n} for i, k, n in rows])
            delta.addRows(data.toDataFile())
        delta.commit()
        self.lake.sql(f"REFRESH TABLE {self.name}")

    def compact(self) -> None:
        """Rewrite all files."""
        short = self.name.removeprefix("ice.")
        self.call(f"rewrite_data_files(table => '{short}', options => map('rewrite-all', 'true'))")

    def call(self, procedure: str) -> None:
        self.lake.sql(f"CALL ice.system.{procedure}")

    def snapshots(self) -> list[int]:
        """Return the ids of the snapshots, oldest first."""
        found = f"SELECT snapshot_id FROM {self.name}.snapshots ORDER BY committed_at"
        return [row[0] for row in self.lake.session.sql(found).collect()]


@pytest.fixture
def table(lake: Lake, catalog: None) -> Iceberg:
    """An Iceberg table with four rows."""
    found = Iceberg(lake, f"t_{lake.schema}")
    found.insert((1, "a", 1), (2, "a", 2), (3, "b", 3), (4, "c", 4))
    return found


def query_of(table: Iceberg, text: str = GROUPS) -> str:
    return text.format(table.name.rsplit(".", 1)[-1])


def test_a_refresh_records_and_pins_a_snapshot(table: Iceberg) -> None:
    mt = OverCatalog(table.lake, query_of(table))
    [source] = mt.sources
    [first] = table.snapshots()
    record = mt.last().record
    assert source.kind is SourceKind.VERSIONED
    assert record.vector == {source.table_id: 1}
    assert record.source_commits == {source.table_id: f"{first}@0"}
    table.insert((5, "a", 10))
    verified = mt.verify()
    assert (verified.equal, verified.snapshots) == (True, {str(source.name): str(first)})
    # A wave has chosen the first snapshot for all its tables.
    mt.refresh(vector={source.table_id: 1}, force=True)
    assert ("('a', 3, 2)", 1) in mt.content().items()
    outcome = mt.follow()
    [change] = outcome.plan.changes
    assert (change.before, change.after, change.snapshot) == (1, 2, str(table.snapshots()[1]))
    assert mt.verify().equal
    assert mt.verify(1).equal


class Meanwhile(Operation):
    """Adds a row to a table between the first steps of a refresh."""

    def __init__(self, order: RefreshOrder, table: Iceberg) -> None:
        super().__init__(order.refresh_id)
        self.table, self.added = table, False

    def check(self) -> None:
        if not self.added:
            self.table.insert((9, "late", 9))
        self.added = True


@pytest.mark.parametrize("force", [True, False])
def test_a_commit_during_a_refresh_does_not_slip_in(table: Iceberg, force: bool) -> None:
    mt = OverCatalog(table.lake, query_of(table))
    table.insert((5, "a", 10))
    order = mt.order()
    meanwhile = Meanwhile(order, table)
    outcome = refresh(order, Recompute(force=force), table.lake.root, table.lake.format, meanwhile)
    assert meanwhile.added
    assert outcome.plan.strategy is (FULLY if force else INCREMENTAL)
    assert mt.verify().equal
    assert not any("late" in row for row in mt.content())
    mt.follow()


def test_without_new_rows_there_is_nothing_to_do(table: Iceberg) -> None:
    mt = OverCatalog(table.lake, query_of(table))
    assert mt.follow().plan.strategy is Strategy.NO_DATA
    table.compact()
    table.lake.sql(f"INSERT INTO {table.name} SELECT 1, 'x', 1 WHERE false")
    assert mt.follow().plan.strategy is Strategy.NO_DATA
    found = source_versions(mt.sources, table.lake.root, table.lake.format.sources)
    assert found == mt.last().record.vector
    table.insert((5, "a", 10))
    outcome = mt.follow()
    assert outcome.plan.strategy is INCREMENTAL
    assert [c.method for c in outcome.plan.changes] == [ChangeMethod.APPENDED]
    assert [c.rows for c in outcome.plan.changes] == [1]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_only_changed_files_are_read(lake: Lake, catalog: None, mode: str) -> None:
    table = Iceberg(lake, f"m_{lake.schema}", mode)
    table.insert((1, "a", 1), (2, "a", 2), (3, "b", 3))
    table.insert((4, "c", 4), (5, "c", 5))
    groups = OverCatalog(lake, query_of(table), table="groups")
    rows = OverCatalog(lake, query_of(table, ROWS), table="flat")
    most = {"cow": 5, "deletes": 3, "vectors": 3}
    for change, method, count in (
        (f"UPDATE {table.name} SET n = 7 WHERE id = 2", ChangeMethod.DIFFERENCE, 6),
        (f"DELETE FROM {table.name} WHERE id = 1", ChangeMethod.DIFFERENCE, most[mode]),
    ):
        lake.sql(change)
        for mt in (groups, rows):
            outcome = mt.follow()
            assert outcome.plan.strategy is INCREMENTAL, outcome.plan
            [found] = outcome.plan.changes
            assert found.method is method
            assert found.rows is not None
            assert found.rows <= count
    assert all(mt.verify().equal for mt in (groups, rows))


def test_equality_deletes_are_changes(lake: Lake, catalog: None) -> None:
    """As Flink writes them: by a key, for all rows that were there before their snapshot."""
    table = Iceberg(lake, f"q_{lake.schema}", "deletes")
    table.insert((1, "a", 1), (2, "a", 2), (3, "b", 3))
    table.insert((4, "c", 4), (2, "c", 5))
    groups = OverCatalog(lake, query_of(table), table="groups")
    rows = OverCatalog(lake, query_of(table, ROWS), table="flat")

    def follow() -> None:
        for mt in (groups, rows):
            assert mt.follow().plan.strategy is INCREMENTAL
            assert mt.verify().equal

    table.upsert(2)
    follow()
    assert sorted(groups.content()) == ["('a', 1, 1)", "('b', 3, 1)", "('c', 4, 1)"]
    # The rows of the same snapshot stay, those of a key that is unknown, too.
    table.upsert(3, 9, rows=((3, "z", 30), (5, "a", 50)))
    follow()
    assert sorted(groups.content()) == ["('a', 51, 2)", "('c', 4, 1)", "('z', 30, 1)"]
    # Several snapshots, with deletes by position between those by key.
    table.upsert(rows=((6, "f", 6), (7, "f", 7)))
    lake.sql(
        f"DELETE FROM {table.name} WHERE id = 6", f"UPDATE {table.name} SET n = 8 WHERE k = 'a'"
    )
    table.upsert(1, 7, rows=((7, "g", 70),))
    follow()
    assert sorted(groups.content()) == [
        "('a', 8, 1)",
        "('c', 4, 1)",
        "('g', 70, 1)",
        "('z', 30, 1)",
    ]
    # A compaction applies the deletes, and changes no row.
    table.compact()
    assert all(mt.follow().plan.strategy is Strategy.NO_DATA for mt in (groups, rows))
    table.upsert(7)
    follow()
    assert all(mt.verify().equal for mt in (groups, rows))


def test_a_rollback_and_another_table_of_the_name_are_noticed(table: Iceberg) -> None:
    mt = OverCatalog(table.lake, query_of(table))
    table.insert((5, "a", 10))
    mt.follow()
    short = table.name.removeprefix("ice.")
    table.call(f"rollback_to_snapshot('{short}', {table.snapshots()[0]})")
    with pytest.raises(ServerError, match="gone back to earlier versions"):
        mt.verify()
    assert mt.follow().plan.strategy is INCREMENTAL
    table.insert((6, "b", 10))
    mt.follow()
    name = table.name.rsplit(".", 1)[-1]
    again = Iceberg(table.lake, name)
    again.insert((1, "z", 1))
    outcome = mt.follow()
    assert (outcome.plan.strategy, outcome.plan.reason_code) == (FULLY, "SOURCES_REPLACED")
    assert "is another table than the one read last" in outcome.plan.reason_text


def test_an_expired_snapshot_needs_a_full_refresh(table: Iceberg) -> None:
    mt = OverCatalog(table.lake, query_of(table))
    table.insert((5, "a", 10))
    short = table.name.removeprefix("ice.")
    table.call(
        f"expire_snapshots(table => '{short}', older_than => TIMESTAMP '2100-01-01', "
        "retain_last => 1)"
    )
    with pytest.raises(ServerError, match="cannot be read any more") as caught:
        mt.verify()
    assert caught.value.code == "MT_VERIFY_IMPOSSIBLE"
    outcome = mt.follow()
    assert outcome.plan.strategy is FULLY
    assert "VERSION_GONE" in outcome.plan.reason_text


def test_columns_change_without_a_snapshot(table: Iceberg) -> None:
    lake = table.lake
    mt = OverCatalog(lake, query_of(table))
    lake.sql(f"ALTER TABLE {table.name} ADD COLUMN more INT")
    outcome = mt.follow()
    assert outcome.plan.reason_code == "SOURCES_REPLACED"
    assert "has other columns" in outcome.plan.reason_text
    assert mt.follow().plan.strategy is Strategy.NO_DATA
    newer = OverCatalog(lake, query_of(table, "SELECT id, more FROM ice.db.{} AS x"), table="newer")
    lake.sql(
        f"ALTER TABLE {table.name} RENAME COLUMN n TO m",
        f"ALTER TABLE {table.name} RENAME COLUMN more TO n",
        f"ALTER TABLE {table.name} ALTER COLUMN n TYPE BIGINT",
    )
    with pytest.raises(ServerError) as caught:
        newer.follow()
    assert caught.value.code == "MT_SOURCE_CHANGED"
    with pytest.raises(ServerError) as caught:
        mt.follow()
    assert "column n was INT and is BIGINT now" in caught.value.message


def test_tables_without_versions_are_compared_as_before(lake: Lake, catalog: None) -> None:
    """Format version 1 has no sequence numbers."""
    name = f"old_{lake.schema}"
    lake.sql(
        f"CREATE TABLE ice.db.{name} (id INT) TBLPROPERTIES ('format-version' = '1')",
        f"INSERT INTO ice.db.{name} VALUES (1)",
    )
    mt = OverCatalog(lake, f"SELECT id FROM ice.db.{name}")
    assert [source.kind for source in mt.sources] == [SourceKind.PLAIN]
    assert mt.follow().plan.strategy is Strategy.NO_DATA
    lake.sql(f"INSERT INTO ice.db.{name} VALUES (2)")
    assert mt.follow().plan.strategy is FULLY
    # From the first commit on in the new format, it has versions.
    lake.sql(
        f"ALTER TABLE ice.db.{name} SET TBLPROPERTIES ('format-version' = '2')",
        f"INSERT INTO ice.db.{name} VALUES (3)",
    )
    outcome = mt.follow()
    assert outcome.sources is not None
    assert [source.kind for source in outcome.sources] == [SourceKind.VERSIONED]


def test_an_empty_table_has_a_version(lake: Lake, catalog: None) -> None:
    table = Iceberg(lake, f"e_{lake.schema}")
    mt = OverCatalog(lake, query_of(table))
    assert mt.last().record.vector == {mt.sources[0].table_id: 0}
    assert mt.follow().plan.strategy is Strategy.NO_DATA
    assert mt.verify().equal
    table.insert((1, "a", 1))
    mt.follow()
    assert mt.verify().equal


# ---- random changes ----------------------------------------------------------------------------


class Changes:
    """Random statements on a table."""

    def __init__(self, chance: random.Random, table: Iceberg) -> None:
        self.chance, self.table = chance, table
        self.next, self.columns = 100, 0

    def step(self) -> None:
        """Change the table in one to three ways."""
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice(
                [self.insert, self.insert, self.update, self.delete, self.merge]
                + [self.overwrite, self.compact, self.alter, self.roll_back]
                + ([self.upsert] if self.table.equality else [])
            )()

    def row(self) -> tuple[int, str, int]:
        self.next += 1
        id_ = self.chance.choice([self.next, self.chance.randint(1, 20)])
        return id_, self.chance.choice("abcd"), self.chance.randint(-3, 9)

    def insert(self) -> None:
        self._insert([self.row() for _ in range(self.chance.randint(1, 6))])

    def _insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        values = ", ".join(map(repr, rows))
        self.table.lake.sql(f"INSERT INTO {self.table.name} (id, k, n) VALUES {values}")

    def _where(self) -> str:
        low = self.chance.randint(0, 15)
        return self.chance.choice([f"id BETWEEN {low} AND {low + 4}", "n < 0", "k = 'b' AND n > 4"])

    def update(self) -> None:
        n = self.chance.choice(["n + 1", "NULL", "id"])
        self.table.lake.sql(f"UPDATE {self.table.name} SET n = {n} WHERE {self._where()}")

    def delete(self) -> None:
        self.table.lake.sql(f"DELETE FROM {self.table.name} WHERE {self._where()}")

    def merge(self) -> None:
        low = self.chance.randint(0, 15)
        self.table.lake.sql(
            f"MERGE INTO {self.table.name} t USING (SELECT id FROM range({low}, {low + 5})) s "
            "ON t.id = s.id WHEN MATCHED AND t.k = 'a' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET k = 'm' "
            "WHEN NOT MATCHED THEN INSERT (id, k, n) VALUES (s.id, 'new', 1)"
        )

    def upsert(self) -> None:
        rows = [self.row() for _ in range(self.chance.randint(0, 3))]
        self.table.upsert(
            *(self.chance.randint(0, 20) for _ in range(self.chance.randint(1, 4))),
            rows=rows,
        )

    def overwrite(self) -> None:
        if self.chance.random() < 0.3:
            self.table.lake.sql(
                f"INSERT OVERWRITE {self.table.name} SELECT * FROM {self.table.name} WHERE id < 12"
            )

    def compact(self) -> None:
        self.table.compact()

    def alter(self) -> None:
        self.columns += 1
        column = f"c{self.columns}"
        self.table.lake.sql(f"ALTER TABLE {self.table.name} ADD COLUMN {column} INT FIRST")
        if self.chance.random() < 0.5:
            self.table.lake.sql(f"ALTER TABLE {self.table.name} DROP COLUMN {column}")

    def roll_back(self) -> None:
        known = self.table.snapshots()
        if self.chance.random() < 0.3 and len(known) > 2:
            short = self.table.name.removeprefix("ice.")
            chosen = known[-2]
            self.table.call(f"set_current_snapshot('{short}', {chosen})")


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(STREAMS))
def test_every_refresh_equals_the_query_after_random_changes(
    lake: Lake, catalog: None, mode: str, seed: int
) -> None:
    table, other = (Iceberg(lake, f"{n}_{lake.schema}", mode) for n in ("r", "s"))
    streams = [
        Changes(random.Random(f"{mode} {seed} {each.name}"), each) for each in (table, other)
    ]
    for stream in streams:
        stream._insert([stream.row() for _ in range(20)])
    queries = {
        "flat": ROWS.format(f"r_{lake.schema}"),
        "groups": GROUPS.format(f"r_{lake.schema}"),
        "joined": f"SELECT a.id, a.k, b.n FROM {table.name} a JOIN {other.name} b ON a.id = b.id",
    }
    kept = [OverCatalog(lake, query, table=name) for name, query in queries.items()]
    seen: Counter[Strategy] = Counter()
    for _ in range(STEPS):
        for stream in streams:
            stream.step()
        for mt in kept:
            seen[mt.follow().plan.strategy] += 1
            if FULL:
                assert mt.verify().equal
    assert not FULL or seen[INCREMENTAL] > len(kept), seen
