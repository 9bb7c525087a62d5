"""One port for all transports, which are recognized by a connection's first byte."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Final

from tidegate.wire.sasl import SaslError
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.auth.access import Access, check_exposure
from tidegate_server.gateway.auth.base import Peer
from tidegate_server.gateway.protocol.answer import Answerer, refusal
from tidegate_server.gateway.protocol.channel import (
    BEFORE_LOGIN_BYTES,
    BareChannel,
    Channel,
    ConnectionLostError,
    run_unless_lost,
)
from tidegate_server.gateway.protocol.handler import Caller, Handler
from tidegate_server.gateway.protocol.http import HttpTransport
from tidegate_server.gateway.protocol.listen import (
    Streams,
    accept,
    bind,
    bind_socket,
    open_streams,
)
from tidegate_server.gateway.protocol.negotiate import linger, negotiate
from tidegate_server.gateway.protocol.reply_cache import CachedReplier
from tidegate_server.gateway.protocol.scan import FrameError, Message
from tidegate_server.gateway.protocol.tls import load_certificates
from tidegate_server.gateway.session.manager import SessionManager

logger = logging.getLogger(__name__)

_SWEEP: Final = 1.0
_SASL_START = b"\x01"
_BARE_BINARY: Final = (b"\x80", b"\x00")
"""First bytes of a strict header, and of one without a version: the length of a call's name."""
_HTTP_METHODS: Final = tuple(bytes([letter]) for letter in b"GPHDOCT")
"""The first letters of GET, POST, PUT, PATCH, HEAD, DELETE, OPTIONS, CONNECT and TRACE."""


