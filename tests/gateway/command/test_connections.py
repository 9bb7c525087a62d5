"""Connections: who may create them, where their secrets are, and what their grants allow."""

from __future__ import annotations

import pytest

from tests.gateway.command.guarded import LOGINS, Guarded, outcome_as, run_as
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import CheckCatalog, PutCatalogs
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.privileges import SecuredKind

URL = "jdbc:postgresql://db/crm"
CREATE = (
    "CREATE CONNECTION crm TYPE postgresql "
    f"OPTIONS (url '{URL}', user 'ann', password secret('crm')) COMMENT 'customers'"
)
ADMINISTRATOR = AuthorizationSection(enabled=True, administrators=("root",))


@pytest.fixture
def world(guarded_world: Guarded) -> Guarded:
    """A world with the connection ``crm`` of root."""
    guarded_world.config = Config(authorization=ADMINISTRATOR, secrets={"crm": "hush"})
    run_as(guarded_world, "root", CREATE)
    return guarded_world


def using(world: Guarded, act: Act, user: str = "bob", name: str = "crm") -> str:
    access = Access(act=act, kind=ObjectKind.CONNECTION, name=name)
    world.engine.surveys["SELECT 7"] = Surveyed(accesses=(access,))
    world.be(user)
    return world.message("SELECT 7")


def sent(world: Guarded) -> list[dict[str, str]]:
    """Return the options in the newest message with connections."""
    [*_, last] = [each for each in world.engine.requests if isinstance(each, PutCatalogs)]
    return [dict(each.options) for each in last.catalogs]


def test_only_administrators_create_one_and_change_its_options(world: Guarded) -> None:
    other = CREATE.replace("crm", "other", 1)
    changing = "ALTER CONNECTION crm SET OPTIONS (user 'carl')"
    run_as(world, "root", "ALTER CONNECTION crm SET OWNER TO USER bob")
    renaming = "ALTER CONNECTION crm RENAME TO "
    for text in (other, changing, f"{renaming}customers"):
        assert outcome_as(world, "bob", text) == "ACCESS_DENIED"
    for name in ("spark_catalog", "d", "`a.b`"):
        assert outcome_as(world, "root", f"{renaming}{name}") == "INVALID_CONNECTION"
    assert outcome_as(world, "root", f"{renaming}customers") == ""
    assert outcome_as(world, "bob", "DROP CONNECTION customers") == ""
    world.config = Config(server=LOGINS, secrets={"crm": "hush"})
    assert outcome_as(world, "bob", other) == "ACCESS_DENIED"
    world.config = Config(secrets={"crm": "hush"})
    assert outcome_as(world, "bob", other) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CREATE.replace("postgresql", "oracel", 1), "no type oracel"),
        (CREATE.replace("jdbc:postgresql", "jdbc:mysql"), "does not begin with jdbc:postgresql:"),
        (CREATE.replace("crm TYPE", "d TYPE"), "a schema has this name"),
        (CREATE.replace("crm TYPE", "`c-d` TYPE"), "cannot be that of a catalog"),
        (CREATE.replace("crm TYPE", "spark_catalog TYPE"), "cannot be that of a catalog"),
        (CREATE.replace("'crm'", "'nope'"), "no secret nope"),
        (CREATE.replace("db/crm", "ann:hush@db/crm"), "contains a secret"),
        (CREATE.replace("db/crm", "db/crm?password=hush"), "contains a secret"),
        (CREATE.replace("user 'ann'", "DbTable 't'"), "DbTable is an option of one table"),
        (CREATE.replace("user 'ann'", "VersionQuery 'SELECT {t}'"), "versionQuery contains {t}"),
        ("CREATE CONNECTION c TYPE jdbc OPTIONS (url 'jdbc:x:y')", "names no driver"),
    ],
)
def test_options_must_be_those_of_a_connection(world: Guarded, text: str, reason: str) -> None:
    world.be("root")
    with pytest.raises(ServerError) as refused:
        world.execute(text)
    assert refused.value.code == "INVALID_CONNECTION"
    assert reason in refused.value.message
    assert "hush" not in str(refused.value)


