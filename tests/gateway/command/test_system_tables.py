"""The published tables, read back with another reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.contract.examples import NOON, name, run, source, table
from tests.gateway.command.fakes import NOW, FixedClock
from tidegate_server.core.model.clauses import Expectation
from tidegate_server.core.model.runs import RunMetrics, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import ColumnOrigin, MaterializedTable, PrimaryKey
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.information_schema.tables import SystemTables
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database

HISTORY = "materialized_table_refresh_history"


class World:
    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path / 'store.db'}")
        self.database.open()
        self.ledger = SqlLedger(self.database)
        self.catalog = MemoryCatalog()
        self.system = self.restart(path)

    def restart(self, path: Path) -> SystemTables:
        return SystemTables(
            self.catalog, self.ledger, FixedClock(), path / "system", path / "audit"
        )

    def table(self, table: str) -> DeltaTable:
        return DeltaTable(self.system.locations()[table])

    def rows(self, table: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self.table(table).to_pyarrow_table().to_pylist()
        return rows


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def test_the_first_versions_are_empty_and_typed(world: World) -> None:
    world.system.ensure()
    for system_table in world.system.locations():
        assert world.rows(system_table) == []
    types = {f.name: str(f.type) for f in world.table(HISTORY).to_pyarrow_table().schema}
    assert types["queued_at"] == "timestamp[us, tz=UTC]"
    assert types["rows_written"] == "int64"


def test_any_delta_reader_can_read_them(world: World) -> None:
    world.system.publish()
    for system_table in world.system.locations():
        protocol = world.table(system_table).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_ensure_keeps_what_is_there(world: World) -> None:
    world.catalog.create(table())
    world.system.publish()
    world.system.ensure()
    assert len(world.rows("materialized_tables")) == 1


def test_what_was_read_earlier_does_not_replace_what_was_read_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = world.catalog.tables

    def read_slowly() -> tuple[MaterializedTable, ...]:
        found = read()
        monkeypatch.setattr(world.catalog, "tables", read)
        world.catalog.create(table())
        world.system.publish()
        return found

    monkeypatch.setattr(world.catalog, "tables", read_slowly)
    world.system.publish()
    assert len(world.rows("materialized_tables")) == 1


def test_definitions_are_published(world: World) -> None:
    world.catalog.create(table())
    world.system.publish()
    [row] = world.rows("materialized_tables")
    assert row["table_name"] == "Daily"
    assert row["freshness"] == "INTERVAL '1' HOUR"
    assert row["refresh_status"] == "ACTIVATED"
    assert json.loads(str(row["options"])) == {"partition.fields.Ds.date-formatter": "yyyy-MM-dd"}
    assert row["created_at"] == NOON


def test_runs_are_published(world: World) -> None:
    world.ledger.record(run())
    world.ledger.record(
        run(
            refresh_id="r-2",
            state=RunState.SUCCEEDED,
            action=Strategy.PARTITION,
            partitions=({"ds": "2024-01-01"},),
            sources={"delta-ev": 4},
            to_version=2**40,
            started_at=NOON,
            finished_at=NOON + timedelta(seconds=2),
        )
    )
    world.system.publish()
    by_id = {row["refresh_id"]: row for row in world.rows(HISTORY)}
    oldest, newest = by_id["r-1"], by_id["r-2"]
    assert (newest["action"], newest["to_version"]) == ("PARTITION", 2**40)
    assert json.loads(str(newest["partitions"])) == [{"ds": "2024-01-01"}]
    assert json.loads(str(newest["sources"])) == [{"source": "delta-ev", "after": 4}]
    assert (newest["table"], newest["table_name"], newest["table_id"]) == ("Daily", "Daily", "t-1")
    assert oldest["finished_at"] is None


def test_lineage_has_a_row_per_edge(world: World) -> None:
    world.catalog.create(table(sources=(source("ev", "e"), source("users", "u"))))
    world.catalog.create(table(id="t-2", name=name("two"), sources=(source("Daily", "t"),)))
    world.system.publish()
    edges = [(r["table_name"], r["source_name"]) for r in world.rows("materialized_table_lineage")]
    assert edges == [("Daily", "ev"), ("Daily", "users"), ("two", "Daily")]


def test_lineage_of_columns_has_a_row_per_origin(world: World) -> None:
    origin = ColumnOrigin(column="total", source=name("ev"), source_column="amount", unchanged=True)
    world.catalog.create(table(lineage=(origin,)))
    world.system.publish()
    [row] = world.rows("materialized_table_column_lineage")
    assert (row["column_name"], row["source_name"], row["source_column"]) == (
        "total",
        "ev",
        "amount",
    )


def test_lag_is_measured_when_it_is_published(world: World) -> None:
    world.catalog.create(table())
    read = NOW - timedelta(hours=2)
    world.ledger.record(
        run(
            state=RunState.SUCCEEDED,
            action=Strategy.FULL,
            queued_at=read,
            started_at=read,
            finished_at=read,
        )
    )
    world.system.publish()
    [row] = world.rows("materialized_table_lag")
    assert (row["table_id"], row["lag_seconds"], row["breached"]) == ("t-1", 7200.0, True)


def test_lag_is_measured_for_statements_that_name_it_alone(world: World) -> None:
    world.system.ensure()
    world.system.publish("SELECT * FROM information_schema.materialized_tables")
    assert world.table("materialized_table_lag").version() == 0
    world.catalog.create(table())
    world.system.publish("select * from information_schema.MATERIALIZED_TABLE_LAG")
    assert len(world.rows("materialized_table_lag")) == 1


def test_expectations_tell_how_the_last_refresh_met_them(world: World) -> None:
    world.catalog.create(table(expectations=(Expectation(name="ok", condition="total > 0"),)))
    world.system.publish()
    [row] = world.rows("materialized_table_expectations")
    assert (row["expectation"], row["on_violation"], row["broken_rows"]) == ("ok", "WARN", None)
    metrics = RunMetrics(expectations={"ok": 3})
    world.ledger.record(run(state=RunState.SUCCEEDED, action=Strategy.FULL, metrics=metrics))
    world.system.publish()
    [row] = world.rows("materialized_table_expectations")
    assert (row["broken_rows"], row["refresh_id"]) == (3, "r-1")


def test_an_enforced_key_is_shown_as_an_expectation_is(world: World) -> None:
    key = PrimaryKey(name="pk", columns=("a b", "c"))
    world.catalog.create(table(primary_key=key, options={"constraint.enforce": "fail"}))
    world.system.publish()
    [row] = world.rows("materialized_table_expectations")
    assert (row["expectation"], row["on_violation"]) == ("pk", "FAIL")
    assert row["condition"] == "PRIMARY KEY (`a b`, `c`)"


def test_every_table_has_the_column_by_which_rows_are_hidden(world: World) -> None:
    world.system.ensure()
    for system_table in world.system.locations().keys() - {"audit_log"}:
        fields = {field.name for field in world.table(system_table).to_pyarrow_table().schema}
        assert {"table_id", "table_catalog", "table_schema", "table_name"} <= fields


def test_only_changed_content_is_written(world: World) -> None:
    world.catalog.create(table())
    world.system.publish()
    world.system.publish()
    assert world.table("materialized_tables").version() == 0
    world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    world.system.publish()
    assert world.table("materialized_tables").version() == 1
    assert world.table("materialized_table_lineage").version() == 0


def test_a_restart_publishes_over_what_is_there(world: World, tmp_path: Path) -> None:
    world.catalog.create(table())
    world.system.publish()
    world.catalog.drop("t-1")
    world.restart(tmp_path).publish()
    assert world.rows("materialized_tables") == []


@pytest.mark.slow
def test_many_publications_stay_readable_and_are_tidied(world: World) -> None:
    for number in range(1, 61):
        world.ledger.record(run(refresh_id=f"r-{number}"))
        world.system.publish()
    assert len(world.rows(HISTORY)) == 60
    location = Path(world.system.locations()[HISTORY])
    assert (location / "_delta_log" / "_last_checkpoint").exists()


def test_definitions_tell_every_version(world: World) -> None:
    world.catalog.create(table())
    world.catalog.create(table(id="t-2", name=name("other")))
    world.catalog.replace(
        table(
            original_query="SELECT 2",
            expanded_query="SELECT 2",
            version=2,
            defined_by="bo",
            defined_at=NOW,
        )
    )
    world.system.publish("select * from materialized_tables")
    assert world.table("materialized_tables").to_pyarrow_table().num_rows == 2
    world.system.publish("select * from MATERIALIZED_TABLE_DEFINITIONS")
    rows = world.rows("materialized_table_definitions")
    facts = [(r["table_id"], r["definition_version"], r["in_force"]) for r in rows]
    assert facts == [("t-1", 1, False), ("t-1", 2, True), ("t-2", 1, True)]
    assert [(r["defined_by"], r["defined_at"]) for r in rows[:2]] == [("ana", NOON), ("bo", NOW)]
    assert rows[1]["query"] == "SELECT 2"
    assert [c["object"] for c in json.loads(str(rows[1]["changes"]))] == ["QUERY"]


def test_partitions_tell_when_each_was_last_refreshed(world: World) -> None:
    world.catalog.create(table())
    world.catalog.create(table(id="t-2", name=name("whole"), partition_keys=()))

    def record(number: int, action: Strategy, *days: str, **changes: object) -> None:
        ended = {"state": RunState.SUCCEEDED, "to_version": number, "table_id": "t-1", **changes}
        partitions = tuple({"Ds": day} for day in days)
        at = NOON + timedelta(minutes=number)
        world.ledger.record(
            run(
                refresh_id=f"r-{number}",
                action=action,
                partitions=partitions,
                finished_at=at,
                **ended,
            )
        )

    record(1, Strategy.PARTITION, "01", "02")
    record(2, Strategy.FULL)
    record(3, Strategy.PARTITION, "02", "03")
    record(4, Strategy.PARTITION, "01", state=RunState.FAILED)
    record(5, Strategy.PARTITION)
    record(6, Strategy.ROLLBACK)
    record(7, Strategy.FULL, table_id="t-2")
    world.system.publish()
    rows = world.rows("materialized_table_partitions")
    assert [(row["partition"], row["refresh_id"], row["version"]) for row in rows] == [
        ('{"Ds":"01"}', "r-2", 2),
        ('{"Ds":"02"}', "r-3", 3),
        ('{"Ds":"03"}', "r-3", 3),
        (None, "r-2", 2),
    ]
    assert rows[1]["refreshed_at"] == NOON + timedelta(minutes=3)
    assert {row["table_name"] for row in rows} == {"Daily"}


def test_partitions_tell_how_each_stands(world: World) -> None:
    # It is noon on 2024-01-02.
    late = {"partition.fields.Ds.lateness": "PT13H"}
    world.catalog.create(table(options={**table().definition.options, **late}))
    midnight = NOON.replace(hour=0, microsecond=0)

    def record(number: int, at: datetime, *days: str, **changes: object) -> None:
        world.ledger.record(
            run(
                refresh_id=f"r-{number}",
                action=Strategy.PARTITION,
                partitions=tuple({"Ds": day} for day in days),
                trigger=Trigger.SCHEDULED,
                started_at=at,
                to_version=number,
                data_timestamp=at,
                **{"state": RunState.SUCCEEDED, **changes},
            )
        )

    record(0, midnight - timedelta(hours=18), "2023-12-31")
    record(1, midnight - timedelta(hours=2), "2023-12-30", "2024-01-01", "other")
    record(2, midnight, "2024-01-01", "2024-01-02", "2024-01-03")
    record(3, NOON, "2024-01-03", state=RunState.RUNNING)
    world.system.publish()
    rows = world.rows("materialized_table_partitions")
    assert {str(row["partition"]): (row["status"], row["version"]) for row in rows} == {
        # Read after its lateness was over.
        '{"Ds":"2023-12-30"}': ("CLOSED", 1),
        # Read after its end, and a run after its lateness found nothing that it lacks.
        '{"Ds":"2023-12-31"}': ("CLOSED", 0),
        # It ended twelve hours ago.
        '{"Ds":"2024-01-01"}': ("OPEN", 2),
        '{"Ds":"2024-01-02"}': ("OPEN", 2),
        '{"Ds":"2024-01-03"}': ("REFRESHING", 2),
        '{"Ds":"other"}': ("OPEN", 1),
    }
    assert len({row["data_timestamp"] for row in rows}) == 3


def test_a_partition_that_nobody_read_since_its_end_is_stale(world: World) -> None:
    world.catalog.create(table())
    at = NOON - timedelta(days=1)
    read = {"action": Strategy.PARTITION, "partitions": ({"Ds": "2024-01-01"},), "started_at": at}
    world.ledger.record(run(refresh_id="r-1", state=RunState.SUCCEEDED, **read))
    failed = {**read, "started_at": NOON}
    world.ledger.record(run(refresh_id="r-2", state=RunState.FAILED, **failed))
    world.system.publish()
    [row] = world.rows("materialized_table_partitions")
    assert row["status"] == "STALE"
    world.ledger.record(run(refresh_id="r-3", state=RunState.SUCCEEDED, **failed))
    world.system.publish()
    [row] = world.rows("materialized_table_partitions")
    assert row["status"] == "CLOSED"
