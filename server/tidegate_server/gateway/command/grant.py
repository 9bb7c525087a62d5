"""GRANT, REVOKE and SHOW GRANTS on materialized tables and their schemas."""

from __future__ import annotations

import logging

import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.privileges import (
    Grant,
    GrantObject,
    Privilege,
    SchemaObject,
    TableObject,
)
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.statements import (
    GrantPrivileges,
    OnSchema,
    OnTable,
    RevokePrivileges,
    ShowGrants,
)
from tidegate_server.gateway.authorization.admission import access_error, require, rights_of
from tidegate_server.gateway.authorization.rights import Action, Rights, objects_of
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve

log = logging.getLogger(__name__)

_TEXT, _MOMENT = pa.string(), pa.timestamp("us", tz="UTC")
_COLUMNS = ("user", "privilege", "object_kind", "object", "granted_by")
_SCHEMA = Schema(
    (
        *(Column(name=name, type="string") for name in _COLUMNS),
        Column(name="granted_at", type="timestamp"),
    )
)
_OFF = "Set authorization.enabled = true in the server's configuration."


def grant(statement: GrantPrivileges, context: Context) -> Result:
    """Grant privileges to a user; existing ones stay unchanged.

    :raises ServerError: ACCESS_DENIED unless the session's user owns the table or is an
        administrator, MT_NOT_FOUND, NOT_SUPPORTED while privileges are not checked.
    """
    on = _object_to_change("GRANT", statement.on, context)
    services = context.services
    for privilege in _parts(statement.privileges):
        services.privileges.grant(
            Grant(
                user=statement.user,
                privilege=privilege,
                object=on,
                granted_by=context.session.user,
                granted_at=services.clock.now(),
            )
        )
    log.info("User %s was granted %s on %s", statement.user, statement.privileges, on)
    return nothing()


def revoke(statement: RevokePrivileges, context: Context) -> Result:
    """Revoke privileges; raises like :func:`grant`."""
    on = _object_to_change("REVOKE", statement.on, context)
    privileges = context.services.privileges
    gone = [privileges.revoke(statement.user, p, on) for p in _parts(statement.privileges)]
    if not any(gone):
        context.note(f"User {statement.user} had none of these privileges; nothing was changed.")
    log.info("User %s lost %s on %s", statement.user, statement.privileges, on)
    return nothing()


def show_grants(statement: ShowGrants, context: Context) -> Result:
    """List grants: administrators see all, others their own and those on their tables."""
    services, user = context.services, context.session.user
    on = _object_to_show(statement.on, context)
    rights = rights_of(user, services)
    names = _names(context)
    rows = [
        (g.user, g.privilege.value, *names[g.object], g.granted_by, g.granted_at)
        for g in services.privileges.all()
        if g.object in names
        and (on is None or g.object == on)
        and statement.user in (None, g.user)
        and _shows(g, rights, context)
    ]
    rows.sort(key=lambda row: tuple(str(value) for value in (row[3], row[0], row[1])))
    return RowsResult(_SCHEMA, rows, types=(*(_TEXT for _ in _COLUMNS), _MOMENT))


def _parts(privileges: tuple[Privilege, ...]) -> tuple[Privilege, ...]:
    return tuple(dict.fromkeys(part for one in privileges for part in one.parts()))


def _object_to_change(action: str, on: OnTable | OnSchema, context: Context) -> GrantObject:
    services, user = context.services, context.session.user
    rights = rights_of(user, services)
    if rights is None:
        raise error(
            Code.NOT_SUPPORTED, what=f"{action} while privileges are not checked", hint=_OFF
        )
    if isinstance(on, OnSchema):
        found = _schema(on, context)
        if not rights.administrator:
            raise access_error(user, "administration", f"schema {found.catalog}.{found.schema}")
        return found
    table = resolve.materialized_table(on.name, context)
    require(Action.OWN, table, user, services)
    return TableObject(table_id=table.id)


def _object_to_show(on: OnTable | OnSchema | None, context: Context) -> GrantObject | None:
    match on:
        case None:
            return None
        case OnSchema():
            return _schema(on, context)
        case OnTable(name=name):
            table = resolve.materialized_table(name, context)
            require(Action.SEE, table, context.session.user, context.services)
            return TableObject(table_id=table.id)


def _schema(on: OnSchema, context: Context) -> SchemaObject:
    catalog, schema = resolve.schema_name(on.name, context)
    return SchemaObject(catalog=catalog.lower(), schema=schema.lower())


def _names(context: Context) -> dict[GrantObject, tuple[str, str]]:
    """Return kind and name of each object that still exists."""
    names: dict[GrantObject, tuple[str, str]] = {}
    for grant in context.services.privileges.all():
        if isinstance(grant.object, SchemaObject):
            names[grant.object] = ("SCHEMA", f"{grant.object.catalog}.{grant.object.schema}")
    for table in context.services.catalog.tables():
        names[TableObject(table_id=table.id)] = ("MATERIALIZED TABLE", str(table.name))
    return names


def _shows(grant: Grant, rights: Rights | None, context: Context) -> bool:
    if rights is None or rights.administrator or grant.user == rights.user:
        return True
    owned = (t for t in context.services.catalog.tables() if t.owner == rights.user)
    return any(grant.object == objects_of(table)[0] for table in owned)
