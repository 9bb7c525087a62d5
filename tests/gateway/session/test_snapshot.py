from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.protocol.gateway import (
    ORDERS,
    OTHER,
    FakeCatalog,
    FakeClock,
    FakeEngine,
    eventually,
)
from tidegate_server.core.messages.requests import ListNames, ListTables
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.names import FunctionName, TableName
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import (
    Definition,
    LogicalRefreshMode,
    MaterializedTable,
    PipelineState,
    RefreshMode,
)
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.session.metadata import ListedTable, Listing, TablePattern
from tidegate_server.gateway.session.metadata_cache import READ_AT_ONCE, MetadataCache
from tidegate_server.gateway.session.metadata_cache_file import MetadataCacheFile
from tidegate_server.gateway.session.metastore_snapshot import MetastoreSnapshot

DAILY = MaterializedTable(
    id="1",
    name=TableName("spark_catalog", "default", "Orders"),
    owner="eva",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    definition=Definition(
        schema=Schema((Column(name="day", type="date"),)),
        original_query="SELECT 1",
        expanded_query="SELECT 1",
        freshness=Freshness(1, TimeUnit.DAY),
        logical_refresh_mode=LogicalRefreshMode.FULL,
        refresh_mode=RefreshMode.FULL,
    ),
    state=PipelineState(status=RefreshStatus.ACTIVATED),
)


def make(*tables: MaterializedTable) -> tuple[MetadataCache, FakeEngine, FakeClock]:
    engine, clock = FakeEngine(), FakeClock()
    return MetadataCache(FakeCatalog(*tables), engine, clock), engine, clock  # type: ignore[arg-type]


def test_a_materialized_table_appears_once_and_as_itself() -> None:
    snapshot, _, _ = make(DAILY)
    found = [t for t in snapshot.listing().tables if t.name.table.lower() == "orders"]
    assert [(t.type, t.columns) for t in found] == [
        ("MATERIALIZED_TABLE", DAILY.definition.schema.columns)
    ]


def test_without_an_engine_the_materialized_tables_are_listed() -> None:
    snapshot, engine, _ = make(DAILY)
    engine.ready = False
    listing = snapshot.listing()
    assert [t.name.table for t in listing.tables] == ["Orders"]
    assert listing.schemas == ("default", "global_temp")


def test_a_lost_engine_leaves_the_last_listing() -> None:
    snapshot, engine, clock = make()
    before = snapshot.listing()
    engine.ready = False
    clock.advance(3600)
    assert snapshot.listing() == before


def calls_of(engine: FakeEngine, kind: type) -> list[Any]:
    return [call for call in engine.calls if isinstance(call, kind)]


def tables_by_name(listing: Listing) -> dict[str, ListedTable]:
    return {table.name.table: table for table in listing.tables}


def test_columns_that_were_read_outlive_the_engine() -> None:
    snapshot, engine, clock = make()
    snapshot.columns_of(TablePattern(schema="default"))
    engine.ready = False
    clock.advance(3600)
    listed = snapshot.columns_of(TablePattern())
    assert [len(t.columns) for t in listed.tables] == [3, 0, 0]


def test_names_grow_old() -> None:
    snapshot, engine, clock = make()
    snapshot.listing()
    snapshot.listing()
    clock.advance(11)
    snapshot.listing()
    assert len(calls_of(engine, ListNames)) == 2


def test_a_slow_metastore_keeps_nobody_waiting_for_names_that_are_merely_old() -> None:
    snapshot, engine, clock = make()
    before = snapshot.listing()
    gate, answer = threading.Event(), engine.call

    def slow(request: Any, **options: Any) -> Any:
        if isinstance(request, ListNames):
            assert gate.wait(30)
        return answer(request, **options)

    engine.call = slow  # type: ignore[method-assign]
    engine.tables = [*engine.tables, replace(ORDERS, name=replace(OTHER.name, table="new"))]
    clock.advance(11)
    assert snapshot.listing() == before
    assert snapshot.listing() == before  # and asks no second time
    gate.set()
    assert eventually(lambda: "new" in tables_by_name(snapshot.listing()))
    assert len(calls_of(engine, ListNames)) == 2


def test_columns_are_read_of_what_matches_and_once() -> None:
    snapshot, engine, _ = make()
    for _ in range(2):
        snapshot.columns_of(TablePattern(schema="def%", table="order_"))
    assert calls_of(engine, ListTables) == [
        ListTables(schema="default", with_columns=True, names=("orders",))
    ]


def test_columns_of_materialized_tables_are_not_read() -> None:
    snapshot, engine, _ = make(DAILY)
    listed = snapshot.columns_of(TablePattern(table="orders"))
    assert calls_of(engine, ListTables) == []
    assert tables_by_name(listed)["Orders"].columns == DAILY.definition.schema.columns


