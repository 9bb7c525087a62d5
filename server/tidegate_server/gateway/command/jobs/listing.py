"""SHOW, DESCRIBE and STOP of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_server.core.errors import Code, error
from tidegate_server.core.jobs import Job, JobState
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.sql.jobs.statements import DescribeJob, StopJob
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.runs.jobs import JobKeeper


def show(context: Context) -> Result:
    """List the jobs that the user may see, newest first."""
    columns = ("job id", "job name", "status", "start time", "owner", "message")
    rows = [
        (job.id, job.name, job.status, job.created_at.isoformat(), job.owner, job.reason)
        for job in _visible(context)
    ]
    return RowsResult(text_schema(*columns), rows)


def describe(statement: DescribeJob, context: Context) -> Result:
    """Return what a job does, as names and values.

    :raises ServerError: JOB_NOT_FOUND.
    """
    job = _find(statement.id, context)
    rows: list[tuple[str, str | None]] = [
        ("job id", job.id),
        ("job name", job.name),
        ("status", job.status),
        ("owner", job.owner),
        ("start time", job.created_at.isoformat()),
        ("end time", None if job.ended_at is None else job.ended_at.isoformat()),
        ("message", job.reason),
    ]
    if job.runs_once:
        return RowsResult(text_schema("name", "value"), [*rows, *_once(job, context)])
    rows.append(("interval", f"{job.interval:g} s"))
    if job.state is JobState.RUNNING and (progress := keeper(context).progress_of(job)):
        rows.append(("commits since its last start", str(progress.commits)))
    for insert in job.inserts:
        columns = f" ({', '.join(insert.columns)})" if insert.columns else ""
        rows.append((f"insert into {visible_name(insert.target)}{columns}", redact(insert.query)))
    return RowsResult(text_schema("name", "value"), rows)


def stop(statement: StopJob, context: Context) -> Result:
    """Stop a job for good; what it has written remains.

    :raises ServerError: JOB_NOT_FOUND.
    """
    job = _find(statement.id, context)
    if not keeper(context).stop(job):
        context.note(f"Job {job.id} had ended before.")
    return nothing()


def _once(job: Job, context: Context) -> Iterator[tuple[str, str | None]]:
    """Yield what is known of a job over tables."""
    if job.rows is not None:
        yield ("rows", str(job.rows))
    progress = keeper(context).single.progress_of(job)
    if job.state is JobState.RUNNING and progress is not None:
        yield ("tasks", f"{progress.tasks_done} of {progress.tasks_total}")
    for number, text in enumerate(job.statements, 1):
        yield (f"statement {number}", text)


def _find(job_id: str, context: Context) -> Job:
    for job in _visible(context):
        if job.id.replace("-", "") == job_id.lower().replace("-", ""):  # Flink's have no hyphens
            return job
    raise error(Code.JOB_NOT_FOUND, job=job_id)


def _visible(context: Context) -> list[Job]:
    """Return the jobs of the user; for administrators, all."""
    rights = rights_of(context.session.user, context.services)
    jobs = keeper(context).store.all()
    if rights is None or rights.administrator:
        return list(jobs)
    return [job for job in jobs if job.owner == context.session.user]


def keeper(context: Context) -> JobKeeper:
    """Return what keeps the jobs running."""
    if context.services.jobs is None:
        raise AssertionError("a gateway keeps jobs")
    return context.services.jobs
