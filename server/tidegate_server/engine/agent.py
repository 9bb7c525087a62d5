"""Runs beside an engine in a cluster: registers with the gateway, and connects the two.

It is the program that ``spark-submit`` starts in the driver's container, with the JVM running
already. The engine is a child process, the same as on the gateway's machine, and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import ssl
import sys
import tempfile
import time
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow.flight as flight

from tidegate_server.core.messages.encoding import encode_request
from tidegate_server.core.messages.requests import EngineOptions, ForgetSessions
from tidegate_server.core.tunnel import (
    INVITATION_VARIABLE,
    LONGEST_LINE,
    POD_VARIABLE,
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
from tidegate_server.engine.pod import delete_pod

logger = logging.getLogger("tidegate_server.engine.agent")

ENGINE_COMMAND = (sys.executable, "-P", "-m", "tidegate_server.engine")
_CONNECT_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
_END_SECONDS = 15.0
_FORGET_SECONDS = 30.0
_REJECTED = 77
"""Exit code if the gateway does not expect this engine."""
_STREAM_LIMIT = 1 << 18
_OUTPUT_LINES = 20
"""How many lines of the engine's output the gateway gets when it has ended."""
_OUTPUT_LENGTH = 8000
_OUTPUT_SECONDS = 2.0
"""A child of the engine could keep its output open."""


class RejectedError(Exception):
    """The gateway does not expect this engine; the message says why."""


