"""The listening side: asyncio sockets, first-byte sniffing and framing."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

from tidegate.wire import sasl
from tidegate.wire.service import (
    CALLS,
    TApplicationException,
    TMessageType,
    args_class,
    decode_struct,
    encode_message,
    result_class,
)
from tidegate_server.config import Config
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.protocol.handler import Caller, Encoded, Handler
from tidegate_server.protocol.scan import CALL, FrameError, Message, MessageScanner
from tidegate_server.session.manager import SessionManager

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEFORE_LOGIN_BYTES: Final = 64 << 10
"""The longest request taken on a connection that has no session yet."""
_READ_SIZE: Final = 64 << 10
_LOST_CHECK: Final = 1.0
_SWEEP: Final = 1.0

_SASL_START, _BARE_BINARY, _TLS_HANDSHAKE = 0x01, 0x80, 0x16
_HTTP_FIRST_BYTES: Final = b"GPHDOCT"
_HTTP_TEXT: Final = (
    b"This port speaks HiveServer2's Thrift protocol in its binary form, not HTTP.\n"
    b"Connect with jdbc:hive2://host:port/ without transportMode=http.\n"
)
_SUCCESS_FIELD: Final = struct.pack(">bh", 12, 0)
_STOP: Final = b"\x00"


def check_bind(config: Config) -> None:
    """Refuse to listen where strangers could come in without a password.

    :raises ServerError: INSECURE_ADDRESS.
    """
    server = config.server
    if not server.insecure and not _is_loopback(server.host):
        raise error(Code.INSECURE_ADDRESS, host=server.host or "every address")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, which may mean any address


class ConnectionLostError(Exception):
    """The client went away in the middle of something."""


class Channel(Protocol):
    """A connection's messages, whatever stands around them."""

    async def receive(self, limit: int) -> Message:
        """Return the next request.

        :raises ConnectionLostError: at the end of the stream.
        :raises FrameError: if what came is no request of at most ``limit`` bytes.
        """
        ...

    async def send(self, payload: bytes) -> None:
        """Send one whole message."""
        ...


class BareChannel:
    """TBinaryProtocol without any framing (NOSASL)."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b""
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._scanner = MessageScanner(BEFORE_LOGIN_BYTES)
        self._scanner.feed(first)

    async def receive(self, limit: int) -> Message:
        self._scanner.max_bytes = limit
        while (message := self._scanner.next_message()) is None:
            self._scanner.feed(await self._more(limit))
        return message

    async def send(self, payload: bytes) -> None:
        self._writer.write(payload)
        await self._writer.drain()

    async def _more(self, limit: int) -> bytes:
        data = await self._reader.read(_READ_SIZE)
        if not data:
            raise ConnectionLostError
        return data


class SaslChannel(BareChannel):
    """TBinaryProtocol in SASL's data frames; a message may span several of them."""

    async def send(self, payload: bytes) -> None:
        self._writer.writelines((struct.pack(">i", len(payload)), payload))
        await self._writer.drain()

    async def _more(self, limit: int) -> bytes:
        try:
            header = await self._reader.readexactly(sasl.DATA_HEADER)
            length = sasl.parse_data_header(header, limit=limit)
            return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ConnectionLostError from None
        except sasl.SaslError as problem:
            raise FrameError(str(problem)) from None


