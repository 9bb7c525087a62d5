from __future__ import annotations

from datetime import UTC, datetime

from tests.server.protocol.gateway import FakeCatalog, FakeClock, FakeEngine
from tidegate_server.link.messages.requests import ListTables
from tidegate_server.model.freshness import Freshness, TimeUnit
from tidegate_server.model.names import TableName
from tidegate_server.model.states import RefreshStatus
from tidegate_server.model.table import LogicalRefreshMode, MaterializedTable, RefreshMode
from tidegate_server.model.types import Column, Schema
from tidegate_server.session.snapshot import Snapshot

DAILY = MaterializedTable(
    id="1",
    name=TableName("spark_catalog", "default", "Orders"),
    schema=Schema((Column(name="day", type="date"),)),
    original_query="SELECT 1",
    expanded_query="SELECT 1",
    freshness=Freshness(1, TimeUnit.DAY),
    logical_refresh_mode=LogicalRefreshMode.FULL,
    refresh_mode=RefreshMode.FULL,
    refresh_status=RefreshStatus.ACTIVATED,
    owner="eva",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def make(*tables: MaterializedTable) -> tuple[Snapshot, FakeEngine, FakeClock]:
    engine, clock = FakeEngine(), FakeClock()
    return Snapshot(FakeCatalog(*tables), engine, clock), engine, clock  # type: ignore[arg-type]


def test_a_materialized_table_appears_once_and_as_itself() -> None:
    snapshot, _, _ = make(DAILY)
    found = [t for t in snapshot.listing().tables if t.name.table.lower() == "orders"]
    assert [(t.type, t.columns) for t in found] == [("MATERIALIZED_TABLE", DAILY.schema.columns)]


def test_without_an_engine_the_materialized_tables_are_listed() -> None:
    snapshot, engine, _ = make(DAILY)
    engine.ready = False
    listing = snapshot.listing()
    assert [t.name.table for t in listing.tables] == ["Orders"]
    assert listing.schemas == ("default",)


def test_a_lost_engine_leaves_the_last_listing() -> None:
    snapshot, engine, clock = make()
    before = snapshot.listing()
    engine.ready = False
    clock.advance(3600)
    assert snapshot.listing() == before


def test_columns_fall_back_to_what_was_listed_without_them() -> None:
    snapshot, engine, _ = make()
    snapshot.listing()
    engine.ready = False
    listed = snapshot.listing(with_columns=True, schema="other_db")
    assert [t.name.table for t in listed.tables] == ["t"]


def test_a_listing_grows_old() -> None:
    snapshot, engine, clock = make()
    snapshot.listing()
    clock.advance(11)
    snapshot.listing()
    assert len(engine.calls) == 2


def test_columns_of_one_schema_read_that_schema_alone() -> None:
    snapshot, engine, _ = make()
    snapshot.columns_of("other%")
    assert engine.calls[-1] == ListTables(schema="other_db", with_columns=True)


def test_columns_of_all_schemas_read_them_at_once() -> None:
    snapshot, engine, _ = make()
    snapshot.columns_of(None)
    assert engine.calls[-1] == ListTables(schema=None, with_columns=True)


def test_functions_are_remembered() -> None:
    snapshot, engine, clock = make()
    assert snapshot.functions("s").functions == ("abs", "concat", "sum")
    engine.ready = False
    clock.advance(3600)
    assert snapshot.functions("s").functions == ("abs", "concat", "sum")


def test_functions_are_none_before_an_engine_was_up() -> None:
    snapshot, engine, _ = make()
    engine.ready = False
    assert snapshot.functions("s").functions == ()