class Agent:
    """Connects one engine with the gateway until either ends."""

    def __init__(
        self, invitation: Invitation, folder: Path, command: Sequence[str] = ENGINE_COMMAND
    ) -> None:
        """``folder`` is for the files of the engine, which ``command`` starts."""
        self._command = tuple(command)
        self._invitation = invitation
        self._folder = folder
        self._socket = folder / "engine.sock"
        self._context = ssl.create_default_context(cadata=invitation.certificate)
        # Only this one certificate is accepted, whatever the name in it.
        self._context.check_hostname = False
        self._credential = ""
        self._gateway = ""
        self._control: Connection | None = None
        self._streams: set[asyncio.Task[None]] = set()
        self._lines: deque[str] = deque(maxlen=_OUTPUT_LINES)
        """The last lines of the engine's output."""

    async def run(self) -> int:
        """Register, run the engine, and return its exit code.

        :raises RejectedError: if the gateway does not expect it.
        :raises OSError: if the gateway cannot be reached.
        """
        self._control = await self._connect(LONGEST_LINE)
        accepted = await self._greet(self._control, Register(self._invitation.token))
        if accepted.options is None:
            raise ProtocolError("the gateway sent no options")
        self._credential, self._gateway = accepted.credential, accepted.gateway
        engine = await self._start(accepted.options)
        assert engine.stdout is not None
        copied = asyncio.create_task(self._copy_output(engine.stdout))
        ended = asyncio.create_task(engine.wait())
        attended = asyncio.create_task(self._attend())
        await asyncio.wait({ended, attended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            attended.cancel()
            await asyncio.gather(attended, return_exceptions=True)
        else:
            logger.info("the engine ends: %s", attended.result())
            await self._end(engine)
        code = await ended
        await asyncio.wait([copied], timeout=_OUTPUT_SECONDS)
        if self._control is not None:
            with contextlib.suppress(OSError):
                output = "".join(self._lines)[-_OUTPUT_LENGTH:]
                await self._control.send(Ended(code, output))
            await self._control.close()
        return code

    async def _attend(self) -> str:
        """Follow the gateway's lines; return why the engine has to end."""
        while self._control is not None:
            try:
                await self._follow(self._control)
                return "the gateway wants it to"
            except (OSError, ProtocolError) as problem:
                logger.warning("the connection to the gateway broke: %s", problem)
                await self._control.close()
                self._control = None
            try:
                self._control = await self._return()
            except RejectedError as problem:
                return str(problem)
        return f"the gateway was not reached for {self._invitation.lease:g} s"

    async def _follow(self, control: Connection) -> None:
        """Follow the lines of one connection, until the engine has to end."""
        while True:
            match await control.receive():
                case Beat():
                    await control.send(Beat())
                case Open(number=number):
                    self._spawn_stream(number)
                case End():
                    return
                case line:
                    raise ProtocolError(f"{type(line).__name__} is not expected")

    async def _return(self) -> Connection | None:
        """Connect again; None if that does not succeed during the lease.

        :raises RejectedError: if the gateway no longer expects the engine.
        """
        deadline = time.monotonic() + self._invitation.lease
        while time.monotonic() < deadline:
            try:
                control = await self._connect(LONGEST_LINE)
                accepted = await self._greet(control, Resume(self._credential))
            except (OSError, ProtocolError) as problem:
                logger.info("the gateway is not reached yet: %s", problem)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if accepted.gateway != self._gateway:
                self._gateway = accepted.gateway
                await asyncio.to_thread(self._forget_sessions)
            return control
        return None

    async def _connect(self, limit: int) -> Connection:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self._invitation.host, self._invitation.port, ssl=self._context, limit=limit
            )
        return Connection(reader, writer)

    async def _greet(self, control: Connection, line: Register | Resume) -> Accepted:
        await control.send(line)
        match await control.receive():
            case Accepted() as accepted:
                return accepted
            case Rejected(reason=reason):
                raise RejectedError(reason)
            case other:
                raise ProtocolError(f"{type(other).__name__} is no answer")

    def _spawn_stream(self, number: int) -> None:
        task = asyncio.create_task(self._stream(number))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _stream(self, number: int) -> None:
        """Join one connection of the gateway to the engine, or end it if the engine has none."""
        try:
            remote = await self._connect(_STREAM_LIMIT)
            await remote.send(Stream(self._credential, number))
            try:
                reader, writer = await asyncio.open_unix_connection(self._socket)
            except OSError:  # the engine is still starting, or ending
                await remote.close()
                return
        except OSError as problem:
            logger.warning("a connection to the gateway failed: %s", problem)
            return
        await join(remote, Connection(reader, writer))

    async def _start(self, given: EngineOptions) -> asyncio.subprocess.Process:
        options = dataclasses.replace(
            given,
            socket=str(self._socket),
            data=str(self._folder / "data"),
            work=str(self._folder / "work"),
            cache="",
            java_home="",
        )
        environment = {k: v for k, v in os.environ.items() if k != INVITATION_VARIABLE}
        engine = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        assert engine.stdin is not None
        with contextlib.suppress(ConnectionError):  # it died at once; its exit code says more
            engine.stdin.write(msgspec.json.encode(options) + b"\n")
            await engine.stdin.drain()
        return engine

    async def _copy_output(self, output: asyncio.StreamReader) -> None:
        """Pass the engine's output on, and remember its end."""
        while block := await output.read(_STREAM_LIMIT):
            text = block.decode("utf-8", "replace")
            self._lines.extend(text.splitlines(keepends=True))
            sys.stderr.write(text)
            sys.stderr.flush()

    async def _end(self, engine: asyncio.subprocess.Process) -> None:
        """Close the engine's input, with which it ends, and kill it if it does not."""
        assert engine.stdin is not None
        engine.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await engine.wait()
        except TimeoutError:
            engine.kill()

    def _forget_sessions(self) -> None:
        """Have the engine stop the work of a gateway that has ended."""
        name, body = encode_request(ForgetSessions())
        options = flight.FlightCallOptions(timeout=_FORGET_SECONDS)
        try:
            with flight.FlightClient(f"grpc+unix://{self._socket}") as client:
                for _ in client.do_action(flight.Action(name, body), options):
                    pass
        except flight.FlightError as problem:
            # It may not be up yet. Work that goes on cannot commit: the table's epoch is a new one.
            logger.warning("the work of the gateway before was not stopped: %s", problem)


def main() -> int:
    """Run by the invitation in the environment; return the exit code of the engine."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    text = urlsafe_b64decode(os.environ[INVITATION_VARIABLE])
    invitation = msgspec.json.decode(text, type=Invitation)
    # Short, as Unix sockets need it: containers have deep working directories.
    with tempfile.TemporaryDirectory(prefix="tidegate-", dir="/tmp") as folder:
        try:
            code = asyncio.run(Agent(invitation, Path(folder)).run())
        except RejectedError as problem:
            logger.error("%s", problem)
            code = _REJECTED
    pod = os.environ.get(POD_VARIABLE)
    if pod and code in (0, _REJECTED):  # that of an engine that has failed remains, with its output
        delete_pod(pod)
    return code


if __name__ == "__main__":
    sys.exit(main())
