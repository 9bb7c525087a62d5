"""Runs waves: each table after its sources, independent tables in parallel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Protocol

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import SourceVersions
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import Source
from tidegate_server.core.refresh.request import Recompute, RefreshRequest
from tidegate_server.core.refresh.waves import needs, outside, step_vector
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.freshness.downstream import refreshed_with
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.scheduler.base import RunRefresh

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One table of a wave and its request, which carries an id."""

    table: MaterializedTable
    request: RefreshRequest


class Queue(Protocol):
    """Pending refreshes by id, so that they are visible and can be canceled."""

    def enqueue(self, request: RefreshRequest) -> RefreshRun:
        """Record a request to run later."""
        ...

    def withdraw(
        self, refresh_id: str, end: RunState, code: Reason, text: str
    ) -> RefreshRun | None:
        """Close an enqueued request that never ran; None if there is none left."""
        ...

    def cancel_table(self, table_id: str) -> tuple[str, ...]:
        """Ask every local run of a table to stop; return their ids."""
        ...

    def following(
        self, operation_id: str, tell: Callable[[str], None]
    ) -> AbstractContextManager[None]:
        """Call ``tell`` when a run that the operation has asked for begins to wait."""
        ...

    def wait_ended(self, refresh_ids: Collection[str], seconds: float) -> bool:
        """Wait until none of these runs is active here; False on timeout."""
        ...


class Waves:
    """Runs waves; each step is a separate refresh with its own record and epoch.

    A failed step stops only the steps that read its table, directly or not.
    """

    def __init__(
        self,
        *,
        catalog: CatalogReader,
        engine: Engine,
        queue: Queue,
        run_refresh: RunRefresh,
        new_id: Callable[[], str],
        max_concurrent: int,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self.queue = queue
        self._run_refresh = run_refresh
        self._new_id = new_id
        self._max_concurrent = max_concurrent

    def versions(self, sources: Sequence[Source]) -> Mapping[str, int]:
        """Return the newest version of each source by table id; waits for an engine."""
        if not sources:
            return {}
        answer = self._engine.call(SourceVersions(sources=tuple(sources)))
        return answer.versions

    def enqueue(self, steps: Sequence[Step]) -> None:
        """Record every step as pending; after a failure none remains."""
        done: list[Step] = []
        try:
            for step in steps:
                self.queue.enqueue(step.request)
                done.append(step)
        except BaseException:
            self._give_up(done)
            raise

    def refresh(self, request: RefreshRequest) -> RefreshRun:
        """Execute one request, after the upstream tables refreshed with it.

        Raises like ``run_refresh``.
        """
        table = self._catalog.by_id(request.table_id)
        above = refreshed_with(table, self._catalog.find) if table is not None else []
        if table is None or not above:
            return self._run_refresh(request)
        try:
            chosen = self.versions(outside([*above, table]))
        except ServerError:
            # Without the others; the run records the error and is retried.
            return self._run_refresh(request)
        wave_id = self._new_id()
        steps = [Step(table=one, request=self._with(one, request, wave_id)) for one in above]
        own = request.refresh_id or self._new_id()
        last = replace(request, wave_id=wave_id, refresh_id=own)
        steps.append(Step(table=table, request=last))
        self.enqueue(steps)
        return self.run(steps, chosen)[-1]

    def run(
        self, steps: Sequence[Step], chosen: Mapping[str, int] | None = None
    ) -> tuple[RefreshRun, ...]:
        """Run enqueued steps, given sources before consumers; return a run for each.

        :param chosen: versions of the sources outside the wave; None for the newest.
        :raises ServerError: if no engine returns the sources' versions; no step ran then.
        """
        try:
            if chosen is None:
                chosen = self.versions(outside(step.table for step in steps))
            ended = self._run_all(steps, chosen)
        finally:
            self._give_up(steps)
        return tuple(ended[step.table.id] for step in steps)

    def _with(
        self, table: MaterializedTable, request: RefreshRequest, wave_id: str
    ) -> RefreshRequest:
        return RefreshRequest(
            table_id=table.id,
            trigger=Trigger.CASCADE,
            requested_by=request.requested_by,
            schedule_time=request.schedule_time,
            wave_id=wave_id,
            refresh_id=self._new_id(),
        )

    def _run_all(self, steps: Sequence[Step], chosen: Mapping[str, int]) -> dict[str, RefreshRun]:
        wave = [step.table for step in steps]
        by_id = {step.table.id: step for step in steps}
        order = TopologicalSorter({table.id: needs(table, wave) for table in wave})
        order.prepare()
        ended: dict[str, RefreshRun] = {}
        left: dict[TableName, int] = {}
        running: dict[Future[RefreshRun], str] = {}
        with ThreadPoolExecutor(self._max_concurrent, "wave") as pool:
            while order.is_active():
                for table_id in order.get_ready():
                    step = by_id[table_id]
                    stopped = self._close_if_stopped(step, needs(step.table, wave), ended)
                    if stopped is not None:
                        ended[table_id] = stopped
                        order.done(table_id)
                    else:
                        vector = step_vector(step.table.definition, chosen, left)
                        request = _at_versions(step, vector)
                        running[pool.submit(self._run_refresh, request)] = table_id
                if not running:
                    continue
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    table_id = running.pop(future)
                    ended[table_id] = future.result()
                    left |= self._committed_versions(by_id[table_id].table, wave, ended[table_id])
                    order.done(table_id)
        return ended

    def _committed_versions(
        self, table: MaterializedTable, wave: Sequence[MaterializedTable], run: RefreshRun
    ) -> dict[TableName, int]:
        """Return by name the version of a finished step that its readers are to use.

        It is the last one with changed rows: a refresh may commit only its vector.
        """
        storage = table.storage.folded()
        read = (source for other in wave for source in other.definition.sources)
        source = next((source for source in read if source.name.folded() == storage), None)
        if source is None or run.state is not RunState.SUCCEEDED or run.to_version is None:
            return {}
        newest = self.versions([source]).get(source.table_id, run.to_version)
        return {storage: min(newest, run.to_version)}

    def _close_if_stopped(
        self, step: Step, read: Sequence[str], ended: Mapping[str, RefreshRun]
    ) -> RefreshRun | None:
        """Close a step whose sources were not all refreshed; None if they were."""
        failed = [run for i in read if (run := ended[i]).state is not RunState.SUCCEEDED]
        if not failed:
            return None
        names = ", ".join(f"{run.table} {run.state.value}" for run in failed)
        refresh_id = step.request.refresh_id or ""
        closed = self.queue.withdraw(
            refresh_id, RunState.UPSTREAM_FAILED, Reason.UPSTREAM_FAILED, f"not refreshed: {names}"
        )
        if closed is None:
            raise error(Code.INTERNAL, reason=f"refresh {refresh_id} of a wave vanished")
        return closed

    def _give_up(self, steps: Sequence[Step]) -> None:
        for step in steps:
            refresh_id, code = step.request.refresh_id or "", Reason.WAVE_ENDED
            self.queue.withdraw(refresh_id, RunState.CANCELLED, code, code.meaning)


def _at_versions(step: Step, vector: Mapping[str, int]) -> RefreshRequest:
    """Return the step's request, a refresh with the source versions of the wave."""
    if not isinstance(step.request.task, Recompute):
        return step.request
    return replace(step.request, task=replace(step.request.task, vector=vector))
