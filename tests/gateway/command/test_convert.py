"""CREATE OR ALTER over a plain table: only where the server allows it, nothing lost."""

from __future__ import annotations

import pytest

from tests.gateway.command.fake_storage import Stored
from tests.gateway.command.fakes import T1, World, name
from tests.gateway.command.tables import column, produces, refusal
from tidegate_server.core.errors import Code
from tidegate_server.core.messages.requests import PutView
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.options import CONVERSION_KEY

STATEMENT = "CREATE OR ALTER MATERIALIZED TABLE plain {} REFRESH_MODE = FULL AS SELECT * FROM t1"
PLAIN = Stored(schema=Schema((T1.columns[1], T1.columns[0])), properties={"k": "v"})


@pytest.fixture
def convertible_world(world: World) -> World:
    world.config = type(world.config)(options={CONVERSION_KEY: "true"})
    world.engine.storage.tables[name("plain")] = PLAIN
    return world


def test_it_is_refused_unless_the_server_allows_it(world: World) -> None:
    world.engine.storage.tables[name("plain")] = PLAIN
    world.execute(f"SET '{CONVERSION_KEY}' = 'true'")
    assert refusal(world, STATEMENT.format("")).code == Code.MT_CONVERSION_DISABLED.name


def test_a_plain_table_is_taken_over_with_its_columns_in_front(convertible_world: World) -> None:
    convertible_world.execute(STATEMENT.format(""))
    table = convertible_world.table("plain")
    assert table.definition.schema.names() == ("b", "a", "c", "d")
    assert [c.nullable for c in table.definition.schema] == [True, False, True, True]
    assert table.definition.expanded_query == (
        "SELECT `b`, `a`, `c`, `d` FROM (\nSELECT * FROM spark_catalog.d.t1\n)"
    )
    assert (table.location, table.definition.primary_key) == ("/warehouse/plain", None)
    assert table.state.status is RefreshStatus.ACTIVATED
    stored = convertible_world.engine.storage.tables[name("plain")]
    assert (stored.properties["k"], stored.owner) == ("v", table.id)
    assert convertible_world.workflow("plain").active


def test_explain_checks_and_leaves_the_table_alone(convertible_world: World) -> None:
    convertible_world.execute("EXPLAIN " + STATEMENT.format(""))
    assert convertible_world.engine.storage.tables == {name("plain"): PLAIN}
    problem = refusal(convertible_world, "EXPLAIN " + STATEMENT.format("PARTITIONED BY (b)"))
    assert problem.code == Code.MT_EVOLUTION_PARTITIONING.name


def test_a_declared_key_is_taken(convertible_world: World) -> None:
    convertible_world.execute(STATEMENT.format("(PRIMARY KEY (a) NOT ENFORCED)"))
    assert convertible_world.definition("plain").primary_key is not None


def test_a_column_the_query_lacks_is_refused(convertible_world: World) -> None:
    extra = Stored(schema=Schema((*T1.columns, column("z"))))
    convertible_world.engine.storage.tables[name("plain")] = extra
    problem = refusal(convertible_world, STATEMENT.format(""))
    assert problem.code == Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY.name


@pytest.mark.parametrize("found", [column("c"), column("b", nullable=False)])
def test_a_column_of_another_type_is_refused(convertible_world: World, found: object) -> None:
    stored = Stored(schema=Schema((found,)))  # type: ignore[arg-type]
    convertible_world.engine.storage.tables[name("plain")] = stored
    problem = refusal(convertible_world, STATEMENT.format(""))
    assert problem.code == Code.MT_INCOMPATIBLE_TYPE.name


def test_another_partitioning_is_refused(convertible_world: World) -> None:
    problem = refusal(convertible_world, STATEMENT.format("PARTITIONED BY (b)"))
    assert problem.code == Code.MT_EVOLUTION_PARTITIONING.name


def test_derived_columns_come_afterwards(convertible_world: World) -> None:
    problem = refusal(convertible_world, STATEMENT.format("(x AS upper(b))"))
    assert problem.code == Code.NOT_SUPPORTED.name


def test_a_view_is_never_taken_over(convertible_world: World) -> None:
    view = PutView(name=name("plain"), table_id="", storage=name("x"), columns=(), comment=None)
    convertible_world.engine.storage.views[name("plain")] = view
    del convertible_world.engine.storage.tables[name("plain")]
    assert refusal(convertible_world, STATEMENT.format("")).code == Code.MT_WRONG_KIND.name


def test_a_take_over_that_was_cut_off_can_be_repeated(convertible_world: World) -> None:
    produces(convertible_world, "SELECT * FROM t1", *T1, source="t1")
    lost = Stored(schema=PLAIN.schema, properties={"tidegate.id": "of-a-lost-store"})
    convertible_world.engine.storage.tables[name("plain")] = lost
    convertible_world.execute(STATEMENT.format(""))
    assert (
        convertible_world.engine.storage.tables[name("plain")].owner
        == convertible_world.table("plain").id
    )
