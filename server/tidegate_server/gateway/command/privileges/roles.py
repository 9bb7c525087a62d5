"""Roles, their members, and SHOW ROLES."""

from __future__ import annotations

import logging

import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.privileges import (
    EXTERNAL_KINDS,
    PUBLIC_ROLE,
    Grantee,
    GranteeKind,
    Membership,
    Role,
    owner_text,
    role,
)
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.privilege_statements import (
    CreateRole,
    DropRole,
    GrantRole,
    RevokeRole,
    ShowRoles,
)
from tidegate_server.gateway.authorization import grants
from tidegate_server.gateway.authorization.objects import list_objects
from tidegate_server.gateway.authorization.requirements import access_error
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.command.privileges.grant import (
    refuse_dependents,
    require_enabled,
    require_role,
)
from tidegate_server.gateway.context import Context, Services

log = logging.getLogger(__name__)

_SCHEMA = Schema(
    (
        Column(name="role", type="string"),
        Column(name="created_by", type="string"),
        Column(name="created_at", type="timestamp"),
    )
)
_TYPES = (pa.string(), pa.string(), pa.timestamp("us", tz="UTC"))
_SHOWN = 3


def create_role(statement: CreateRole, context: Context) -> Result:
    """Create a role without members.

    :raises ServerError: ACCESS_DENIED unless the user is an administrator, ROLE_ALREADY_EXISTS.
    """
    _require_administrator("CREATE ROLE", statement.role, context)
    services, name = context.services, statement.role
    created = name != PUBLIC_ROLE and services.privileges.create_role(
        Role(name=name, created_by=context.session.user, created_at=services.clock.now())
    )
    if not created and not statement.if_not_exists:
        raise error(Code.ROLE_ALREADY_EXISTS, role=name)
    if created:
        log.info("Created role %s", name)
    return nothing()


def drop_role(statement: DropRole, context: Context) -> Result:
    """Drop a role with the grants to it and its memberships.

    :raises ServerError: ACCESS_DENIED, ROLE_NOT_FOUND, NOT_SUPPORTED for ``public``;
        ROLE_OWNS_OBJECTS; DEPENDENT_GRANTS without CASCADE.
    """
    _require_administrator("DROP ROLE", statement.role, context)
    services, dropped = context.services, role(statement.role)
    if dropped.name == PUBLIC_ROLE:
        hint = "Revoke its privileges: REVOKE ... FROM PUBLIC."
        raise error(Code.NOT_SUPPORTED, what="DROP ROLE public", hint=hint)
    if dropped.name not in {each.name for each in services.privileges.roles()}:
        if statement.if_exists:
            return nothing()
        raise error(Code.ROLE_NOT_FOUND, role=dropped.name)
    _refuse_owner(dropped, services)
    gone = [each for each in services.privileges.all() if each.grantee == dropped]
    refuse_dependents(gone, services, cascade=statement.cascade)
    services.privileges.drop_role(dropped.name)
    log.info("Dropped role %s", dropped.name)
    return nothing()


def grant_role(statement: GrantRole, context: Context) -> Result:
    """Make a user, a group or a role a member of a role.

    :raises ServerError: ACCESS_DENIED unless the user is an administrator, ROLE_NOT_FOUND,
        ROLE_CYCLE.
    """
    _require_administrator("GRANT ROLE", statement.role, context)
    services, name, member = context.services, statement.role, statement.member
    require_role(role(name), services)
    require_role(member, services)
    if grants.makes_cycle(name, member, services.privileges.memberships()):
        raise error(Code.ROLE_CYCLE, role=name, member=member.name)
    membership = Membership(
        role=name,
        member=member,
        granted_by=context.session.user,
        granted_at=services.clock.now(),
    )
    services.privileges.add_member(membership)
    log.info("Granted role %s to %s", name, member)
    return nothing()


def revoke_role(statement: RevokeRole, context: Context) -> Result:
    """Remove a member of a role; what was granted by the role's grant options stays.

    :raises ServerError: ACCESS_DENIED unless the user is an administrator, ROLE_NOT_FOUND.
    """
    _require_administrator("REVOKE ROLE", statement.role, context)
    services, name, member = context.services, statement.role, statement.member
    require_role(role(name), services)
    if services.privileges.remove_member(name, member):
        log.info("Revoked role %s from %s", name, member)
    else:
        context.note(f"The role {name} was not granted to {member}.")
    return nothing()


def show_roles(statement: ShowRoles, context: Context) -> Result:
    """List all roles for administrators, else those of the session's user; PUBLIC is one."""
    services = context.services
    rights = rights_of(context.session.user, services)
    known = {each.name: each for each in services.privileges.roles()}
    names = {PUBLIC_ROLE, *known}
    if rights is not None and (statement.current or not rights.administrator):
        names &= rights.roles
    rows = []
    for name in sorted(names):
        found = known.get(name)
        made = (None, None) if found is None else (found.created_by, found.created_at)
        rows.append((name, *made))
    return RowsResult(_SCHEMA, rows, types=_TYPES)


def _require_administrator(action: str, on: str, context: Context) -> None:
    """Require that the user may change a role."""
    context.record.add(action, GranteeKind.ROLE.value, on)
    rights = require_enabled(action, context)
    if not rights.administrator:
        raise access_error(rights.user, "administration", action)


def _refuse_owner(owner: Grantee, services: Services) -> None:
    """Refuse to drop a role that owns objects, which a new role of the name would own."""
    text = owner_text(owner)
    owned = [f"materialized table {t.name}" for t in services.catalog.tables() if t.owner == text]
    owned += [
        f"function {name}"
        for name, of in services.privileges.function_owners().items()
        if of == text
    ]
    owned += [
        f"{each.kind} {each.name}"
        for kind in EXTERNAL_KINDS
        for each in services.external.all(kind)
        if each.owner == text
    ]
    owned += [str(on) for on in list_objects(services) if on.owner == text]
    if owned:
        more = f" and {len(owned) - _SHOWN} more" if len(owned) > _SHOWN else ""
        objects = f"{', '.join(owned[:_SHOWN])}{more}"
        raise error(Code.ROLE_OWNS_OBJECTS, role=owner.name, objects=objects)