def test_the_engine_must_accept_the_options(world: Guarded) -> None:
    problem = error(Code.INVALID_CONNECTION, name="x", reason="no such driver", hint="")
    world.engine.failures[CheckCatalog] = problem
    text = CREATE.replace("crm", "other", 1)
    assert outcome_as(world, "root", text) == "INVALID_CONNECTION"
    del world.engine.failures[CheckCatalog]
    assert outcome_as(world, "root", text) == ""
    assert outcome_as(world, "root", text) == "EXTERNAL_EXISTS"


def test_secrets_are_in_the_configuration_alone(world: Guarded) -> None:
    world.be("root")
    for text in ("SHOW CONNECTIONS", "DESCRIBE CONNECTION crm"):
        [row] = world.rows(text)
        assert row[:3] == ("crm", "postgresql", URL)
        assert "password secret('crm')" in str(row[3])
        assert "hush" not in str(row)
    assert "hush" not in repr(world.external.all(SecuredKind.CONNECTION))
    using(world, Act.USE, "root")
    [options] = sent(world)
    assert options["password"] == "hush"
    assert options["driver"] == "org.postgresql.Driver"
    assert "hush" not in repr(world.engine.requests)


def test_the_engine_learns_of_every_change(world: Guarded) -> None:
    using(world, Act.USE, "root")
    before = len(world.engine.requests)
    using(world, Act.USE, "root")
    later = world.engine.requests[before:]
    assert not any(isinstance(each, PutCatalogs) for each in later)
    run_as(world, "root", "ALTER CONNECTION crm SET OPTIONS (user 'carl', FetchSize '7')")
    using(world, Act.USE, "root")
    [options] = sent(world)
    assert (options["user"], options["FetchSize"], options["password"]) == ("carl", "7", "hush")
    world.engine.generation += 1
    run_as(world, "root", "SELECT 7")
    assert world.engine.generation == 2
    assert sent(world) == [options]
    run_as(world, "root", "DROP CONNECTION crm", "SELECT 7")
    assert sent(world) == []


def test_reading_needs_one_privilege_and_changing_two(world: Guarded) -> None:
    assert "USE CONNECTION on connection crm" in using(world, Act.USE)
    run_as(world, "root", "GRANT MODIFY ON CONNECTION crm TO USER bob")
    assert "USE CONNECTION on connection crm" in using(world, Act.MODIFY)
    run_as(world, "root", "GRANT USE CONNECTION ON CONNECTION crm TO USER bob")
    assert using(world, Act.USE) == ""
    assert using(world, Act.MODIFY) == ""
    run_as(world, "root", "REVOKE MODIFY ON CONNECTION crm FROM USER bob")
    assert using(world, Act.USE) == ""
    assert "MODIFY on connection crm" in using(world, Act.MODIFY)
    assert "USE CONNECTION on connection gone" in using(world, Act.USE, name="gone")
    assert (
        outcome_as(world, "root", "GRANT SELECT ON CONNECTION crm TO USER bob") == "INVALID_GRANT"
    )


def test_lists_show_what_was_granted(world: Guarded) -> None:
    world.be("bob")
    assert world.rows("SHOW CONNECTIONS") == []
    assert world.outcome("DESCRIBE CONNECTION crm") == "ACCESS_DENIED"
    run_as(world, "root", "GRANT USE CONNECTION ON CONNECTION crm TO USER bob")
    world.be("bob")
    assert [row[0] for row in world.rows("SHOW CONNECTIONS")] == ["crm"]


def test_without_privileges_the_feature_decides(world: Guarded) -> None:
    secrets = {"crm": "hush"}
    world.config = Config(server=LOGINS, secrets=secrets)
    assert "connections: crm" in using(world, Act.USE)
    allowing = AuthorizationSection(allow=("connections",))
    world.config = Config(server=LOGINS, secrets=secrets, authorization=allowing)
    assert using(world, Act.MODIFY) == ""
