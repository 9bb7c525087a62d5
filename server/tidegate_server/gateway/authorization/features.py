"""Which features beyond tables a user may use."""

from __future__ import annotations

from tidegate_server.core.config import Config, Hazard
from tidegate_server.gateway.authorization.users import is_administrator
from tidegate_server.gateway.context import Services

_UNCHECKED = ("NONE", "NOSASL")


def allowed_features(user: str, services: Services) -> tuple[str, ...] | None:
    """Return the features beyond tables that a user may use; None for all."""
    if not distinguishes_users(services.config) or is_administrator(user, services):
        return None
    return services.config.authorization.allow


def may_use(feature: Hazard, services: Services, user: str) -> bool:
    features = allowed_features(user, services)
    return features is None or feature in features


def distinguishes_users(config: Config) -> bool:
    """Return whether users matter: authorization is enabled, or logins are checked."""
    return config.authorization.enabled or config.server.auth not in _UNCHECKED
