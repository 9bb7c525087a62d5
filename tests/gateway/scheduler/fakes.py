"""Clocks, runners and executors whose every step a test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from typing import Any

from tests.contract.examples import NOON, run
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.versions import Source
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.scheduler.base import Ledger


class FakeClock:
    def __init__(self, moment: datetime = NOON) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> datetime:
        self.moment += timedelta(seconds=seconds)
        return self.moment


class HeldExecutor(Executor):
    """Keeps what is submitted until a test runs it."""

    def __init__(self) -> None:
        self.held: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.held.append(lambda: fn(*args, **kwargs))
        return Future()

    def run_all(self) -> None:
        held, self.held = self.held, []
        for work in held:
            work()


class FakeSources:
    """Newest versions by table id, or no engine to ask."""

    def __init__(self, **versions: int) -> None:
        self.versions = {name.replace("_", "-"): v for name, v in versions.items()}
        self.engine_up = True
        self.calls = 0
        self.created_again: dict[str, str] = {}
        """The present ids of sources by those they had before."""

    def __call__(self, sources: tuple[Source, ...]) -> Mapping[str, int]:
        self.calls += 1
        if not self.engine_up:
            raise error(Code.ENGINE_UNAVAILABLE, reason="it is starting")
        ids = {self.created_again.get(s.table_id, s.table_id) for s in sources}
        return {key: seen for key, seen in self.versions.items() if key in ids}


class FakeRunner:
    """Replaces the refresher: records requests and returns the runs that a test sets."""

    def __init__(self, ledger: Ledger, clock: FakeClock, sources: FakeSources) -> None:
        self.ledger = ledger
        self.clock = clock
        self.sources = sources
        self.requests: list[RefreshRequest] = []
        self.skipped: list[RefreshRequest] = []
        self.changes: dict[str, Any] = {}
        self.reads: dict[str, set[str]] = {}
        self.end = RunState.SUCCEEDED
        self.failure = {"error_class": "DIVIDE_BY_ZERO", "sqlstate": "22012"}
        self.broken: ServerError | None = None

    def run(self, request: RefreshRequest) -> RefreshRun:
        self.requests.append(request)
        if self.broken is not None:
            raise self.broken
        return self._record(request, self.end, **self.changes)

    def skip(self, request: RefreshRequest, code: str, text: str) -> RefreshRun:
        self.skipped.append(request)
        return self._record(request, RunState.SKIPPED, reason_code=code, reason_text=text)

    def _record(self, request: RefreshRequest, end: RunState, **changes: Any) -> RefreshRun:
        number = len(self.requests) + len(self.skipped)
        reads = self.reads.get(request.table_id, self.sources.versions)
        sources = {key: seen for key, seen in self.sources.versions.items() if key in reads}
        ended = run(
            refresh_id=f"{request.table_id}-{number}",
            table_id=request.table_id,
            trigger=request.trigger,
            state=end,
            action=Strategy.FULL,
            schedule_time=request.schedule_time,
            partitions=request.recompute.partitions,
            sources=changes.pop("sources", sources),
            epoch=number,
            queued_at=self.clock.now(),
            started_at=self.clock.now(),
            finished_at=self.clock.now(),
            attempt=request.attempt,
            **(self.failure if end is RunState.FAILED else {}),
            **changes,
        )
        self.ledger.record(ended)
        return ended
