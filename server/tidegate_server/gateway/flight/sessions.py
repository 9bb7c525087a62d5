"""The sessions of Flight's clients, by the tokens that they got, or by their connections."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import Identity, Peer, login_error
from tidegate_server.gateway.auth.headers import (
    BearerToken,
    check_login,
    read_authorization,
)
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.session import Session

LOG_IN: Final = "Set the client's user name and password, or send authorization: Bearer <token>."
_MOST_TOKENS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what its session is found by."""

    identity: Identity
    token: str = ""
    """That of its session; empty for that of its connection."""
    fresh: bool = False
    """Whether the token was issued for this call, so that the client has to get it."""


class FlightSessions:
    """Checks logins, opens sessions and finds them again; thread-safe.

    A client that shakes hands gets a token, which it sends with its further calls. Others have a
    session for each connection and user.
    """

    def __init__(self, sessions: SessionManager, access: Access, *, encrypted: bool) -> None:
        self._sessions = sessions
        self._access = access
        # The address of a client is not known yet when its login is checked.
        self._peer = Peer(address="", encrypted=encrypted)
        self._connection_id = sessions.connect()
        """All calls share one connection, which never ends: sessions end by a call or idle."""
        self._callers: dict[str, Identity] = {}
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def log_in(self, header: str, *, handshake: bool) -> Caller:
        """Return who sends a header Authorization, empty for none; blocks while it is checked.

        :param handshake: whether the call is one, whose answer is a token.
        :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
        """
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer":
            if known := self._callers.get(token.strip()):
                return Caller(known, token.strip())
            if not self._access.checks:
                # An old one: its user must not become anonymous.
                raise login_error("The session of this token is closed", LOG_IN)
        login = read_authorization(header, self._access, LOG_IN)
        identity = asyncio.run(check_login(login, self._access, self._peer))
        if isinstance(login, BearerToken):
            return Caller(identity, login.token)
        return self._issue(identity) if handshake else Caller(identity)

    def session(self, caller: Caller, peer: str) -> Session:
        """Return the session of a caller, which its first call opens; blocks.

        :param peer: the client's address, as gRPC writes it.
        :raises ServerError: like :meth:`SessionManager.open`.
        """
        key = _key(caller, peer)
        with self._lock:
            session = self._open.get(key)
        if session is not None:
            try:
                return self._sessions.get(session.handle, self._connection_id)
            except ServerError:
                self._forget_closed()
        opened = self._sessions.open(
            caller.identity.user,
            {},
            self._connection_id,
            real_user=caller.identity.user,
            groups=caller.identity.groups,
            address=address_of(peer),
        )
        with self._lock:
            kept = self._open.setdefault(key, opened)
        if kept is not opened:  # two first calls at once
            self._sessions.close(opened)
        return kept

    def close(self, caller: Caller, peer: str) -> None:
        """Close the session of a caller, if there is one; blocks briefly."""
        with self._lock:
            session = self._open.pop(_key(caller, peer), None)
            self._callers.pop(caller.token, None)
        if session is not None:
            self._sessions.close(session)

    def _issue(self, identity: Identity) -> Caller:
        token = secrets.token_urlsafe(32)
        with self._lock:
            if len(self._callers) >= _MOST_TOKENS:
                unused = [each for each in self._callers if each not in self._open]
                for each in unused or list(self._callers)[:1]:
                    del self._callers[each]
            self._callers[token] = identity
        return Caller(identity, token, fresh=True)

    def _forget_closed(self) -> None:
        """Forget sessions that were closed because they were idle, and their tokens."""
        known = set(self._sessions.sessions())
        with self._lock:
            for key in [key for key, each in self._open.items() if each not in known]:
                del self._open[key]
                self._callers.pop(key, None)


def _key(caller: Caller, peer: str) -> str:
    return caller.token or f"{peer} {caller.identity.user}"


def address_of(peer: str) -> str:
    """Return the address of a peer: ``ipv4:127.0.0.1:50112``, ``ipv6:%5B::1%5D:50112``."""
    address = unquote(peer).partition(":")[2].rpartition(":")[0]
    return address.strip("[]")


def authorization_of(headers: Sequence[str | bytes]) -> str:
    """Return the header's value, empty if there is none.

    :raises ServerError: LOGIN_REFUSED if there are several, or other than ASCII.
    """
    if not headers:
        return ""
    [first, *others] = headers
    try:
        value = first if isinstance(first, str) else first.decode("ascii")
    except UnicodeDecodeError:
        others = [first]
        value = ""
    if others:
        reason = "The header authorization is malformed"
        raise error(Code.LOGIN_REFUSED, reason=reason, hint=LOG_IN)
    return value
