"""Who may call the HTTP port, checked before a call is processed."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.auth.access import UNCHECKED
from tidegate_server.gateway.auth.base import is_loopback
from tidegate_server.gateway.rest.problems import problem_response

OPEN_PATHS: Final = ("/health/live", "/health/ready")
"""Paths that anyone may call, such as load balancers."""


def check_exposure(config: Config) -> None:
    """Refuse to listen where anyone could call without a token, or read one in transit.

    :raises ServerError: INSECURE_ADDRESS or INSECURE_PASSWORDS.
    """
    server = config.server
    if server.rest_port is None or is_loopback(server.host):
        return
    where = server.host or "every address"
    if not server.http_token and server.auth in UNCHECKED and not server.insecure:
        raise error(Code.INSECURE_ADDRESS, host=where)
    if server.http_token and not config.tls.certificate and not server.plaintext_passwords:
        raise error(Code.INSECURE_PASSWORDS, method=server.auth, host=where)


def refusal(config: Config, path: str, headers: Headers) -> ServerError | None:
    """Return why a call is rejected, or None; pure.

    A web page open on this machine can reach a loopback address, through a link or through a host
    name that resolves to it. Calls with a foreign origin or host name are therefore rejected.
    """
    server = config.server
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return _login_error(f"Cross-origin requests from {origin} are not allowed")
    if is_loopback(server.host) and not is_loopback(_name(host)):
        name = _name(host)
        reason = f"The Host header {name} is unexpected" if name else "The Host header is missing"
        return _login_error(reason)
    if path in OPEN_PATHS:
        return None
    if server.http_token:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        known = hmac.compare_digest(token.strip().encode(), server.http_token.encode())
        if scheme.lower() != "bearer" or not known:
            return _login_error("A bearer token is required", "Send Authorization: Bearer <token>.")
    elif server.auth not in UNCHECKED:
        hint = "Set server.http_token in the server's configuration."
        return _login_error("Authentication is enabled, but no token is set for this port", hint)
    return None


class Guard:
    """The outermost layer of the application: passes a call on or rejects it."""

    def __init__(
        self, app: ASGIApp, config: Config, on_rejected: Callable[[str, ServerError], None]
    ) -> None:
        """``on_rejected`` is called with the client's address and the reason of each rejection."""
        self._app = app
        self._config = config
        self._on_rejected = on_rejected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        if scope["type"] == "http":
            problem = refusal(self._config, scope["path"], Headers(scope=scope))
            if problem is not None:
                self._on_rejected(client_address(scope.get("client")), problem)
                answer = problem_response(problem)
        await answer(scope, receive, send)


def client_address(client: tuple[str, int] | None) -> str:
    """Return the address of a client as ASGI names it; empty if it is unknown."""
    return "" if client is None else client[0]


def _login_error(reason: str, hint: str = "") -> ServerError:
    return error(Code.LOGIN_REFUSED, reason=reason, hint=hint)


def _name(host: str) -> str:
    """Return a Host header without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
