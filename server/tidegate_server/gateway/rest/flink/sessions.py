"""The sessions that Flink's clients opened, by the handles that they got."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.dialects import DIALECT_OPTION
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import Identity, Peer
from tidegate_server.gateway.options import DESCRIBE_KEY
from tidegate_server.gateway.rest.flink.pages import Pages
from tidegate_server.gateway.session.configuration import normalise
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.operation import Operation
from tidegate_server.gateway.session.session import Session

_DEFAULTS: Final[Mapping[str, str]] = {"execution.runtime-mode": "batch"}
"""What clients read to display results: all of them are bounded."""
_SETTINGS: Final[Mapping[str, str]] = {DIALECT_OPTION: "flink", DESCRIBE_KEY: "flink"}
"""Settings of a session, unless its client or the server's configuration has others."""
READ_BY_CLIENT: Final = ("sql-client.", "execution.runtime-mode")
"""Prefixes of settings that Flink's clients read themselves."""
_PASSED_ON: Final = (
    *("spark.", "hive.", "set:", "use:", "tidegate.", "sql.dialect", "sql-client."),
    *("materialized-table.", "table.", "execution.", "partition.field", "constraint.enforce"),
)
"""Prefixes of properties that are settings here; others belong to Flink's client."""


@dataclass(slots=True, kw_only=True)
class FlinkSession:
    """A session and what its client needs besides."""

    handle: str
    session: Session
    properties: Mapping[str, str]
    """What the client sent for itself, such as ``rest.port``; only returned to it."""
    pages: dict[bytes, Pages] = field(default_factory=dict)
    """The results that are being fetched, by operation."""

    def settings(self) -> Mapping[str, str]:
        """Return the settings in effect, for the client to read its own ones."""
        own = self.session.state.settings
        return {**_DEFAULTS, **self.properties, **own}

    def operation(self, handle: str) -> Operation:
        """Return one of the session's operations, and mark it as used.

        :raises ServerError: INVALID_OPERATION_HANDLE.
        """
        guid = _guid(handle)
        operation = None if guid is None else self.session.find(guid)
        if operation is None:
            raise error(Code.INVALID_OPERATION_HANDLE, handle=handle)
        operation.touch()
        return operation

    def pages_of(self, operation: Operation, make: Callable[[], Pages]) -> Pages:
        """Return the pages of an operation, made when they are first asked for."""
        guid = operation.handle.guid
        if guid not in self.pages:
            for closed in [each for each in tuple(self.pages) if self.session.find(each) is None]:
                self.pages.pop(closed, None)
        return self.pages.get(guid) or self.pages.setdefault(guid, make())

    def release(self, operation: Operation) -> None:
        """Close an operation; blocks briefly."""
        self.pages.pop(operation.handle.guid, None)
        self.session.release(operation)


class FlinkSessions:
    """Opens sessions and finds them again.

    A handle here is not the id of the session, which logs and administrators see, but a secret.
    """

    def __init__(self, config: Config, sessions: SessionManager, access: Access) -> None:
        self._config = config
        self._sessions = sessions
        self._access = access
        self._connection_id = sessions.connect()
        """All calls share one connection, which never ends: sessions end by a call or idle."""
        self._open: dict[bytes, FlinkSession] = {}
        self._lock = threading.Lock()

    def open(self, identity: Identity, peer: Peer, properties: Mapping[str, str]) -> FlinkSession:
        """Open a session of a user; blocks, since it may ask the engine.

        :raises ServerError: like :meth:`SessionManager.open`; PROXY_REFUSED.
        """
        self._forget_closed()
        settings, others = split_properties(properties)
        settings = {
            **{k: v for k, v in _SETTINGS.items() if k not in self._config.options},
            **settings,
        }
        other = normalise(settings).proxy_user or ""
        session = self._sessions.open(
            self._access.effective_user(identity, other, peer),
            settings,
            self._connection_id,
            real_user=identity.user,
            groups=identity.groups,
            address=peer.address,
        )
        session.state.read_by_client = READ_BY_CLIENT
        opened = FlinkSession(handle=str(uuid.uuid4()), session=session, properties=others)
        with self._lock:
            self._open[uuid.UUID(opened.handle).bytes] = opened
        return opened

    def find(self, handle: str, identity: Identity) -> FlinkSession:
        """Return a session and mark it as used; another user's is not found.

        :raises ServerError: INVALID_SESSION_HANDLE.
        """
        guid = _guid(handle)
        found = None if guid is None else self._open.get(guid)
        if found is None or (identity.proven and identity.user != found.session.real_user):
            raise error(Code.INVALID_SESSION_HANDLE, handle=handle)
        try:
            self._sessions.get(found.session.handle, self._connection_id)
        except ServerError:
            self._forget_closed()
            raise error(Code.INVALID_SESSION_HANDLE, handle=handle) from None
        return found

    def close(self, session: FlinkSession) -> None:
        """Close a session and its operations; blocks briefly."""
        with self._lock:
            self._open.pop(uuid.UUID(session.handle).bytes, None)
        self._sessions.close(session.session)

    def _forget_closed(self) -> None:
        """Forget sessions that were closed because they were idle."""
        known = set(self._sessions.sessions())
        with self._lock:
            self._open = {guid: each for guid, each in self._open.items() if each.session in known}


def split_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that are settings here, and those of Flink's client alone.

    A client sends its whole configuration file: ports, directories and memory of a Flink cluster.
    """
    settings = {k: v for k, v in properties.items() if k.lower().startswith(_PASSED_ON)}
    return settings, {k: v for k, v in properties.items() if k not in settings}


def _guid(handle: str) -> bytes | None:
    try:
        return uuid.UUID(handle).bytes
    except ValueError:
        return None
