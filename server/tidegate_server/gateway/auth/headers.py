"""Logins in the header Authorization, which HTTP and gRPC share."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import ANONYMOUS, Identity, Peer, login_error
from tidegate_server.gateway.auth.logins import is_usable_name


@dataclass(frozen=True, slots=True)
class Password:
    """A name and a password to be checked."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token of a user to be checked."""

    token: str = field(repr=False)


Login = Identity | Password | BearerToken


def read_authorization(header: str, access: Access, hint: str) -> Login:
    """Return who calls, or what is to be checked; pure.

    Without login checks a name is taken as it is given, as on the Thrift port.

    :param header: the value of Authorization; empty if there is none.
    :param hint: how clients of this port log in.
    :raises ServerError: LOGIN_REFUSED, or INVALID_REQUEST for a name that no user can have.
    """
    scheme, _, secret = header.partition(" ")
    match scheme.lower():
        case "basic":
            login = _read_password(secret, hint)
        case _ if not access.checks:
            return ANONYMOUS
        case "bearer":
            return BearerToken(secret.strip())
        case "":
            raise login_error("This server requires authentication", hint)
        case _:
            raise login_error("This Authorization scheme is not supported", hint)
    if access.checks:
        return login
    if login.user and not is_usable_name(login.user):
        raise error(Code.INVALID_REQUEST, reason=f"{login.user[:64]!r} is not a valid user name")
    return Identity(user=login.user, method=access.method, proven=False)


async def check_login(login: Login, access: Access, peer: Peer) -> Identity:
    """Return whose login this is; ``access`` reports rejections itself.

    :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
    """
    match login:
        case Identity():
            return login
        case BearerToken(token):
            return await access.with_bearer(token, peer)
        case Password(user, password):
            secret = f"{user}\0{password}".encode()
            known = access.remembered.find(secret) if access.allows_secrets(peer) else None
            if known is None:
                known = await access.with_password(user, password, peer)
                access.remembered.keep(secret, known)
            return known


def _read_password(secret: str, hint: str) -> Password:
    encoded = secret.strip()
    encoded += "=" * (-len(encoded) % 4)  # Flight's client in Go leaves the padding out
    try:
        decoded = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        raise login_error("The header Authorization is malformed", hint) from None
    user, colon, password = decoded.partition(":")
    if not colon:
        raise login_error("The header Authorization has no password", hint)
    return Password(user, password)
