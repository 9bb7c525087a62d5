"""The protocol between a gateway and the agent that runs beside an engine in a cluster.

The agent opens every connection, so that the gateway need not reach the machines of the cluster.
Each connection begins with a line from the agent. That of a :class:`Register` or :class:`Resume` is
answered, and then carries lines in both directions for as long as the engine runs. That of a
:class:`Stream` is joined to one connection of the gateway's Flight client.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import msgspec

from tidegate_server.core.messages.requests import EngineOptions

INVITATION_VARIABLE = "TIDEGATE_INVITATION"
"""The environment variable in which a submitted agent finds its :class:`Invitation`."""
POD_VARIABLE = "TIDEGATE_POD"
"""The environment variable with the name of the pod of Kubernetes that the agent runs in."""
BEAT_SECONDS = 10.0
"""How often the gateway sends a :class:`Beat`, which the agent returns."""
SILENCE_SECONDS = 40.0
"""After so many seconds without a line, a connection counts as broken."""
LONGEST_LINE = 16 << 20
"""Bytes of a line with the options of an engine; other lines are short."""
_BLOCK = 1 << 18


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent needs to register; nothing else is given to the cluster."""

    host: str
    port: int
    certificate: str
    """The gateway's certificate in PEM: the agent trusts no other."""
    token: str
    """A secret that the gateway accepts once."""
    lease: float
    """Seconds for which the engine lives on without its gateway."""


class Register(msgspec.Struct, frozen=True, tag=True):
    """The first line of a new agent."""

    token: str


class Resume(msgspec.Struct, frozen=True, tag=True):
    """The first line of an agent that has lost its connection."""

    credential: str


class Stream(msgspec.Struct, frozen=True, tag=True):
    """The first line of a connection that an :class:`Open` asked for."""

    credential: str
    number: int


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The answer to :class:`Register` and :class:`Resume`."""

    gateway: str
    """Identifies the gateway's process; another one knows nothing of the engine's sessions."""
    credential: str = ""
    """A secret for all later connections; only in the answer to :class:`Register`."""
    options: EngineOptions | None = None
    """Those of the engine; only in the answer to :class:`Register`."""


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """The answer to an agent that has to end."""

    reason: str


class Open(msgspec.Struct, frozen=True, tag=True):
    """Have the agent open a connection for a :class:`Stream` of this number."""

    number: int


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Shows that the other side is alive."""


class End(msgspec.Struct, frozen=True, tag=True):
    """Have the engine end."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The engine has ended by itself."""

    code: int
    output: str = ""
    """The last lines of its output, which may say why."""


Line = Register | Resume | Stream | Accepted | Rejected | Open | Beat | End | Ended

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class ProtocolError(Exception):
    """The other side sent something that is no line of the protocol, or nothing."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Both directions of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, line: Line) -> None:
        """Send one line.

        :raises OSError: if the connection is broken.
        """
        self.writer.write(_ENCODER.encode(line) + b"\n")
        await self.writer.drain()

    async def receive(self, seconds: float = SILENCE_SECONDS) -> Line:
        """Return the next line.

        :raises ProtocolError: if the connection ends, or carries anything else.
        :raises OSError: if it is broken, as a TimeoutError after so many seconds of silence.
        """
        try:
            async with asyncio.timeout(seconds):
                text = await self.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as problem:
            raise ProtocolError("the connection ended") from problem
        except asyncio.LimitOverrunError as problem:
            raise ProtocolError("a line is too long") from problem
        try:
            return _DECODER.decode(text)
        except msgspec.MsgspecError as problem:
            raise ProtocolError(f"a line cannot be read: {problem}") from problem

    async def close(self) -> None:
        """Close the connection, whatever its state."""
        self.writer.close()
        with contextlib.suppress(OSError):  # it may be broken already
            try:
                async with asyncio.timeout(1):
                    await self.writer.wait_closed()
            except (TimeoutError, asyncio.CancelledError):
                # A peer that has vanished would keep TLS waiting for its farewell.
                self.writer.transport.abort()
                raise


async def join(one: Connection, other: Connection) -> None:
    """Pass bytes in both directions until either side ends; close both."""
    copies = {
        asyncio.create_task(_copy(one.reader, other.writer)),
        asyncio.create_task(_copy(other.reader, one.writer)),
    }
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        await one.close()
        await other.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await source.read(_BLOCK):
            target.write(block)
            await target.drain()
