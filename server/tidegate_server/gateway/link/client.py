"""The gateway's side of the link: requests out, answers and Arrow batches in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import pyarrow as pa

from tidegate_server.core.errors import Code
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.messages.requests import A, ChunkTicket, Request

ABSENCE: Final = frozenset({Code.ENGINE_UNAVAILABLE.name, Code.ENGINE_LOST.name})
"""The codes of errors which say that no engine answered."""


class Engine(Protocol):
    """The engine, whichever process currently runs it."""

    def call(
        self,
        request: Request[A],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> A:
        """Send a request and return its answer; blocks.

        ``wait`` is how many seconds to wait for an engine that is still starting (None: the
        configured start timeout; 0: not at all).

        :raises ServerError: ENGINE_UNAVAILABLE if none came up in time, ENGINE_LOST if it died
            meanwhile, or the error the engine answered.
        """
        ...

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        """Yield one chunk's batches as they arrive; raises as :meth:`call`."""
        ...

    @property
    def generation(self) -> int:
        """The number of the engine start; a change means that all child sessions are gone."""
        ...

    @property
    def ready(self) -> bool:
        """Whether an engine is up right now."""
        ...
