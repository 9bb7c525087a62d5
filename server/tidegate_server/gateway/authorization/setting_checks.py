"""Requires that a user may change or see a setting, or raises ACCESS_DENIED."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import Hazard
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.gateway.authorization.features import distinguishes_users, may_use
from tidegate_server.gateway.authorization.requirements import ALLOWED_BY, access_error
from tidegate_server.gateway.authorization.settings import is_free, is_visible, nearest_free
from tidegate_server.gateway.context import Services

_SUBSTITUTION = "spark.sql.variable.substitute"


_STATIC_SETTINGS: Hazard = "static-settings"


def check_settings(settings: Mapping[str, str], services: Services, user: str) -> None:
    """Reject settings that the user may not change.

    :raises ServerError: ACCESS_DENIED.
    """
    for key in settings:
        if not may_set(key, services, user):
            raise _setting_error(key, user)


def check_visible(key: str, services: Services, user: str) -> None:
    """Reject a setting that the user may not see, whether or not it is set.

    :raises ServerError: ACCESS_DENIED.
    """
    if not may_see(key, services, user):
        raise _setting_error(key, user)


def may_set(key: str, services: Services, user: str) -> bool:
    """Return whether a user may change a setting."""
    return is_free(key) or may_use(_STATIC_SETTINGS, services, user)


def may_see(key: str, services: Services, user: str) -> bool:
    """Return whether a user may see the value of a setting."""
    return is_visible(key) or may_use(_STATIC_SETTINGS, services, user)


def engine_settings(config: Config) -> dict[str, str]:
    """Return the settings that the engine starts with.

    Spark replaces ``${env:X}`` and ``${system:X}`` anywhere in a statement, even in generated ones,
    by the server's environment and the JVM's properties, which often hold secrets. Where users are
    distinguished this is switched off; the gateway substitutes settings itself.
    """
    allowed = _STATIC_SETTINGS in config.authorization.allow
    guarded = {_SUBSTITUTION: "false"} if distinguishes_users(config) and not allowed else {}
    zone = config.session_timezone
    zoned = {} if zone is None else {SESSION_ZONE: zone}
    return {**guarded, **zoned, **config.engine.settings}


def _setting_error(key: str, user: str) -> ServerError:
    near = nearest_free(key)
    hint = f"Did you mean {near}? " if near is not None and near != key else ""
    hint += ALLOWED_BY.format(feature=_STATIC_SETTINGS)
    if not key.lower().startswith("spark."):
        hint += " Variables have names without dots."
    return access_error(user, "administration", f"{_STATIC_SETTINGS}: {key}", hint)
