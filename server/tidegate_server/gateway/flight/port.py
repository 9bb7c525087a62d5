"""Listens for Flight SQL on a port of its own."""

from __future__ import annotations

import logging
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import is_loopback
from tidegate_server.gateway.flight.sessions import FlightSessions
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.session.manager import SessionManager

if TYPE_CHECKING:
    from tidegate_server.gateway.flight.server import FlightSqlServer

logger = logging.getLogger(__name__)

_PATIENCE: Final = 3.0
"""Seconds that running calls get to finish when the gateway stops."""
_METHODS: Final = ("NONE", "NOSASL", "PASSWORD", "LDAP", "CUSTOM", "JWT")
"""The methods of ``server.auth`` that the header authorization can carry."""


class FlightPort:
    """Listens between :meth:`start` and :meth:`stop`, if ``server.flight_port`` is set."""

    def __init__(
        self, config: Config, sessions: SessionManager, access: Access, metrics: Metrics
    ) -> None:
        """Open nothing yet.

        :raises ServerError: FLIGHT_CONFIGURATION if the package is missing or the method of login
            cannot be used.
        """
        self._config = config
        self._wanted = config.server.flight_port
        self._sessions = sessions
        self._access = access
        self._metrics = metrics
        self._server: FlightSqlServer | None = None
        self._thread: threading.Thread | None = None
        if self._wanted >= 0:
            _check(config)

    def start(self) -> int | None:
        """Listen and return the actual port; None if there is none.

        :raises OSError: if the address cannot be used.
        """
        if self._wanted < 0:
            return None
        from tidegate_server.gateway.flight.server import FlightSqlServer

        host = self._config.server.host or "0.0.0.0"
        shown = f"[{host}]" if ":" in host else host
        encrypted = bool(self._config.tls.certificate)
        scheme = "grpc+tls" if encrypted else "grpc"
        sessions = FlightSessions(
            self._sessions, self._access, encrypted=encrypted or is_loopback(host)
        )
        try:
            self._server = FlightSqlServer(
                f"{scheme}://{shown}:{self._wanted}", self._config, sessions, self._metrics
            )
        except Exception as problem:
            raise OSError(f"{shown}:{self._wanted}: {problem}") from problem
        self._thread = threading.Thread(target=self._server.serve, name="flight", daemon=True)
        self._thread.start()
        port = int(self._server.port)
        logger.info("Listening for Flight SQL on %s:%s", shown, port)
        return port

    def stop(self) -> None:
        """Accept no more calls, and wait briefly for running ones."""
        if self._server is not None:
            ending = threading.Thread(target=self._server.shutdown, name="flight-end", daemon=True)
            ending.start()
            ending.join(_PATIENCE)


def _check(config: Config) -> None:
    if config.server.auth not in _METHODS:
        reason = f"clients cannot log in with server.auth = {config.server.auth}"
        hint = f"It can be one of {', '.join(_METHODS)}."
        raise error(Code.FLIGHT_CONFIGURATION, reason=reason, hint=hint)
    if config.server.socket:
        reason = "the server listens on server.socket, which Flight's clients do not know"
        hint = "Remove one of the two settings."
        raise error(Code.FLIGHT_CONFIGURATION, reason=reason, hint=hint)
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        hint = "pip install 'tidegate[server,flight]'"
        raise error(Code.FLIGHT_CONFIGURATION, reason="the package protobuf is missing", hint=hint)
