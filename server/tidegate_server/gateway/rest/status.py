"""The state of a gateway for metrics and health; a part that fails is reported, never raised."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.engine_pool import EnginePool
from tidegate_server.gateway.link.memory import MemoryState
from tidegate_server.gateway.observability.gauges import LONGEST_LIST, EngineLoad, Picture, TableLag
from tidegate_server.gateway.runs.jobs import JobKeeper
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.store.database import StoreState

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SchedulerLoad(Protocol):
    """A scheduler that reports its load."""

    def load(self, now: datetime) -> tuple[int, int]:
        """Return how many refreshes are running here, and how many due workflows are waiting."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What keeps a gateway from answering every statement."""

    missing: tuple[str, ...] = ()
    """The parts that do not work: ``store``, ``engine``."""
    problems: tuple[str, ...] = ()
    """The known problems, one sentence each."""


class GatewayStatus:
    """The current state of a gateway."""

    def __init__(
        self, services: Services, sessions: SessionManager, scheduler: SchedulerLoad
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._scheduler = scheduler

    def picture(self) -> Picture:
        """Return the values of the gauges."""
        services = self._services
        now = services.clock.now()
        sessions = tuple(self._sessions.sessions())
        tables = _try_read(services.catalog.tables)
        store = services.store
        trouble = None if store is None else store.trouble
        running, due = _try_read(lambda: self._scheduler.load(now)) or (0, None)
        keeper = services.jobs
        lags = None
        if tables is not None:
            lags = _try_read(lambda: lags_of(tables, services.ledger, now))
        return Picture(
            sessions=len(sessions),
            operations=sum(session.open_operations() for session in sessions),
            engine_up=services.engine.ready,
            engine_restarts=services.engine.generation - 1,
            running_refreshes=running,
            due_workflows=due,
            tables=None if tables is None else len(tables),
            lags=lags,
            jobs=None if keeper is None else _try_read(lambda: _statuses(keeper)),
            store_trouble=trouble.code if trouble is not None else None,
            store_failures={} if store is None else store.failures,
            load=None if services.memory is None else _load(services.memory.state),
            user_engines=_loads(*_pools_of_users(services)),
            user_engine_restarts=sum(pool.restarts() for pool in _pools_of_users(services)),
            target_engines=_loads(*services.target_engines.values()),
            target_engine_restarts=sum(
                pool.restarts() for pool in services.target_engines.values()
            ),
        )

    def health(self) -> Health:
        """Return which parts do not work, and why."""
        services = self._services
        state = None if services.memory is None else services.memory.state
        pools = (*_pools_of_users(services), *services.target_engines.values())
        others = {key: found for pool in pools for key, found in pool.memory().items()}
        return health(services.catalog, services.engine, services.store, state, others)


def health(
    catalog: CatalogReader,
    engine: Engine,
    store: StoreState | None = None,
    memory: MemoryState | None = None,
    others: Mapping[str, MemoryState] | None = None,
) -> Health:
    """Check the store and the engine.

    An engine that is short of memory still answers, so it is reported as a problem, not as missing.

    :param others: the memory of the engines of users and of those that tables choose.
    """
    missing, problems = [], []
    readable = _try_read(lambda: catalog.by_id("") is None)
    trouble = None if store is None else store.trouble
    if not readable or trouble is not None:
        missing.append("store")
    if trouble is not None:
        problems.append(trouble.headline)
    if not engine.ready:
        missing.append("engine")
    if memory is not None and memory.problem is not None:
        problems.append(memory.problem)
    for key, state in (others or {}).items():
        if state.problem is not None:
            problems.append(f"{key}: {state.problem}")
    return Health(missing=tuple(missing), problems=tuple(problems))


def _statuses(keeper: JobKeeper) -> Mapping[str, int]:
    """Return how many jobs have each status; no job has none of them."""
    known = dict.fromkeys(("RUNNING", "RESTARTING", "FAILED"), 0)
    return known | Counter(job.status for job in keeper.store.all())


def _pools_of_users(services: Services) -> tuple[EnginePool, ...]:
    return () if services.user_engines is None else (services.user_engines,)


def _loads(*pools: EnginePool) -> Mapping[str, EngineLoad | None] | None:
    """Return the engines that are up, each with its load once that is known; None without pools."""
    if not pools:
        return None
    states = {key: state for pool in pools for key, state in pool.memory().items()}
    return {key: _load(states.get(key)) for pool in pools for key in pool.up()}


def _load(state: MemoryState | None) -> EngineLoad | None:
    if state is None:
        return None
    memory = state.memory
    return EngineLoad(
        heap_used=memory.heap_used,
        heap_limit=memory.heap_limit,
        direct_used=memory.direct_used,
        direct_limit=memory.direct_limit,
        collecting_seconds=memory.collecting_ms / 1000,
        collecting_ratio=state.collecting,
    )


def lags_of(
    tables: tuple[MaterializedTable, ...], ledger: Ledger, now: datetime
) -> tuple[TableLag, ...]:
    """Return how old the content of each table may be; one never refreshed has no lag.

    Only the first ``LONGEST_LIST`` tables are checked.
    """
    lags = []
    for table in tables[:LONGEST_LIST]:
        success = ledger.last_success(table.id)
        read_at = success and (success.data_timestamp or success.started_at)
        if read_at:
            seconds = max((now - read_at).total_seconds(), 0.0)
            lags.append(TableLag(table=str(table.name), seconds=seconds))
    return tuple(lags)


def _try_read(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except ServerError as error:
        logger.warning("The state of a part could not be read: %s", error)
        return None
    except Exception:
        # A scrape must report everything else all the same.
        logger.warning("The state of a part could not be read", exc_info=True)
        return None
