"""GRANT, REVOKE and SHOW GRANTS."""

from __future__ import annotations

import pytest

from tests.gateway.command.fake_storage import Stored
from tests.gateway.command.fakes import T1
from tests.gateway.command.guarded import Guarded, admit, outcome_as, run_as, selecting
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Execute, SetObjectOwner
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import INITIAL_GRANTS, Grant, SecuredKind
from tidegate_server.gateway.options import CONVERSION_KEY

TABLE, VIEW, FUNCTION, SCHEMA = (
    SecuredKind.TABLE,
    SecuredKind.VIEW,
    SecuredKind.FUNCTION,
    SecuredKind.SCHEMA,
)


@pytest.fixture
def world(guarded_world: Guarded) -> Guarded:
    """A world with plain objects: ann owns the view v, bob the function f, and t is unowned."""
    guarded_world.engine.schema_owner = None
    guarded_world.engine.objects |= {
        (VIEW, "d", "v"): "ann",
        (TABLE, "d", "t"): "unowned",
        (FUNCTION, "d", "f"): "",
    }
    guarded_world.privileges.set_function_owner(TableName("spark_catalog", "d", "f"), "bob")
    return guarded_world


def granted(world: Guarded) -> set[Grant]:
    return set(world.privileges.all()) - set(INITIAL_GRANTS)


def message_of(world: Guarded, statement: str) -> str:
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    return str(caught.value)


# ---- materialized tables ---------------------------------------------------------------------


def test_a_grant_takes_effect_and_its_end_too(guarded_world: Guarded) -> None:
    guarded_world.execute("GRANT SELECT, REFRESH ON MATERIALIZED TABLE m TO USER bob")
    guarded_world.be("bob")
    assert guarded_world.outcome("DESCRIBE m") == ""
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m REFRESH") == ""
    guarded_world.be("ann")
    guarded_world.execute("REVOKE ALL ON MATERIALIZED TABLE m FROM USER bob")
    guarded_world.be("bob")
    assert guarded_world.outcome("DESCRIBE m") == "ACCESS_DENIED"


def test_schemas_are_granted_by_their_owner_for_tables_to_come(guarded_world: Guarded) -> None:
    guarded_world.engine.schema_owner = "dora"
    text = "GRANT SELECT ON SCHEMA d TO USER bob"
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.be("dora")
    assert guarded_world.outcome(text) == ""
    guarded_world.execute("GRANT CREATE ON SCHEMA d TO USER ann")
    guarded_world.be("ann")
    guarded_world.execute(
        "CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '1' DAY AS SELECT 1"
    )
    guarded_world.be("bob")
    assert guarded_world.rows("SHOW MATERIALIZED TABLES") == [("later",), ("m",), ("n",)]


def test_grants_are_listed_to_those_they_concern(guarded_world: Guarded) -> None:
    guarded_world.execute("GRANT ALL ON MATERIALIZED TABLE m TO USER bob")
    guarded_world.execute("GRANT SELECT ON MATERIALIZED TABLE n TO USER carl")
    guarded_world.be("root")
    guarded_world.execute("GRANT ALTER ON SCHEMA d TO USER eve WITH GRANT OPTION")
    initial = "spark_catalog.default"
    listed = [row for row in guarded_world.rows("SHOW GRANTS") if row[3] != initial]
    assert [(*row[:5], *row[6:]) for row in listed] == [
        ("eve", "ALTER", "SCHEMA", "spark_catalog.d", "root", "USER", True),
        ("bob", "ALTER", "MATERIALIZED TABLE", "spark_catalog.d.m", "ann", "USER", False),
        ("bob", "REFRESH", "MATERIALIZED TABLE", "spark_catalog.d.m", "ann", "USER", False),
        ("bob", "SELECT", "MATERIALIZED TABLE", "spark_catalog.d.m", "ann", "USER", False),
        ("carl", "SELECT", "MATERIALIZED TABLE", "spark_catalog.d.n", "ann", "USER", False),
    ]
    assert len(guarded_world.rows("SHOW GRANTS FOR USER bob")) == 3
    assert len(guarded_world.rows("SHOW GRANTS ON MATERIALIZED TABLE n")) == 1
    assert len(guarded_world.rows("SHOW GRANTS ON SCHEMA spark_catalog.d")) == 1
    assert len(guarded_world.rows("SHOW GRANTS FOR PUBLIC")) == 2
    guarded_world.be("ann")
    assert {row[0] for row in guarded_world.rows("SHOW GRANTS")} == {"bob", "carl", "public"}
    guarded_world.be("carl")
    assert {row[0] for row in guarded_world.rows("SHOW GRANTS")} == {"carl", "public"}


