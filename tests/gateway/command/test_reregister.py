"""Which Delta tables of the warehouse get an entry in the metastore again, and under which name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.contract.examples import name, table
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import (
    Answer,
    Done,
    FoundTable,
    NameList,
    SchemaNames,
    TablesFound,
)
from tidegate_server.core.messages.requests import FindTables, ListNames, RegisterTable
from tidegate_server.core.model.names import TableName
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.recovery.metastore import Reregistered, metastore_is_lost, reregister
from tidegate_server.gateway.store.stored_table import encode_definition

SYSTEM = TableName("spark_catalog", "information_schema", "materialized_tables")


@dataclass
class Warehouse:
    """An engine over a warehouse whose metastore was lost."""

    found: list[FoundTable] = field(default_factory=list)
    entries: list[TableName] = field(default_factory=lambda: [SYSTEM])
    refuses: dict[str, ServerError] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    registered: list[tuple[str, str, str]] = field(default_factory=list)

    def call(self, request: object, **_: Any) -> Answer:
        match request:
            case FindTables():
                self.asked = request.locations
                return TablesFound(found=tuple(self.found), entries=tuple(self.entries))
            case RegisterTable():
                if request.location in self.refuses:
                    raise self.refuses[request.location]
                self.registered.append((str(request.name), request.location, request.table_id))
                return Done()
            case ListNames():
                names = [
                    SchemaNames(schema=entry.schema, tables=(entry.table,), views=())
                    for entry in self.entries
                ]
                return NameList(schemas=tuple(names))
            case _:
                raise AssertionError(request)


def found_table(location: str, table_id: str = "", definition: str | None = None) -> FoundTable:
    directory = name(location.rsplit("/", 1)[-1])
    return FoundTable(
        directory=directory, location=location, table_id=table_id, definition=definition
    )


@pytest.fixture
def catalog() -> MemoryCatalog:
    kept = MemoryCatalog()
    kept.create(table(id="t-1", name=name("daily"), location="/elsewhere/daily"))
    return kept


def reregister_all(catalog: MemoryCatalog, engine: Warehouse) -> Reregistered:
    return reregister(catalog, engine)  # type: ignore[arg-type]


def test_the_catalog_knows_a_table_by_its_id_wherever_it_lies(catalog: MemoryCatalog) -> None:
    engine = Warehouse([found_table("/elsewhere/daily", "t-1"), found_table("/w/d.db/plain")])
    assert reregister_all(catalog, engine) == Reregistered(materialized=1, plain=1)
    assert engine.asked == ("/elsewhere/daily",)
    assert ("spark_catalog.d.daily", "/elsewhere/daily", "t-1") in engine.registered
    assert ("spark_catalog.d.plain", "/w/d.db/plain", "") in engine.registered


def test_without_the_catalog_its_definition_says_its_name() -> None:
    definition = encode_definition(table(id="t-2", name=name("renamed")))
    engine = Warehouse([found_table("/w/d.db/first_name", "t-2", definition)])
    assert reregister_all(MemoryCatalog(), engine).materialized == 1
    assert engine.registered == [("spark_catalog.d.renamed", "/w/d.db/first_name", "t-2")]


def test_of_copies_only_the_one_that_the_catalog_knows_is_taken(catalog: MemoryCatalog) -> None:
    engine = Warehouse([found_table("/w/d.db/copy", "t-1"), found_table("/elsewhere/daily", "t-1")])
    assert reregister_all(catalog, engine).materialized == 1
    assert engine.registered[0][1] == "/elsewhere/daily"
    assert reregister_all(MemoryCatalog(), engine).materialized == 0


def test_other_tables_are_left_alone_in_a_metastore_that_is_not_lost(
    catalog: MemoryCatalog,
) -> None:
    engine = Warehouse([found_table("/w/d.db/plain")], entries=[SYSTEM, name("kept")])
    assert reregister_all(catalog, engine) == Reregistered()


def test_a_name_that_is_taken_is_left_alone(catalog: MemoryCatalog) -> None:
    engine = Warehouse([found_table("/elsewhere/daily", "t-1")], entries=[name("Daily")])
    assert reregister_all(catalog, engine) == Reregistered()


def test_a_table_that_cannot_be_had_hides_no_other(catalog: MemoryCatalog) -> None:
    engine = Warehouse([found_table("/w/d.db/a"), found_table("/w/d.db/b")])
    engine.refuses["/w/d.db/a"] = error(Code.MT_DATA_LOST, table="a", reason="gone")
    assert reregister_all(catalog, engine).plain == 1
    engine.refuses["/w/d.db/a"] = error(Code.ENGINE_LOST)
    with pytest.raises(ServerError):
        reregister_all(catalog, engine)


def test_a_definition_that_cannot_be_read_is_left_alone() -> None:
    engine = Warehouse([found_table("/w/d.db/a", "t-9", "{")])
    assert reregister_all(MemoryCatalog(), engine) == Reregistered()


def test_a_metastore_without_tables_is_lost_if_there_should_be_some(
    catalog: MemoryCatalog,
) -> None:
    assert metastore_is_lost(catalog, Warehouse())  # type: ignore[arg-type]
    assert not metastore_is_lost(MemoryCatalog(), Warehouse())  # type: ignore[arg-type]
    kept = Warehouse(entries=[SYSTEM, name("kept")])
    assert not metastore_is_lost(catalog, kept)  # type: ignore[arg-type]
