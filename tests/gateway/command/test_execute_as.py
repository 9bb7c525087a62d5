"""The user with whose rights a refresh reads its sources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import World
from tests.gateway.command.guarded import DAILY, OTHER, Guarded, SurveyingEngine, admit, grant
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.model.access import Access, Act, Admission, ObjectKind
from tidegate_server.core.model.privileges import (
    Privilege,
    TableObject,
)
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.context import Services


def services_with(*tables: MaterializedTable, config: Config) -> Services:
    world = World(config=config)
    catalog = MemoryCatalog()
    for table in tables:
        catalog.create(table)
    engine = SurveyingEngine()
    engine.surveys[READER.definition.expanded_query] = Surveyed(accesses=(READS_DAILY,))
    return replace(world._services(), catalog=catalog, engine=engine)


READS_DAILY = Access(
    act=Act.SELECT,
    kind=ObjectKind.TABLE,
    catalog=DAILY.name.catalog,
    schema=DAILY.name.schema,
    name=DAILY.name.table,
)
READER = vary(OTHER, expanded_query="SELECT * FROM spark_catalog.d.daily")


def test_a_refresh_needs_its_owners_right_to_read_what_it_is_made_of() -> None:
    reader = READER
    config = Config(authorization=AuthorizationSection(enabled=True))
    services = services_with(DAILY, reader, config=config)
    with pytest.raises(
        ServerError, match="User carl needs SELECT on materialized table spark_catalog.d.daily"
    ):
        admit(reader, services)
    services.privileges.grant(grant("carl", Privilege.SELECT, TableObject(table_id=DAILY.id)))
    assert admit(reader, services) == Admission(accesses=(READS_DAILY,))
    assert admit(DAILY, services) == Admission()
    assert admit(reader, services_with(DAILY, reader, config=Config())) is None


def test_execute_as_has_refreshes_read_with_the_rights_of_another_user() -> None:
    reader = vary(READER, execute_as="eve")
    config = Config(authorization=AuthorizationSection(enabled=True))
    services = services_with(DAILY, reader, config=config)
    services.privileges.grant(grant("carl", Privilege.SELECT, TableObject(table_id=DAILY.id)))
    with pytest.raises(
        ServerError, match="User eve needs SELECT on materialized table spark_catalog.d.daily"
    ):
        admit(reader, services)
    services.privileges.grant(grant("eve", Privilege.SELECT, TableObject(table_id=DAILY.id)))
    admit(reader, services)


DAY = "FRESHNESS = INTERVAL '1' DAY"
AS_EVE = f"CREATE OR ALTER MATERIALIZED TABLE m {DAY} EXECUTE AS USER eve AS SELECT 1"


def test_only_an_administrator_lends_the_rights_of_another_user(guarded_world: Guarded) -> None:
    guarded_world.be("ann")
    assert guarded_world.outcome(AS_EVE) == Code.ACCESS_DENIED.name
    assert (
        guarded_world.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER eve")
        == "ACCESS_DENIED"
    )
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER ann") == ""
    assert guarded_world.definition("m").execute_as == "ann"
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS OWNER") == ""
    guarded_world.be("root")
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER eve") == ""
    guarded_world.be("ann")
    assert guarded_world.outcome(AS_EVE) == ""
    assert (guarded_world.definition("m").execute_as, guarded_world.table("m").owner) == (
        "eve",
        "ann",
    )


def test_whoever_may_alter_a_table_does_not_change_whose_rights_it_uses(
    guarded_world: Guarded,
) -> None:
    guarded_world.be("root")
    guarded_world.execute("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER eve")
    guarded_world.may(Privilege.ALTER)
    guarded_world.be("bob")
    assert guarded_world.outcome(AS_EVE) == ""
    back = AS_EVE.replace("EXECUTE AS USER eve ", "")
    assert guarded_world.outcome(back) == Code.ACCESS_DENIED.name
    assert (
        guarded_world.outcome("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER bob")
        == "ACCESS_DENIED"
    )
    assert guarded_world.definition("m").execute_as == "eve"


def test_execute_as_is_shown_wherever_a_definition_is(guarded_world: Guarded) -> None:
    guarded_world.be("root")
    guarded_world.execute("ALTER MATERIALIZED TABLE m SET EXECUTE AS USER `e've`")
    [(printed,)] = guarded_world.rows("SHOW CREATE MATERIALIZED TABLE m")
    assert "\nEXECUTE AS USER 'e\\'ve'\n" in str(printed)
    [(text,)] = guarded_world.rows("DESCRIBE m AS JSON")
    assert '"execute_as":"e\'ve"' in str(text).replace(": ", ":")
