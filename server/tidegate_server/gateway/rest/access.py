"""Who may call the HTTP port, checked before a call is processed."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.auth.access import UNCHECKED, Access
from tidegate_server.gateway.auth.base import Identity, Peer, is_loopback
from tidegate_server.gateway.auth.headers import Login, check_login, read_authorization
from tidegate_server.gateway.rest.problems import errors_response, is_flinks, problem_response
from tidegate_server.gateway.rest.requests import client_address

OPEN_PATHS: Final = ("/health/live", "/health/ready")
"""Paths that anyone may call, such as load balancers."""
TOKEN: Final = "TOKEN"
"""The method of a login with ``server.http_token``."""

_LOG_IN: Final = (
    "Flink's clients send the header that the environment variable FLINK_REST_CLIENT_HEADERS has: "
    "Authorization:Basic <base64 of user:password>, or Authorization:Bearer <token>."
)


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
    """Return why a call is rejected, or None; pure. Flink's interface has logins besides.

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
    if path in OPEN_PATHS or is_flinks(path):
        return None
    if server.http_token:
        if not _has_token(config, headers):
            return _login_error("A bearer token is required", "Send Authorization: Bearer <token>.")
    elif server.auth not in UNCHECKED:
        hint = "Set server.http_token in the server's configuration."
        return _login_error("Authentication is enabled, but no token is set for this port", hint)
    return None


def read_login(config: Config, access: Access, headers: Headers) -> Login:
    """Return who calls Flink's interface, or what is to be checked; pure.

    The port's token stands for ``server.http_user``. Without login checks a name is taken as it is
    given, as on the Thrift port.

    :raises ServerError: LOGIN_REFUSED, or INVALID_REQUEST for a name that no user can have.
    """
    server = config.server
    if server.http_token and _has_token(config, headers):
        if access.checks and not config.authorization.enabled:
            reason = "The token of this port does not open sessions unless privileges are checked"
            raise _login_error(reason, "Log in as a user, or set authorization.enabled.")
        return Identity(user=server.http_user, method=TOKEN)
    if not access.checks and server.http_token:
        raise _login_error("A bearer token is required", _LOG_IN)
    return read_authorization(headers.get("authorization", ""), access, _LOG_IN)


class Guard:
    """The outermost layer of the application: passes a call on or rejects it."""

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        access: Access,
        on_rejected: Callable[[str, ServerError], None],
    ) -> None:
        """``on_rejected`` gets the client's address and the reason of each rejection, except those
        of logins with a password or a token of a user, which ``access`` reports itself.
        """
        self._app = app
        self._config = config
        self._access = access
        self._on_rejected = on_rejected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        if scope["type"] == "http":
            problem = await self._rejection(scope)
            if problem is not None:
                respond = errors_response if is_flinks(scope["path"]) else problem_response
                answer = respond(problem)
        await answer(scope, receive, send)

    async def _rejection(self, scope: Scope) -> ServerError | None:
        """Return why a call is rejected; otherwise attach who calls Flink's interface."""
        path, headers = scope["path"], Headers(scope=scope)
        address = client_address(scope.get("client"))
        problem = refusal(self._config, path, headers)
        login = None
        if problem is None and is_flinks(path):
            try:
                login = read_login(self._config, self._access, headers)
            except ServerError as failed:
                problem = failed
        if problem is not None:
            self._on_rejected(address, problem)
        if login is None:
            return problem
        peer = Peer(address=address, encrypted=scope.get("scheme") == "https")
        try:
            identity = await check_login(login, self._access, peer)
        except ServerError as failed:
            return failed
        scope.setdefault("state", {})["identity"] = identity
        return None


def _has_token(config: Config, headers: Headers) -> bool:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    known = hmac.compare_digest(token.strip().encode(), config.server.http_token.encode())
    return known and scheme.lower() == "bearer"


def _login_error(reason: str, hint: str = "") -> ServerError:
    return error(Code.LOGIN_REFUSED, reason=reason, hint=hint)


def _name(host: str) -> str:
    """Return a Host header without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
