"""The promises of catalog.base, over every implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.examples import NOON, name, source, table, vary
from tests.contract.stores import open_database
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Assertion, Expectation, OnUpdate, Violation
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.names import TableName, quarantine_name, storage_name
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import HeldVersion, RefreshMode, RollingBack
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.catalog.sql import SqlCatalog


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    if request.param == "memory":
        yield MemoryCatalog()
        return
    with open_database(request.param, tmp_path) as database:
        yield SqlCatalog(database)


def test_a_definition_comes_back_whole(catalog: Catalog) -> None:
    catalog.create(table())
    assert catalog.find(name("Daily")) == table()
    assert catalog.by_id("t-1") == table()


def test_a_bare_definition_comes_back_whole(catalog: Catalog) -> None:
    bare = table(
        comment=None, primary_key=None, sources=(), options={}, settings={}, partition_keys=()
    )
    catalog.create(bare)
    assert catalog.by_id("t-1") == bare


def test_assertions_come_back(catalog: Catalog) -> None:
    some = Assertion(name="some", condition="row_count > 0", violation=Violation.HOLD)
    asserted = table(assertions=(some,))
    catalog.create(asserted)
    assert catalog.by_id("t-1") == asserted


def test_a_mark_of_a_rollback_comes_back_and_is_not_part_of_what_is_kept(catalog: Catalog) -> None:
    mark = RollingBack(refresh_id="r-1", active=True, to=table(version=3))
    catalog.create(table())
    catalog.replace(table(pending=mark))
    assert catalog.by_id("t-1") == table(pending=mark)
    catalog.replace(table(version=3))
    assert catalog.by_id("t-1") == table(version=3)
    assert catalog.replaced_definitions() == (table(),)


def test_only_hold_changes_which_version_is_held(catalog: Catalog) -> None:
    held = HeldVersion(refresh_id="r-1", since=NOON, reason="too few rows")
    catalog.create(table())
    catalog.record_held_version("t-1", held)
    assert catalog.by_id("t-1") == table(held=held)
    catalog.replace(table(comment="changed"))
    catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    assert catalog.find(name("Daily")) == table(
        comment="changed", held=held, status=RefreshStatus.SUSPENDED
    )
    catalog.record_held_version("t-1", None)
    assert catalog.by_id("t-1").state.held is None  # type: ignore[union-attr]
    catalog.record_held_version("gone", held)


def test_sources_that_a_refresh_found_take_the_place_of_those_defined(catalog: Catalog) -> None:
    catalog.create(table())
    found = (source("ev", "created-again"), source("more", "delta-more"))
    catalog.note_sources("t-1", found)
    assert catalog.by_id("t-1") == table(sources=found)
    assert catalog.replaced_definitions() == ()
    catalog.note_sources("gone", found)
    assert catalog.by_id("gone") is None


def test_what_is_immutable_comes_back(catalog: Catalog) -> None:
    kept = table(immutable="Ds < '2024'", backfilled_from=name("Old"))
    catalog.create(kept)
    assert catalog.by_id("t-1") == kept


def test_names_are_found_without_regard_to_case_but_keep_theirs(catalog: Catalog) -> None:
    catalog.create(table())
    found = catalog.find(name("DAILY", "D"))
    assert found is not None
    assert found.name == name("Daily")


def test_unknown_names_and_ids_are_not_found(catalog: Catalog) -> None:
    assert catalog.find(name("nope")) is None
    assert catalog.by_id("nope") is None


def test_a_name_that_differs_only_in_case_is_taken(catalog: Catalog) -> None:
    catalog.create(table())
    with pytest.raises(ServerError) as caught:
        catalog.create(table(id="t-2", name=name("dAILY")))
    assert caught.value.code == "MT_ALREADY_EXISTS"
    assert catalog.tables() == (table(),)


def test_the_same_name_in_another_schema_is_free(catalog: Catalog) -> None:
    catalog.create(table())
    catalog.create(table(id="t-2", name=name("Daily", "other")))
    assert len(catalog.tables()) == 2


def test_tables_are_listed_by_name_within_their_schema(catalog: Catalog) -> None:
    catalog.create(table(id="t-2", name=name("Zebra")))
    catalog.create(table(id="t-1", name=name("ant")))
    catalog.create(table(id="t-4", name=name("a_b")))
    catalog.create(table(id="t-3", name=name("bee", "other")))
    assert [t.name.table for t in catalog.tables("Spark_Catalog", "D")] == ["a_b", "ant", "Zebra"]
    assert [t.name.table for t in catalog.tables()] == ["a_b", "ant", "Zebra", "bee"]
    assert catalog.tables("elsewhere") == ()


def test_tables_are_found_by_all_their_names_and_locations(catalog: Catalog) -> None:
    rows = storage_name(name("Daily"))
    held = Expectation(name="x", condition="a > 0", violation=Violation.QUARANTINE)
    catalog.create(table(location="file:/w/daily", storage_table=rows, expectations=(held,)))
    catalog.create(table(id="t-2", name=name("plain"), location="file:/w/plain"))
    catalog.create(table(id="t-3", name=name("plain__quarantine"), location="s3a://w/daily"))

    def found(names: tuple[TableName, ...] = (), locations: tuple[str, ...] = ()) -> list[str]:
        return [each.id for each in catalog.tables_at(names, locations)]

    assert found() == []
    assert found((name("DAILY"),)) == found((rows,)) == ["t-1"]
    assert found((quarantine_name(name("daily")),)) == ["t-1"]
    assert found((name("plain__quarantine"),)) == ["t-3"]
    assert found((name("daily", "other"),)) == []
    assert found((), ("/w/daily/part=1",)) == ["t-1"]
    assert found((name("plain"),), ("/w",)) == ["t-1", "t-2"]
    assert found((), ("s3a://w/daily/x", "/elsewhere")) == ["t-3"]


def test_consumers_are_the_tables_that_read_a_name_directly(catalog: Catalog) -> None:
    catalog.create(table(sources=(source("ev", "e"), source("ev2", "e2"))))
    catalog.create(table(id="t-2", name=name("a"), sources=(source("EV", "e"),)))
    catalog.create(table(id="t-3", name=name("b"), sources=(source("Daily", "x"),)))
    assert [t.id for t in catalog.consumers(name("Ev"))] == ["t-2", "t-1"]
    assert [t.id for t in catalog.consumers(name("daily"))] == ["t-3"]


def test_tables_that_changes_of_sources_refresh_are_watched(catalog: Catalog) -> None:
    catalog.create(table(id="t-1", name=name("full"), refresh_mode=RefreshMode.FULL))
    catalog.create(table(id="t-2", name=name("tail"), refresh_mode=RefreshMode.CONTINUOUS))
    on_update = OnUpdate()
    catalog.create(
        table(id="t-3", name=name("eager"), refresh_mode=RefreshMode.FULL, on_update=on_update)
    )
    assert [t.id for t in catalog.watched()] == ["t-3", "t-2"]


def test_tables_with_the_freshness_of_their_consumers_are_found(catalog: Catalog) -> None:
    catalog.create(table(id="t-1", name=name("own")))
    catalog.create(table(id="t-2", name=name("theirs"), downstream=True))
    assert [t.id for t in catalog.downstream()] == ["t-2"]


def test_replace_writes_everything_but_the_status(catalog: Catalog) -> None:
    catalog.create(table())
    changed = table(
        name=name("Renamed"),
        freshness=Freshness(2, TimeUnit.MINUTE),
        sources=(source("other", "o"),),
        version=2,
        status=RefreshStatus.SUSPENDED,
        status_reason="no",
    )
    catalog.replace(changed)
    expected = vary(changed, status=RefreshStatus.ACTIVATED, status_reason=None)
    assert catalog.by_id("t-1") == expected
    assert catalog.find(name("Daily")) is None
    assert catalog.consumers(name("ev")) == ()


def test_replace_of_a_missing_table_is_refused(catalog: Catalog) -> None:
    with pytest.raises(ServerError) as caught:
        catalog.replace(table())
    assert caught.value.code == "MT_NOT_FOUND"


def test_replace_cannot_take_a_name_that_is_taken(catalog: Catalog) -> None:
    catalog.create(table())
    catalog.create(table(id="t-2", name=name("two")))
    with pytest.raises(ServerError) as caught:
        catalog.replace(table(id="t-2", name=name("DAILY")))
    assert caught.value.code == "MT_ALREADY_EXISTS"
    found = catalog.by_id("t-2")
    assert found is not None
    assert found.name == name("two")


def test_a_status_moves_once_and_keeps_its_reason(catalog: Catalog) -> None:
    catalog.create(table())
    suspended, activated = RefreshStatus.SUSPENDED, RefreshStatus.ACTIVATED
    assert catalog.move("t-1", activated, suspended, "by hand")
    assert not catalog.move("t-1", activated, suspended)
    found = catalog.by_id("t-1")
    assert found is not None
    assert (found.state.status, found.state.status_reason) == (suspended, "by hand")


def test_a_missing_table_does_not_move(catalog: Catalog) -> None:
    assert not catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)


def test_a_move_outside_the_life_cycle_is_refused(catalog: Catalog) -> None:
    catalog.create(table())
    with pytest.raises(ServerError) as caught:
        catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.INITIALIZING)
    assert caught.value.code == "INTERNAL"


def test_what_a_higher_definition_version_replaces_is_kept_as_it_last_was(
    catalog: Catalog,
) -> None:
    catalog.create(table())
    catalog.create(table(id="t-2", name=name("other")))
    catalog.replace(first := table(comment="later", sources=(source("ev", "delta-ev"),)))
    second = vary(first, version=2, defined_by="bo", defined_at=NOON)
    catalog.replace(second)
    assert catalog.by_id("t-1") == second
    catalog.replace(vary(second, version=3, restored_from=1))
    assert catalog.replaced_definitions("t-1") == (first, second)
    catalog.replace(table(id="t-2", name=name("other"), version=2))
    assert [t.id for t in catalog.replaced_definitions()] == ["t-1", "t-1", "t-2"]
    assert catalog.replaced_definitions("nope") == ()


def test_a_lower_definition_version_forgets_those_it_undoes(catalog: Catalog) -> None:
    catalog.create(table())
    catalog.replace(table(version=2))
    catalog.replace(table(version=3))
    catalog.replace(table(version=2))
    assert [t.definition.version for t in catalog.replaced_definitions()] == [1]
    catalog.replace(table(version=3))
    assert [t.definition.version for t in catalog.replaced_definitions()] == [1, 2]


def test_replaced_definitions_come_and_go_with_their_table(catalog: Catalog) -> None:
    catalog.create(table())
    with pytest.raises(ServerError):
        catalog.replace(table(version=2), table(id="nope", name=name("nope")))
    assert catalog.replaced_definitions() == ()
    catalog.replace(table(version=2))
    catalog.drop("t-1")
    assert catalog.replaced_definitions() == ()


def test_a_dropped_table_is_gone_and_its_name_free(catalog: Catalog) -> None:
    catalog.create(table())
    catalog.drop("t-1")
    catalog.drop("t-1")
    assert catalog.tables() == ()
    assert catalog.consumers(name("ev")) == ()
    catalog.create(table(id="t-2"))


def test_several_definitions_are_replaced_together_or_not_at_all(catalog: Catalog) -> None:
    first, second = table(), table(id="t-2", name=name("other"))
    catalog.create(first)
    catalog.create(second)
    renamed = replace(first, name=name("renamed"))
    catalog.replace(renamed, vary(second, comment="reads the new name"))
    assert catalog.by_id("t-1") == renamed
    with pytest.raises(ServerError) as caught:
        catalog.replace(vary(second, comment="lost"), replace(renamed, name=name("OTHER")))
    assert caught.value.code == "MT_ALREADY_EXISTS"
    found = catalog.by_id("t-2")
    assert found is not None
    assert found.definition.comment == "reads the new name"


def test_tables_that_are_replaced_together_may_exchange_their_names(catalog: Catalog) -> None:
    catalog.create(table())
    catalog.create(table(id="t-2", name=name("Other")))
    catalog.replace(table(name=name("Other")), table(id="t-2", name=name("Daily")))
    assert [(t.id, t.name) for t in catalog.tables()] == [
        ("t-2", name("Daily")),
        ("t-1", name("Other")),
    ]
    assert catalog.find(name("daily")) == table(id="t-2", name=name("Daily"))
    with pytest.raises(ServerError) as caught:
        catalog.replace(table(name=name("Daily")), table(id="t-2", name=name("daily")))
    assert caught.value.code == "MT_ALREADY_EXISTS"
    assert catalog.find(name("Other")) == table(name=name("Other"))
