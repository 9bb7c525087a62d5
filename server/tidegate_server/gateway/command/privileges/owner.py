"""ALTER ... SET OWNER."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import SetObjectOwner
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import (
    UNOWNED,
    GranteeKind,
    SecuredKind,
    is_role_owner,
    owner_text,
)
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.sql.privilege_statements import (
    SetOwner,
)
from tidegate_server.gateway.authorization.objects import find_external, find_object
from tidegate_server.gateway.authorization.requirements import access_error, record_act
from tidegate_server.gateway.authorization.rights import Rights, SecuredObject
from tidegate_server.gateway.command.privileges.grant import require_enabled, require_role
from tidegate_server.gateway.command.redefine import alterable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.transaction import apply_definition

log = logging.getLogger(__name__)

_OTHERS = "Transfer it to a role of yours, or ask an administrator."


def set_owner(statement: SetOwner, context: Context) -> Result:
    """Transfer an object; the grants on it stay.

    Administrators choose any owner. Others may transfer what they own to a role that they belong
    to: refreshes use the owner's privileges, which they must not gain.

    :raises ServerError: ACCESS_DENIED, ROLE_NOT_FOUND, INVALID_REQUEST for a name that no user can
        have; what :func:`find_object` raises; NOT_SUPPORTED while privileges are not checked.
    """
    rights, services = require_enabled("SET OWNER", context), context.services
    on = find_object(statement.on, context)
    record_act("SET OWNER", on, context)
    owner = owner_text(statement.owner)
    if statement.owner.kind is GranteeKind.USER and (owner == UNOWNED or is_role_owner(owner)):
        raise error(Code.INVALID_REQUEST, reason=f"no user can have the name {owner}")
    require_role(statement.owner, services)
    _require_transfer(statement, on, rights)
    if owner != on.owner:
        _transfer(on, owner, context)
        log.info("%s now belongs to %s", on, statement.owner)
    return nothing()


def _transfer(on: SecuredObject, owner: str, context: Context) -> None:
    """Change the owner of an object, and of the object that grants refer to.

    Grants change first. If the gateway dies in between, they have no effect until the statement is
    repeated.
    """
    services = context.services
    name = TableName(on.catalog, on.schema, on.name)
    with ExitStack() as undo:
        before, after = on.grant_object, replace(on, owner=owner).grant_object
        services.privileges.move(lambda each: after if each == before else each)
        undo.callback(services.privileges.move, lambda each: before if each == after else each)
        match on.kind:
            case SecuredKind.MATERIALIZED_TABLE:
                table = alterable((on.catalog, on.schema, on.name), context)
                apply_definition(table, replace(table, owner=owner), context)
            case SecuredKind.FUNCTION:
                services.privileges.set_function_owner(name, owner)
            case SecuredKind.EXTERNAL_LOCATION | SecuredKind.CONNECTION | SecuredKind.CATALOG:
                found = find_external(on.kind, on.name, services)
                if found is not None:
                    services.external.replace(replace(found, owner=owner))
            case SecuredKind.SCHEMA | SecuredKind.TABLE | SecuredKind.VIEW:
                services.engine.call(SetObjectOwner(kind=on.kind, name=name, owner=owner))
        undo.pop_all()


def _require_transfer(statement: SetOwner, on: SecuredObject, rights: Rights) -> None:
    if rights.administrator:
        return
    if not rights.owns(on):
        raise access_error(rights.user, "ownership", str(on))
    if statement.owner not in rights.identities:
        raise access_error(
            rights.user, "administration", f"ownership by {statement.owner}", _OTHERS
        )
