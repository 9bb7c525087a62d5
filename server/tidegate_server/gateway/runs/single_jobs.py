"""Jobs over tables, which run once: a job that was interrupted is never repeated."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.jobs import Job, JobState
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.messages.requests import Cancel
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.link.client import ABSENCE, Engine
from tidegate_server.gateway.runs.job_leases import JobLeases
from tidegate_server.gateway.store.jobs import JobStore

logger = logging.getLogger(__name__)

MAX_RUNNING: Final = 64
"""How many run at once, each with a thread."""
_LATE: Final = "It had done its work before it could be stopped."
_HINT: Final = "Wait for one to end, or stop one with STOP JOB."


@dataclass(slots=True)
class SingleRun:
    """A job while this server runs it; its work reads and reports here, from its own thread."""

    job: Job
    timeout: float = 0.0
    """Seconds after which it ends; 0 for no limit."""
    progress: Progress | None = None
    ending: ServerError | None = None
    """Why it is to end."""
    ended: threading.Event = field(default_factory=threading.Event)

    def report(self, progress: Progress) -> None:
        """Keep the newest progress."""
        self.progress = progress

    def require_wanted(self) -> None:
        """:raises ServerError: why it is to end."""
        if self.ending is not None:
            raise self.ending


Work = Callable[[], int | None]
"""Does what a job is for; returns how many rows it changed, or None if that is not known."""


class SingleJobs:
    """Runs each job on a thread of its own; thread-safe."""

    def __init__(
        self,
        store: JobStore,
        leases: JobLeases,
        engine_of: Callable[[str], Engine],
        clock: Clock,
    ) -> None:
        self._store = store
        self._leases = leases
        self._engine_of = engine_of
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, SingleRun] = {}

    def submit(self, run: SingleRun, work: Work, limit: int = 0) -> None:
        """Start a job.

        :param limit: how many jobs its owner may have running; 0 for any number.
        :raises ServerError: TOO_MANY; the job is not kept then.
        """
        job = run.job
        with self._lock:
            if len(self._runs) >= MAX_RUNNING:
                raise error(Code.TOO_MANY, what="running jobs", limit=MAX_RUNNING, hint=_HINT)
            own = sum(each.job.owner == job.owner for each in self._runs.values())
            if limit and own >= limit:
                what = f"running jobs of user {job.owner}"
                raise error(Code.TOO_MANY, what=what, limit=limit, hint=_HINT)
            self._runs[job.id] = run
        try:
            self._leases.hold(job.id)
            self._store.add(job)
        except Exception:
            self._forget(job)
            raise
        # The context carries the user and ids of log lines.
        context = contextvars.copy_context()
        name = f"job-{job.id}"
        # A job that dies with the process is found by the check of the next one.
        threading.Thread(
            target=context.run, args=(self._run, run, work), name=name, daemon=True
        ).start()

    def stop(self, job: Job) -> bool:
        """Stop a job; False if it has ended before."""
        stopped = self._store.end(job.id, JobState.STOPPED, None, self._clock.now())
        run = self._runs.get(job.id)
        if stopped and run is not None:
            self._end(run, error(Code.OPERATION_CANCELED, by=" by STOP JOB"))
        return stopped

    def progress_of(self, job: Job) -> Progress | None:
        """Return the progress of a job; None if it is not known here."""
        run = self._runs.get(job.id)
        return None if run is None else run.progress

    def check(self) -> None:
        """End the jobs that were stopped or took too long, and record those that died."""
        # In this order: a job is among the runs before it is in the store.
        running = {job.id: job for job in self._store.running() if job.runs_once}
        now = self._clock.now()
        with self._lock:
            runs = dict(self._runs)
        for run in runs.values():
            if run.job.id not in running:
                continue
            self._leases.hold(run.job.id)
            if run.timeout and now - run.job.created_at > timedelta(seconds=run.timeout):
                self._end(run, error(Code.OPERATION_TIMEOUT, seconds=f"{run.timeout:g}"))
        self._end_stopped([run for id_, run in runs.items() if id_ not in running])
        for job in running.values():
            if job.id not in runs and self._leases.hold(job.id):
                lost = error(Code.JOB_INTERRUPTED, reason="its server ended")
                self._store.end(job.id, JobState.FAILED, str(lost), now)
                self._leases.release(job.id)

    def _end_stopped(self, runs: Sequence[SingleRun]) -> None:
        """End those runs whose jobs were stopped, perhaps by another server.

        Others may have been submitted only a moment ago.
        """
        if not runs:
            return
        stopped = {job.id for job in self._store.all() if job.state is JobState.STOPPED}
        for run in runs:
            if run.job.id in stopped:
                self._end(run, error(Code.OPERATION_CANCELED, by=" by STOP JOB"))

    def _end(self, run: SingleRun, reason: ServerError) -> None:
        """Ask a job to end; called repeatedly, since the first call may precede its first work."""
        run.ending = run.ending or reason
        try:
            self._engine_of(run.job.owner).call(Cancel(operation_id=run.job.id), wait=0)
        except ServerError as problem:
            if problem.code not in ABSENCE:
                raise

    def _run(self, run: SingleRun, work: Work) -> None:
        job = run.job
        try:
            run.require_wanted()
            rows = work()
        except ServerError as problem:
            self._failed(run, problem)
        except Exception as problem:
            # Nothing joins this thread, so an escaping exception would be lost.
            logger.exception("the job %s failed inside the server", job.id)
            reason = f"{type(problem).__name__}: {problem}"
            self._failed(run, error(Code.INTERNAL, reason=reason))
        else:
            late = None if run.ending is None else _LATE
            self._store.finish(job.id, rows, late, self._clock.now())
            logger.info("the job %s of %s has finished", job.id, job.owner)
        finally:
            self._forget(job)
            run.ended.set()

    def _failed(self, run: SingleRun, problem: ServerError) -> None:
        logger.warning("the job %s failed: %s", run.job.id, problem)
        shown = run.ending or problem
        if problem.code in ABSENCE:
            shown = error(Code.JOB_INTERRUPTED, reason=problem.message.rstrip("."))
        self._store.end(run.job.id, JobState.FAILED, str(shown), self._clock.now())

    def _forget(self, job: Job) -> None:
        with self._lock:
            self._runs.pop(job.id, None)
        self._leases.release(job.id)
