"""INSERTs over streams, which become jobs, and statement sets, whose INSERTs become one.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/insert/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate_server.core.errors import Code, error
from tidegate_server.core.jobs import JOB_INTERVAL_OPTION, JOB_NAME_OPTION, Job, JobInsert
from tidegate_server.core.messages.requests import AnalyzeInsert, FindStream
from tidegate_server.core.model.access import Act, ObjectKind
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.sql.jobs.statements import BeginStatementSet, EndStatementSet, Insert
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement, Statement
from tidegate_server.gateway.authorization.admission import admitting, judge_definition
from tidegate_server.gateway.authorization.features import allowed_features
from tidegate_server.gateway.command.jobs import single
from tidegate_server.gateway.command.jobs.listing import keeper
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.build import stored_settings
from tidegate_server.gateway.options import read_duration, spark_settings
from tidegate_server.gateway.spark_session import ensure_session

_DEFAULT_INTERVAL = 10.0
_HOW = "Write BEGIN STATEMENT SET; INSERT INTO ...; INSERT INTO ...; END;"
_FINISH = "END runs the statements of the set; closing the session discards them."
RunNow = Callable[[SparkStatement, Context], Result]


def check_open(statement: Statement, context: Context) -> None:
    """Reject anything but an INSERT while a statement set is open.

    :raises ServerError: STATEMENT_SET.
    """
    if context.session.statement_set is None or isinstance(statement, EndStatementSet):
        return
    if isinstance(statement, BeginStatementSet):
        raise error(Code.STATEMENT_SET, reason="A statement set is open already", hint=_FINISH)
    if not isinstance(statement, SparkStatement) or statement.facts.verb != "INSERT":
        reason = "Only INSERT statements can be in a statement set"
        raise error(Code.STATEMENT_SET, reason=reason, hint=_FINISH)


def begin(statement: BeginStatementSet, context: Context, run_now: RunNow) -> Result:
    """Open a statement set, with INSERTs of the same text; run them if the text ends the set.

    :raises ServerError: any error of an INSERT; the set is not open then.
    """
    context.session.statement_set = []
    try:
        for text in statement.inserts:
            added = parse(text)
            check_open(added, context)
            if isinstance(added, SparkStatement):
                take(added, context)
    except BaseException:
        context.session.statement_set = None
        raise
    return end(context, run_now) if statement.ends else nothing()


def end(context: Context, run_now: RunNow) -> Result:
    """Run the INSERTs of the open statement set: those over streams as one job, the others now.

    If statements do not wait, the others become a job, too.

    :raises ServerError: STATEMENT_SET if none is open; any error of an INSERT.
    """
    inserts, context.session.statement_set = context.session.statement_set, None
    if inserts is None:
        raise error(Code.STATEMENT_SET, reason="No statement set is open", hint=_HOW)
    if not inserts:
        raise error(Code.STATEMENT_SET, reason="The statement set contains no INSERT", hint=_HOW)
    plain = [each for each in inserts if isinstance(each, SparkStatement)]
    streams = [each for each in inserts if isinstance(each, JobInsert)]
    jobs = []
    if single.waits(context):
        for each in plain:
            run_now(each, context).close()
    elif plain:
        jobs.append(single.submit(plain, context, run_now))
    if streams:
        jobs.append(_submit(streams, context))
    return single.submitted(*jobs) if jobs else nothing()


def take(statement: SparkStatement, context: Context) -> Result | None:
    """Make an INSERT over a stream a job, and add any INSERT to the open statement set.

    :return: its result; None if the statement is to run now.
    :raises ServerError: why the INSERT cannot become a job.
    """
    insert = statement.facts.insert
    stream = None if insert is None else _analyze(insert, context)
    pending = context.session.statement_set
    if pending is not None:
        pending.append(stream or statement)
        return nothing()
    return None if stream is None else single.submitted(_submit([stream], context))


def _analyze(insert: Insert, context: Context) -> JobInsert | None:
    """Return an INSERT as a part of a job; None if its query reads no stream."""
    session_id = ensure_session(context)
    if not context.engine.call(FindStream(session_id=session_id, sql=insert.placed_query)).found:
        return None
    with admitting(context):
        judge_definition(insert.placed_query, context)
    target = resolve.find(insert.name, context)
    if target is not None:
        raise error(
            Code.MT_WRONG_KIND,
            table=str(visible_name(target.name)),
            found="a materialized table",
            expected="a table",
            hint="Its rows are those of its query; INSERT works on plain tables.",
        )
    request = AnalyzeInsert(
        session_id=session_id,
        sql=insert.placed_query,
        head=insert.head,
        target=resolve.canonical_name(insert.name, context.services),
        columns=insert.columns,
        features=allowed_features(context.session.user, context.services),
        user=context.session.user,
    )
    found = context.engine.call(request)
    temporary = found.analysis.temporary_objects
    if temporary:
        reason = f"it uses {', '.join(temporary)}, which end with the session"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
    return JobInsert(
        target=found.target,
        table_id=found.table_id,
        columns=insert.columns,
        query=found.analysis.expanded_query.strip(),
        probe=found.probe,
        source_id=found.source_id,
    )


def _submit(inserts: Sequence[JobInsert], context: Context) -> str:
    """Start a job; return its id.

    :raises ServerError: ACCESS_DENIED or why it cannot be started.
    """
    services, session = context.services, context.session
    interval = context.setting(JOB_INTERVAL_OPTION)
    targets = ", ".join(str(visible_name(insert.target)) for insert in inserts)
    job = Job(
        id=services.new_id(),
        name=context.setting(JOB_NAME_OPTION) or f"insert-into_{targets}",
        owner=session.user,
        inserts=tuple(inserts),
        settings=spark_settings(stored_settings(context)),
        interval=(
            _DEFAULT_INTERVAL
            if interval is None
            else float(read_duration(JOB_INTERVAL_OPTION, interval).seconds)
        ),
        created_at=services.clock.now(),
    )
    for insert in inserts:
        context.record.add(Act.MODIFY.value, ObjectKind.TABLE.value, insert.target)
    with admitting(context):
        keeper(context).submit(job)
    context.note(f"Job {job.id} writes into {targets} until STOP JOB '{job.id}'.")
    return job.id
