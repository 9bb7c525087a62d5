"""Third-party authenticators, loaded by entry point or by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.plugins import find_plugin
from tidegate_server.gateway.auth.base import Authenticator

GROUP: Final = "tidegate.authenticators"
"""The entry-point group in which packages offer authenticators."""


def load_authenticator(name: str, options: Mapping[str, str]) -> Authenticator:
    """Build an authenticator from the name of an entry point, or from ``module:Class``.

    The named object is called with ``options`` and must return an :class:`Authenticator`.

    :raises ServerError: LOGIN_CONFIGURATION if it cannot be loaded, or returns something else.
    """
    authenticator = _find(name)(options)
    if not callable(getattr(authenticator, "authenticate", None)):
        raise _configuration_error(f"{name} returns an object without a method authenticate")
    return cast(Authenticator, authenticator)


def _find(name: str) -> Any:
    try:
        found = find_plugin(name, GROUP)
    except (ImportError, AttributeError) as problem:
        raise _configuration_error(f"{name} cannot be loaded: {problem}") from problem
    if found is None:
        raise _configuration_error(f"no package offers {name!r} in the entry points {GROUP}")
    return found


def _configuration_error(reason: str) -> ServerError:
    hint = "Name an entry point, or write module:Class."
    return error(Code.LOGIN_CONFIGURATION, what="login.custom", reason=reason, hint=hint)
