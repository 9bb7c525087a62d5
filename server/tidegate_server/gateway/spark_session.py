"""Passes statements that are not Tidegate's own to the engine verbatim."""

from __future__ import annotations

import logging
import re
from contextlib import closing

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import (
    Execute,
    InlinedTable,
    OpenSession,
    PinnedVersions,
    Survey,
)
from tidegate_server.core.model.access import Admission
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.statements import SparkStatement, StatementFacts
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.link.result import EngineResult
from tidegate_server.gateway.options import spark_settings

logger = logging.getLogger(__name__)

_OPENINGS = 3  # a new engine may come up while the first attempt waits for one
_SYSTEM_SCHEMA = re.compile("information_schema", re.IGNORECASE)


def execute(
    statement: SparkStatement,
    context: Context,
    inlined: tuple[InlinedTable, ...] = (),
    pinned: PinnedVersions | None = None,
    admission: Admission | None = None,
    plan_id: str = "",
) -> EngineResult:
    """Run a user's statement in the session's child session.

    :param inlined: materialized tables whose queries are read instead of their rows.
    :param pinned: the versions at which tables are read.
    :param admission: what its plans may access; None for everything.
    :param plan_id: the plan of its survey, if that is still to run.
    :raises ServerError: the engine's error; MT_WRONG_KIND for plain DDL and DML on a
        materialized table.
    """
    _ready_system_tables(statement.text, context)
    result = _send(statement.text, context, inlined, pinned, admission, plan_id)
    _record_changes(statement.facts, context)
    return result


def describe(text: str, context: Context) -> EngineResult:
    """Run a user's DESCRIBE or SHOW CREATE TABLE, which changes nothing."""
    _ready_system_tables(text, context)
    return _send(spark_text(text), context)


def run(sql: str, context: Context) -> EngineResult:
    """Run SQL of Tidegate's own, which creates and drops no objects of the session."""
    return _send(sql, context)


def _send(
    sql: str,
    context: Context,
    inlined: tuple[InlinedTable, ...] = (),
    pinned: PinnedVersions | None = None,
    admission: Admission | None = None,
    plan_id: str = "",
) -> EngineResult:
    """Run SQL and update the session's current catalog and schema."""
    session = context.session
    request = Execute(
        session_id=ensure_session(context),
        owner=session.real_user,
        user=session.user,
        operation_id=context.operation_id,
        sql=sql,
        settings=spark_settings(context.overlay),
        inline_bytes=context.services.config.engine.inline_bytes,
        inlined=inlined,
        pinned=pinned,
        admission=admission,
        plan_id=plan_id,
    )
    answer = context.engine.call(request, on_progress=context.progress)
    session.catalog, session.schema = answer.current_catalog, answer.current_schema
    return EngineResult(context.engine, answer)


def _record_changes(facts: StatementFacts, context: Context) -> None:
    """Record the session's temporary objects and its time zone after a statement."""
    session = context.session
    if facts.creates_temporary is not None:
        session.temporary.add(facts.creates_temporary)
    session.temporary.discard(facts.drops or "")
    if facts.sets_time_zone:
        # Kept because it is stored with the session's tables and sent to a new engine.
        session.settings[SESSION_ZONE] = session_zone(context)


def session_zone(context: Context) -> str:
    """Return the session's time zone in Spark's spelling."""
    with closing(run(f"SET {SESSION_ZONE}", context)) as found:
        [(_, zone)] = [tuple(row.values()) for b in found.batches(0) for row in b.to_pylist()]
    return str(zone)


def survey(text: str, context: Context) -> Surveyed:
    """Have the engine analyze what a statement would read, without running it."""
    # Without this, a new engine would not yet know the system tables, nor report them as read.
    _ready_system_tables(text, context)
    request = Survey(
        session_id=ensure_session(context),
        operation_id=context.operation_id,
        sql=text,
        settings=spark_settings(context.overlay),
        user=context.session.user,
        features=context.features,
    )
    return context.engine.call(request)


def _ready_system_tables(text: str, context: Context) -> None:
    if _SYSTEM_SCHEMA.search(text) or _SYSTEM_SCHEMA.fullmatch(context.session.schema):
        context.services.publish_system_tables(text, context.features is None)


def ensure_session(context: Context) -> str:
    """Open the child session unless the running engine has it; return its id.

    A new engine gets the session's Spark settings and current schema again, but not its temporary
    views, functions and variables: what they were created from may have changed.

    :raises ServerError: SESSION_OBJECTS_LOST, once, if there were any; OBJECT_NOT_FOUND, once, if
        its current catalog is gone; the reason if the statement was ended meanwhile.
    """
    engine, session = context.engine, context.session
    if not engine.ready or session.engine_generation != engine.generation:
        _open(context)
    else:
        context.services.ensure_catalogs(session.user)
    # An engine may take long to come up; the statement may have been canceled meanwhile.
    context.require_wanted()
    return session.session_id


def _open(context: Context) -> None:
    engine, session = context.engine, context.session
    request = OpenSession(
        session_id=session.session_id,
        settings=spark_settings(session.settings),
        catalog=session.catalog,
        schema=session.schema or None,
    )
    for _ in range(_OPENINGS):
        session.engine_generation = engine.generation
        context.services.ensure_catalogs(session.user)
        try:
            engine.call(request)
        except ServerError as problem:
            if problem.code == Code.OBJECT_NOT_FOUND.name:  # said once: the next statement works
                session.catalog, session.schema = DEFAULT_CATALOG, DEFAULT_SCHEMA
            session.engine_generation = None
            raise
        if session.engine_generation == engine.generation:
            break
    if session.temporary:
        lost, session.temporary = sorted(session.temporary), set()
        raise error(Code.SESSION_OBJECTS_LOST, objects=", ".join(lost))
