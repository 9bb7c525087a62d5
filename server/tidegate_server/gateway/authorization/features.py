"""Which features beyond tables a user may use."""

from __future__ import annotations

from tidegate_server.core.config import Config, Hazard
from tidegate_server.core.model.access import Features
from tidegate_server.gateway.authorization.connections import usable_connections
from tidegate_server.gateway.authorization.places import readable_places
from tidegate_server.gateway.authorization.rights import Rights
from tidegate_server.gateway.authorization.users import is_administrator, rights_of
from tidegate_server.gateway.context import Services

_UNCHECKED = ("NONE", "NOSASL")


def allowed_features(user: str, services: Services) -> Features | None:
    """Return what a user may use beyond tables; None for everything."""
    if not distinguishes_users(services.config) or is_administrator(user, services):
        return None
    return features_of(rights_of(user, services), services)


def features_of(rights: Rights | None, services: Services) -> Features:
    """Return what somebody with these rights may use beyond tables."""
    return Features(
        names=services.config.authorization.allow,
        readable=readable_places(rights, services),
        connections=usable_connections(rights, services),
    )


def may_use(feature: Hazard, services: Services, user: str) -> bool:
    """Return whether a user may use a feature."""
    if not distinguishes_users(services.config) or is_administrator(user, services):
        return True
    return feature in services.config.authorization.allow


def distinguishes_users(config: Config) -> bool:
    """Return whether users matter: authorization is enabled, or logins are checked."""
    return config.authorization.enabled or config.server.auth not in _UNCHECKED
