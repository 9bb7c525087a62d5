"""Catalogs: who creates them, what their options may be, and what their grants allow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import table as example
from tests.gateway.command.guarded import LOGINS, Guarded, outcome_as, run_as
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import CatalogInspected, Surveyed
from tidegate_server.core.messages.requests import CheckCatalog, PutCatalogs
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.versions import Source, SourceKind

OPTIONS = (
    "'type' = 'jdbc', 'base-url' = 'jdbc:postgresql://db', 'default-database' = 'crm', "
    "'username' = 'ann', 'password' = '${secret:crm}'"
)
CREATE = f"CREATE CATALOG crm COMMENT 'customers' WITH ({OPTIONS})"
LAKE = (
    "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = '/w')"
)
ADMINISTRATOR = AuthorizationSection(enabled=True, administrators=("root",))
SECRETS = {"crm": "hush"}


@pytest.fixture
def world(guarded_world: Guarded) -> Guarded:
    """A world with the catalog ``crm`` of root."""
    guarded_world.config = Config(authorization=ADMINISTRATOR, secrets=SECRETS)
    run_as(guarded_world, "root", CREATE)
    return guarded_world


def failure_of(world: Guarded, statement: str) -> ServerError:
    world.be("root")
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    assert "hush" not in f"{caught.value} {caught.value.hint}"
    return caught.value


def using(world: Guarded, act: Act, user: str = "bob", name: str = "crm") -> str:
    access = Access(act=act, kind=ObjectKind.CATALOG, name=name)
    world.engine.surveys["SELECT 7"] = Surveyed(accesses=(access,))
    world.be(user)
    return world.message("SELECT 7")


def names(world: Guarded, user: str, statement: str = "SHOW CATALOGS") -> list[str]:
    world.be(user)
    return [str(row[0]) for row in world.rows(statement)]


def described(world: Guarded, statement: str) -> dict[object, object]:
    return {row[0]: row[1] for row in world.rows(statement)}


def test_only_administrators_create_one_and_change_its_options(world: Guarded) -> None:
    changing = ("ALTER CATALOG crm SET ('fetchsize' = '7')", "ALTER CATALOG crm RESET ('username')")
    run_as(world, "root", "ALTER CATALOG crm SET OWNER TO USER bob")
    for text in (LAKE, *changing):
        assert outcome_as(world, "bob", text) == "ACCESS_DENIED"
        assert outcome_as(world, "root", text) == ""
    run_as(world, "bob", "ALTER CATALOG crm COMMENT 'theirs'")
    assert described(world, "DESCRIBE CATALOG crm")["comment"] == "theirs"
    assert outcome_as(world, "bob", "DROP CATALOG lake") == "ACCESS_DENIED"
    assert outcome_as(world, "bob", "DROP CATALOG crm") == ""
    world.config = Config(server=LOGINS, secrets=SECRETS)
    assert outcome_as(world, "bob", CREATE) == "ACCESS_DENIED"
    world.config = Config(secrets=SECRETS)
    assert outcome_as(world, "bob", CREATE) == ""


@pytest.mark.parametrize(
    ("text", "code", "reason", "hint", "column"),
    [
        (CREATE.replace("'jdbc',", "'jdcb',"), "CATALOG_TYPE", "jdcb", "Did you mean jdbc?", 48),
        (
            CREATE.replace("'type' = 'jdbc', ", ""),
            "INVALID_CATALOG",
            "type is missing",
            "jdbc",
            None,
        ),
        (CREATE.replace("base-url", "base-ulr"), "INVALID_CATALOG", "no option", "base-url", 65),
        (CREATE.replace("jdbc:p", "p"), "INVALID_CATALOG", "begin with jdbc:", "", None),
        (CREATE.replace("{secret:crm", "{secret:no"), "INVALID_CATALOG", "no secret no", "", None),
        (CREATE.replace("crm COMMENT", "d COMMENT"), "INVALID_CATALOG", "a schema has", "", None),
        (CREATE.replace("crm COMMENT", "system COMMENT"), "INVALID_CATALOG", "its name", "", None),
        (CREATE.replace("'crm'", "'a ${secret:crm}'"), "INVALID_CATALOG", "besides", "whole", 102),
        ("ALTER CATALOG crm SET ('type' = 'x')", "INVALID_CATALOG", "its type", "", 24),
        (
            "ALTER CATALOG crm RESET ('base-url')",
            "INVALID_CATALOG",
            "base-url is missing",
            "",
            None,
        ),
        ("ALTER CATALOG no SET ('fetchsize' = '7')", "OBJECT_NOT_FOUND", "catalog no", "", None),
        ("DROP CATALOG spark_catalog", "NOT_SUPPORTED", "", "warehouse", None),
        ("GRANT ALL ON CATALOG spark_catalog TO USER bob", "NOT_SUPPORTED", "", "schema", None),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    world: Guarded, text: str, code: str, reason: str, hint: str, column: int | None
) -> None:
    found = failure_of(world, text.replace("CATALOG crm COMMENT", "CATALOG other COMMENT"))
    assert (found.code, reason in found.message, hint in found.hint) == (code, True, True)
    assert found.column == column


def test_the_engine_must_be_able_to_load_it(world: Guarded) -> None:
    problem = error(Code.INVALID_CATALOG, name="lake", reason="no class", hint="Set iceberg")
    world.engine.failures[CheckCatalog] = problem
    assert failure_of(world, LAKE).hint == "Set iceberg"
    assert names(world, "root") == ["crm", "spark_catalog"]
    del world.engine.failures[CheckCatalog]
    assert outcome_as(world, "root", LAKE) == ""
    assert outcome_as(world, "root", LAKE) == "EXTERNAL_EXISTS"
    assert outcome_as(world, "root", LAKE.replace("lake", "IF NOT EXISTS lake")) == ""


def test_names_are_unique_among_catalogs_and_connections(world: Guarded) -> None:
    connection = "TYPE jdbc OPTIONS (url 'jdbc:x', driver 'x.Y')"
    assert "a catalog has this name" in str(
        failure_of(world, f"CREATE CONNECTION crm {connection}")
    )
    run_as(world, "root", f"CREATE CONNECTION lake {connection}")
    assert "a connection has this name" in str(failure_of(world, LAKE))


def test_secrets_are_in_the_configuration_alone(world: Guarded) -> None:
    world.be("root")
    found = described(world, "DESC CATALOG EXTENDED crm")
    assert found["option:password"] == "${secret:crm}"
    [(text,)] = world.rows("SHOW CREATE CATALOG crm")
    assert "'password' = '${secret:crm}'" in str(text)
    using(world, Act.USE, "root")
    [*_, last] = [each for each in world.engine.requests if isinstance(each, PutCatalogs)]
    [sent] = last.catalogs
    assert (sent.options["password"], sent.secret) == ("hush", ("password",))
    assert "hush" not in repr(world.engine.requests)


def test_what_show_create_says_creates_an_equal_catalog(world: Guarded) -> None:
    world.be("root")
    [(text,)] = world.rows("SHOW CREATE CATALOG crm")
    before = described(world, "DESCRIBE CATALOG EXTENDED crm")
    run_as(world, "root", "DROP CATALOG crm", str(text))
    assert described(world, "DESCRIBE CATALOG EXTENDED crm") == before


def test_passwords_in_files_of_others_are_not_shown(world: Guarded) -> None:
    [crm] = world.external.all(SecuredKind.CATALOG)
    world.external.replace(replace(crm, options={**crm.options, "password": "hush"}))
    world.be("root")
    for text in ("DESCRIBE CATALOG EXTENDED crm", "SHOW CREATE CATALOG crm"):
        assert "hush" not in str(world.rows(text))


def test_a_broken_catalog_says_why_when_it_is_used(world: Guarded) -> None:
    run_as(world, "root", LAKE)
    world.config = Config(authorization=ADMINISTRATOR)
    run_as(world, "root", "SELECT 7")
    [*_, last] = [each for each in world.engine.requests if isinstance(each, PutCatalogs)]
    problems = {each.name: each.problem for each in last.catalogs}
    assert problems["lake"] == ""
    assert "there is no secret crm" in problems["crm"]


def test_the_state_is_that_of_the_engine(world: Guarded) -> None:
    world.be("root")
    world.engine.catalog_state = CatalogInspected(state="FAILED", problem="no route")
    found = described(world, "DESCRIBE CATALOG EXTENDED crm")
    assert (found["status"], found["error"]) == ("FAILED", "no route")
    assert "status" not in described(world, "DESCRIBE CATALOG crm")


def test_reading_needs_one_privilege_and_changing_two(world: Guarded) -> None:
    assert "USE CATALOG on catalog crm" in using(world, Act.USE)
    run_as(world, "root", "GRANT MODIFY ON CATALOG crm TO USER bob")
    assert "USE CATALOG on catalog crm" in using(world, Act.MODIFY)
    run_as(world, "root", "GRANT USE CATALOG ON CATALOG crm TO USER bob")
    assert using(world, Act.USE) == ""
    assert using(world, Act.MODIFY) == ""
    run_as(world, "root", "REVOKE MODIFY ON CATALOG crm FROM USER bob")
    assert using(world, Act.USE) == ""
    assert "MODIFY on catalog crm" in using(world, Act.MODIFY)
    assert "USE CATALOG on catalog gone" in using(world, Act.USE, name="gone")
    assert outcome_as(world, "root", "GRANT SELECT ON CATALOG crm TO USER bob") == "INVALID_GRANT"


def test_lists_show_what_was_granted(world: Guarded) -> None:
    assert names(world, "bob") == ["spark_catalog"]
    for text in ("DESCRIBE CATALOG crm", "SHOW CREATE CATALOG crm", "USE CATALOG crm"):
        assert outcome_as(world, "bob", text) == "ACCESS_DENIED"
    run_as(world, "root", "GRANT USE CATALOG ON CATALOG crm TO USER bob", LAKE)
    assert names(world, "bob") == ["crm", "spark_catalog"]
    assert outcome_as(world, "bob", "DESCRIBE CATALOG crm") == ""
    assert names(world, "root", "SHOW CATALOGS LIKE 'C%'") == []
    assert names(world, "root", "SHOW CATALOGS ILIKE 'C%'") == ["crm"]
    assert names(world, "root", "SHOW CATALOGS NOT LIKE '%a%'") == ["crm"]
    assert names(world, "root", "SHOW CATALOGS 'l*'") == ["lake"]


def test_without_privileges_the_feature_decides(world: Guarded) -> None:
    world.config = Config(server=LOGINS, secrets=SECRETS)
    assert "connections: crm" in using(world, Act.USE)
    assert names(world, "bob") == ["spark_catalog"]
    allowing = AuthorizationSection(allow=("connections",))
    world.config = Config(server=LOGINS, secrets=SECRETS, authorization=allowing)
    assert using(world, Act.MODIFY) == ""
    assert names(world, "bob") == ["crm", "spark_catalog"]


def test_catalogs_in_the_settings_of_engines_are_for_administrators(world: Guarded) -> None:
    settings = {"spark.sql.catalog.hms": "x.Y", "spark.sql.catalog.hms.uri": "thrift://h"}
    world.config = Config(
        authorization=ADMINISTRATOR, secrets=SECRETS, engine={"settings": settings}
    )
    assert names(world, "root") == ["crm", "hms", "spark_catalog"]
    assert names(world, "bob") == ["spark_catalog"]
    assert "engine.settings" in str(failure_of(world, LAKE.replace("lake", "hms")))


def test_a_catalog_in_use_stays(world: Guarded) -> None:
    reader = example(id="t-9", name=TableName("spark_catalog", "d", "reader"), owner="ann")
    sources = (
        Source(name=TableName("crm", "public", "orders"), kind=SourceKind.PLAIN, table_id=None),
    )
    definition = replace(reader.definition, sources=sources)
    world.catalog.create(replace(reader, definition=definition))
    found = failure_of(world, "DROP CATALOG crm")
    assert found.code == "CATALOG_IN_USE"
    assert "spark_catalog.d.reader" in found.message
    run_as(world, "root", LAKE)
    world.session.catalog = "lake"
    assert "current catalog" in str(failure_of(world, "DROP CATALOG lake"))
    assert names(world, "root", "SHOW CURRENT CATALOG") == ["lake"]


def test_materialized_tables_are_in_the_servers_own_catalog(world: Guarded) -> None:
    run_as(
        world, "root", LAKE.replace("iceberg", "paimon").replace("'catalog-type' = 'hadoop', ", "")
    )
    found = failure_of(world, "CREATE MATERIALIZED TABLE lake.d.m AS SELECT 1 AS x")
    assert found.code == "NOT_SUPPORTED"
    assert "spark_catalog.schema.table" in found.hint
