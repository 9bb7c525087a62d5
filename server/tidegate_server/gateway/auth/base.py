"""The interface of authenticators, and the identities they return."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from tidegate_server.core.errors import Code, ServerError, error

WRONG_CREDENTIALS: Final = "The user name or the password is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Where a connection comes from and whether it is encrypted."""

    address: str
    encrypted: bool = False

    @property
    def private(self) -> bool:
        """Whether a secret may be sent over the connection."""
        return self.encrypted or is_loopback(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user and how it was authenticated; ``user`` is empty for a client that gave no name.

    ``proven`` is False for a name that was claimed but not checked.
    """

    user: str
    method: str
    proven: bool = True
    groups: tuple[str, ...] | None = None
    """The user's groups; None if the method does not report them."""


ANONYMOUS: Final = Identity(user="", method="NONE", proven=False)
"""A client that gave no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticatedUser:
    """A user's name, and the groups that the user belongs to."""

    user: str
    groups: tuple[str, ...]


class Authenticator(Protocol):
    """Checks names and passwords; called from several threads at once.

    A call may block, for example on a directory; it is abandoned after ``login.timeout``. To hide
    which users exist, it must take about as long for an unknown name as for a wrong password.
    """

    def authenticate(self, user: str, password: str) -> str | AuthenticatedUser:
        """Return the user's name as the server is to use it, with groups if they are known.

        :raises ServerError: LOGIN_REFUSED, made by :func:`login_error`, or LOGIN_UNAVAILABLE.
        """
        ...


def login_error(reason: str = WRONG_CREDENTIALS, hint: str = "") -> ServerError:
    """Return the error of a failed login; its reason must not reveal which users exist."""
    return error(Code.LOGIN_REFUSED, reason=reason, hint=hint)


refused: Final = login_error
"""The documented name for authenticators of other packages."""


def is_loopback(host: str) -> bool:
    """Return whether an address, or the name localhost, is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name, which may mean any address
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def host_of(url: str) -> str:
    """Return the host of a URL."""
    return urlsplit(url).hostname or "localhost"
