"""What every store of grants, roles, groups and owners of functions keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.contract.examples import NOON
from tests.contract.stores import open_database
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import (
    INITIAL_GRANTS,
    PUBLIC,
    Grant,
    Membership,
    NamedObject,
    Privilege,
    Role,
    SchemaObject,
    SecuredKind,
    TableObject,
    group,
    role,
    user,
)
from tidegate_server.gateway.store.migrations import (
    MIGRATIONS,
    add_grants_on_all_objects,
    add_privileges,
    migrate,
)
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges, SqlPrivileges

TABLE, SCHEMA = TableObject(table_id="t-1"), SchemaObject(catalog="c", schema="d.with.dots")
VIEW = NamedObject(kind=SecuredKind.VIEW, catalog="c", schema="d", name="v", owner="ann")
PLAIN = replace(VIEW, kind=SecuredKind.TABLE, owner="ROLE analysts")
FUNCTION = replace(VIEW, kind=SecuredKind.FUNCTION, name="f.g", owner="")
GRANT = Grant(
    grantee=user("bob"),
    privilege=Privilege.SELECT,
    object=TABLE,
    granted_by="ann",
    granted_at=NOON,
)
ROLE = Role(name="analysts", created_by="root", created_at=NOON)
MEMBER = Membership(role="analysts", member=user("bob"), granted_by="root", granted_at=NOON)
LATER = timedelta(minutes=1)
FUNCTION_NAME = TableName("c", "d", "f")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def privileges(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Privileges]:
    if request.param == "memory":
        yield MemoryPrivileges()
        return
    with open_database(request.param, tmp_path) as database:
        yield SqlPrivileges(database)


def added(privileges: Privileges) -> set[Grant]:
    return set(privileges.all()) - set(INITIAL_GRANTS)


def test_everyone_may_create_objects_in_the_default_schema_at_first(
    privileges: Privileges,
) -> None:
    assert set(privileges.all()) == set(INITIAL_GRANTS)
    assert {each.grantee for each in INITIAL_GRANTS} == {PUBLIC}


def test_what_was_read_before_does_not_hide_a_change(privileges: Privileges) -> None:
    def read() -> tuple[object, ...]:
        return (
            GRANT in privileges.grants_to([user("bob")]),
            MEMBER in privileges.memberships(),
            privileges.groups_of("bob"),
            privileges.function_owners().get(FUNCTION_NAME),
        )

    assert read() == (False, False, frozenset(), None)
    privileges.grant(GRANT)
    assert read() == (True, False, frozenset(), None)
    privileges.create_role(ROLE)
    privileges.add_member(MEMBER)
    privileges.set_groups("bob", ["staff"])
    privileges.set_function_owner(FUNCTION_NAME, "ann")
    assert read() == (True, True, {"staff"}, "ann")
    privileges.change([GRANT])
    privileges.drop_role(ROLE.name)
    privileges.set_groups("bob", [])
    privileges.set_function_owner(FUNCTION_NAME, None)
    assert read() == (False, False, frozenset(), None)


@pytest.mark.parametrize("on", [TABLE, SCHEMA, VIEW, PLAIN, FUNCTION])
def test_a_grant_comes_back_as_it_was_made(privileges: Privileges, on: TableObject) -> None:
    grants = {
        replace(GRANT, object=on),
        replace(GRANT, object=on, grantee=role("bob"), grantable=True),
        replace(GRANT, object=on, grantee=group("bob"), holder=role("Analysts")),
        replace(GRANT, object=on, grantee=group("bob"), holder=user("ann")),
    }
    for each in grants:
        privileges.grant(each)
    assert added(privileges) == grants


def test_grants_are_found_by_their_grantees(privileges: Privileges) -> None:
    other = replace(GRANT, grantee=role("bob"))
    privileges.grant(GRANT)
    privileges.grant(other)
    assert privileges.grants_to([user("bob"), user("eve")]) == (GRANT,)
    assert set(privileges.grants_to([user("bob"), role("bob")])) == {GRANT, other}
    assert privileges.grants_to([user("Bob"), group("bob")]) == ()


def test_granting_twice_adds_at_most_the_grant_option(privileges: Privileges) -> None:
    privileges.grant(GRANT)
    privileges.grant(replace(GRANT, granted_by="carl"))
    assert added(privileges) == {GRANT}
    privileges.grant(replace(GRANT, granted_by="carl", grantable=True))
    assert added(privileges) == {replace(GRANT, grantable=True)}
    privileges.grant(GRANT)
    assert added(privileges) == {replace(GRANT, grantable=True)}


def test_a_change_removes_grants_and_grant_options(privileges: Privileges) -> None:
    weak = replace(GRANT, privilege=Privilege.ALTER, grantable=True)
    privileges.grant(GRANT)
    privileges.grant(weak)
    privileges.change([GRANT], [weak])
    assert added(privileges) == {replace(weak, grantable=False)}
    privileges.change([GRANT, weak])
    assert added(privileges) == set()


def test_an_object_that_is_gone_takes_its_grants_along(privileges: Privileges) -> None:
    other = replace(GRANT, object=VIEW)
    privileges.grant(GRANT)
    privileges.grant(other)
    privileges.forget(lambda on: on == TABLE)
    assert added(privileges) == {other}


def test_grants_move_with_their_object(privileges: Privileges) -> None:
    renamed = replace(VIEW, name="w")
    privileges.grant(GRANT)
    privileges.grant(replace(GRANT, object=VIEW, grantable=True))
    privileges.grant(replace(GRANT, object=renamed))
    privileges.move(lambda on: renamed if on == VIEW else on)
    assert added(privileges) == {GRANT, replace(GRANT, object=renamed, grantable=True)}


def test_a_role_is_created_once(privileges: Privileges) -> None:
    assert privileges.create_role(ROLE)
    assert not privileges.create_role(replace(ROLE, created_by="eve"))
    assert privileges.roles() == (ROLE,)


def test_a_dropped_role_leaves_nothing(privileges: Privileges) -> None:
    privileges.create_role(ROLE)
    privileges.create_role(replace(ROLE, name="managers"))
    kept = replace(MEMBER, role="managers", granted_at=NOON + LATER)
    for each in (MEMBER, kept, replace(MEMBER, role="managers", member=role("analysts"))):
        privileges.add_member(each)
    privileges.grant(replace(GRANT, grantee=role("analysts")))
    privileges.grant(replace(GRANT, grantee=user("analysts")))
    assert privileges.drop_role("analysts")
    assert not privileges.drop_role("analysts")
    assert privileges.memberships() == (kept,)
    assert added(privileges) == {replace(GRANT, grantee=user("analysts"))}
    assert [each.name for each in privileges.roles()] == ["managers"]


def test_members_are_added_and_removed(privileges: Privileges) -> None:
    privileges.create_role(ROLE)
    assert privileges.add_member(MEMBER)
    assert not privileges.add_member(replace(MEMBER, granted_by="eve"))
    assert not privileges.remove_member("analysts", group("bob"))
    assert privileges.remove_member("analysts", user("bob"))
    assert not privileges.remove_member("analysts", user("bob"))
    assert privileges.memberships() == ()


def test_the_groups_of_a_login_replace_those_of_the_one_before(privileges: Privileges) -> None:
    assert privileges.groups_of("bob") == frozenset()
    privileges.set_groups("bob", ["staff", "admins"])
    privileges.set_groups("eve", ["guests"])
    assert privileges.groups_of("bob") == {"staff", "admins"}
    privileges.set_groups("bob", ["staff"])
    assert privileges.groups_of("bob") == {"staff"}
    privileges.set_groups("bob", [])
    assert privileges.groups_of("bob") == frozenset()
    assert privileges.groups_of("eve") == {"guests"}


def test_functions_have_owners(privileges: Privileges) -> None:
    privileges.set_function_owner(TableName("C", "D", "F"), "ann")
    assert privileges.function_owners() == {TableName("c", "d", "f"): "ann"}
    privileges.set_function_owner(TableName("c", "d", "f"), "ROLE analysts")
    assert privileges.function_owners() == {TableName("c", "d", "f"): "ROLE analysts"}
    privileges.set_function_owner(TableName("c", "d", "f"), None)
    assert privileges.function_owners() == {}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_grants_of_earlier_versions_stay_valid(kind: str, tmp_path: Path) -> None:
    with open_database(kind, tmp_path) as database:
        with database.begin() as connection:
            for table in ("grants", "roles", "role_members", "user_groups", "function_owners"):
                connection.execute(text(f"DROP TABLE {table}"))
            add_privileges(connection)
            rows = [("TABLE", "t-1"), ("SCHEMA", "c\x1fd.with.dots")]
            for on, key in rows:
                connection.execute(
                    text("INSERT INTO privileges VALUES ('bob', 'SELECT', :on, :key, 'ann', :at)"),
                    {"on": on, "key": key, "at": NOON.replace(tzinfo=None)},
                )
            before = MIGRATIONS.index(add_grants_on_all_objects)
            connection.execute(text(f"UPDATE schema_version SET version = {before}"))
            migrate(connection)
        migrated = SqlPrivileges(database)
        assert {(g.grantee, g.privilege, g.object) for g in added(migrated)} == {
            (user("bob"), Privilege.SELECT, TABLE),
            (user("bob"), Privilege.SELECT, SCHEMA),
        }
        assert {(g.granted_by, g.grantable, g.holder) for g in added(migrated)} == {
            ("ann", False, None)
        }
