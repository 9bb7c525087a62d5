"""Which features beyond tables a user may use."""

from __future__ import annotations

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import Hazard
from tidegate_server.core.model.access import Features
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import CATALOG_KINDS, EXTERNAL_KINDS, SecuredKind
from tidegate_server.gateway.authorization.rights import (
    USING,
    Action,
    Rights,
    secured_external,
)
from tidegate_server.gateway.authorization.users import is_administrator, rights_of
from tidegate_server.gateway.context import Services

_CONNECTIONS: Hazard = "connections"
_UNCHECKED = ("NONE", "NOSASL")


def allowed_features(user: str, services: Services) -> Features | None:
    """Return what a user may use beyond tables; None for everything."""
    if not distinguishes_users(services.config) or is_administrator(user, services):
        return None
    if not any(map(services.external.all, EXTERNAL_KINDS)):  # the rights are not needed
        return Features(names=services.config.authorization.allow)
    return features_of(rights_of(user, services), services)


def features_of(rights: Rights | None, services: Services) -> Features:
    """Return what a user with these rights may use beyond tables."""
    return Features(
        names=services.config.authorization.allow,
        readable=readable_places(rights, services),
        catalogs=usable_catalogs(rights, services),
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


def usable_catalogs(
    rights: Rights | None, services: Services, *, everything: bool = False
) -> tuple[str, ...]:
    """Return the names of the catalogs and connections that a user may use."""
    found = [each for kind in CATALOG_KINDS for each in services.external.all(kind)]
    if everything:
        return tuple(each.name for each in found)
    if rights is None:
        allowed = _CONNECTIONS in services.config.authorization.allow
        return tuple(each.name for each in found if allowed or each.is_alias)
    return tuple(
        each.name
        for each in found
        if each.is_alias or rights.may(USING[each.kind], secured_external(each))
    )


def may_use(feature: Hazard, services: Services, user: str) -> bool:
    """Return whether a user may use a feature."""
    if not distinguishes_users(services.config) or is_administrator(user, services):
        return True
    return feature in services.config.authorization.allow


def distinguishes_users(config: Config) -> bool:
    """Return whether users matter: authorization is enabled, or logins are checked."""
    return config.authorization.enabled or config.server.auth not in _UNCHECKED
