"""Materialized tables that are stored as Iceberg tables of a catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import DataFrame

from tests.support.fixtures.spark import DOWN, IcebergLake
from tests.support.materialized import Materialized, Stored, record_for
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Assertion, Expectation, Violation
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import ChangeMethod, Strategy
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.refresh.maintenance import Horizon
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.storage.iceberg import commits

pytestmark = [pytest.mark.spark, pytest.mark.thorough(3)]

GROUPS = "SELECT k, sum(n) AS n, count(*) AS c FROM src GROUP BY k"
ROWS = "SELECT id, k, n + 1 AS n FROM src WHERE n > 0"


@pytest.fixture
def lake(iceberg_lake: IcebergLake) -> IcebergLake:
    """A schema with the Delta table ``src``."""
    iceberg_lake.sql(
        "CREATE TABLE src (id INT, k STRING, n INT) USING delta",
        "INSERT INTO src VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3), (4, NULL, 4)",
    )
    return iceberg_lake


def check(mt: Materialized) -> None:
    """Require that the table equals its query."""
    wanted = mt.lake.rows(mt.query)
    assert mt.lake.rows(f"SELECT * FROM {mt.name.quoted()}") == wanted
    assert mt.verify().equal


def strategies(mt: Materialized, *statements: str) -> list[Strategy]:
    """Refresh after each statement; return how."""
    found = []
    for statement in statements:
        mt.lake.sql(statement)
        found.append(mt.refresh().plan.strategy)
        check(mt)
    return found


@pytest.mark.parametrize("query", [GROUPS, ROWS])
def test_changes_are_applied_incrementally(lake: IcebergLake, query: str) -> None:
    mt = Materialized(lake, query)
    assert mt.refresh().plan.strategy is Strategy.FULL
    assert mt.refresh().plan.strategy is Strategy.NO_DATA
    assert (
        strategies(
            mt,
            "INSERT INTO src VALUES (5, 'c', 5), (6, 'a', 6)",
            "UPDATE src SET n = 30 WHERE id = 3",
            "DELETE FROM src WHERE k IS NULL",
            "INSERT INTO src VALUES (7, 'd', -1)",
        )
        == [Strategy.INCREMENTAL] * 4
    )
    versions = [row.operation for row in snapshots(mt)]
    assert versions[0] == "append"


def snapshots(stored: Stored) -> list:
    text = f"SELECT * FROM {stored.name.quoted()}.snapshots ORDER BY committed_at"
    return stored.lake.session.sql(text).collect()


def test_a_table_follows_another_one_by_its_snapshots(lake: IcebergLake) -> None:
    first = Materialized(lake, ROWS)
    first.refresh()
    lake.sql(f"CREATE VIEW middle AS SELECT * FROM {first.name.quoted()}")
    query = f"SELECT k, sum(n) AS n FROM {lake.schema}.middle GROUP BY k"
    second = Materialized(lake, query, table="second")
    second.refresh()
    [source] = second.sources
    assert (source.materialized_table, source.name) == (True, first.name)
    lake.sql("UPDATE src SET n = n + 1 WHERE id = 1")
    first.refresh()
    outcome = second.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    [change] = outcome.plan.changes
    assert change.method is ChangeMethod.DIFFERENCE
    check(second)


def test_aggregates_continue_from_the_recorded_state(lake: IcebergLake) -> None:
    mt = Materialized(lake, "SELECT avg(n) AS a, sum(n) / count(*) AS q, max(n) AS m FROM src")
    mt.refresh()
    assert strategies(mt, "INSERT INTO src VALUES (5, 'c', 50)") == [Strategy.INCREMENTAL]
    assert mt.last().record.incremental is not None
    shown = mt.lake.format.describe(mt.name).properties[commits.STATE]
    assert shown.splitlines()[0] == mt.last().refresh_id
    assert all(len(row.summary["tidegate.refresh"]) < 2_000 for row in snapshots(mt))


def test_partitions_and_conditions_replace_their_rows(lake: IcebergLake) -> None:
    mt = Materialized(lake, "SELECT id, coalesce(k, 'z') AS k, n FROM src", "k")
    mt.refresh()
    lake.sql("UPDATE src SET n = n * 10")
    done = mt.refresh(partitions=({"k": "a"},))
    assert done.plan.strategy is Strategy.PARTITION
    stored = lake.rows(f"SELECT k, sum(n) FROM {mt.name.quoted()} GROUP BY k")
    assert stored == [("a", 30), ("b", 3), ("z", 4)]
    mt.refresh(predicate="n = 3")
    stored = lake.rows(f"SELECT k, sum(n) FROM {mt.name.quoted()} GROUP BY k")
    assert stored == [("a", 30), ("z", 4)]
    mt.refresh()
    check(mt)


def test_of_many_small_files_only_those_with_a_removed_row_are_written_again(
    lake: IcebergLake,
) -> None:
    lake.sql("INSERT INTO src SELECT id, concat('p', id % 20), id FROM range(100, 300)")
    mt = Materialized(lake, "SELECT id, k, n FROM src WHERE k LIKE 'p%'", "k")
    mt.refresh()
    lake.sql("DELETE FROM src WHERE id IN (101, 109)")
    assert mt.refresh().metrics.rows_copied == 18
    check(mt)


def test_immutable_rows_stay(lake: IcebergLake) -> None:
    mt = Materialized(lake, "SELECT id, n FROM src", immutable="id < 3")
    mt.refresh()
    lake.sql("UPDATE src SET n = n * 10")
    mt.refresh(force=True)
    assert lake.rows(f"SELECT * FROM {mt.name.quoted()}") == [(1, 1), (2, 2), (3, 30), (4, 40)]


def test_an_outdated_epoch_writes_nothing(lake: IcebergLake) -> None:
    stored = Stored(lake, "SELECT 1 AS a")
    late = stored.order()
    stored.fill()
    before = len(snapshots(stored))
    with pytest.raises(ServerError, match="MT_REFRESH_FENCED"):
        lake.format.write(lake.session.sql("SELECT 2 AS a"), late, record_for(late), partial=False)
    assert len(snapshots(stored)) == before
    assert stored.content() == {"(1,)": 1}


@pytest.mark.parametrize("kind", ["write", "append", "advance"])
def test_a_refresh_that_is_overtaken_before_its_commit_fails(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    stored = Stored(lake, "SELECT 1 AS a")
    stored.fill()
    base = stored.last().version
    late = stored.order()

    def overtake(point: object) -> None:
        monkeypatch.undo()
        stored.fill("SELECT 3 AS a")

    monkeypatch.setattr(commits, "pause_at", overtake)
    rows = lake.session.sql("SELECT 2 AS a")
    with pytest.raises(ServerError, match="MT_REFRESH_FENCED"):
        _commit(lake, kind, rows, late, base)
    assert stored.content() == {"(3,)": 1}
    files = lake.rows(f"SELECT file_path FROM {stored.name.quoted()}.all_data_files")
    assert len(files) == 2  # those of the refresh that failed are deleted


def _commit(lake: IcebergLake, kind: str, rows: DataFrame, order: RefreshOrder, base: int) -> None:
    record = record_for(order)
    match kind:
        case "write":
            lake.format.write(rows, order, record, partial=False)
        case "append":
            lake.format.append(rows, order, record, base=base)
        case _:
            lake.format.advance(lake.session, order, record, base=base)


def test_a_compaction_does_not_disturb_a_refresh(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(lake, "SELECT 1 AS a")
    stored.fill()
    for number in (2, 3):
        order = stored.order()
        base = stored.last().version
        _commit(lake, "append", lake.session.sql(f"SELECT {number} AS a"), order, base)
    base = stored.last().version

    def compact(point: object) -> None:
        monkeypatch.undo()
        done = lake.format.rewrite_files(stored.name, stored.id, "m")
        assert (done.added, done.removed) == (1, 3)

    monkeypatch.setattr(commits, "pause_at", compact)
    _commit(lake, "append", lake.session.sql("SELECT 4 AS a"), stored.order(), base)
    assert sum(stored.content().values()) == 4
    assert stored.last().foreign_version is None


def test_a_change_by_another_writer_is_noticed(lake: IcebergLake) -> None:
    mt = Materialized(lake, GROUPS)
    mt.refresh()
    lake.sql(f"INSERT INTO {mt.name.quoted()} VALUES ('x', 1, 1)")
    assert mt.last().foreign_version == mt.last().version + 1
    lake.sql("INSERT INTO src VALUES (9, 'z', 9)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.FULL
    check(mt)


def test_a_write_of_another_between_plan_and_commit_is_not_lost(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(lake, "SELECT 1 AS a")
    stored.fill()

    def insert(point: object) -> None:
        monkeypatch.undo()
        lake.sql(f"INSERT INTO {stored.name.quoted()} VALUES (7)")

    monkeypatch.setattr(commits, "pause_at", insert)
    order = stored.order()
    with pytest.raises(Exception, match="another writer has changed the table"):
        _commit(lake, "append", lake.session.sql("SELECT 2 AS a"), order, stored.last().version)
    assert sorted(stored.content()) == ["(1,)", "(7,)"]


def test_a_held_version_is_a_branch_until_it_is_published(lake: IcebergLake) -> None:
    grows = Assertion(
        name="grows", condition="row_count >= previous(row_count)", violation=Violation.HOLD
    )
    mt = Materialized(lake, "SELECT id FROM src", assertions=(grows,))
    mt.refresh()
    lake.sql("DELETE FROM src WHERE id = 1")
    with pytest.raises(ServerError, match="MT_VERSION_HELD"):
        mt.refresh()
    assert len(mt.content()) == 4
    held = lake.format.find_held(mt.name, mt.id)
    assert held is not None
    assert held.breaks is not None
    mt.publish(held.refresh_id)
    assert len(mt.content()) == 3
    assert lake.format.find_held(mt.name, mt.id) is None
    lake.format.discard_held(mt.name, mt.id)
    check(mt)


VECTORS = (
    (
        "CREATE TABLE dv (id INT, k STRING, n INT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    ),
    (
        "INSERT INTO dv SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a', 1), (2, 'a', -2), "
        "(3, 'b', 3), (4, NULL, 40), (5, 'c', 5), (6, 'c', 6)"
    ),
)


@pytest.mark.parametrize("force", [False, True])
def test_expectations_over_deletion_vectors(lake: IcebergLake, force: bool) -> None:
    """Rows that a vector marks as deleted are neither stored nor counted."""
    positive = Expectation(name="positive", condition="n > 0", violation=Violation.DROP_ROW)
    named = Expectation(name="named", condition="k IS NOT NULL", violation=Violation.WARN)
    small = Expectation(name="small", condition="n < 100", violation=Violation.FAIL)
    lake.sql(*VECTORS)
    mt = Materialized(lake, "SELECT id, k, n FROM dv", expectations=(positive, named, small))
    kept = "SELECT id, k, n FROM dv WHERE n > 0"

    def refreshed(*statements: str) -> dict[str, int]:
        lake.sql(*statements)
        outcome = mt.refresh(force=force)
        assert outcome.plan.strategy is (Strategy.FULL if force else Strategy.INCREMENTAL)
        assert lake.rows(f"SELECT * FROM {mt.name.quoted()}") == lake.rows(kept)
        assert mt.verify().equal
        assert outcome.metrics is not None
        return dict(outcome.metrics.expectations)

    first = mt.refresh()
    assert first.metrics is not None
    assert dict(first.metrics.expectations) == {"positive": 1, "named": 1, "small": 0}
    found = refreshed("DELETE FROM dv WHERE id IN (1, 4)")
    assert _has_vectors(lake)
    assert found == {"positive": int(force), "named": 0, "small": 0}
    found = refreshed("UPDATE dv SET n = -5, k = NULL WHERE id = 5")
    assert found["positive"] == 1 + force
    found = refreshed(
        "MERGE INTO dv USING (SELECT 2 AS id UNION ALL SELECT 7) s ON s.id = dv.id "
        "WHEN MATCHED THEN UPDATE SET n = 2 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (7, 7)"
    )
    assert (found["positive"], found["named"]) == (int(force), 1 + force)
    lake.sql("UPDATE dv SET n = 100 WHERE id = 3")
    with pytest.raises(ServerError, match="MT_EXPECTATION_FAILED"):
        mt.refresh(force=force)
    refreshed("DELETE FROM dv WHERE id = 3")
    if not force:  # nothing is left of the rows that were deleted before
        refreshed("DELETE FROM dv WHERE id = 7", "INSERT INTO dv VALUES (7, 'g', 70)")


def _has_vectors(lake: IcebergLake) -> bool:
    """Return whether a file of the table ``dv`` has a vector, and not all rows were rewritten."""
    [(place,)] = lake.session.sql("DESCRIBE DETAIL dv").select("location").collect()
    log = Path(urlsplit(place).path) / "_delta_log"
    return any("deletionVector" in file.read_text() for file in log.glob("*.json"))


def test_statements_write_rows_of_deletion_vectors(lake: IcebergLake) -> None:
    """Delta prepares no scans in the plans of writes."""
    name = lake.stored("copied").quoted()
    target = lake.stored("target").quoted()
    lake.sql(*VECTORS, "DELETE FROM dv WHERE id IN (1, 4)")
    assert _has_vectors(lake)
    lake.sql(
        f"CREATE TABLE {name} USING iceberg AS SELECT id, n FROM dv",
        f"CREATE TABLE {target} (id INT, n INT) USING iceberg",
        f"INSERT INTO {target} SELECT id, n FROM dv WHERE id < 4",
        f"INSERT INTO {target} SELECT a.id, a.n FROM dv a JOIN dv b USING (id) WHERE id >= 4",
    )
    wanted = lake.rows("SELECT id, n FROM dv")
    assert len(list(wanted)) == 4
    for each in (name, target):
        assert lake.rows(f"SELECT * FROM {each}") == wanted


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("source", ["dv", "(SELECT a.id, b.n FROM dv a JOIN dv b USING (id))"])
def test_a_merge_reads_a_table_of_delta(lake: IcebergLake, mode: str, source: str) -> None:
    """Spark reads the source a second time, to find the files with rows that match."""
    target = lake.stored("target").quoted()
    lake.sql(
        *VECTORS,
        "DELETE FROM dv WHERE id IN (1, 4)",
        f"CREATE TABLE {target} (id INT, n INT) USING iceberg "
        f"TBLPROPERTIES ('write.merge.mode' = '{mode}')",
        f"INSERT INTO {target} VALUES (1, 1), (2, -2), (9, 9)",
    )
    assert _has_vectors(lake)
    lake.sql(
        f"MERGE INTO {target} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = "
        "s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)"
    )
    kept = "SELECT * FROM VALUES (1, 1), (9, 9)"
    assert lake.rows(f"SELECT * FROM {target}") == lake.rows(f"SELECT id, n FROM dv UNION {kept}")


def test_an_assertion_over_deletion_vectors_holds_a_version(lake: IcebergLake) -> None:
    lake.sql(*VECTORS)
    grows = Assertion(
        name="grows", condition="row_count >= previous(row_count)", violation=Violation.HOLD
    )
    mt = Materialized(lake, "SELECT id, n FROM dv WHERE n > 0", assertions=(grows,))
    mt.refresh()
    lake.sql("DELETE FROM dv WHERE id = 3")
    assert _has_vectors(lake)
    with pytest.raises(ServerError, match="MT_VERSION_HELD"):
        mt.refresh()
    assert len(mt.content()) == 5
    held = lake.format.find_held(mt.name, mt.id)
    assert held is not None
    mt.publish(held.refresh_id)
    assert len(mt.content()) == 4
    check(mt)


def test_a_rollback_restores_the_rows_of_a_version(lake: IcebergLake) -> None:
    mt = Materialized(lake, "SELECT id, n FROM src")
    first = mt.refresh().to_version
    assert first is not None
    before = mt.content()
    lake.sql("DELETE FROM src WHERE id < 3")
    mt.refresh()
    mt.roll_back(first)
    assert mt.content() == before


def test_old_versions_are_removed_but_those_needed(lake: IcebergLake) -> None:
    mt = Materialized(lake, "SELECT id, n FROM src")
    versions = [mt.refresh().to_version]
    for number in range(3):
        lake.sql(f"UPDATE src SET n = {number}")
        versions.append(mt.refresh(force=True).to_version)
    found = lake.format.inspect_files(mt.name, mt.id, versions[:1], 2)
    assert found is not None
    assert found.version == versions[-1]
    assert found.files >= 1
    [needed] = found.needed
    made = [row.committed_at for row in snapshots(mt)]
    assert needed.made.timestamp() == pytest.approx(made[-4].timestamp(), abs=0.01)
    horizon = Horizon(before=made[-2].astimezone(), shortens_log=False)
    removed = lake.format.remove_files(mt.name, mt.id, horizon, "m")
    assert removed.files >= 2
    assert removed.size > 0
    assert len(snapshots(mt)) == 2
    assert mt.refresh().plan.strategy is Strategy.NO_DATA
    check(mt)


def test_columns_and_properties_change_together(lake: IcebergLake) -> None:
    stored = Stored(lake, "SELECT 1 AS a, 'x' AS b")
    stored.fill()
    schema = Schema(
        (
            Column(name="b", type="STRING", nullable=False, comment="a letter"),
            Column(name="a", type="BIGINT"),
            Column(name="c", type="ARRAY<DATE>"),
        )
    )
    lake.format.evolve(
        stored.name, stored.id, schema, "of a test", {"x.y": "1", "absent": None}, widened=("a",)
    )
    found = lake.format.describe(stored.name)
    assert [(c.name, c.type, c.comment) for c in found.schema] == [
        ("b", "string", "a letter"),
        ("a", "bigint", None),
        ("c", "array<date>", None),
    ]
    assert (found.comment, found.properties["x.y"]) == ("of a test", "1")
    assert lake.rows(f"SELECT * FROM {stored.name.quoted()}") == [("x", 1, None)]
    lake.format.set_properties(stored.name, {"x.y": "2"})
    assert lake.format.describe(stored.name).properties["x.y"] == "2"
    with pytest.raises(ServerError, match="MT_DATA_LOST"):
        lake.format.evolve(stored.name, "other", schema, None, {})


def test_creation_can_be_repeated_and_only_its_own_table_is_dropped(lake: IcebergLake) -> None:
    stored = Stored(lake, "SELECT 1 AS a")
    stored.fill()
    schema = Schema((Column(name="a", type="INT"),))
    again = lake.format.create(stored.name, schema, (), None, {"tidegate.id": stored.id})
    assert again[1] == lake.format.find(stored.name).table_id  # type: ignore[union-attr]
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        lake.format.create(stored.name, schema, (), None, {"tidegate.id": "other"})
    lake.format.drop(stored.name, "other")
    assert stored.content() == {"(1,)": 1}
    lake.format.drop(stored.name, stored.id)
    assert lake.format.find(stored.name) is None
    lake.format.drop(stored.name, stored.id)


def test_a_table_whose_catalog_is_down_is_not_taken_for_dropped(lake: IcebergLake) -> None:
    name = TableName(DOWN, "db", "t")
    for act in (
        lambda: lake.format.drop(name, "x"),
        lambda: lake.format.last_commit(name, "x"),
        lambda: lake.format.find(name),
    ):
        with pytest.raises(Exception, match="unavailable") as caught:
            act()
        assert to_server_error(caught.value).code == "CATALOG_UNAVAILABLE"


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("TINYINT", "write CAST(`a` AS INT)"),
        ("ARRAY<SMALLINT>", "write CAST(`a` AS ARRAY<INT>)"),
        ("VARCHAR(3)", "write CAST(`a` AS STRING)"),
        ("INTERVAL DAY", "Leave the column out"),
        ("VARIANT", "Leave the column out"),
    ],
)
def test_types_that_iceberg_does_not_have_are_refused(
    lake: IcebergLake, type: str, hint: str
) -> None:
    schema = Schema((Column(name="a", type=type),))
    with pytest.raises(ServerError, match="NOT_SUPPORTED") as caught:
        lake.format.create(lake.stored("t"), schema, (), None, {"tidegate.id": "t"})
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_stream_continues_from_its_commit(lake: IcebergLake) -> None:
    stored = Stored(lake, "SELECT 1 AS a")
    order = stored.order()
    record = replace(record_for(order), offsets='{"a":1}')
    rows = lake.session.sql("SELECT 1 AS a")
    lake.format.ingest(rows, order, record, base=None)
    assert stored.last().record.offsets == '{"a":1}'
    later = stored.order()
    with pytest.raises(ServerError, match="MT_REFRESH_FENCED"):
        lake.format.ingest(rows, later, record, base=None)
    lake.format.ingest(rows, later, record, base=stored.last().version)
    assert stored.content() == {"(1,)": 2}


def test_what_refreshes_record_is_not_among_the_properties(lake: IcebergLake) -> None:
    name = lake.stored("shown").quoted()
    recorded = f"TBLPROPERTIES ('{commits.STATE}' = 'the sum of all salaries', 'plain' = 'seen')"
    lake.session.sql(f"CREATE TABLE {name} (id INT) USING iceberg {recorded}")
    for statement in ("SHOW TBLPROPERTIES {}", "DESCRIBE EXTENDED {}", "SHOW CREATE TABLE {}"):
        text = str(lake.session.sql(statement.format(name)).collect())
        assert "seen" in text, statement
        assert "salaries" not in text, statement
