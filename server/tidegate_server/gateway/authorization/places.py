"""Judges paths by the external locations that contain them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidegate_server.core.model.access import Access, Act
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.locations import contains
from tidegate_server.gateway.authorization.requirements import (
    ALLOWED_BY,
    access_error,
    feature_error,
    require_on,
)
from tidegate_server.gateway.authorization.rights import Action, Rights, secured_external

_ACTIONS: Mapping[Act, Action] = {
    Act.READ: Action.READ_FILES,
    Act.WRITE: Action.WRITE_FILES,
    Act.CREATE: Action.CREATE_EXTERNAL_TABLE,
}
_WAYS = (
    "An administrator can create an external location that contains it, of which {privilege} can "
    "be granted; or allow all paths: {feature}"
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
