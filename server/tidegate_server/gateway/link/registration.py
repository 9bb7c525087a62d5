"""Accepts engines that run in clusters, and connects their Unix sockets with them.

An agent in the cluster registers with the token of its invitation, which is accepted once, and gets
a credential for its later connections. Everything is encrypted; see :mod:`core.tunnel` for the
protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.core.tunnel import (
    BEAT_SECONDS,
    Accepted,
    Beat,
    Connection,
    End,
    Ended,
    Invitation,
    Open,
    ProtocolError,
    Register,
    Rejected,
    Resume,
    Stream,
    join,
)
from tidegate_server.gateway.link.certificate import certificate_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_LINE_SECONDS = 10.0
_STREAM_SECONDS = 20.0
"""How long a connection of the gateway waits for that of the agent."""
_RETURN_SECONDS = 10.0
"""How long an agent may be without a connection before its engine counts as lost."""
_CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Known:
    """An engine that registered with an earlier process of the gateway."""

    digest: str
    """SHA-256 of its credential, in hexadecimal digits."""


class RemoteEngine:
    """An engine in a cluster, from its invitation to its end; safe for use by many threads."""

    def __init__(self, registrar: Registrar, options: EngineOptions, known: Known | None) -> None:
        """``options`` are sent to a new engine; ``known`` is one to wait for instead."""
        self._registrar = registrar
        self._options = options
        self.token = "" if known else secrets.token_urlsafe(32)
        """Accepted once; empty from then on."""
        self._digest = known.digest if known else ""
        self._control: Connection | None = None
        self._back = asyncio.Event()
        self._lost: asyncio.TimerHandle | None = None
        self._numbers = 0
        self._awaited: dict[int, asyncio.Future[Connection]] = {}
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.registered = threading.Event()
        """Set once its agent has connected."""
        self.ended = threading.Event()
        """Set once it is known to have ended, or is given up."""
        self.reason = ""
        """Why it has ended."""
        self.output = ""
        """The last lines that it wrote, if it has ended by itself."""

    @property
    def digest(self) -> str:
        """By which a later process of the gateway knows it; see :class:`Known`."""
        return self._digest

    def end(self, seconds: float) -> None:
        """Have it end, and wait so many seconds for that; from then on it is rejected."""
        if self.registered.is_set() and not self.ended.is_set() and seconds > 0:
            with contextlib.suppress(OSError, TimeoutError):
                self._registrar.run(self._ask_to_end())
            self.ended.wait(seconds)
        if not self.ended.is_set():
            self._registrar.run(self._give_up("it was stopped"))

    # ---- on the registrar's loop -------------------------------------------------------------

    def accepts(self, token: str) -> bool:
        """Return whether this is its token, which has not been used."""
        return bool(self.token) and hmac.compare_digest(self.token.encode(), token.encode())

    def knows(self, credential: str) -> bool:
        """Return whether this is its credential."""
        return bool(self._digest) and hmac.compare_digest(self._digest, _digest(credential))

    async def listen(self) -> None:
        """Accept connections on the Unix socket of the options, as the engine itself would."""
        folder = Path(self._options.socket).parent
        folder.mkdir(mode=0o700, exist_ok=True)
        self._listener = await asyncio.start_unix_server(self._serve, self._options.socket)

    async def register(self, control: Connection) -> None:
        """Serve its first connection until that breaks."""
        self.token, credential = "", secrets.token_urlsafe(32)
        self._digest = _digest(credential)
        answer = Accepted(self._registrar.gateway, credential, self._options)
        await self._attend(control, answer)

    async def resume(self, control: Connection) -> None:
        """Serve a further connection until that breaks."""
        await self._attend(control, Accepted(self._registrar.gateway))

    def offer(self, number: int, stream: Connection) -> bool:
        """Take a connection that was asked for; False if it is not, or no longer, awaited."""
        awaited = self._awaited.pop(number, None)
        if awaited is None or awaited.done():
            return False
        awaited.set_result(stream)
        return True

    async def _attend(self, control: Connection, answer: Accepted) -> None:
        if self._control is not None:
            await self._control.close()
        await control.send(answer)
        if self._lost is not None:
            self._lost.cancel()
        self._control = control
        self._back.set()
        self.registered.set()
        beats = asyncio.create_task(_beat(control))
        try:
            while True:
                match await control.receive():
                    case Beat():
                        pass
                    case Ended(code=code, output=output):
                        self.output = output
                        await self._give_up(f"exit code {code}")
                        return
                    case line:
                        raise ProtocolError(f"{type(line).__name__} is not expected")
        except (OSError, ProtocolError) as problem:
            logger.info("the connection of an engine in a cluster broke: %s", problem)
        finally:
            beats.cancel()
            if self._control is control:
                self._miss()
            await control.close()

    def _miss(self) -> None:
        """Give it a while to come back."""
        self._control = None
        self._back.clear()
        if not self.ended.is_set():
            loop = asyncio.get_running_loop()
            self._lost = loop.call_later(_RETURN_SECONDS, self._lose)

    def _lose(self) -> None:
        self._spawn(self._give_up("its connection was lost"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._registrar.writers.add(writer)
        with contextlib.suppress(asyncio.CancelledError):  # asyncio would report it as an error
            await self._connect(Connection(reader, writer))

    async def _connect(self, local: Connection) -> None:
        """Join one connection of the gateway to the engine."""
        self._numbers += 1
        number = self._numbers
        awaited: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._awaited[number] = awaited
        try:
            async with asyncio.timeout(_STREAM_SECONDS):
                await self._back.wait()
                if self._control is None:
                    raise ProtocolError("the connection broke")
                await self._control.send(Open(number))
                remote = await awaited
        except (OSError, ProtocolError) as problem:
            logger.info("a connection to an engine in a cluster failed: %s", problem)
            await local.close()
            return
        finally:
            self._awaited.pop(number, None)
        await join(local, remote)

    async def _ask_to_end(self) -> None:
        if self._control is not None:
            await self._control.send(End())

    async def _give_up(self, reason: str) -> None:
        self._registrar.forget(self)
        if self._listener is not None:
            self._listener.close()
        if not self.ended.is_set():
            self.reason = reason
            self.ended.set()
        if self._control is not None:
            await self._control.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Registrar:
    """Listens for agents, in a thread of its own, between :meth:`start` and :meth:`stop`."""

    def __init__(self, host: str, port: int, address: str, file: Path) -> None:
        """``host`` and ``port`` are listened on; ``address`` is the host that agents connect to.

        ``file`` contains certificate and key; see :func:`certificate_of`.
        """
        self._host = host
        self._address = address
        self._file = file
        self._certificate = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="registrar", daemon=True
        )
        self._engines: set[RemoteEngine] = set()
        self._held: set[str] = set()
        self.writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        """Those of all connections, to be closed at the end."""
        self._server: asyncio.Server | None = None
        self.gateway = secrets.token_hex(8)
        """Identifies this process to agents."""
        self.port = port
        """The port, once it listens the real one."""

    def start(self, held: Iterable[Known] = ()) -> None:
        """Listen.

        :param held: engines that are not rejected although nothing awaits them yet.
        :raises OSError: if the address is taken, or the certificate cannot be read or written.
        :raises ValueError: if the file contains no certificate.
        """
        self._held.update(each.digest for each in held)
        self._certificate = certificate_of(self._file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._file)
        self._thread.start()
        self.run(self._listen(context))

    def stop(self) -> None:
        """Stop listening; engines that run try to come back until their lease ends."""
        if not self._thread.is_alive():
            return
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def invite(self, options: EngineOptions, lease: float) -> tuple[RemoteEngine, Invitation]:
        """Return an engine that is to be submitted, and what its agent needs.

        :param lease: seconds for which it lives on without the gateway.
        """
        engine = RemoteEngine(self, options, None)
        self.run(self._add(engine))
        invitation = Invitation(
            host=self._address,
            port=self.port,
            certificate=self._certificate,
            token=engine.token,
            lease=lease,
        )
        return engine, invitation

    def await_return(self, options: EngineOptions, known: Known) -> RemoteEngine:
        """Return an engine that an earlier process of the gateway knew, if it connects again."""
        engine = RemoteEngine(self, options, known)
        self.run(self._add(engine))
        self.release(known)
        return engine

    def release(self, known: Known) -> None:
        """Hold an engine no longer: it is rejected unless it is awaited."""
        self._held.discard(known.digest)

    def forget(self, engine: RemoteEngine) -> None:
        """Reject the engine from now on."""
        self._engines.discard(engine)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    async def _add(self, engine: RemoteEngine) -> None:
        await engine.listen()
        self._engines.add(engine)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self.writers:
            if not writer.is_closing():
                writer.transport.abort()
        await asyncio.sleep(0)  # for the transports that were aborted

    async def _listen(self, context: ssl.SSLContext) -> None:
        self._server = await asyncio.start_server(
            self._serve,
            self._host,
            self.port,
            ssl=context,
            ssl_handshake_timeout=_FIRST_LINE_SECONDS,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(asyncio.CancelledError):  # asyncio would report it as an error
            await self._receive(Connection(reader, writer))

    async def _receive(self, connection: Connection) -> None:
        try:
            match await connection.receive(_FIRST_LINE_SECONDS):
                case Register(token=token):
                    found = self._find(lambda each: each.accepts(token))
                    await self._admit(connection, found, first=True)
                case Resume(credential=credential):
                    found = self._find(lambda each: each.knows(credential))
                    if found is None and _digest(credential) in self._held:
                        await connection.close()  # it tries again
                        return
                    await self._admit(connection, found, first=False)
                case Stream(credential=credential, number=number):
                    engine = self._find(lambda each: each.knows(credential))
                    if engine is None or not engine.offer(number, connection):
                        await connection.close()
                case line:
                    raise ProtocolError(f"{type(line).__name__} is no first line")
        except (OSError, ProtocolError) as problem:
            logger.info("a connection to the registration port was closed: %s", problem)
            await connection.close()

    async def _admit(
        self, connection: Connection, engine: RemoteEngine | None, *, first: bool
    ) -> None:
        if engine is None:
            await connection.send(Rejected("the gateway does not expect this engine"))
            await connection.close()
        elif first:
            await engine.register(connection)
        else:
            await engine.resume(connection)

    def _find(self, fits: Callable[[RemoteEngine], bool]) -> RemoteEngine | None:
        return next((each for each in self._engines if fits(each)), None)


async def _beat(control: Connection) -> None:
    with contextlib.suppress(OSError):
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await control.send(Beat())


def _digest(credential: str) -> str:
    return sha256(credential.encode()).hexdigest()
