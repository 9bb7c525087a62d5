"""Serves the application on a thread with its own event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from tidegate_server.core.config import Config

logger = logging.getLogger(__name__)

_PATIENCE = 3
"""Seconds that running calls get to finish when the gateway stops."""
_BACKLOG = 128


class HttpListener:
    """Listens between :meth:`start` and :meth:`stop`.

    It does not share the Thrift port's event loop, so that a scrape cannot delay clients.
    """

    def __init__(self, config: Config, app: ASGIApp) -> None:
        self._config = config
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_PATIENCE,
                ssl_certfile=config.tls.certificate or None,
                ssl_keyfile=config.tls.key or None,
            )
        )
        self._thread: threading.Thread | None = None

    def start(self, port: int) -> int:
        """Listen, and return the actual port.

        :raises OSError: if the address cannot be used.
        """
        host = self._config.server.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Bound here and not on the loop's thread, so that the caller gets the error.
        try:
            listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="http-listener", daemon=True
        )
        self._thread.start()
        number = int(listening.getsockname()[1])
        logger.info("Listening for HTTP calls on %s:%s", host, number)
        return number

    def stop(self) -> None:
        """Accept no more calls, and wait briefly for running ones."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_PATIENCE + 2)

    def _run(self, listening: socket.socket) -> None:
        with listening:
            asyncio.run(self._server.serve(sockets=[listening]))
