"""Looks at a gateway for metrics and health; a part that fails is told, never raised."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from tidegate_server.catalog.base import CatalogReader
from tidegate_server.command.context import Services
from tidegate_server.link.client import Engine
from tidegate_server.model.table import MaterializedTable
from tidegate_server.observability.gauges import LONGEST_LIST, Picture, TableLag
from tidegate_server.scheduler.base import Ledger
from tidegate_server.session.manager import SessionManager

log = logging.getLogger(__name__)

T = TypeVar("T")


class SchedulerLoad(Protocol):
    """A scheduler that says how busy it is."""

    def load(self, now: datetime) -> tuple[int, int]:
        """Return how many refreshes run here, and how many workflows are due and wait."""
        ...


class Looks:
    """Answers what a gateway is like right now."""

    def __init__(
        self, services: Services, sessions: SessionManager, scheduler: SchedulerLoad
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._scheduler = scheduler

    def picture(self) -> Picture:
        """Return what the gauges show."""
        services = self._services
        now = services.clock.now()
        sessions = tuple(self._sessions.sessions())
        tables = _told(services.catalog.tables)
        running, due = _told(lambda: self._scheduler.load(now)) or (0, None)
        lags = None
        if tables is not None:
            lags = _told(lambda: lags_of(tables, services.ledger, now))
        return Picture(
            sessions=len(sessions),
            operations=sum(session.open_operations() for session in sessions),
            engine_up=services.engine.ready,
            engine_restarts=services.engine.generation - 1,
            running_refreshes=running,
            due_workflows=due,
            tables=None if tables is None else len(tables),
            lags=lags,
        )

    def missing(self) -> tuple[str, ...]:
        """Return the parts without which not every statement can be answered."""
        services = self._services
        return missing(services.catalog, services.engine)


def missing(catalog: CatalogReader, engine: Engine) -> tuple[str, ...]:
    """Return ``store`` if it cannot be read, ``engine`` if none is up."""
    readable = _told(lambda: catalog.by_id("") is None)
    return tuple(
        name for name, there in (("store", readable), ("engine", engine.ready)) if not there
    )


def lags_of(
    tables: tuple[MaterializedTable, ...], ledger: Ledger, now: datetime
) -> tuple[TableLag, ...]:
    """Return how old the content of each table may be; one never refreshed has no lag.

    The number of tables that are looked at is bounded.
    """
    lags = []
    for table in tables[:LONGEST_LIST]:
        success = ledger.last_success(table.id)
        read_at = success and (success.data_timestamp or success.started_at)
        if read_at:
            seconds = max((now - read_at).total_seconds(), 0.0)
            lags.append(TableLag(table=str(table.name), seconds=seconds))
    return tuple(lags)


def _told(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except Exception:
        # A scrape has to tell of everything else all the same.
        log.warning("A part could not be looked at", exc_info=True)
        return None
