"""External locations and connections: CREATE, ALTER, DROP, SHOW and DESCRIBE."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import FindPlaces
from tidegate_server.core.model.external import PLACE, URL, ExternalObject, option
from tidegate_server.core.model.locations import contains, overlap
from tidegate_server.core.model.names import quote_literal
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.external_statements import (
    CreateExternalLocation,
    DescribeExternal,
    DropExternal,
    RenameExternal,
    SetExternalLocationUrl,
    ShowExternal,
)
from tidegate_server.gateway.authorization.features import allowed_features
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.authorization.places import external_locations
from tidegate_server.gateway.authorization.requirements import access_error, require_on
from tidegate_server.gateway.authorization.rights import Action, secured_external
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.command.privileges.grant import require_enabled
from tidegate_server.gateway.context import Context

log = logging.getLogger(__name__)

_TEXT = pa.string()
_SHOWN = {
    SecuredKind.EXTERNAL_LOCATION: ("name", URL, PLACE, "owner", "comment"),
    SecuredKind.CONNECTION: ("name", "type", URL, "options", "owner", "comment"),
}
"""The columns of SHOW and DESCRIBE before ``created_at``."""


def create_location(statement: CreateExternalLocation, context: Context) -> Result:
    """Create an external location, which belongs to the administrator who creates it.

    :raises ServerError: ACCESS_DENIED unless the user is an administrator; EXTERNAL_EXISTS;
        INVALID_LOCATION; NOT_SUPPORTED while privileges are not checked.
    """
    require_enabled("CREATE EXTERNAL LOCATION", context)
    require_administrator("CREATE EXTERNAL LOCATION", context)
    kind, services = SecuredKind.EXTERNAL_LOCATION, context.services
    if statement.if_not_exists and find_external(kind, statement.name, services) is not None:
        return nothing()
    create_external(
        ExternalObject(
            kind=kind,
            id=services.new_id(),
            name=statement.name,
            options=_located(statement.url, None, context),
            owner=context.session.user,
            comment=statement.comment,
            created_at=services.clock.now(),
        ),
        context,
    )
    return nothing()


def set_location_url(statement: SetExternalLocationUrl, context: Context) -> Result:
    """Move an external location; the grants on it stay.

    :raises ServerError: as :func:`create_location`; OBJECT_NOT_FOUND.
    """
    require_administrator("ALTER EXTERNAL LOCATION SET URL", context)
    found = find(SecuredKind.EXTERNAL_LOCATION, statement.name, context)
    options = _located(statement.url, found, context)
    context.services.external.replace(replace(found, options=options))
    log.info("External location %s is now %s", found.name, options[PLACE])
    return nothing()


def rename(statement: RenameExternal, context: Context) -> Result:
    """Rename an object that the user owns; the grants on it stay.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND, EXTERNAL_EXISTS.
    """
    found = _find_owned(statement.kind, statement.name, context)
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
    found = _find_owned(statement.kind, statement.name, context)
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


def _find_owned(kind: SecuredKind, name: str, context: Context) -> ExternalObject:
    found = find(kind, name, context)
    user, services = context.session.user, context.services
    require_on(Action.OWN, secured_external(found), user, rights_of(user, services))
    return found


def require_administrator(action: str, context: Context) -> None:
    """Require an administrator where users are distinguished; raises ACCESS_DENIED."""
    if allowed_features(context.session.user, context.services) is not None:
        raise access_error(context.session.user, "administration", action)


# ---- URLs ------------------------------------------------------------------------------------


def _located(url: str, changed: ExternalObject | None, context: Context) -> dict[str, str]:
    """Return the options of a location.

    Its links are followed now: whoever changes one later does not move the location.

    :param changed: the location that is moved, which may overlap itself.
    """
    services = context.services
    if not (url.startswith("/") or ":/" in url):
        raise _invalid(url, "it is not an absolute path")
    if any(letter in url for letter in "*?[]{}\\"):
        raise _invalid(url, "it is a pattern")
    found = services.engine.call(FindPlaces(paths=(url, f"file:{services.config.data.resolve()}")))
    place, data = (each.rstrip("/") or each for each in found.places)
    for name, other in (("the warehouse", found.warehouse), ("the data directory", data)):
        if contains(other, place) or contains(place, other):
            raise _invalid(url, f"it overlaps {name} of the server")
    for location in external_locations(services):
        other = location.place
        if location != changed and (contains(other, place) or contains(place, other)):
            raise _invalid(url, f"it overlaps the external location {location.name}")
    for table in services.catalog.tables():
        if overlap(place, table.location):
            raise _invalid(url, f"it overlaps the directory of the materialized table {table.name}")
    return {URL: url, PLACE: place}


def _invalid(url: str, reason: str) -> Exception:
    return error(Code.INVALID_LOCATION, url=url, reason=reason)