def test_grants_end_with_their_table(guarded_world: Guarded) -> None:
    guarded_world.execute("GRANT ALL ON MATERIALIZED TABLE n TO USER bob")
    guarded_world.execute("DROP MATERIALIZED TABLE n")
    assert granted(guarded_world) == set()


def test_while_nothing_is_checked_nothing_is_granted(guarded_world: Guarded) -> None:
    guarded_world.config = Config()
    for text in (
        "GRANT ALL ON MATERIALIZED TABLE m TO USER bob",
        "REVOKE ALL ON SCHEMA d FROM USER bob",
        "CREATE ROLE analysts",
        "ALTER MATERIALIZED TABLE m SET OWNER TO USER bob",
    ):
        assert guarded_world.outcome(text) == "NOT_SUPPORTED"
    assert len(guarded_world.rows("SHOW GRANTS")) == len(INITIAL_GRANTS)


# ---- every kind of object --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        ("ann", "GRANT SELECT ON MATERIALIZED TABLE spark_catalog.d.m TO USER eve"),
        ("ann", "GRANT SELECT ON TABLE spark_catalog.d.m TO USER eve"),
        ("ann", "GRANT SELECT, ALTER ON VIEW v TO ROLE public"),
        ("ann", "GRANT SELECT ON v TO PUBLIC"),
        ("bob", "GRANT EXECUTE ON FUNCTION f TO GROUP staff"),
        ("dora", "GRANT USAGE, CREATE, MODIFY, EXECUTE ON SCHEMA d TO USER eve"),
        ("root", "GRANT SELECT, MODIFY ON TABLE t TO USER eve"),
    ],
)
def test_owners_grant_and_revoke_what_is_theirs(world: Guarded, owner: str, text: str) -> None:
    assert outcome_as(world, "zoe", text) == "ACCESS_DENIED"
    run_as(world, owner, text)
    assert granted(world)
    run_as(world, owner, text.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
    assert granted(world) == set()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GRANT REFRESH ON TABLE t TO USER eve", "INVALID_GRANT"),
        ("GRANT MODIFY ON MATERIALIZED TABLE spark_catalog.d.m TO USER eve", "INVALID_GRANT"),
        ("GRANT SELECT ON FUNCTION f TO USER eve", "INVALID_GRANT"),
        ("GRANT SELECT ON VIEW t TO USER eve", "OBJECT_WRONG_KIND"),
        ("GRANT SELECT ON TABLE none TO USER eve", "OBJECT_NOT_FOUND"),
        ("GRANT EXECUTE ON FUNCTION none TO USER eve", "OBJECT_NOT_FOUND"),
        ("GRANT USAGE ON SCHEMA none TO USER eve", "SCHEMA_NOT_FOUND"),
        ("GRANT USAGE ON SCHEMA information_schema TO USER eve", "NOT_SUPPORTED"),
        ("GRANT SELECT ON MATERIALIZED TABLE none TO USER eve", "MT_NOT_FOUND"),
        ("GRANT SELECT ON TABLE t TO ROLE none", "ROLE_NOT_FOUND"),
    ],
)
def test_what_cannot_be_granted_is_refused(world: Guarded, text: str, code: str) -> None:
    assert outcome_as(world, "root", text) == code
    assert granted(world) == set()


