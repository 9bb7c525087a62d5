"""Answers a repeated status call from its bytes, without decoding it.

Hive's JDBC driver 2.3, and so beeline, requests the status of a finished operation once per row it
reads, so the time of each round trip matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidegate_server.gateway.protocol.channel import READ_SIZE

_SEQUENCE: Final = 4
"""Bytes of a message's sequence number."""


class RepeatedCall:
    """A call and its reply, which are constant except for the sequence number."""

    def __init__(
        self, request: bytes, reply: bytes, at: int, is_current: Callable[[], bool]
    ) -> None:
        """Take the bytes on the wire; both have the sequence number at offset ``at``.

        ``is_current`` returns whether the reply is still valid.
        """
        self._at, self._end, self._length = at, at + _SEQUENCE, len(request)
        self._request = request[: self._at], request[self._end :]
        self._reply = reply[: self._at], reply[self._end :]
        self._is_current = is_current

    def reply_to(self, data: bytes) -> bytes | None:
        """Return the reply if ``data`` is exactly the call; None otherwise."""
        before, after = self._request
        same = len(data) == self._length and data.startswith(before) and data.endswith(after)
        if not same or not self._is_current():
            return None
        return data[self._at : self._end].join(self._reply)


class CachedReplier:
    """Answers a connection's repeated call in the callback of the event loop.

    Waking the connection's task would take several times as long.
    """

    def __init__(self, call: RepeatedCall, transport: asyncio.WriteTransport) -> None:
        self._call = call
        self._transport = transport

    def __call__(self, data: bytes) -> bool:
        """Answer ``data`` if it is the call and the client is reading its replies."""
        reply = self._call.reply_to(data)
        if reply is None or self._transport.get_write_buffer_size() > READ_SIZE:
            return False
        self._transport.write(reply)
        return True
