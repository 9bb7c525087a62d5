"""Keeps jobs over streams running: starts them in each new engine, and again after failures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.jobs import Job, JobState
from tidegate_server.core.messages.answers import JobProgress
from tidegate_server.core.messages.requests import EndJob, InspectJobs, StartJob
from tidegate_server.core.model.access import Admission
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.link.client import ABSENCE, Engine
from tidegate_server.gateway.runs.job_leases import JobLeases
from tidegate_server.gateway.runs.single_jobs import SingleJobs
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.store.jobs import JobStore

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0
_STARTS: Final = 6
"""How often a job is started without committing anything, before it counts as failed."""
_FORGET_EVERY: Final = timedelta(hours=1)
_LONGEST_PAUSE: Final = 60.0
_FINAL: Final = frozenset(
    code.name
    for code in (
        Code.ACCESS_DENIED,
        Code.JOB_TARGET_LOST,
        Code.JOB_CHANGES_UNWRITABLE,
        Code.MT_CHANGES_UNREADABLE,
    )
)
"""Errors that do not go away by themselves."""


@dataclass(slots=True)
class _Failures:
    """The failures of a job since it last committed."""

    count: int = 0
    not_before: datetime | None = None


class JobKeeper:
    """Starts and stops jobs; the store says which of those over streams are to run.

    On a shared store each job runs in the engine of the server that has its lease.
    """

    def __init__(
        self,
        *,
        store: JobStore,
        ledger: Ledger,
        engine_of: Callable[[str], Engine],
        admit: Callable[[Job], tuple[Admission | None, ...]],
        clock: Clock,
        server_id: str,
        lease_seconds: float,
        kept_days: float,
        shared: bool,
        starts_engines: bool,
    ) -> None:
        """``admit`` judges a job by its owner's privileges and returns what its queries may access.

        ``shared`` says whether other servers use the store, ``starts_engines`` whether the engines
        are those of users, which run only if they are used. Ended jobs are kept for ``kept_days``.
        """
        self.store = store
        self._leases = JobLeases(ledger, clock, server_id, lease_seconds, shared=shared)
        self.single = SingleJobs(store, self._leases, engine_of, clock)
        """Those over tables."""
        self._engine_of = engine_of
        self._admit = admit
        self._clock = clock
        self._kept = timedelta(days=kept_days)
        self._forgot_at: datetime | None = None
        self._starts_engines = starts_engines
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}
        """The owners of the jobs that were started here."""
        self._failures: dict[str, _Failures] = {}

    def submit(self, job: Job) -> None:
        """Start a job and keep it running.

        :raises ServerError: ACCESS_DENIED or why it cannot be started; nothing is kept then.
        """
        with self._lock:
            request = self._request(job)
            self._engine_of(job.owner).call(request)
            try:
                self._leases.hold(job.id)
                self.store.add(job)
            except Exception:
                self._engine_of(job.owner).call(EndJob(job_id=job.id))
                raise
            self._owners[job.id] = job.owner
        logger.info("the job %s of %s runs", job.id, job.owner)

    def stop(self, job: Job) -> bool:
        """Stop a job for good; False if it has ended before."""
        if job.runs_once:
            return self.single.stop(job)
        with self._lock:  # so that no check starts it again
            stopped = self.store.end(job.id, JobState.STOPPED, None, self._clock.now())
            self._end(job.id, job.owner)
        return stopped

    def progress_of(self, job: Job) -> JobProgress | None:
        """Return what a job has done in its current engine; None if it does not run here."""
        return self._running_in(self._engine_of(job.owner)).get(job.id)

    def check(self) -> None:
        """Start the jobs that should run and do not; restart failed ones, forget old ones."""
        now = self._clock.now()
        if self._forgot_at is None or now - self._forgot_at > _FORGET_EVERY:
            self.store.forget(now - self._kept)
            self._forgot_at = now
        self.single.check()
        with self._lock:
            jobs = [job for job in self.store.running() if not job.runs_once]
            self._stop_others({job.id for job in jobs})
            for owner in {job.owner for job in jobs}:
                engine = self._engine_of(owner)
                if not engine.ready and not self._starts_engines:
                    continue  # it will be, or another server takes over
                found = self._running_in(engine)
                for job in jobs:
                    if job.owner == owner and self._has_lease(job):
                        self._keep(job, found.get(job.id), engine)

    def _keep(self, job: Job, progress: JobProgress | None, engine: Engine) -> None:
        failures = self._failures.setdefault(job.id, _Failures())
        problem = None
        if progress is not None and progress.failure is None:
            if progress.commits and (failures.count or job.reason is not None):
                failures.count = 0
                self.store.explain(job.id, None)
            return
        now = self._clock.now()
        if progress is not None and progress.failure is not None and failures.not_before is None:
            problem = progress.failure.to_error()
            if progress.commits:
                failures.count = 0
        elif failures.not_before is None or failures.not_before <= now:
            failures.not_before = None
            try:
                engine.call(self._request(job), wait=None if self._starts_engines else 0)
                self._owners[job.id] = job.owner
                return
            except ServerError as error:
                if error.code in ABSENCE:
                    return  # the next check starts it in the next engine
                problem = error
        if problem is not None:
            self._failed(job, failures, problem, now)

    def _failed(self, job: Job, failures: _Failures, problem: ServerError, now: datetime) -> None:
        failures.count += 1
        logger.warning("the job %s failed (%d): %s", job.id, failures.count, problem)
        if problem.code in _FINAL or failures.count >= _STARTS:
            self.store.end(job.id, JobState.FAILED, str(problem), now)
            self._end(job.id, job.owner)
            return
        self.store.explain(job.id, str(problem))
        pause = min(2.0 ** (failures.count - 1), _LONGEST_PAUSE)
        failures.not_before = now + timedelta(seconds=pause)

    def _request(self, job: Job) -> StartJob:
        return StartJob(
            job_id=job.id,
            inserts=job.inserts,
            settings=job.settings,
            interval=job.interval,
            user=job.owner,
            admissions=self._admit(job),
        )

    def _running_in(self, engine: Engine) -> dict[str, JobProgress]:
        try:
            return dict(engine.call(InspectJobs(), wait=0).jobs)
        except ServerError as error:
            if error.code in ABSENCE:
                return {}
            raise

    def _stop_others(self, wanted: Collection[str]) -> None:
        """Stop the jobs that another server has been told to stop."""
        for job_id in self._owners.keys() - wanted:
            self._end(job_id, self._owners[job_id])

    def _end(self, job_id: str, owner: str) -> None:
        try:
            self._engine_of(owner).call(EndJob(job_id=job_id), wait=0)
        except ServerError as error:
            if error.code not in ABSENCE:
                raise
        self._owners.pop(job_id, None)
        self._failures.pop(job_id, None)
        self._leases.release(job_id)

    def _has_lease(self, job: Job) -> bool:
        """Take or renew the lease of a job; False if another server runs it."""
        held = self._leases.held(job.id)
        mine = self._leases.hold(job.id)
        if held and not mine:
            self._end(job.id, job.owner)
        return mine
