"""Statements over tables that become jobs, as Flink's ``table.dml-sync`` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tidegate_server.core.errors import ServerError
from tidegate_server.core.jobs import DML_SYNC_OPTION, JOB_COLUMN, JOB_NAME_OPTION, Job
from tidegate_server.core.messages.requests import CheckStatement, CloseSession, CopySession
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.sql.redact import redact
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.authorization.admission import admit_spark, admitting
from tidegate_server.gateway.command.jobs.listing import keeper
from tidegate_server.gateway.context import Context, SessionState
from tidegate_server.gateway.options import spark_settings
from tidegate_server.gateway.runs.single_jobs import SingleRun
from tidegate_server.gateway.spark_session import ensure_session

RunNow = Callable[[SparkStatement, Context], Result]


def waits(context: Context) -> bool:
    """Return whether statements that change rows wait for their end."""
    return (context.setting(DML_SYNC_OPTION) or "true").strip().lower() != "false"


def submitted(*job_ids: str) -> Result:
    """Return the result of a statement that became jobs."""
    return RowsResult(text_schema(JOB_COLUMN), [(each,) for each in job_ids])


def submit(statements: Sequence[SparkStatement], context: Context, run_now: RunNow) -> str:
    """Start a job that runs statements one after the other; return its id.

    It runs in a copy of the session, so that it does not depend on what follows there.

    :raises ServerError: ACCESS_DENIED, MT_WRONG_KIND, TOO_MANY or Spark's error in one of them.
    """
    services, config = context.services, context.services.config
    job_id = services.new_id()
    session = _copy_session(job_id, context)
    inside = replace(context, session=session)
    try:
        changed = [table for each in statements for table in _check(each, inside)]
        targets = ", ".join(dict.fromkeys(changed))
        job = Job(
            id=job_id,
            name=context.setting(JOB_NAME_OPTION) or _name_of(statements, targets),
            owner=context.session.user,
            statements=tuple(redact(each.text) for each in statements),
            created_at=services.clock.now(),
        )
        run = SingleRun(job, timeout=config.server.query_timeout)

        def work() -> int | None:
            try:
                return _run_all(statements, inside, run, run_now)
            finally:
                _close(inside)

        keeper(context).single.submit(run, work, config.server.max_statements_per_user)
    except BaseException:
        _close(inside)
        raise
    context.note(f"Job {job.id} writes into {targets or 'its tables'}; DESCRIBE JOB '{job.id}'.")
    return job.id


def _copy_session(copy_id: str, context: Context) -> SessionState:
    """Return a copy of the session, in the engine, too."""
    origin = context.session
    request = CopySession(session_id=ensure_session(context), copy_id=copy_id)
    context.engine.call(request)
    return replace(
        origin,
        session_id=copy_id,
        settings=dict(origin.settings),
        temporary=set(origin.temporary),
        statement_set=None,
    )


def _close(inside: Context) -> None:
    with suppress(ServerError):  # without an engine, there is no session in it
        inside.engine.call(CloseSession(session_id=inside.session.session_id), wait=0)


def _check(statement: SparkStatement, inside: Context) -> tuple[str, ...]:
    """Check a statement and its user's privileges; return the tables that it changes.

    :raises ServerError: ACCESS_DENIED, MT_WRONG_KIND or Spark's error.
    """
    with admitting(inside):
        admitted = admit_spark(statement, inside)
    request = CheckStatement(
        session_id=inside.session.session_id,
        operation_id=inside.operation_id,
        sql=admitted.statement.text,
        settings=spark_settings(inside.overlay),
        user=inside.session.user,
        admission=admitted.admission,
    )
    return inside.engine.call(request).targets


def _run_all(
    statements: Sequence[SparkStatement], inside: Context, run: SingleRun, run_now: RunNow
) -> int | None:
    """Run statements one after the other; return the rows that they changed, if known."""
    changed: list[int | None] = []
    for statement in statements:
        run.require_wanted()
        record = Record(
            user=inside.session.user,
            real_user=inside.session.real_user,
            address=inside.session.address,
            session_id=inside.session.session_id,
            operation_id=run.job.id,
            statement_kind=statement.facts.verb,
            text=statement.text,
        )
        context = replace(
            inside,
            operation_id=run.job.id,
            log=lambda line: None,
            progress=run.report,
            record=record,
            require_wanted=run.require_wanted,
        )
        with inside.services.audit.recording(record):
            result = run_now(statement, context)
        changed.append(result.modified_rows)
        result.close()
    known = [each for each in changed if each is not None]
    return sum(known) if len(known) == len(changed) else None


def _name_of(statements: Sequence[SparkStatement], targets: str) -> str:
    verb = statements[0].facts.verb.lower()
    word = {"update": "update", "delete": "delete-from", "merge": "merge-into"}.get(verb)
    return f"{word or 'insert-into'}_{targets}"
