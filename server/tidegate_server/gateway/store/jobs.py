"""Jobs in the store, and in memory."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Row, delete, insert, select, update

from tidegate_server.core.jobs import Job, JobState
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import jobs as j


class JobStore(Protocol):
    """The jobs of all servers, those that ended included."""

    def all(self) -> tuple[Job, ...]:
        """Return all jobs, newest first."""
        ...

    def running(self) -> tuple[Job, ...]:
        """Return the jobs that are to run."""
        ...

    def add(self, job: Job) -> None:
        """Add a job."""
        ...

    def explain(self, job_id: str, reason: str | None) -> None:
        """Record why a job last failed, although it will be started again."""
        ...

    def end(self, job_id: str, state: JobState, reason: str | None, now: datetime) -> bool:
        """Record the end of a running job; False if it has ended before."""
        ...

    def finish(self, job_id: str, rows: int | None, reason: str | None, now: datetime) -> None:
        """Record that a job has done its work, even if it was to end before."""
        ...

    def forget(self, before: datetime) -> None:
        """Delete the jobs that ended before a moment."""
        ...


class MemoryJobs:
    """Everything in a dictionary: reference implementation and test double."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def all(self) -> tuple[Job, ...]:
        with self._lock:
            found = list(self._jobs.values())
        return tuple(sorted(found, key=lambda job: job.created_at, reverse=True))

    def running(self) -> tuple[Job, ...]:
        return tuple(job for job in self.all() if job.state is JobState.RUNNING)

    def add(self, job: Job) -> None:
        with self._lock:
            self._jobs[job.id] = job

    def explain(self, job_id: str, reason: str | None) -> None:
        with self._lock:
            self._jobs[job_id] = replace(self._jobs[job_id], reason=reason)

    def end(self, job_id: str, state: JobState, reason: str | None, now: datetime) -> bool:
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.state is not JobState.RUNNING:
                return False
            self._jobs[job_id] = replace(job, state=state, reason=reason, ended_at=now)
            return True

    def finish(self, job_id: str, rows: int | None, reason: str | None, now: datetime) -> None:
        with self._lock:
            self._jobs[job_id] = replace(
                self._jobs[job_id],
                state=JobState.FINISHED,
                rows=rows,
                reason=reason,
                ended_at=now,
            )

    def forget(self, before: datetime) -> None:
        with self._lock:
            for job in tuple(self._jobs.values()):
                if job.ended_at is not None and job.ended_at < before:
                    del self._jobs[job.id]


class SqlJobs:
    """Everything in the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Job, ...]:
        with self._database.read() as connection:
            rows = connection.execute(select(j).order_by(j.c.created_at.desc(), j.c.id))
            return tuple(map(_read, rows))

    def running(self) -> tuple[Job, ...]:
        found = select(j).where(j.c.state == JobState.RUNNING.value).order_by(j.c.created_at)
        with self._database.read() as connection:
            return tuple(map(_read, connection.execute(found)))

    def add(self, job: Job) -> None:
        with self._database.begin() as connection:
            connection.execute(insert(j).values(**_row(job)))

    def explain(self, job_id: str, reason: str | None) -> None:
        with self._database.begin() as connection:
            connection.execute(update(j).where(j.c.id == job_id).values(reason=reason))

    def end(self, job_id: str, state: JobState, reason: str | None, now: datetime) -> bool:
        ended = (
            update(j)
            .where(j.c.id == job_id, j.c.state == JobState.RUNNING.value)
            .values(state=state.value, reason=reason, ended_at=now)
        )
        with self._database.begin() as connection:
            return connection.execute(ended).rowcount == 1

    def finish(self, job_id: str, rows: int | None, reason: str | None, now: datetime) -> None:
        finished = (
            update(j)
            .where(j.c.id == job_id)
            .values(state=JobState.FINISHED.value, rows=rows, reason=reason, ended_at=now)
        )
        with self._database.begin() as connection:
            connection.execute(finished)

    def forget(self, before: datetime) -> None:
        with self._database.begin() as connection:
            connection.execute(delete(j).where(j.c.ended_at < before))


def _row(job: Job) -> dict[str, Any]:
    return {column.name: getattr(job, column.name) for column in j.c} | {"state": job.state.value}


def _read(row: Row[Any]) -> Job:
    changed = {"state": JobState(row.state), "statements": row.statements or ()}
    return Job(**{**row._mapping, **changed})
