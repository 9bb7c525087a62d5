"""CREATE EXTERNAL LOCATION and its URL."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import FindPlaces
from tidegate_server.core.model.external import PLACE, URL, ExternalObject
from tidegate_server.core.model.locations import contains, overlap
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.sql.external.statements import (
    CreateExternalLocation,
    SetExternalLocationUrl,
)
from tidegate_server.gateway.authorization.features import external_locations
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.command.external.objects import (
    create_external,
    find,
    require_administrator,
)
from tidegate_server.gateway.command.privileges.grant import require_enabled
from tidegate_server.gateway.context import Context

log = logging.getLogger(__name__)


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
