"""The pages of a result by token: each may be fetched again until the next one is fetched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tidegate_server.core.errors import Code, error


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page; without rows and without a next token at the end."""

    batch: pa.RecordBatch | None
    next_token: int | None


class Pages:
    """Counts tokens from 0 as Flink's gateway does; thread-safe."""

    def __init__(self, fetch: Callable[[], pa.RecordBatch | None]) -> None:
        """``fetch`` returns the next rows, None at the end; it may raise, and is called again."""
        self._fetch = fetch
        self._expected = 0
        self._last: pa.RecordBatch | None = None
        self._ended = False
        self._lock = threading.Lock()

    def page(self, token: int) -> Fetched:
        """Return the page of a token; blocks while it is read.

        :raises ServerError: INVALID_REQUEST for a token that is neither the next nor the last one;
            what ``fetch`` raises.
        """
        with self._lock:
            if token == self._expected:
                return self._next()
            if token == self._expected - 1:
                return Fetched(self._last, self._expected)
            raise error(Code.INVALID_REQUEST, reason=_expected_tokens(self._expected, token))

    def _next(self) -> Fetched:
        batch = None if self._ended else self._fetch()
        if batch is None:
            self._ended = True
            return Fetched(None, None)
        self._last = batch
        self._expected += 1
        return Fetched(batch, self._expected)


def _expected_tokens(expected: int, token: int) -> str:
    wanted = f"{expected} or {expected - 1}" if expected else "0"
    return f"its token is {token}, but must be {wanted}"
