"""Which engine a request is sent to: the gateway's own, or that of a table's executor.

Whatever writes a materialized table runs in the engine of the user with whose privileges it is
refreshed, so that all of its files belong to one account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

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
from tidegate_server.gateway.link.user_engines import UserEngines

_ID = "tidegate.id"


def table_of(request: Request[Any]) -> str | None:
    """Return the id of the table in whose executor's engine a request runs; None for no table."""
    match request:
        case (
            Refresh()
            | RollBackTable()
            | PublishHeld()
            | BackfillTable()
            | ExplainRefresh()
            | VerifyTable()
        ):
            return request.order.table_id
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


class RoutedEngine:
    """Implements :class:`~.client.Engine` over the gateway's own engine and those of users."""

    def __init__(
        self,
        own: Engine,
        users: UserEngines,
        executor_of: Callable[[str], str | None],
        *,
        before_work: Callable[[str], None] = lambda user: None,
    ) -> None:
        """Take what is routed between.

        :param executor_of: returns the executor of the table of an id; None if there is none.
        :param before_work: called with the user before work on a table in the user's engine.
        """
        self._own = own
        self._users = users
        self._executor_of = executor_of
        self._before_work = before_work

    def call(
        self,
        request: Request[A],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> A:
        if isinstance(request, Cancel):
            self._users.cancel(request)
        table = table_of(request)
        user = None if table is None else self._executor_of(table)
        if user is None:
            return self._own.call(request, on_progress=on_progress, wait=wait)
        self._before_work(user)
        # Started if need be, even for those who do not wait for an engine that is being replaced.
        return self._users.of(user).call(request, on_progress=on_progress)

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        return self._own.read(ticket)

    @property
    def generation(self) -> int:
        return self._own.generation

    @property
    def ready(self) -> bool:
        return self._own.ready
