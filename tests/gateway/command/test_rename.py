"""ALTER ... RENAME TO: storage, view and dependants go along, or nothing does."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import T1, World, name
from tests.gateway.command.tables import ALTER, produces, refusal
from tidegate_server.core.errors import Code
from tidegate_server.core.messages.requests import RewriteNames

CREATE = "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1"


@pytest.fixture
def pair(world: World) -> World:
    world.execute(CREATE)
    produces(world, "SELECT * FROM m", *T1, source="m")
    world.execute("CREATE MATERIALIZED TABLE n FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM m")
    return world


def test_a_table_keeps_everything_but_its_name(world: World) -> None:
    world.execute(CREATE)
    before, workflow = world.table("m"), world.workflow("m")
    world.execute(f"{ALTER} m RENAME TO New")
    after = world.table("new")
    assert world.catalog.find(name("m")) is None
    assert (after.id, after.definition.version) == (before.id, before.definition.version)
    assert after.location == before.location == f"/warehouse/m-{before.id}"
    assert world.workflow("new") == workflow
    assert list(world.engine.storage.tables) == [name("new")]


def test_a_dependant_reads_the_new_name(pair: World) -> None:
    pair.execute(f"{ALTER} m RENAME TO m2")
    reader = pair.table("n")
    assert reader.definition.expanded_query == "SELECT * FROM spark_catalog.d.m2"
    assert [source.name for source in reader.definition.sources] == [name("m2")]
    assert reader.definition.original_query == "SELECT * FROM m"
    assert [t.name for t in pair.catalog.consumers(name("m2"))] == [name("n")]
    properties = pair.engine.storage.tables[name("n")].properties
    assert "spark_catalog.d.m2" in properties["tidegate.definition"]


def test_dependants_that_read_it_through_a_view_are_listed(world: World) -> None:
    world.execute(CREATE)
    query = produces(world, "SELECT * FROM v", *T1, source="m")
    world.execute(f"CREATE MATERIALIZED TABLE n FRESHNESS = INTERVAL '1' DAY AS {query}")
    problem = refusal(world, f"{ALTER} m RENAME TO m2")
    assert problem.code == Code.MT_RENAME_DEPENDANTS.name
    assert "spark_catalog.d.n read it through a view" in problem.message


def test_a_view_moves_with_its_storage(world: World) -> None:
    world.execute(CREATE.replace("TABLE m ", "TABLE m (x AS upper(b)) "))
    world.execute(f"{ALTER} m RENAME TO m2")
    assert list(world.engine.storage.tables) == [name("__tidegate_m2")]
    assert list(world.engine.storage.views) == [name("m2")]
    assert world.table("m2").storage == name("__tidegate_m2")


def test_taken_names_and_other_schemas_are_refused(pair: World) -> None:
    assert refusal(pair, f"{ALTER} m RENAME TO n").code == Code.MT_ALREADY_EXISTS.name
    assert refusal(pair, f"{ALTER} m RENAME TO other.m").code == Code.NOT_SUPPORTED.name


def test_its_own_name_changes_nothing(pair: World) -> None:
    pair.engine.requests.clear()
    pair.execute(f"{ALTER} m RENAME TO M")
    assert pair.engine.requests_of(RewriteNames) == []


def test_a_running_refresh_is_not_moved_away_from(pair: World) -> None:
    pair.ledger.leases[pair.table("m").id] = "server-1/r"
    assert refusal(pair, f"{ALTER} m RENAME TO m2").code == Code.MT_STATE.name
