"""Everything that is not ours, verbatim to the engine."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from tidegate_server.command import resolve
from tidegate_server.command.context import Context
from tidegate_server.command.options import spark_settings
from tidegate_server.errors import Code, error
from tidegate_server.link.messages import Answer, Execute, Executed, OpenSession
from tidegate_server.link.result import EngineResult
from tidegate_server.sql.query import Target, dropped_schema, targets

log = logging.getLogger(__name__)

_OPENINGS = 3  # an engine may come up while the first one waits for it
_SYSTEM_SCHEMA = re.compile("information_schema", re.IGNORECASE)
_ANSWERED_BY_REFRESH = (
    "Its content follows from its query: ALTER MATERIALIZED TABLE {table} REFRESH, or AS query."
)
_HINTS: Mapping[str, str] = {
    "DROP TABLE": "Use DROP MATERIALIZED TABLE {table}.",
    "ALTER TABLE": "Use ALTER MATERIALIZED TABLE {table}.",
    "SHOW CREATE TABLE": "Use SHOW CREATE MATERIALIZED TABLE {table}.",
    "ANALYZE TABLE": "Statistics of a materialized table are kept by its refreshes.",
    "CREATE OR REPLACE TABLE": "Use DROP MATERIALIZED TABLE {table} first.",
    "REPLACE TABLE": "Use DROP MATERIALIZED TABLE {table} first.",
}


def execute(text: str, context: Context) -> EngineResult:
    """Run a statement in the session's child session.

    :raises ServerError: MT_WRONG_KIND for plain DDL and DML on a materialized table, or what the
        engine answers.
    """
    guard(text, context)
    if _SYSTEM_SCHEMA.search(text):
        context.services.publish_system_tables()
    return run(text, context)


def run(text: str, context: Context) -> EngineResult:
    """Run SQL unguarded; the session follows a changed catalog or schema."""
    session = context.session
    request = Execute(
        session_id=ensure_session(context),
        operation_id=context.operation_id,
        sql=text,
        settings=spark_settings(context.overlay),
        inline_bytes=context.services.config.engine.inline_bytes,
    )
    answer = context.services.engine.call(request, on_progress=context.progress)
    if not isinstance(answer, Executed):
        raise unexpected(answer)
    session.catalog, session.schema = answer.current_catalog, answer.current_schema
    return EngineResult(context.services.engine, answer)


def ensure_session(context: Context) -> str:
    """Open the child session unless the running engine has it; returns its id.

    A new engine gets the session's Spark settings and current schema again.
    """
    engine, session = context.services.engine, context.session
    if engine.ready and session.engine_generation == engine.generation:
        return session.session_id
    request = OpenSession(
        session_id=session.session_id,
        settings=spark_settings(session.settings),
        schema=session.schema,
    )
    for _ in range(_OPENINGS):
        session.engine_generation = engine.generation
        engine.call(request)
        if session.engine_generation == engine.generation:
            break
    return session.session_id


def guard(text: str, context: Context) -> None:
    """Refuse plain DDL and DML on materialized tables.

    :raises ServerError: MT_WRONG_KIND naming the statement to use.
    """
    for target in targets(text):
        if resolve.find(target.name, context) is not None:
            raise _wrong_kind(target, context)
    if name := dropped_schema(text):
        _guard_schema(name, context)


def unexpected(answer: Answer) -> Exception:
    """Return the error for an answer of the wrong kind."""
    return error(Code.INTERNAL, reason=f"the engine answered {type(answer).__name__}")


def _wrong_kind(target: Target, context: Context) -> Exception:
    name = resolve.table_name(target.name, context)
    hint = _HINTS.get(target.action, _ANSWERED_BY_REFRESH).format(table=name)
    return error(
        Code.MT_WRONG_KIND,
        table=name,
        found="a materialized table",
        expected=f"a table for {target.action}",
        hint=hint,
    )


def _guard_schema(name: tuple[str, ...], context: Context) -> None:
    if len(name) > 2:
        return
    catalog, schema = resolve.schema_name(name, context)
    inside = context.services.catalog.tables(catalog, schema)
    if inside:
        raise error(
            Code.MT_WRONG_KIND,
            table=f"{catalog}.{schema}",
            found="a schema with materialized tables",
            expected="one without for DROP SCHEMA",
            hint=f"Drop them first: {', '.join(str(table.name) for table in inside)}.",
        )
