"""Judges paths by the external locations that contain them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidegate_server.core.model.access import Access, Act
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.locations import contains
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.authorization.requirements import (
    ALLOWED_BY,
    access_error,
    feature_error,
    require_on,
)
from tidegate_server.gateway.authorization.rights import Action, Rights, secured_external
from tidegate_server.gateway.context import Services

_ACTIONS: Mapping[Act, Action] = {
    Act.READ: Action.READ_FILES,
    Act.WRITE: Action.WRITE_FILES,
    Act.CREATE: Action.CREATE_EXTERNAL_TABLE,
}
_WAYS = (
    "An administrator can create an external location that contains it, of which {privilege} can "
    "be granted; or allow all paths: {feature}"
)


def external_locations(services: Services) -> tuple[ExternalObject, ...]:
    """Return all external locations."""
    return services.external.all(SecuredKind.EXTERNAL_LOCATION)


def readable_places(rights: Rights | None, services: Services) -> tuple[str, ...]:
    """Return the directories whose files a user may read."""
    if rights is None:
        return ()
    return tuple(
        location.place
        for location in external_locations(services)
        if rights.may(Action.READ_FILES, secured_external(location))
    )


def require_path(
    access: Access,
    user: str,
    rights: Rights | None,
    locations: Iterable[ExternalObject],
    features: Collection[str],
) -> None:
    """Require that a user may do something with the files of a path.

    The grants on the external location that contains the path decide; a path in none of them needs
    a feature. The error names only a location that the user may see.

    :param rights: those of the user; None if authorization is disabled.
    :raises ServerError: ACCESS_DENIED.
    """
    feature = "paths" if access.act is Act.READ else "locations"
    if rights is None:
        if feature not in features:
            raise feature_error(feature, access.name, user)
        return
    action = _ACTIONS[access.act]
    for location in locations:
        if contains(location.place, access.name):
            on = secured_external(location)
            if rights.may(Action.SEE, on):
                require_on(action, on, user, rights)
                return
            break
    else:
        if feature in features:
            return
    hint = _WAYS.format(privilege=action.value, feature=ALLOWED_BY.format(feature=feature))
    raise access_error(user, action.value, f"path {access.name}", hint)
