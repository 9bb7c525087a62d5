"""ALTER ... SWAP WITH: two tables exchange their names, or nothing happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gateway.command.fakes import T1, World, name
from tests.gateway.command.tables import ALTER, produces, refusal
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.requests import PlaceTables
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.table import Dropping, Swapping
from tidegate_server.gateway.runs.orders import refuse_half_done

CREATE = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' {} AS SELECT * FROM {}"


@pytest.fixture
def pair(world: World) -> World:
    """Blue and green, and one that reads blue."""
    world.execute(CREATE.format("blue", "DAY", "t1"))
    world.execute(CREATE.format("green", "HOUR", "t1"))
    produces(world, "SELECT * FROM blue", *T1, source="blue")
    world.execute(CREATE.format("reader", "DAY", "blue"))
    return world


def test_two_tables_exchange_their_names(pair: World) -> None:
    blue, green = pair.table("blue"), pair.table("green")
    pair.execute(f"{ALTER} blue SWAP WITH green")
    assert (pair.table("blue").id, pair.table("green").id) == (green.id, blue.id)
    assert not (pair.table("blue").pending or pair.table("green").pending)


def test_each_table_keeps_its_freshness_status_and_location(pair: World) -> None:
    pair.execute(f"{ALTER} green SUSPEND")
    blue, green = pair.table("blue"), pair.table("green")
    pair.execute(f"{ALTER} blue SWAP WITH green")
    for now, before in ((pair.table("blue"), green), (pair.table("green"), blue)):
        assert now.definition.freshness == before.definition.freshness
        assert now.state.status is before.state.status
        assert now.location == before.location


def test_each_table_keeps_its_workflow(pair: World) -> None:
    pair.execute(f"{ALTER} green SUSPEND")
    workflows = pair.workflow("blue"), pair.workflow("green")
    pair.execute(f"{ALTER} blue SWAP WITH green")
    assert (pair.workflow("green"), pair.workflow("blue")) == workflows


def test_the_storage_of_each_table_has_its_new_name(pair: World) -> None:
    blue, green = pair.table("blue"), pair.table("green")
    pair.execute(f"{ALTER} blue SWAP WITH green")
    stored = pair.engine.storage.tables
    assert [stored[name(table)].owner for table in ("blue", "green")] == [green.id, blue.id]


def test_the_definition_in_the_storage_has_the_new_name(pair: World) -> None:
    green = pair.table("green")
    pair.execute(f"{ALTER} blue SWAP WITH green")
    definition = pair.engine.storage.tables[name("blue")].properties["tidegate.definition"]
    assert f'"id":"{green.id}"' in definition
    assert '"table":"blue"' in definition
    assert 'swapping":true' not in definition


def test_twice_is_as_if_nothing_had_happened(pair: World) -> None:
    before = pair.catalog.tables(), dict(pair.engine.storage.tables)
    pair.execute(f"{ALTER} blue SWAP WITH green")
    pair.execute(f"{ALTER} green SWAP WITH blue")
    tables = [table for table in pair.catalog.tables() if table.name.table != "reader"]
    assert tables == [table for table in before[0] if table.name.table != "reader"]


def test_tables_of_two_schemas_exchange_their_names(pair: World) -> None:
    blue = pair.table("blue")
    pair.session.schema = "other"
    pair.execute(CREATE.format("blue", "DAY", "t1"))
    far = TableName("spark_catalog", "other", "blue")
    there = pair.catalog.find(far)
    pair.execute(f"{ALTER} blue SWAP WITH d.blue")
    found = pair.catalog.find(far)
    assert (found and found.id, there and there.id) == (blue.id, pair.table("blue").id)
    assert pair.engine.storage.tables[far].owner == blue.id


def test_what_reads_a_name_reads_the_other_table(pair: World) -> None:
    green = pair.table("green").id
    pair.execute(f"{ALTER} blue SWAP WITH green")
    reader = pair.table("reader")
    assert [(source.name, source.table_id) for source in reader.definition.sources] == [
        (name("blue"), f"delta-{green}")
    ]
    assert reader.definition.expanded_query == "SELECT * FROM spark_catalog.d.blue"
    assert reader.definition.version == 1
    properties = pair.engine.storage.tables[name("reader")].properties
    assert f"delta-{green}" in properties["tidegate.definition"]


def test_a_table_that_would_be_made_of_itself_is_refused(pair: World) -> None:
    problem = refusal(pair, f"{ALTER} blue SWAP WITH reader")
    assert problem.code == Code.MT_CYCLE.name
    produces(pair, "SELECT * FROM reader", *T1, source="reader")
    pair.execute(CREATE.format("last", "DAY", "reader"))
    problem = refusal(pair, f"{ALTER} last SWAP WITH blue")
    assert problem.code == Code.MT_CYCLE.name
    assert "reader" in problem.message


def test_its_own_name_changes_nothing(pair: World) -> None:
    pair.engine.requests.clear()
    pair.execute(f"{ALTER} blue SWAP WITH BLUE")
    assert pair.engine.requests_of(PlaceTables) == []


def test_what_cannot_be_swapped_is_refused(pair: World) -> None:
    pair.execute(CREATE.format("derived (x AS upper(b))", "DAY", "t1"))
    held = "CONSTRAINT positive EXPECT (a > 0) ON VIOLATION QUARANTINE"
    pair.execute(CREATE.format(f"holding ({held})", "DAY", "t1"))
    problem = refusal(pair, f"{ALTER} blue SWAP WITH holding")
    assert (problem.code, "holds rows out" in problem.headline) == ("NOT_SUPPORTED", True)
    problem = refusal(pair, f"{ALTER} blue SWAP WITH derived")
    assert problem.code == Code.NOT_SUPPORTED.name
    assert "DROP (x)" in problem.hint
    problem = refusal(pair, f"{ALTER} blue\n  SWAP WITH d.nope")
    assert problem.code == Code.MT_NOT_FOUND.name
    assert (problem.line, problem.column) == (2, 13)


def test_a_running_refresh_is_not_moved_away_from(pair: World) -> None:
    for table in ("blue", "green", "reader"):
        pair.ledger.leases[pair.table(table).id] = "server-1/r"
        assert refusal(pair, f"{ALTER} blue SWAP WITH green").code == Code.MT_STATE.name
        pair.ledger.leases.clear()


def test_a_table_that_could_not_be_put_back_is_left_alone(pair: World) -> None:
    pair.engine.failures[PlaceTables] = ServerError(code="X", sqlstate="XX000", message="gone")
    with pytest.raises(ServerError, match="gone"):
        pair.execute(f"{ALTER} blue SWAP WITH green")
    assert pair.table("blue").pending == Swapping()
    for statement in (
        f"{ALTER} blue SWAP WITH reader",
        f"{ALTER} green SET ('k'='v')",
        "DROP MATERIALIZED TABLE blue",
    ):
        problem = refusal(pair, statement)
        assert problem.code == Code.MT_STATE.name
        assert "half swapped" in problem.message
    del pair.engine.failures[PlaceTables]
    green = pair.table("green").id
    pair.execute(f"{ALTER} blue SWAP WITH green")
    assert pair.table("blue").id == green
    assert not any(table.pending for table in pair.catalog.tables())


def test_a_half_swapped_table_is_not_refreshed(pair: World) -> None:
    pair.catalog.replace(replace(pair.table("blue"), pending=Swapping()))
    with pytest.raises(ServerError, match="half swapped"):
        refuse_half_done(pair.table("blue"), "a refresh")


@pytest.mark.parametrize("half", ["blue", "green"])
def test_a_half_dropped_table_is_not_swapped(pair: World, half: str) -> None:
    pair.catalog.replace(replace(pair.table(half), pending=Dropping()))
    problem = refusal(pair, f"{ALTER} blue SWAP WITH green")
    assert problem.code == Code.MT_STATE.name
    assert f"{half} is half dropped" in problem.message
    assert pair.table(half).pending == Dropping()
