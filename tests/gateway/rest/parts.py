"""The REST interface over a real store, with refreshes that only record their requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.testclient import TestClient
from starlette.types import ASGIApp

from tests.contract.examples import NOON
from tests.contract.stores import open_database
from tests.gateway.command.fakes import FakeEngine, FakeScheduler, FixedClock
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.clock import new_id
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.auth.access import build_access
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.rest.app import build
from tidegate_server.gateway.rest.refreshes import Refreshes
from tidegate_server.gateway.rest.status import Health
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.session import Prepare


@dataclass
class Rest:
    """The parts around one client of the interface."""

    ledger: SqlLedger
    config: Config = field(default_factory=Config)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    engine: FakeEngine = field(default_factory=FakeEngine)
    scheduler: FakeScheduler = field(default_factory=FakeScheduler)
    requests: list[RefreshRequest] = field(default_factory=list)
    canceled: list[str] = field(default_factory=list)
    gone: tuple[str, ...] = ()
    go_on: threading.Event = field(default_factory=threading.Event)
    prepare: Prepare = prepare

    def __post_init__(self) -> None:
        waves: Any = SimpleNamespace(refresh=self._refresh)
        self.services = Services(
            config=self.config,
            catalog=self.catalog,
            ledger=self.ledger,
            scheduler=self.scheduler,
            engine=self.engine,
            run_refresh=self._refresh,
            waves=waves,
            cancel_refresh=self._cancel,
            publish_system_tables=lambda text, administers: None,
            clock=FixedClock(),
            new_id=new_id,
            server_id="server-1",
        )

    def client(self, **headers: str) -> TestClient:
        return TestClient(self.app(), base_url="http://127.0.0.1:10002", headers=headers)

    def app(self) -> ASGIApp:
        """Return a new application, with sessions of its own."""
        sessions = SessionManager(self.services, self.prepare)
        access = build_access(self.config, self.services.clock)
        refreshes = Refreshes(self.services)
        health = Health(missing=self.gone)
        return build(self.services, refreshes, lambda: health, sessions, access)

    def _refresh(self, request: RefreshRequest) -> RefreshRun:
        table = self.catalog.by_id(request.table_id)
        if table is None:
            raise error(Code.MT_NOT_FOUND, table=request.table_id)
        self.requests.append(request)
        run = RefreshRun(
            refresh_id=request.refresh_id or new_id(),
            table_id=table.id,
            table=table.name,
            definition_version=1,
            trigger=request.trigger,
            state=RunState.RUNNING,
            queued_at=NOON,
            started_at=NOON,
            requested_by=request.requested_by,
            server_id="server-1",
            partitions=request.recompute.partitions,
            schedule_time=request.schedule_time,
        )
        self.ledger.record(run)
        if not self.go_on.wait(30):
            raise AssertionError("the test did not let the refresh end")
        ended = replace(run, state=RunState.SUCCEEDED, finished_at=NOON)
        self.ledger.record(ended)
        return ended

    def _cancel(self, refresh_id: str) -> bool:
        self.canceled.append(refresh_id)
        return True


@contextmanager
def rest_over_sqlite(directory: Path, **parts: Any) -> Iterator[Rest]:
    """Yield the parts over a new store; lets every refresh end afterwards."""
    with open_database("sqlite", directory) as database:
        rest = Rest(SqlLedger(database), **parts)
        try:
            yield rest
        finally:
            rest.go_on.set()