def test_errors_say_what_applies_and_what_to_write(world: Guarded) -> None:
    world.be("root")
    assert "Privileges of a view are SELECT, MODIFY, ALTER." in message_of(
        world, "GRANT REFRESH ON VIEW v TO USER eve"
    )
    assert "Write TABLE before the name." in message_of(world, "GRANT SELECT ON VIEW t TO USER eve")
    world.be("zoe")
    assert "User zoe needs SELECT WITH GRANT OPTION on view spark_catalog.d.v." in message_of(
        world, "GRANT SELECT ON VIEW v TO USER eve"
    )


def test_all_is_what_applies_to_the_object(world: Guarded) -> None:
    run_as(world, "root", "GRANT ALL PRIVILEGES ON TABLE t TO USER eve")
    assert {each.privilege.value for each in granted(world)} == {"SELECT", "MODIFY", "ALTER"}


# ---- grant options ---------------------------------------------------------------------------


def test_a_grant_option_allows_to_grant_no_more_than_it_says(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob WITH GRANT OPTION")
    assert outcome_as(world, "bob", "GRANT ALTER ON VIEW v TO USER eve") == "ACCESS_DENIED"
    assert outcome_as(world, "bob", "GRANT SELECT ON VIEW v TO USER eve") == ""
    assert outcome_as(world, "eve", "GRANT SELECT ON VIEW v TO USER zoe") == "ACCESS_DENIED"
    run_as(world, "bob", "GRANT ALL ON VIEW v TO USER zoe")
    assert {each.privilege.value for each in granted(world)} == {"SELECT"}
    assert any("with grant option: SELECT" in line for line in world.logged)


def test_an_option_with_dependents_is_only_revoked_with_them(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob WITH GRANT OPTION")
    run_as(world, "bob", "GRANT SELECT ON VIEW v TO USER eve")
    world.be("ann")
    for text in (
        "REVOKE SELECT ON VIEW v FROM USER bob",
        "REVOKE GRANT OPTION FOR SELECT ON VIEW v FROM USER bob",
    ):
        assert "SELECT of user eve" in message_of(world, text)
    world.execute("REVOKE GRANT OPTION FOR SELECT ON VIEW v FROM USER bob CASCADE")
    assert {(g.grantee.name, g.grantable) for g in granted(world)} == {("bob", False)}
    world.execute("REVOKE SELECT ON VIEW v FROM USER bob")
    assert granted(world) == set()


def test_who_has_an_option_revokes_only_what_it_gave(world: Guarded) -> None:
    run_as(
        world,
        "ann",
        "GRANT SELECT ON VIEW v TO USER bob WITH GRANT OPTION",
        "GRANT SELECT ON VIEW v TO USER eve",
    )
    run_as(world, "bob", "GRANT SELECT ON VIEW v TO USER eve")
    assert len(granted(world)) == 3
    run_as(world, "bob", "REVOKE SELECT ON VIEW v FROM USER eve")
    assert {(g.grantee.name, g.holder) for g in granted(world)} == {("bob", None), ("eve", None)}


# ---- roles -----------------------------------------------------------------------------------


def test_the_members_of_a_role_have_its_privileges(world: Guarded) -> None:
    run_as(
        world,
        "root",
        "CREATE ROLE Analysts",
        "CREATE ROLE managers",
        "GRANT ROLE analysts TO ROLE managers",
        "GRANT ROLE managers TO USER bob",
        "GRANT SELECT ON MATERIALIZED TABLE spark_catalog.d.m TO ROLE ANALYSTS",
    )
    assert outcome_as(world, "bob", "DESCRIBE spark_catalog.d.m") == ""
    assert world.rows("SHOW ROLES") == world.rows("SHOW CURRENT ROLES")
    assert [row[0] for row in world.rows("SHOW ROLES")] == ["analysts", "managers", "public"]
    run_as(world, "root", "REVOKE ROLE managers FROM USER bob")
    assert outcome_as(world, "bob", "DESCRIBE spark_catalog.d.m") == "ACCESS_DENIED"
    assert [row[0] for row in world.rows("SHOW ROLES")] == ["public"]


def test_the_members_of_a_group_have_its_privileges(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON MATERIALIZED TABLE spark_catalog.d.m TO GROUP staff")
    assert outcome_as(world, "bob", "DESCRIBE spark_catalog.d.m") == "ACCESS_DENIED"
    world.privileges.set_groups("bob", ["staff"])
    assert outcome_as(world, "bob", "DESCRIBE spark_catalog.d.m") == ""


def test_only_administrators_manage_roles(world: Guarded) -> None:
    run_as(world, "root", "CREATE ROLE analysts")
    for text in (
        "CREATE ROLE mine",
        "DROP ROLE analysts",
        "GRANT ROLE analysts TO USER bob",
        "REVOKE ROLE analysts FROM USER bob",
    ):
        assert outcome_as(world, "bob", text) == "ACCESS_DENIED"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE ROLE analysts", "ROLE_ALREADY_EXISTS"),
        ("CREATE ROLE IF NOT EXISTS analysts", ""),
        ("CREATE ROLE public", "ROLE_ALREADY_EXISTS"),
        ("DROP ROLE none", "ROLE_NOT_FOUND"),
        ("DROP ROLE IF EXISTS none", ""),
        ("DROP ROLE public", "NOT_SUPPORTED"),
        ("GRANT ROLE none TO USER bob", "ROLE_NOT_FOUND"),
        ("GRANT ROLE analysts TO ROLE none", "ROLE_NOT_FOUND"),
        ("GRANT ROLE analysts TO ROLE analysts", "ROLE_CYCLE"),
        ("REVOKE ROLE none FROM USER bob", "ROLE_NOT_FOUND"),
    ],
)
def test_statements_on_roles_check_them(world: Guarded, text: str, code: str) -> None:
    run_as(world, "root", "CREATE ROLE analysts")
    assert world.outcome(text) == code


def test_members_are_listed_with_the_grants(world: Guarded) -> None:
    run_as(world, "root", "CREATE ROLE analysts", "GRANT ROLE analysts TO GROUP staff")
    expected = [("staff", "MEMBER", "ROLE", "analysts", "root", "GROUP", False)]
    for text in ("SHOW GRANTS ON ROLE analysts", "SHOW GRANTS FOR GROUP staff"):
        assert [(*row[:5], *row[6:]) for row in world.rows(text)] == expected
    world.be("eve")
    assert world.rows("SHOW GRANTS ON ROLE analysts") == []


def test_a_role_is_dropped_with_its_grants_unless_others_depend_on_them(world: Guarded) -> None:
    run_as(
        world,
        "root",
        "CREATE ROLE analysts",
        "GRANT ROLE analysts TO USER bob",
        "GRANT SELECT ON TABLE t TO ROLE analysts WITH GRANT OPTION",
    )
    run_as(world, "bob", "GRANT SELECT ON TABLE t TO USER eve")
    assert outcome_as(world, "root", "DROP ROLE analysts") == "DEPENDENT_GRANTS"
    run_as(world, "root", "DROP ROLE analysts CASCADE")
    assert granted(world) == set()
    assert world.rows("SHOW GRANTS FOR USER bob") == []


@pytest.mark.parametrize(
    "on", ["TABLE t", "FUNCTION f", "SCHEMA d", "MATERIALIZED TABLE spark_catalog.d.m"]
)
def test_a_role_that_owns_something_is_not_dropped(world: Guarded, on: str) -> None:
    run_as(world, "root", "CREATE ROLE analysts", f"ALTER {on} SET OWNER TO ROLE analysts")
    assert world.outcome("DROP ROLE analysts") == "ROLE_OWNS_OBJECTS"
    run_as(world, "root", f"ALTER {on} SET OWNER TO USER ann", "DROP ROLE analysts")


# ---- administrators --------------------------------------------------------------------------


def test_roles_and_groups_can_be_administrators(world: Guarded) -> None:
    section = world.config.authorization.model_copy(
        update={"administrator_roles": ("admins",), "administrator_groups": ("wheel",)}
    )
    world.config = world.config.model_copy(update={"authorization": section})
    run_as(world, "root", "CREATE ROLE admins", "GRANT ROLE admins TO USER bob")
    world.privileges.set_groups("carl", ["wheel"])
    assert outcome_as(world, "bob", "CREATE ROLE one") == ""
    assert outcome_as(world, "carl", "CREATE ROLE two") == ""
    assert outcome_as(world, "eve", "CREATE ROLE three") == "ACCESS_DENIED"


def test_everyone_cannot_be_an_administrator() -> None:
    with pytest.raises(ValueError, match="every user"):
        Config(authorization={"administrator_roles": ("Public",)})  # type: ignore[arg-type]


# ---- owners ----------------------------------------------------------------------------------


def test_an_administrator_takes_over_what_is_unowned(world: Guarded) -> None:
    assert outcome_as(world, "ann", "ALTER TABLE t SET OWNER TO USER ann") == "ACCESS_DENIED"
    run_as(world, "root", "GRANT SELECT ON TABLE t TO USER eve")
    run_as(world, "root", "ALTER TABLE t SET OWNER TO USER ann")
    assert world.engine.objects[TABLE, "d", "t"] == "ann"
    assert len(world.rows("SHOW GRANTS ON TABLE t")) == 1
    assert outcome_as(world, "ann", "GRANT ALL ON TABLE t TO USER bob") == ""


@pytest.mark.parametrize(
    ("owner", "on"),
    [
        ("ann", "VIEW v"),
        ("bob", "FUNCTION f"),
        ("dora", "SCHEMA d"),
        ("ann", "MATERIALIZED TABLE spark_catalog.d.m"),
    ],
)
def test_an_owner_transfers_only_to_a_role_of_its_own(world: Guarded, owner: str, on: str) -> None:
    run_as(
        world,
        "root",
        "CREATE ROLE team",
        "CREATE ROLE others",
        f"GRANT ROLE team TO USER {owner}",
        "GRANT ROLE team TO USER zoe",
    )
    for text in (f"ALTER {on} SET OWNER TO USER eve", f"ALTER {on} SET OWNER TO ROLE others"):
        assert outcome_as(world, owner, text) == "ACCESS_DENIED"
    assert outcome_as(world, "zoe", f"ALTER {on} SET OWNER TO USER zoe") == "ACCESS_DENIED"
    run_as(world, owner, f"ALTER {on} SET OWNER TO ROLE team")
    assert outcome_as(world, "zoe", f"GRANT ALL ON {on} TO USER zoe") == ""
    assert outcome_as(world, "root", f"ALTER {on} OWNER TO USER zoe") == ""
    assert outcome_as(world, "root", f"ALTER {on} SET AUTHORIZATION eve") == ""
    assert outcome_as(world, "zoe", f"GRANT ALL ON {on} TO USER zoe") == "ACCESS_DENIED"


def test_a_transfer_that_fails_changes_nothing(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob")
    before = world.privileges.all()
    world.engine.failures[SetObjectOwner] = error(Code.ENGINE_LOST)
    assert outcome_as(world, "root", "ALTER VIEW v SET OWNER TO USER eve") == "ENGINE_LOST"
    assert world.privileges.all() == before


@pytest.mark.parametrize("name", ["unowned", "`ROLE team`"])
def test_no_user_has_the_name_of_another_owner(world: Guarded, name: str) -> None:
    text = f"ALTER VIEW v SET OWNER TO USER {name}"
    assert outcome_as(world, "root", text) == "INVALID_REQUEST"


def test_a_role_refreshes_with_its_own_privileges(world: Guarded) -> None:
    run_as(world, "root", "CREATE ROLE team")
    world.execute("ALTER MATERIALIZED TABLE spark_catalog.d.n SET OWNER TO ROLE team")
    table = world.table("n")
    world.engine.surveys[table.definition.expanded_query] = selecting(world.table("m").name)
    with pytest.raises(ServerError, match="SELECT"):
        admit(table, world._services())
    run_as(world, "root", "GRANT SELECT ON MATERIALIZED TABLE spark_catalog.d.m TO ROLE team")
    assert admit(table, world._services()) is not None


# ---- objects that change ---------------------------------------------------------------------


def test_grants_follow_what_spark_drops_and_renames(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob")
    run_as(world, "root", "GRANT SELECT ON TABLE t TO USER bob")
    world.execute("ALTER VIEW d.v RENAME TO w")
    assert sorted(row[3] for row in world.rows("SHOW GRANTS FOR USER bob")) == [
        "spark_catalog.d.t",
        "spark_catalog.d.w",
    ]
    world.execute("DROP TABLE IF EXISTS D.T")
    assert [row[3] for row in world.rows("SHOW GRANTS FOR USER bob")] == ["spark_catalog.d.w"]
    world.execute("DROP SCHEMA d CASCADE")
    assert granted(world) == set()
    assert world.privileges.function_owners() == {}


def test_a_temporary_view_hides_the_one_with_grants(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob")
    world.execute("CREATE TEMPORARY VIEW v AS SELECT 1")
    world.execute("DROP VIEW v")
    assert len(granted(world)) == 1
    world.execute("DROP VIEW v")
    assert granted(world) == set()


def test_who_creates_a_function_owns_it(world: Guarded) -> None:
    name = TableName("spark_catalog", "d", "g")
    run_as(world, "eve", "CREATE FUNCTION g() RETURNS INT RETURN 1")
    assert world.privileges.function_owners()[name] == "eve"
    world.engine.objects[FUNCTION, "d", "g"] = ""
    run_as(world, "root", "CREATE OR REPLACE FUNCTION d.g() RETURNS INT RETURN 2")
    run_as(world, "root", "CREATE FUNCTION IF NOT EXISTS g() RETURNS INT RETURN 2")
    run_as(world, "root", "CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN 2")
    assert world.privileges.function_owners()[name] == "eve"
    run_as(world, "eve", "DROP FUNCTION g")
    assert name not in world.privileges.function_owners()


def test_who_replaces_a_view_does_not_become_its_owner(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob")

    def replaced(request: object) -> None:
        if isinstance(request, Execute):
            world.engine.objects[VIEW, "d", "v"] = "root"

    world.engine.before_answer = replaced
    run_as(world, "root", "CREATE OR REPLACE VIEW v AS SELECT 1")
    assert world.engine.objects[VIEW, "d", "v"] == "ann"
    assert len(granted(world)) == 1
    run_as(world, "root", "CREATE OR REPLACE VIEW w AS SELECT 1")
    assert (VIEW, "d", "w") not in world.engine.objects


def test_after_a_script_grants_on_what_is_gone_are_removed(world: Guarded) -> None:
    run_as(world, "ann", "GRANT SELECT ON VIEW v TO USER bob")
    run_as(world, "root", "GRANT SELECT ON TABLE t TO USER bob")
    run_as(world, "bob", "GRANT EXECUTE ON FUNCTION f TO USER eve")
    del world.engine.objects[TABLE, "d", "t"]
    world.engine.objects[VIEW, "d", "v"] = "eve"
    run_as(world, "root", "EXECUTE IMMEDIATE 'DROP TABLE t'")
    assert {each.grantee.name for each in granted(world)} == {"eve"}
    del world.engine.objects[FUNCTION, "d", "f"]
    world.execute("DROP FUNCTION IDENTIFIER('f')")
    assert granted(world) == set()
    assert world.privileges.function_owners() == {}


def test_only_its_owner_converts_a_plain_table(world: Guarded) -> None:
    plain = TableName("spark_catalog", "d", "t")
    options = {CONVERSION_KEY: "true"}
    world.config = world.config.model_copy(update={"options": options})
    world.engine.storage.tables[plain] = Stored(schema=T1)
    run_as(world, "root", "ALTER TABLE t SET OWNER TO USER ann", "GRANT ALL ON t TO USER bob")
    run_as(world, "root", "ALTER SCHEMA d SET OWNER TO USER ann")
    text = "CREATE OR ALTER MATERIALIZED TABLE t REFRESH_MODE = FULL AS SELECT * FROM t1"
    assert outcome_as(world, "bob", text) == "ACCESS_DENIED"
    assert outcome_as(world, "ann", text) == ""
    assert granted(world) == set()
    run_as(world, "ann", "ALTER MATERIALIZED TABLE t CONVERT TO TABLE")
    assert world.engine.objects[TABLE, "d", "t"] == "ann"