def test_a_statement_makes_the_tables_it_mentions_be_read_again() -> None:
    snapshot, engine, _ = make()
    snapshot.listing()
    engine.calls.clear()
    engine.tables[0] = replace(ORDERS, comment="no orders")
    snapshot.invalidate("COMMENT ON TABLE `Orders` IS 'no orders'")
    assert tables_by_name(snapshot.listing())["orders"].comment == "no orders"
    assert calls_of(engine, ListTables) == [ListTables(schema="default", names=("orders",))]


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE IDENTIFIER('or' || 'ders') SET TBLPROPERTIES ('a' = 'b')", "EXECUTE IMMEDIATE v"],
)
def test_a_statement_that_may_mean_any_table_makes_all_be_read_again(statement: str) -> None:
    snapshot, engine, _ = make()
    snapshot.listing()
    engine.calls.clear()
    snapshot.invalidate(statement)
    snapshot.listing()
    assert {name for call in calls_of(engine, ListTables) for name in call.names} == {
        *("orders", "recent", "t")
    }


def test_a_table_that_was_made_or_dropped_shows_at_once() -> None:
    snapshot, engine, _ = make()
    snapshot.listing()
    engine.tables = [ORDERS, replace(OTHER, name=TableName("spark_catalog", "other_db", "u"))]
    snapshot.invalidate("DROP VIEW recent")
    assert list(tables_by_name(snapshot.listing())) == ["orders", "u"]


def test_a_view_in_the_place_of_a_table_is_a_view() -> None:
    snapshot, engine, _ = make()
    snapshot.columns_of(TablePattern())
    engine.tables = [replace(ORDERS, type="VIEW", columns=())]
    snapshot.invalidate("something else")
    listed = tables_by_name(snapshot.columns_of(TablePattern()))["orders"]
    assert (listed.type, listed.columns) == ("VIEW", ())


def test_of_many_tables_the_names_come_first_and_the_comments_later() -> None:
    snapshot, engine, _ = make()
    many = [
        replace(ORDERS, name=TableName("spark_catalog", "default", f"t{n:04}"))
        for n in range(2 * READ_AT_ONCE)
    ]
    engine.tables = many
    assert len(snapshot.listing().tables) == len(many)
    assert eventually(
        lambda: {table.comment for table in snapshot.listing().tables} == {"all orders"}
    )


def test_what_is_known_outlives_the_gateway(tmp_path: Path) -> None:
    engine, clock, kept = FakeEngine(), FakeClock(), MetadataCacheFile(tmp_path / "metastore")
    before = MetadataCache(FakeCatalog(), engine, clock, kept).columns_of(TablePattern())
    engine.ready = False
    after = MetadataCache(FakeCatalog(), engine, clock, MetadataCacheFile(tmp_path / "metastore"))
    after.load()
    assert after.listing() == before
    assert not after.knows_metastore()


def test_a_stopped_gateway_keeps_what_it_forgot_too(tmp_path: Path) -> None:
    engine, clock, kept = FakeEngine(), FakeClock(), MetadataCacheFile(tmp_path / "metastore")
    snapshot = MetadataCache(FakeCatalog(), engine, clock, kept)
    snapshot.listing()
    snapshot.invalidate("COMMENT ON TABLE orders IS 'another'")
    snapshot.save()
    engine.tables[0] = replace(ORDERS, comment="another")
    after = MetadataCache(FakeCatalog(), engine, clock, kept)
    after.load()
    assert tables_by_name(after.listing())["orders"].comment == "another"


def test_a_disk_that_takes_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    MetadataCacheFile(tmp_path / "nowhere" / "metastore").save(MetastoreSnapshot())
    assert "cannot be saved" in caplog.text


def test_a_damaged_file_is_no_picture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "metastore"
    place.write_bytes(b"\xc1")
    assert MetadataCacheFile(place).load() == MetastoreSnapshot()
    assert "cannot be read" in caplog.text


def test_functions_are_remembered() -> None:
    snapshot, engine, clock = make()
    assert snapshot.functions() == engine.functions
    engine.ready = False
    clock.advance(3600)
    assert snapshot.functions() == engine.functions


def test_functions_are_none_before_an_engine_was_up() -> None:
    snapshot, engine, _ = make()
    engine.ready = False
    assert snapshot.functions() == ()
    assert snapshot.temporary_functions("s", engine) == ()


def test_functions_are_asked_for_again_after_a_change() -> None:
    snapshot, engine, _ = make()
    snapshot.functions()
    engine.functions = (*engine.functions, FunctionName("g", "default"))
    assert FunctionName("g", "default") not in snapshot.functions()
    snapshot.invalidate("CREATE FUNCTION g AS 'x.G'")
    assert FunctionName("g", "default") in snapshot.functions()


def test_owners_are_read_with_the_names_if_they_matter() -> None:
    engine, clock = FakeEngine(), FakeClock()
    engine.owners = {("default", "orders"): "carl", ("other_db", ""): "dora"}
    cache = MetadataCache(FakeCatalog(), engine, clock, with_owners=True)  # type: ignore[arg-type]
    found = cache.listing()
    assert {t.name.table: t.owner for t in found.tables}["orders"] == "carl"
    assert found.schema_owners == {"other_db": "dora"}
    assert ListNames(with_owners=True) in engine.calls
    engine.owners["default", "orders"] = "eve"
    cache.invalidate("ALTER TABLE orders SET OWNER TO USER eve")
    assert {t.name.table: t.owner for t in cache.listing().tables}["orders"] == "eve"
