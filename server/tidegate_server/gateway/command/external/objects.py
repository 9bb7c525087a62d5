"""What external locations and connections have in common: RENAME, DROP, SHOW and DESCRIBE."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.external import PLACE, URL, ExternalObject, option
from tidegate_server.core.model.names import quote_literal
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.external.statements import (
    DescribeExternal,
    DropExternal,
    RenameExternal,
    ShowExternal,
)
from tidegate_server.gateway.authorization.features import allowed_features
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.authorization.requirements import access_error, require_on
from tidegate_server.gateway.authorization.rights import Action, secured_external
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.command.external.names import check_catalog_name
from tidegate_server.gateway.context import Context

log = logging.getLogger(__name__)

_TEXT = pa.string()
_SHOWN = {
    SecuredKind.EXTERNAL_LOCATION: ("name", URL, PLACE, "owner", "comment"),
    SecuredKind.CONNECTION: ("name", "type", URL, "options", "owner", "comment"),
}
"""The columns of SHOW and DESCRIBE before ``created_at``."""


def rename(statement: RenameExternal, context: Context) -> Result:
    """Rename an object that the user owns; the grants on it stay.

    Only administrators rename connections: the name of a catalog means the same to every user.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND, EXTERNAL_EXISTS, INVALID_CONNECTION.
    """
    if statement.kind is SecuredKind.CONNECTION:
        require_administrator("ALTER CONNECTION RENAME", context)
        check_catalog_name(statement.new_name, statement.kind, context.services)
    found = find_owned(statement.kind, statement.name, context)
    if not context.services.external.replace(replace(found, name=statement.new_name)):
        raise error(Code.EXTERNAL_EXISTS, kind=statement.kind, name=statement.new_name)
    log.info("Renamed %s %s to %s", found.kind, found.name, statement.new_name)
    return nothing()


def drop(statement: DropExternal, context: Context) -> Result:
    """Drop an object that the user owns, with the grants on it; files and tables stay.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND.
    """
    services = context.services
    if statement.if_exists and find_external(statement.kind, statement.name, services) is None:
        return nothing()
    found = find_owned(statement.kind, statement.name, context)
    gone = secured_external(found).grant_object
    services.external.drop(found.id)
    services.privileges.forget(lambda on: on == gone)
    log.info("Dropped %s %s", found.kind, found.name)
    return nothing()


def show(statement: ShowExternal, context: Context) -> Result:
    """List the objects of a kind that the user owns or has a privilege on."""
    rights = rights_of(context.session.user, context.services)
    found = context.services.external.all(statement.kind)
    if rights is not None:
        found = tuple(each for each in found if rights.may(Action.SEE, secured_external(each)))
    return _rows(statement.kind, found)


def describe(statement: DescribeExternal, context: Context) -> Result:
    """Show one object.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND.
    """
    found = find(statement.kind, statement.name, context)
    user, services = context.session.user, context.services
    require_on(Action.SEE, secured_external(found), user, rights_of(user, services))
    return _rows(statement.kind, [found])


def _rows(kind: SecuredKind, found: Iterable[ExternalObject]) -> Result:
    names = _SHOWN[kind]
    schema = Schema(
        (
            *(Column(name=name, type="string") for name in names),
            Column(name="created_at", type="timestamp"),
        )
    )
    rows = [(*(_shown(each, name) for name in names), each.created_at) for each in found]
    return RowsResult(schema, rows, types=(*(_TEXT,) * len(names), pa.timestamp("us", tz="UTC")))


def _shown(found: ExternalObject, column: str) -> str | None:
    """Return a column; of secrets only the names."""
    others = [f"{k} {quote_literal(v)}" for k, v in found.options.items() if k.lower() != URL]
    others += [f"{k} secret({quote_literal(v)})" for k, v in found.secrets.items()]
    shown = {
        **found.options,
        URL: option(found.options, URL),
        "options": ", ".join(others),
        "name": found.name,
        "type": found.type,
        "owner": found.owner,
        "comment": found.comment,
    }
    return shown[column]


def create_external(added: ExternalObject, context: Context) -> None:
    """Add an object; raises EXTERNAL_EXISTS."""
    if not context.services.external.create(added):
        raise error(Code.EXTERNAL_EXISTS, kind=added.kind, name=added.name)
    log.info("Created %s %s", added.kind, added.name)


def find(kind: SecuredKind, name: str, context: Context) -> ExternalObject:
    """Return an object; raises OBJECT_NOT_FOUND."""
    found = find_external(kind, name, context.services)
    if found is None:
        raise error(Code.OBJECT_NOT_FOUND, kind=kind, name=name)
    return found


def find_owned(kind: SecuredKind, name: str, context: Context) -> ExternalObject:
    """Return an object that the user owns; raises OBJECT_NOT_FOUND or ACCESS_DENIED."""
    found = find(kind, name, context)
    user, services = context.session.user, context.services
    require_on(Action.OWN, secured_external(found), user, rights_of(user, services))
    return found


def require_administrator(action: str, context: Context) -> None:
    """Require an administrator where users are distinguished; raises ACCESS_DENIED."""
    if allowed_features(context.session.user, context.services) is not None:
        raise access_error(context.session.user, "administration", action)