class ThriftServer:
    """Listens on one port and serves each connection in a task of its own."""

    def __init__(self, config: Config, sessions: SessionManager) -> None:
        """Take the configuration and the sessions, which ``stop`` shuts down.

        :raises ServerError: INSECURE_ADDRESS.
        """
        check_bind(config)
        self._settings = config.server
        self._sessions = sessions
        self._handler = Handler(config.server, sessions)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return the host and the port really taken.

        :raises OSError: if the address cannot be had.
        """
        self._server = await asyncio.start_server(
            self._accept, self._settings.host, self._settings.port, limit=4 * _READ_SIZE
        )
        self._sweeper = asyncio.create_task(self._sweep())
        host, port = self._server.sockets[0].getsockname()[:2]
        logger.info("Listening for HiveServer2 clients on %s:%s", host, port)
        return str(host), int(port)

    async def stop(self) -> None:
        """Stop listening, end every connection and close every session."""
        if self._server is not None:
            self._server.close()
        ending = [*self._tasks, *([self._sweeper] if self._sweeper else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
        await asyncio.to_thread(self._sessions.shutdown)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            try:
                await loop.run_in_executor(self._sessions.executor.short, self._sessions.sweep)
            except Exception:
                logger.exception("Expired sessions were not closed; the next sweep tries again")

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = Caller(self._sessions.connect())
        peer = writer.get_extra_info("peername")
        try:
            _tune(writer)
            await self._serve(reader, writer, caller)
        except (ConnectionLostError, ConnectionError):
            logger.debug("Connection of %s ended", peer)
        except TimeoutError:
            logger.info("Connection of %s closed: no request within the login timeout", peer)
        except (FrameError, sasl.SaslError) as problem:
            logger.info("Connection of %s closed: %s", peer, problem)
        except Exception:
            logger.exception("Connection of %s failed inside the server", peer)
        finally:
            self._sessions.disconnect(caller.connection_id)
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller
    ) -> None:
        async with asyncio.timeout(self._settings.login_timeout):
            channel = await _open_channel(reader, writer, caller)
            if channel is None:
                return
            message = await channel.receive(self._limit(caller))
        while True:
            reply = self._answer_at_once(message, caller)
            if reply is None:
                reply = await _unless_lost(self._answer(message, caller), reader)
            await channel.send(reply)
            message = await channel.receive(self._limit(caller))

    def _limit(self, caller: Caller) -> int:
        if caller.has_session:
            return self._settings.max_request_bytes
        return min(BEFORE_LOGIN_BYTES, self._settings.max_request_bytes)

    def _answer_at_once(self, message: Message, caller: Caller) -> bytes | None:
        """Return the reply that needs no waiting and so no task; None for all others.

        Hive's JDBC driver asks for the status of a finished operation once per row it reads.
        """
        if message.kind != CALL or message.name != "GetOperationStatus":
            return None
        try:
            response = self._handler.ended_status(_request(message), caller)
        except Exception as problem:
            logger.debug("%s takes the long way: %s", message.name, problem)
            return None
        return None if response is None else _reply(message, response)

    async def _answer(self, message: Message, caller: Caller) -> bytes:
        """Return the reply to a message; whatever it holds, the connection stays in step."""
        if message.kind != CALL:
            return _exception(message, TApplicationException.INVALID_MESSAGE_TYPE, "not a call")
        if message.name not in CALLS:
            text = f"Invalid method name: '{message.name}'"
            return _exception(message, TApplicationException.UNKNOWN_METHOD, text)
        try:
            request = _request(message)
        except Exception as problem:
            text = f"{message.name} cannot be read: {problem}"
            logger.info("%s", text)
            return _exception(message, TApplicationException.PROTOCOL_ERROR, text)
        response = await self._handler.call(message.name, request, caller)
        return _reply(message, response)


async def _open_channel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller
) -> Channel | None:
    """Look at the first byte and return the channel it asks for; None when it was refused."""
    first = await reader.read(1)
    if not first:
        raise ConnectionLostError
    if first[0] == _BARE_BINARY:
        return BareChannel(reader, writer, first)
    if first[0] == _SASL_START:
        return await _negotiate(reader, writer, caller, first)
    if first in (bytes([b]) for b in _HTTP_FIRST_BYTES):
        writer.write(_http_refusal())
        await writer.drain()
        return None
    if first[0] == _TLS_HANDSHAKE:
        raise FrameError("the client wants TLS, which is not configured: connect without ssl=true")
    raise FrameError(f"no protocol of this port begins with the byte {first[0]:#04x}")


async def _negotiate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller, first: bytes
) -> Channel:
    """Carry SASL PLAIN out; without authentication every name and password is taken."""
    mechanism = await _sasl_payload(reader, (sasl.SaslStatus.START,), first)
    if mechanism.upper() != b"PLAIN":
        text = f"mechanism {mechanism.decode('ascii', 'replace')} is not offered; PLAIN is"
        writer.write(sasl.negotiation_frame(sasl.SaslStatus.BAD, text.encode()))
        await writer.drain()
        raise sasl.SaslError(text)
    # Java sends the response as COMPLETE, since PLAIN's client has no more to say after it.
    answers = (sasl.SaslStatus.OK, sasl.SaslStatus.COMPLETE)
    parts = (await _sasl_payload(reader, answers, b"")).split(b"\0")
    if len(parts) != 3:
        text = f"expected 3 parts in the PLAIN response, but {len(parts)} came"
        writer.write(sasl.negotiation_frame(sasl.SaslStatus.BAD, text.encode()))
        await writer.drain()
        raise sasl.SaslError(text)
    caller.user = parts[1].decode("utf-8", "replace")
    writer.write(sasl.negotiation_frame(sasl.SaslStatus.COMPLETE, b""))
    await writer.drain()
    return SaslChannel(reader, writer)


async def _sasl_payload(
    reader: asyncio.StreamReader, expected: tuple[sasl.SaslStatus, ...], first: bytes
) -> bytes:
    try:
        header = first + await reader.readexactly(sasl.NEGOTIATION_HEADER - len(first))
        came, length = sasl.parse_negotiation_header(header, limit=BEFORE_LOGIN_BYTES)
        if came not in expected:
            raise sasl.SaslError(f"expected SASL {expected[0].name}, but {came.name} came")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise ConnectionLostError from None


async def _unless_lost(work: Coroutine[Any, Any, T], reader: asyncio.StreamReader) -> T:
    """Await ``work``, but give it up when the client goes away meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=_LOST_CHECK)
            if done:
                return task.result()
            if reader.at_eof():
                raise ConnectionLostError
    finally:
        task.cancel()


def _request(message: Message) -> Any:
    arguments = decode_struct(args_class(message.name), message.body)
    arguments.req.validate()
    return arguments.req


def _reply(message: Message, response: Any) -> bytes:
    if isinstance(response, ServerError):
        return _exception(message, TApplicationException.INTERNAL_ERROR, str(response))
    if isinstance(response, Encoded):
        head = _message_header(message.name, TMessageType.REPLY, message.sequence)
        return b"".join((head, _SUCCESS_FIELD, response.data, _STOP))
    result = result_class(message.name)(success=response)
    return encode_message(message.name, TMessageType.REPLY, message.sequence, result)


def _exception(message: Message, kind: int, text: str) -> bytes:
    problem = TApplicationException(kind, text)
    return encode_message(message.name, TMessageType.EXCEPTION, message.sequence, problem)


def _message_header(name: str, kind: int, sequence: int) -> bytes:
    encoded = name.encode()
    return struct.pack(f">HBBi{len(encoded)}si", 0x8001, 0, kind, len(encoded), encoded, sequence)


def _http_refusal() -> bytes:
    head = (
        f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(_HTTP_TEXT)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + _HTTP_TEXT


def _tune(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
