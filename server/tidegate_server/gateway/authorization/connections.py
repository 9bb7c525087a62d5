"""Who may use connections."""

from __future__ import annotations

from tidegate_server.core.model.access import Access, Act
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.authorization.requirements import (
    access_error,
    feature_error,
    require_on,
)
from tidegate_server.gateway.authorization.rights import Action, Rights, secured_external
from tidegate_server.gateway.authorization.users import owner_administers, rights_of_owner
from tidegate_server.gateway.context import Services

_FEATURE = "connections"


def may_use_connection(connection: ExternalObject, user: str, services: Services) -> bool:
    """Return whether an executor, which may be a role, has the privilege to use a connection."""
    rights = rights_of_owner(user, services)
    if rights is None:
        return _FEATURE in services.config.authorization.allow or owner_administers(user, services)
    return rights.may(Action.USE_CONNECTION, secured_external(connection))


def require_connection(
    access: Access, user: str, rights: Rights | None, services: Services
) -> None:
    """Require USE CONNECTION, and to change something behind a connection also MODIFY.

    :param rights: the user's; None if authorization is disabled: then the feature decides.
    :raises ServerError: ACCESS_DENIED.
    """
    if rights is None:
        if _FEATURE not in services.config.authorization.allow:
            raise feature_error(_FEATURE, access.name, user)
        return
    found = find_external(SecuredKind.CONNECTION, access.name, services)
    if found is None:
        raise access_error(user, Action.USE_CONNECTION.value, f"connection {access.name}")
    on = secured_external(found)
    require_on(Action.USE_CONNECTION, on, user, rights)
    if access.act is Act.MODIFY:
        require_on(Action.MODIFY, on, user, rights)
