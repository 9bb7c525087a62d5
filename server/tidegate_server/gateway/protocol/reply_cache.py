"""A question that comes again and again, answered from the bytes on the wire.

Hive's JDBC driver 2.3, and with it beeline, asks for the status of a finished operation once per
row it reads. What such a question costs is how long one round trip takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidegate_server.gateway.protocol.channel import READ_SIZE

_SEQUENCE: Final = 4
"""Bytes of a message's sequence number."""


class Repeated:
    """A question and its reply, which stay the same but for the sequence number."""

    def __init__(self, asked: bytes, replied: bytes, at: int, holds: Callable[[], bool]) -> None:
        """Take both as they are on the wire, with the sequence number ``at`` the same place.

        ``holds`` tells whether the reply is still true.
        """
        self._at, self._end, self._length = at, at + _SEQUENCE, len(asked)
        self._asked = asked[: self._at], asked[self._end :]
        self._replied = replied[: self._at], replied[self._end :]
        self._holds = holds

    def reply_to(self, data: bytes) -> bytes | None:
        """Return the reply if ``data`` is the question, and nothing besides; None otherwise."""
        before, after = self._asked
        same = len(data) == self._length and data.startswith(before) and data.endswith(after)
        if not same or not self._holds():
            return None
        return data[self._at : self._end].join(self._replied)


class Rally:
    """Answers a connection's repeated question within the event loop's callback.

    Waking the connection's task would take several times as long.
    """

    def __init__(self, repeated: Repeated, transport: asyncio.WriteTransport) -> None:
        self._repeated = repeated
        self._transport = transport

    def __call__(self, data: bytes) -> bool:
        """Answer what came, if it is the question and the client reads its answers."""
        reply = self._repeated.reply_to(data)
        if reply is None or self._transport.get_write_buffer_size() > READ_SIZE:
            return False
        self._transport.write(reply)
        return True
