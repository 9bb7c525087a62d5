"""Which engine a request is sent to: the gateway's own, or the one that writes a table.

With an engine for each user, that is the engine of the table's executor, so that all files of the
table belong to one account. Otherwise it is the engine that the table has chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.messages.requests import (
    A,
    BackfillTable,
    Cancel,
    ChunkTicket,
    CreateTable,
    DiscardHeld,
    DropTable,
    EvolveTable,
    ExplainRefresh,
    InspectFiles,
    PublishHeld,
    Refresh,
    RemoveFiles,
    RenameTable,
    Request,
    RewriteFiles,
    RollBackTable,
    SetTableProperties,
    VerifyTable,
)
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.engine_pool import EnginePool, PooledEngine

_ID = "tidegate.id"
_ORDERED = (Refresh, RollBackTable, PublishHeld, BackfillTable, ExplainRefresh, VerifyTable)
"""Requests with an order for work on a table."""


def table_of(request: Request[Any]) -> str | None:
    """Return the id of the table in whose engine a request runs; None for no table."""
    if isinstance(request, _ORDERED):
        return request.order.table_id
    match request:
        case (
            SetTableProperties()
            | EvolveTable()
            | RenameTable()
            | DropTable()
            | DiscardHeld()
            | InspectFiles()
            | RewriteFiles()
            | RemoveFiles()
        ):
            return request.table_id
        case CreateTable():
            return request.properties.get(_ID)
    return None


def target_of(request: Request[Any]) -> str:
    """Return the target that a request's order names; empty for that of its table."""
    return request.order.engine if isinstance(request, _ORDERED) else ""


@dataclass(frozen=True, slots=True)
class Home:
    """The engine that writes a table, beside the gateway's own."""

    engine: PooledEngine
    user: str = ""
    """Whose engine it is; empty if several users share it."""


class RoutedEngine:
    """Implements :class:`~.client.Engine` over the gateway's own engine and the others."""

    def __init__(
        self,
        own: Engine,
        pools: Sequence[EnginePool],
        home_of: Callable[[str, str], Home | None],
        *,
        before_work: Callable[[Home], None] = lambda home: None,
    ) -> None:
        """Take what is routed between.

        :param home_of: returns the engine of the table of an id, for work in a target (empty: that
            of the table); None for the gateway's own.
        :param before_work: called before work on a table in another engine than that.
        """
        self._own = own
        self._pools = pools
        self._home_of = home_of
        self._before_work = before_work

    def call(
        self,
        request: Request[A],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> A:
        if isinstance(request, Cancel):
            for pool in self._pools:
                pool.cancel(request)
        home = self._home(request)
        if home is None:
            return self._own.call(request, on_progress=on_progress, wait=wait)
        self._before_work(home)
        # Started if need be, even for those who do not wait for an engine that is being replaced.
        return home.engine.call(request, on_progress=on_progress)

    def _home(self, request: Request[Any]) -> Home | None:
        table = table_of(request)
        try:
            return None if table is None else self._home_of(table, target_of(request))
        except ServerError:
            if isinstance(request, DropTable):
                return None  # a table can be dropped when its engine is no longer configured
            raise

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        return self._own.read(ticket)

    @property
    def generation(self) -> int:
        return self._own.generation

    @property
    def ready(self) -> bool:
        return self._own.ready
