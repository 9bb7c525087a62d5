"""The rights of every user to every action on every object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.examples import NOON
from tests.gateway.command.guarded import DAILY, GIVEN, HOURLY, OTHER, grant
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import (
    APPLICABLE,
    PUBLIC,
    UNOWNED,
    Grant,
    Grantee,
    GrantObject,
    Membership,
    Privilege,
    SchemaObject,
    SecuredKind,
    TableObject,
    expand,
    group,
    owner_grantee,
    owner_text,
    role,
    user,
)
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.authorization.grants import makes_cycle, revoke, roles_of, supported
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    SecuredObject,
    secured,
    secured_schema,
    secured_table,
)

TABLES = (DAILY, HOURLY, OTHER)
OBJECTS: tuple[GrantObject, ...] = (
    TableObject(table_id="t-1"),
    TableObject(table_id="t-3"),
    SchemaObject(catalog="spark_catalog", schema="d"),
    SchemaObject(catalog="spark_catalog", schema="elsewhere"),
)
COVERED = {
    OBJECTS[0]: {"t-1"},
    OBJECTS[1]: {"t-3"},
    OBJECTS[2]: {"t-1", "t-2"},
    OBJECTS[3]: {"t-3"},
}
OF_TABLES = [Action.SEE, Action.SELECT, Action.REFRESH, Action.ALTER, Action.OWN]


def grant_sets() -> Iterator[tuple[tuple[Privilege, GrantObject], ...]]:
    """Yield every choice of up to two grants."""
    single = tuple(product(GIVEN, OBJECTS))
    yield from chain.from_iterable(combinations(single, size) for size in range(3))


@pytest.mark.parametrize("action", OF_TABLES)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.id)
def test_grants_allow_what_they_name_on_what_they_cover(
    table: MaterializedTable, action: Action
) -> None:
    on = secured_table(table)
    for chosen in grant_sets():
        rights = Rights(user="bob", grants=tuple(grant("bob", *one) for one in chosen))
        expected = any(action in GIVEN[p] and table.id in COVERED[on] for p, on in chosen)
        assert rights.may(action, on) is expected, chosen


@pytest.mark.parametrize("action", Action)
def test_owners_and_administrators_may_do_everything(action: Action) -> None:
    objects = [secured_table(table) for table in TABLES]
    assert [Rights(user="ann").may(action, on) for on in objects] == [True, True, False]
    assert all(Rights(user="root", administrator=True).may(action, on) for on in objects)


@pytest.mark.parametrize("action", Action)
def test_grants_of_others_and_names_spelled_otherwise_give_nothing(action: Action) -> None:
    everything = tuple(grant("bob", p, on) for p, on in product(GIVEN, OBJECTS))
    for name in ("eve", "Bob", "bob ", ""):
        rights = Rights(user=name, grants=everything)
        assert not any(rights.may(action, secured_table(t)) for t in TABLES)


# ---- every kind of object --------------------------------------------------------------------

VIEW = secured(SecuredKind.VIEW, TableName("spark_catalog", "d", "V"), "ann")
PLAIN = secured(SecuredKind.TABLE, TableName("spark_catalog", "D", "t"), "ROLE analysts")
FUNCTION = secured(SecuredKind.FUNCTION, TableName("spark_catalog", "d", "f"), UNOWNED)
SCHEMA = secured_schema("spark_catalog", "d", "dora")
SECURED = (VIEW, PLAIN, FUNCTION, SCHEMA, secured_table(DAILY))
GRANTEES = (user("bob"), role("analysts"), group("staff"), PUBLIC, user("eve"), role("others"))
RIGHTS = Rights(user="bob", roles=frozenset({"public", "analysts"}), groups=frozenset({"staff"}))
REQUIRED = {
    Action.SELECT: Privilege.SELECT,
    Action.MODIFY: Privilege.MODIFY,
    Action.CREATE: Privilege.CREATE,
    Action.ALTER: Privilege.ALTER,
    Action.REFRESH: Privilege.REFRESH,
    Action.EXECUTE: Privilege.EXECUTE,
}


def granted(grantee: Grantee, privilege: Privilege, on: GrantObject, **options: object) -> Grant:
    made = Grant(grantee=grantee, privilege=privilege, object=on, granted_by="ann", granted_at=NOON)
    return replace(made, **options)  # type: ignore[arg-type]


def with_grants(*grants: Grant) -> Rights:
    return replace(RIGHTS, grants=grants)


PARTS = [privilege for privilege in Privilege if privilege is not Privilege.ALL]
grants_made = st.builds(
    granted,
    st.sampled_from(GRANTEES),
    st.sampled_from(PARTS),
    st.sampled_from([on.grant_object for on in SECURED]),
    grantable=st.booleans(),
)
grant_lists = st.lists(grants_made, max_size=8)


@pytest.mark.parametrize("on", SECURED, ids=str)
@pytest.mark.parametrize("action", Action)
def test_without_a_grant_only_owners_may_do_anything(on: SecuredObject, action: Action) -> None:
    assert RIGHTS.may(action, on) is (on is PLAIN)
    assert not Rights(user="eve").may(action, on)


@pytest.mark.parametrize("on", SECURED, ids=str)
@pytest.mark.parametrize("privilege", PARTS)
def test_a_privilege_allows_its_action_where_it_applies(
    on: SecuredObject, privilege: Privilege
) -> None:
    for target in (on.grant_object, on.schema_object):
        rights = Rights(user="bob", grants=(granted(user("bob"), privilege, target),))
        applies = privilege in APPLICABLE[on.kind]
        for action, required in REQUIRED.items():
            assert rights.may(action, on) is (applies and required is privilege)
        assert rights.may(Action.SEE, on) is applies
        assert not rights.may(Action.OWN, on)


@given(grant_lists, grants_made, st.sampled_from(SECURED), st.sampled_from(Action))
def test_more_grants_never_give_less(
    grants: list[Grant], another: Grant, on: SecuredObject, action: Action
) -> None:
    fewer, more = with_grants(*grants), with_grants(*grants, another)
    assert fewer.may(action, on) <= more.may(action, on)
    for privilege in PARTS:
        assert fewer.may_grant(privilege, on) <= more.may_grant(privilege, on)


@given(grant_lists, st.sampled_from(SECURED), st.sampled_from(Action))
def test_what_nobody_of_ones_own_was_granted_gives_nothing(
    grants: list[Grant], on: SecuredObject, action: Action
) -> None:
    own = [each for each in grants if each.grantee in RIGHTS.identities]
    assert with_grants(*grants).may(action, on) == with_grants(*own).may(action, on)
    if not own:
        assert with_grants(*grants).may(action, on) is RIGHTS.owns(on)


@given(grant_lists, grants_made)
def test_a_revocation_undoes_a_grant(grants: list[Grant], another: Grant) -> None:
    stored = [each for each in dict.fromkeys(grants) if each != another]
    effect = revoke([*stored, another], [another], lambda on: None)
    gone = {*effect.removed, *effect.dependent}
    assert [each for each in (*stored, another) if each not in gone] == stored


@given(grant_lists, st.sampled_from(SECURED), st.sampled_from(PARTS))
def test_nobody_grants_more_than_is_held(
    grants: list[Grant], on: SecuredObject, privilege: Privilege
) -> None:
    rights = with_grants(*grants)
    if rights.option_holder(privilege, on) is not None:
        assert privilege in rights.privileges(on)


def test_a_grant_does_not_apply_to_an_object_of_another_owner() -> None:
    rights = with_grants(granted(user("bob"), Privilege.SELECT, VIEW.grant_object))
    assert rights.may(Action.SELECT, VIEW)
    assert not rights.may(Action.SELECT, replace(VIEW, owner="eve"))
    assert not rights.may(Action.SELECT, replace(VIEW, owner=""))
    assert not rights.may(Action.SELECT, replace(VIEW, kind=SecuredKind.TABLE))


def test_nobody_owns_what_is_unowned() -> None:
    for owner in ("", UNOWNED):
        for name in ("", UNOWNED, "bob"):
            assert not Rights(user=name).owns(replace(VIEW, owner=owner))


def test_a_users_name_cannot_pretend_to_be_a_role() -> None:
    assert not Rights(user="ROLE analysts").owns(PLAIN)
    assert owner_grantee(owner_text(role("analysts"))) == role("analysts")
    assert owner_grantee(owner_text(user("analysts"))) == user("analysts")


@pytest.mark.parametrize(
    "on", [SCHEMA.grant_object, VIEW.grant_object, TableObject(table_id="t-1")], ids=str
)
def test_a_privilege_in_a_schema_makes_the_schema_visible(on: GrantObject) -> None:
    made = (granted(user("bob"), Privilege.SELECT, on),)
    rights = Rights(user="bob", grants=made, tables=lambda: (DAILY, OTHER))
    assert rights.may(Action.USE, SCHEMA)
    assert not rights.may(Action.USE, secured_schema("c", "elsewhere"))


def test_usage_of_a_schema_shows_none_of_its_objects() -> None:
    rights = with_grants(granted(PUBLIC, Privilege.USAGE, SCHEMA.grant_object))
    assert rights.may(Action.USE, SCHEMA)
    assert not rights.may(Action.SEE, VIEW)


# ---- grant options ---------------------------------------------------------------------------


def schema_of(on: TableObject) -> SchemaObject:
    return SCHEMA.schema_object


OPTION = granted(user("bob"), Privilege.SELECT, VIEW.grant_object, grantable=True)
ON = granted(user("eve"), Privilege.SELECT, VIEW.grant_object, holder=user("bob"), grantable=True)
FURTHER = granted(user("zoe"), Privilege.SELECT, VIEW.grant_object, holder=user("eve"))


def test_what_was_granted_by_an_option_depends_on_it() -> None:
    stored = (OPTION, ON, FURTHER)
    assert revoke(stored, [OPTION], schema_of).dependent == (ON, FURTHER)
    assert revoke(stored, [ON], schema_of).dependent == (FURTHER,)
    only_option = revoke(stored, [OPTION], schema_of, option_only=True)
    assert (only_option.removed, only_option.weakened) == ((), (OPTION,))
    assert only_option.dependent == (ON, FURTHER)
    assert revoke((OPTION,), [OPTION], schema_of).dependent == ()


def test_an_option_on_the_schema_supports_a_grant_too() -> None:
    wide = replace(OPTION, object=SCHEMA.grant_object)
    assert revoke((OPTION, wide, ON), [OPTION], schema_of).dependent == ()
    on_table = replace(ON, object=TableObject(table_id="t-1"))
    assert revoke((wide, on_table), [wide], schema_of).dependent == (on_table,)


def test_grants_that_rely_on_each_other_are_not_supported() -> None:
    back = replace(OPTION, holder=user("eve"))
    assert supported([back, ON], schema_of) == ()
    assert revoke((OPTION, ON, back), [OPTION], schema_of).dependent == (ON, back)


def test_a_grant_prefers_the_option_of_the_user() -> None:
    of_role = replace(OPTION, grantee=role("analysts"))
    assert with_grants(of_role, OPTION).option_holder(Privilege.SELECT, VIEW) == user("bob")
    assert with_grants(of_role).option_holder(Privilege.SELECT, VIEW) == role("analysts")
    assert with_grants(of_role).option_holder(Privilege.ALTER, VIEW) is None
    assert (
        with_grants(replace(OPTION, grantable=False)).option_holder(Privilege.SELECT, VIEW) is None
    )


# ---- roles -----------------------------------------------------------------------------------


def member(name: str, of: Grantee) -> Membership:
    return Membership(role=name, member=of, granted_by="root", granted_at=NOON)


CHAIN = (
    member("a", user("bob")),
    member("b", role("a")),
    member("c", role("b")),
    member("d", group("staff")),
)


def test_roles_contain_roles() -> None:
    assert roles_of([user("bob")], CHAIN) == {"public", "a", "b", "c"}
    assert roles_of([user("bob"), group("staff")], CHAIN) == {"public", "a", "b", "c", "d"}
    assert roles_of([group("bob")], CHAIN) == {"public"}


def test_a_role_cannot_contain_itself() -> None:
    assert makes_cycle("a", role("c"), CHAIN)
    assert makes_cycle("a", role("a"), CHAIN)
    assert not makes_cycle("c", role("a"), CHAIN)
    assert not makes_cycle("a", user("c"), CHAIN)


@given(st.lists(st.tuples(*[st.sampled_from("abcd")] * 2), max_size=12))
def test_checked_memberships_never_have_a_cycle(pairs: list[tuple[str, str]]) -> None:
    kept: list[Membership] = []
    for name, inner in pairs:
        if not makes_cycle(name, role(inner), kept):
            kept.append(member(name, role(inner)))
    for name in "abcd":
        assert name not in roles_of([role(name)], kept)


@pytest.mark.parametrize("kind", SecuredKind)
def test_all_stands_for_what_applies(kind: SecuredKind) -> None:
    assert expand(Privilege.ALL, kind) == APPLICABLE[kind]
    assert [p for p in PARTS if expand(p, kind)] == [p for p in PARTS if p in APPLICABLE[kind]]
