"""Who may use catalogs and connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.authorization.requirements import (
    access_error,
    feature_error,
    require_on,
)
from tidegate_server.gateway.authorization.rights import (
    USING,
    Action,
    Rights,
    secured_external,
)
from tidegate_server.gateway.authorization.users import owner_administers, rights_of_owner
from tidegate_server.gateway.context import Services

_FEATURE = "connections"
KINDS: Final[Mapping[ObjectKind, SecuredKind]] = {
    ObjectKind.CONNECTION: SecuredKind.CONNECTION,
    ObjectKind.CATALOG: SecuredKind.CATALOG,
}


def may_use_catalog(catalog: ExternalObject, user: str, services: Services) -> bool:
    """Return whether an executor, which may be a role, has the privilege to use a catalog."""
    if catalog.is_alias:
        return True
    rights = rights_of_owner(user, services)
    if rights is None:
        return _FEATURE in services.config.authorization.allow or owner_administers(user, services)
    return rights.may(USING[catalog.kind], secured_external(catalog))


def require_catalog(access: Access, user: str, rights: Rights | None, services: Services) -> None:
    """Require the privilege to use a catalog or connection; to change something there also MODIFY.

    :param rights: the user's; None if authorization is disabled: then the feature decides.
    :raises ServerError: ACCESS_DENIED.
    """
    if rights is None:
        if _FEATURE not in services.config.authorization.allow:
            raise feature_error(_FEATURE, access.name, user)
        return
    kind = KINDS[access.kind]
    found = find_external(kind, access.name, services)
    if found is None:
        raise access_error(user, USING[kind].value, f"{kind} {access.name}")
    on = secured_external(found)
    require_on(USING[kind], on, user, rights)
    if access.act is Act.MODIFY:
        require_on(Action.MODIFY, on, user, rights)