class ThriftServer:
    """Listens on one port and serves each connection in a task of its own."""

    def __init__(self, config: Config, sessions: SessionManager, access: Access) -> None:
        """``stop`` also shuts ``sessions`` down.

        :raises ServerError: INSECURE_ADDRESS, INSECURE_PASSWORDS or TLS_CONFIGURATION.
        """
        check_exposure(config)
        self._settings = config.server
        self._require_tls = config.tls.require
        self._certificates = load_certificates(config.tls)
        self._sessions = sessions
        self._access = access
        self._answerer = Answerer(Handler(config.server, sessions, access))
        self._http = HttpTransport(config, access, self._answerer, sessions.connect())
        self._listening: list[socket.socket] = []
        self._sweeping: list[asyncio.Task[None]] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._unserved: set[socket.socket] = set()
        """Connections whose task has not started, so that canceling it would not close them."""

    async def start(self) -> tuple[str, int]:
        """Listen, and return the actual host and port, which mean nothing on a Unix socket.

        :raises OSError: if the address or the socket cannot be used.
        """
        host, port, path = self._settings.host, self._settings.port, self._settings.socket
        self._listening = bind_socket(Path(path)) if path else await bind(host, port)
        for listening in self._listening:
            accept(listening, self._start_connection)
        self._sweeping = [asyncio.create_task(self._sweep())]
        if path:
            logger.info("Listening for HiveServer2 clients on %s", path)
            return host, port
        host, port = self._listening[0].getsockname()[:2]
        secured = " (TLS)" if self._certificates else ""
        logger.info("Listening for HiveServer2 clients on %s:%s%s", host, port, secured)
        return str(host), int(port)

    async def stop(self) -> None:
        """Stop listening, end every connection and close every session."""
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        if self._listening and self._settings.socket:
            Path(self._settings.socket).unlink(missing_ok=True)
        ending = [*self._sweeping, *self._connections]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for connection in self._unserved:
            connection.close()
        self._access.logins.close()
        await asyncio.to_thread(self._sessions.shutdown)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            try:
                await loop.run_in_executor(self._sessions.executor.short, self._sessions.sweep)
            except Exception:
                logger.exception("Closing expired sessions failed; the next sweep retries")

    def _start_connection(self, connection: socket.socket, address: str) -> None:
        self._unserved.add(connection)
        task = asyncio.create_task(self._run_connection(connection, address))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _run_connection(self, connection: socket.socket, name: str) -> None:
        self._unserved.discard(connection)
        connection_id = self._sessions.connect()
        try:
            await self._serve(connection, name, connection_id)
        except (ConnectionLostError, ConnectionError):
            logger.debug("Connection of %s ended", name)
        except TimeoutError:
            logger.info("Connection of %s closed: its next request timed out", name)
        except (FrameError, SaslError) as error:
            logger.info("Connection of %s closed: %s", name, error)
        except ssl.SSLError as error:
            logger.info("Connection of %s closed: TLS failed: %s", name, error.reason)
        except Exception:
            logger.exception("Connection of %s failed inside the server", name)
        finally:
            self._sessions.disconnect(connection_id)

    async def _serve(self, connection: socket.socket, address: str, connection_id: int) -> None:
        async with asyncio.timeout(self._settings.login_timeout) as login:
            streams = await open_streams(connection, address, self._certificates)
            caller = Caller(connection_id, streams.peer)
            try:
                first = await streams.reader.read(1)
                if first in _HTTP_METHODS:
                    login.reschedule(None)
                    await self._http.serve(streams, first, self._objection(streams.peer))
                    return
                channel = await self._open_channel(streams, caller, first)
                message = await self._first_message(streams, channel, caller)
                login.reschedule(None)
                await self._converse(streams, channel, caller, message)
            finally:
                streams.writer.close()

    async def _open_channel(self, streams: Streams, caller: Caller, first: bytes) -> Channel:
        """Return the binary channel that the first byte requests; authenticates the caller."""
        if not first:
            raise ConnectionLostError
        if first in _BARE_BINARY:
            return BareChannel(streams.reader, streams.writer, first)
        if first == _SASL_START:
            objection = self._objection(streams.peer) or self._sasl_objection()
            return await negotiate(streams, caller, self._access, objection)
        raise FrameError(f"no supported protocol begins with the byte {first[0]:#04x}")

    async def _first_message(self, streams: Streams, channel: Channel, caller: Caller) -> Message:
        message = await channel.receive(self._limit(caller))
        objection = self._objection(streams.peer)
        if objection is None and self._access.checks and not caller.identity.proven:
            hint = "Connect with SASL, that is without auth=noSasl, or over HTTP."
            reason = "This server requires authentication"
            objection = error(Code.LOGIN_REFUSED, reason=reason, hint=hint)
        if objection is not None:
            await channel.send(refusal(message, objection))
            await linger(streams)
            raise FrameError(objection.message)
        return message

    async def _converse(
        self, streams: Streams, channel: Channel, caller: Caller, message: Message
    ) -> None:
        while True:
            reply = self._answerer.immediate_reply(message, caller)
            if reply is None:
                reply = await run_unless_lost(
                    self._answerer.answer(message, caller), streams.reader
                )
            await channel.send(reply)
            streams.reader.expect(self._cached_replier(streams, channel, caller))
            message = await channel.receive(self._limit(caller))
            streams.reader.expect(None)  # bytes from now on are queued

    def _cached_replier(
        self, streams: Streams, channel: Channel, caller: Caller
    ) -> CachedReplier | None:
        call = self._answerer.repeated_call(caller, channel.header)
        return None if call is None else CachedReplier(call, streams.writer.transport)

    def _limit(self, caller: Caller) -> int:
        if caller.has_session:
            return self._settings.max_request_bytes
        return min(BEFORE_LOGIN_BYTES, self._settings.max_request_bytes)

    def _objection(self, peer: Peer) -> ServerError | None:
        """Return the reason to reject a connection from the peer."""
        if self._require_tls and not peer.encrypted:
            reason = "This server only accepts encrypted connections"
            return error(Code.LOGIN_REFUSED, reason=reason, hint="Connect with ssl=true.")
        return None

    def _sasl_objection(self) -> ServerError | None:
        if self._access.method == "NOSASL":
            reason = "This server does not accept SASL"
            return error(Code.LOGIN_REFUSED, reason=reason, hint="Connect with auth=noSasl.")
        return None
