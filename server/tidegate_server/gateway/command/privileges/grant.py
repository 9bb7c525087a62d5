"""GRANT, REVOKE and SHOW GRANTS."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.privileges import (
    APPLICABLE,
    EXTERNAL_KINDS,
    Grant,
    Grantee,
    GranteeKind,
    GrantObject,
    Membership,
    NamedObject,
    Privilege,
    SchemaObject,
    ServerObject,
    TableObject,
    expand,
)
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.privilege_statements import (
    GrantPrivileges,
    OnObject,
    OnRole,
    RevokePrivileges,
    ShowGrants,
)
from tidegate_server.gateway.authorization import grants
from tidegate_server.gateway.authorization.objects import find_object, list_objects
from tidegate_server.gateway.authorization.requirements import (
    access_error,
    record_act,
    require_on,
)
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    SecuredObject,
    secured_external,
    secured_table,
)
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.context import Context, Services

log = logging.getLogger(__name__)

_TEXT, _MOMENT = pa.string(), pa.timestamp("us", tz="UTC")
_COLUMNS = (
    *((name, "string", _TEXT) for name in ("user", "privilege", "object_kind", "object")),
    ("granted_by", "string", _TEXT),
    ("granted_at", "timestamp", _MOMENT),
    ("grantee_kind", "string", _TEXT),
    ("grantable", "boolean", pa.bool_()),
)
_SCHEMA = Schema(tuple(Column(name=name, type=kind) for name, kind, _ in _COLUMNS))
_OFF = "Set authorization.enabled = true in the server's configuration."
_MEMBER = "MEMBER"
_ASK = "Its owner, an administrator, or a user with the grant option can GRANT it."


def grant(statement: GrantPrivileges, context: Context) -> Result:
    """Grant privileges; existing grants stay, and can gain the grant option.

    :raises ServerError: ACCESS_DENIED unless the session's user owns the object, is an
        administrator or holds the privileges with grant option; INVALID_GRANT for a privilege that
        does not apply; ROLE_NOT_FOUND; what :func:`find_object` raises; NOT_SUPPORTED while
        privileges are not checked.
    """
    rights = require_enabled("GRANT", context)
    on = find_object(statement.on, context)
    record_act("GRANT", on, context)
    require_role(statement.grantee, context.services)
    for privilege, holder in _holders(statement.privileges, on, rights, context).items():
        context.services.privileges.grant(
            Grant(
                grantee=statement.grantee,
                privilege=privilege,
                object=on.grant_object,
                granted_by=context.session.user,
                granted_at=context.services.clock.now(),
                grantable=statement.grantable,
                holder=holder,
            )
        )
    log.info("Granted %s on %s to %s", statement.privileges, on, statement.grantee)
    return nothing()


def revoke(statement: RevokePrivileges, context: Context) -> Result:
    """Revoke privileges, or only their grant option.

    Owners and administrators revoke every grant to the grantee; other users those that rely on
    their own grant option.

    :raises ServerError: as :func:`grant`; DEPENDENT_GRANTS without CASCADE.
    """
    rights, services = require_enabled("REVOKE", context), context.services
    on = find_object(statement.on, context)
    record_act("REVOKE", on, context)
    holders = _holders(statement.privileges, on, rights, context)
    stored = services.privileges.all()
    revoked = [
        each
        for each in stored
        if each.grantee == statement.grantee
        and each.object == on.grant_object
        and each.privilege in holders
        and (holders[each.privilege] is None or each.holder in rights.identities)
    ]
    effect = grants.revoke(stored, revoked, _schema_of(services), option_only=statement.option_only)
    if effect.dependent and not statement.cascade:
        raise _dependents_error(effect.dependent)
    services.privileges.change((*effect.removed, *effect.dependent), effect.weakened)
    if effect.changes_nothing:
        lost = "grant options" if statement.option_only else "privileges"
        context.note(f"{_capitalized(statement.grantee)} had none of these {lost}.")
    log.info("Revoked %s on %s from %s", statement.privileges, on, statement.grantee)
    return nothing()


def require_enabled(action: str, context: Context) -> Rights:
    """Return the rights of the session's user.

    :raises ServerError: NOT_SUPPORTED while privileges are not checked.
    """
    rights = rights_of(context.session.user, context.services)
    if rights is None:
        raise error(
            Code.NOT_SUPPORTED, what=f"{action} while privileges are not checked", hint=_OFF
        )
    return rights


def require_role(grantee: Grantee, services: Services) -> None:
    """Require that a role exists; users and groups need not be known.

    :raises ServerError: ROLE_NOT_FOUND.
    """
    known = {each.name for each in services.privileges.roles()}
    if grantee.kind is GranteeKind.ROLE and grantee.name not in known | {"public"}:
        raise error(Code.ROLE_NOT_FOUND, role=grantee.name)


def refuse_dependents(gone: Iterable[Grant], services: Services, *, cascade: bool) -> None:
    """Remove grants with those that rely on them, if ``cascade`` allows that.

    :raises ServerError: DEPENDENT_GRANTS.
    """
    effect = grants.revoke(services.privileges.all(), tuple(gone), _schema_of(services))
    if effect.dependent and not cascade:
        raise _dependents_error(effect.dependent)
    services.privileges.change((*effect.removed, *effect.dependent))


def _holders(
    privileges: Iterable[Privilege], on: SecuredObject, rights: Rights, context: Context
) -> Mapping[Privilege, Grantee | None]:
    """Return each privilege with the holder of the grant option by which the user may grant it.

    That is None for owners and administrators. ALL stands for what the user may grant.
    """
    found: dict[Privilege, Grantee | None] = {}
    owns = rights.may(Action.OWN, on)
    for named in privileges:
        parts = expand(named, on.kind)
        if not parts:
            raise _not_applicable(named, on)
        holders = {part: None if owns else rights.option_holder(part, on) for part in parts}
        allowed = {part: holder for part, holder in holders.items() if owns or holder is not None}
        if not allowed:
            wanted = "ownership" if named is Privilege.ALL else f"{named.value} WITH GRANT OPTION"
            raise access_error(rights.user, wanted, str(on), _ASK)
        if len(allowed) < len(parts):
            names = ", ".join(part.value for part in allowed)
            context.note(f"ALL stands for the privileges with grant option: {names}.")
        found |= allowed
    return found


def _not_applicable(privilege: Privilege, on: SecuredObject) -> ServerError:
    names = ", ".join(each.value for each in APPLICABLE[on.kind])
    return error(
        Code.INVALID_GRANT,
        privilege=privilege.value,
        object=on,
        hint=f"Privileges of a {on.kind} are {names}.",
    )


def _dependents_error(dependent: Iterable[Grant]) -> ServerError:
    found = sorted({f"{each.privilege.value} of {each.grantee}" for each in dependent})
    return error(Code.DEPENDENT_GRANTS, grants=", ".join(found))


def _capitalized(grantee: Grantee) -> str:
    text = str(grantee)
    return text[0].upper() + text[1:]


def _schema_of(services: Services) -> grants.SchemaOf:
    def schema_of(on: TableObject) -> SchemaObject | None:
        table = services.catalog.by_id(on.table_id)
        return None if table is None else secured_table(table).schema_object

    return schema_of


# ---- SHOW GRANTS -----------------------------------------------------------------------------

_Row = tuple[object, ...]


def show_grants(statement: ShowGrants, context: Context) -> Result:
    """List grants and the members of roles.

    Administrators see all; others see those to themselves, their roles and groups, and those on
    objects that they own.
    """
    services = context.services
    rights = rights_of(context.session.user, services)
    rows = [*_grant_rows(statement, rights, context), *_member_rows(statement, rights, services)]
    rows.sort(key=lambda row: tuple(str(row[place]) for place in (3, 6, 0, 1)))
    return RowsResult(_SCHEMA, rows, types=tuple(arrow for _, _, arrow in _COLUMNS))


def _grant_rows(statement: ShowGrants, rights: Rights | None, context: Context) -> Iterable[_Row]:
    if isinstance(statement.on, OnRole):
        return
    on = None if statement.on is None else _object_to_show(statement.on, rights, context)
    stored = [
        each
        for each in context.services.privileges.all()
        if (on is None or each.object == on.grant_object)
        and statement.grantee in (None, each.grantee)
    ]
    visible = _filter_visible(stored, on, rights, context)
    names = _names_by_id(context.services)
    for each in visible:
        if isinstance(each.object, TableObject | ServerObject) and each.object not in names:
            continue
        initial = not each.granted_by
        yield (
            each.grantee.name,
            each.privilege.value,
            _kind(each.object),
            names.get(each.object) or _name(each.object),
            None if initial else each.granted_by,
            None if initial else each.granted_at,
            each.grantee.kind.value,
            each.grantable,
        )


def _names_by_id(services: Services) -> Mapping[GrantObject, str]:
    """Return the names of objects that grants refer to by their ids."""
    found = {secured_table(t).grant_object: str(t.name) for t in services.catalog.tables()}
    return found | {on.grant_object: on.name for on in _external(services)}


def _external(services: Services) -> Iterable[SecuredObject]:
    for kind in EXTERNAL_KINDS:
        yield from map(secured_external, services.external.all(kind))


def _member_rows(
    statement: ShowGrants, rights: Rights | None, services: Services
) -> Iterable[_Row]:
    if isinstance(statement.on, OnObject):
        return
    wanted = None if statement.on is None else statement.on.role
    for each in services.privileges.memberships():
        if (
            wanted in (None, each.role)
            and statement.grantee in (None, each.member)
            and (rights is None or rights.administrator or _concerns(each, rights))
        ):
            member = each.member
            moment = (each.granted_by, each.granted_at)
            yield (member.name, _MEMBER, "ROLE", each.role, *moment, member.kind.value, False)


def _concerns(membership: Membership, rights: Rights) -> bool:
    return membership.member in rights.identities or membership.role in rights.roles


def _object_to_show(on: OnObject, rights: Rights | None, context: Context) -> SecuredObject:
    found = find_object(on, context)
    record_act(Action.SEE.name, found, context)
    require_on(Action.SEE, found, context.session.user, rights)
    return found


def _filter_visible(
    stored: list[Grant], on: SecuredObject | None, rights: Rights | None, context: Context
) -> Iterable[Grant]:
    if rights is None or rights.administrator or (on is not None and rights.owns(on)):
        return stored
    own = _owned_objects(stored, rights, context)
    return [g for g in stored if g.grantee in rights.identities or g.object in own]


def _owned_objects(
    stored: Iterable[Grant], rights: Rights, context: Context
) -> frozenset[GrantObject]:
    """Return the granted objects that the user owns; without an engine, no schemas."""
    services = context.services
    found = {
        on.grant_object
        for on in (*map(secured_table, services.catalog.tables()), *_external(services))
        if rights.owns(on)
    }
    for each in stored:
        on = each.object
        if isinstance(on, NamedObject) and rights.owns(_secured(on)):
            found.add(on)
    if services.engine.ready and any(isinstance(g.object, SchemaObject) for g in stored):
        found |= {on.schema_object for on in list_objects(services).schemas if rights.owns(on)}
    return frozenset(found)


def _secured(on: NamedObject) -> SecuredObject:
    return SecuredObject(
        kind=on.kind, catalog=on.catalog, schema=on.schema, name=on.name, owner=on.owner
    )


def _kind(on: GrantObject) -> str:
    match on:
        case TableObject():
            return "MATERIALIZED TABLE"
        case SchemaObject():
            return "SCHEMA"
        case NamedObject(kind=kind) | ServerObject(kind=kind):
            return kind.value


def _name(on: GrantObject) -> str:
    match on:
        case SchemaObject():
            return f"{on.catalog}.{on.schema}"
        case NamedObject():
            return f"{on.catalog}.{on.schema}.{on.name}"
        case TableObject() | ServerObject():
            raise AssertionError(f"{on} has no name of its own")
