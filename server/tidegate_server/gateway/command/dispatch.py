"""From a statement's text to its result: the one match over statements."""

from __future__ import annotations

import logging
import re
from typing import assert_never

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.result import Result
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.places import place_of, place_of_table
from tidegate_server.core.sql.query import begins_like_rows, spark_statement
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterAsQuery,
    Alteration,
    AlterCancelRefresh,
    AlterConvertToTable,
    AlterDiscardHeld,
    AlterDrop,
    AlterModify,
    AlterPublishHeld,
    AlterRefresh,
    AlterRename,
    AlterResetOptions,
    AlterResume,
    AlterRollback,
    AlterRollbackDefinition,
    AlterSetExecuteAs,
    AlterSetFreshness,
    AlterSetImmutable,
    AlterSetOptions,
    AlterSetRefreshMode,
    AlterSetRefreshTrigger,
    AlterSuspend,
    AlterSwap,
    CreateMaterializedTable,
    DescribeTable,
    DropMaterializedTable,
    Explain,
    GrantPrivileges,
    ResetOption,
    RevokePrivileges,
    SetOption,
    ShowCreateMaterializedTable,
    ShowCreateTable,
    ShowGrants,
    ShowLag,
    ShowLineage,
    ShowMaterializedTables,
    ShowOption,
    ShowOptions,
    ShowRefreshHistory,
    ShowVersions,
    SparkStatement,
    Statement,
    VerifyMaterializedTable,
)
from tidegate_server.gateway import spark_session
from tidegate_server.gateway.authorization import admission, visibility
from tidegate_server.gateway.command import (
    alter,
    convert,
    create,
    describe,
    grant,
    held,
    history,
    lifecycle,
    redefine,
    refresh,
    rename,
    rollback,
    schema_changes,
    settings,
    show,
    swap,
    verify,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import downstream, resolve
from tidegate_server.gateway.reading import snapshot, staleness

log = logging.getLogger(__name__)

_CONNECTOR = re.compile(
    r"\s*CREATE\s+(TEMPORARY\s+)?TABLE\b.*?'connector'\s*=", re.IGNORECASE | re.DOTALL
)
_OF_TABLES = frozenset({Code.MT_NOT_FOUND.name, Code.MT_WRONG_KIND.name})
_OF_PARTITIONS = frozenset({Code.MT_PARTITION_UNKNOWN.name, Code.MT_PARTITION_TYPE.name})


def execute(text: str, context: Context) -> Result:
    """Parse one statement, carry it out and return its result.

    :raises ServerError: whatever is wrong with the text or its execution.
    """
    settings.check_overlay(context)
    statement = parse(text)
    log.info("Operation %s: %s", context.operation_id, type(statement).__name__)
    try:
        admitted = admission.admit(statement, text, context)
        result = _carry_out(admitted.statement, text, admitted.context)
    except ServerError as problem:
        if isinstance(statement, SparkStatement):
            _advise(problem, text)
        else:
            _place(problem, text)
        raise
    if isinstance(admitted.statement, _REDEFINING):
        downstream.settle(admitted.statement.name, admitted.context)
    return admitted.shown(result)


def returns_rows(text: str) -> bool:
    """Say whether clients should fetch after this statement, by its words alone; never raises."""
    try:
        statement = parse(text)
    except ServerError:
        return False
    match statement:
        case AlterRefresh() | AlterCancelRefresh() | VerifyMaterializedTable():
            return True
        case AlterSuspend(cascade=True) | AlterResume(cascade=True):
            return True
        case _:
            return begins_like_rows(text)


def _advise(problem: ServerError, text: str) -> None:
    """Say what to write instead of a table of Flink's, which Spark cannot parse."""
    if problem.code == "PARSE_SYNTAX_ERROR" and _CONNECTOR.match(text):
        problem.hint = (
            "Tables with a connector are Flink's. What arrives in files or in Kafka comes in by "
            "CREATE MATERIALIZED TABLE name AS SELECT * FROM STREAM read_files('/place', format "
            "=> 'json') or STREAM read_kafka(...); other tables are made by CREATE TABLE ... USING."
        )


def _place(problem: ServerError, text: str) -> None:
    """Place an error about a table or a partition where the statement first names it."""
    if problem.line is not None or problem.name is None:
        return
    found = None
    if problem.code in _OF_TABLES:
        found = place_of_table(text, problem.name)
    elif problem.code in _OF_PARTITIONS:
        found = place_of(text, problem.name, "PARTITION")
    problem.line, problem.column = found or (None, None)


def _carry_out(statement: Statement, text: str, context: Context) -> Result:
    match statement:
        case SparkStatement(text=sql):
            inlined = staleness.keep_bound(sql, context)
            pinned = snapshot.agreed(sql, inlined, context)
            answered = spark_session.execute(sql, context, inlined, pinned)
            owned = show.with_owners(sql, answered, context.services.catalog)
            return visibility.without_storages(sql, owned, context.services.catalog)
        case CreateMaterializedTable():
            return create.create(statement, text, context)
        case VerifyMaterializedTable():
            return verify.verify(statement, context)
        case DropMaterializedTable():
            return lifecycle.drop(statement, context)
        case SetOption():
            return settings.set_option(statement, context)
        case ShowOption():
            return settings.show_option(statement, context)
        case ShowOptions():
            return settings.show_options(statement, context)
        case ResetOption():
            return settings.reset_option(statement, context)
        case GrantPrivileges():
            return grant.grant(statement, context)
        case RevokePrivileges():
            return grant.revoke(statement, context)
        case ShowGrants():
            return grant.show_grants(statement, context)
        case ShowCreateTable(name=name):
            if resolve.find(name, context) is None:
                return spark_session.execute(spark_statement(text), context)
            return show.show_create(ShowCreateMaterializedTable(name=name), context)
        case DescribeTable():
            return describe.describe(statement, text, context)
        case Explain():
            return _explain(statement, text, context)
        case (
            ShowMaterializedTables()
            | ShowCreateMaterializedTable()
            | ShowRefreshHistory()
            | ShowLineage()
            | ShowLag()
            | ShowVersions()
        ):
            return _show(statement, context)
        case _:
            return _alter(statement, text, context)


def _alter(statement: Alteration, text: str, context: Context) -> Result:
    match statement:
        case AlterSuspend(cascade=True):
            return lifecycle.suspend_cascade(statement, context)
        case AlterResume(cascade=True):
            return lifecycle.resume_cascade(statement, context)
        case AlterSuspend():
            return lifecycle.suspend(statement, context)
        case AlterResume():
            return lifecycle.resume(statement, context)
        case AlterRefresh():
            return refresh.refresh(statement, context)
        case AlterSetFreshness():
            return alter.set_freshness(statement, text, context)
        case AlterSetRefreshMode():
            return alter.set_refresh_mode(statement, context)
        case AlterSetRefreshTrigger():
            return alter.set_refresh_trigger(statement, context)
        case AlterSetExecuteAs():
            return alter.set_execute_as(statement, context)
        case AlterSetImmutable():
            return alter.set_immutable(statement, text, context)
        case AlterSetOptions():
            return alter.set_options(statement, context)
        case AlterResetOptions():
            return alter.reset_options(statement, context)
        case AlterCancelRefresh():
            return refresh.cancel_refresh(statement, context)
        case AlterAsQuery():
            return redefine.alter_query(statement, text, context)
        case AlterAdd():
            return schema_changes.add(statement, text, context)
        case AlterModify():
            return schema_changes.modify(statement, text, context)
        case AlterDrop():
            return schema_changes.drop(statement, context)
        case AlterPublishHeld():
            return held.publish(statement, context)
        case AlterDiscardHeld():
            return held.discard(statement, context)
        case AlterRollback():
            return rollback.roll_back(statement, text, context)
        case AlterConvertToTable():
            return convert.convert_to_table(statement, context)
        case AlterRollbackDefinition():
            return rollback.roll_back_definition(statement, text, context)
        case AlterRename():
            return rename.rename(statement, context)
        case AlterSwap():
            return swap.swap(statement, context)
        case _:
            assert_never(statement)


_REDEFINING = (
    CreateMaterializedTable,
    DropMaterializedTable,
    AlterAsQuery,
    AlterSetFreshness,
    AlterSetRefreshMode,
    AlterRename,
    AlterSwap,
    AlterRollback,
    AlterRollbackDefinition,
    AlterConvertToTable,
)
"""Statements after which consumers, or what they need, may be other ones."""

Show = (
    ShowMaterializedTables
    | ShowCreateMaterializedTable
    | ShowRefreshHistory
    | ShowLineage
    | ShowLag
    | ShowVersions
)


def _show(statement: Show, context: Context) -> Result:
    match statement:
        case ShowMaterializedTables():
            return show.show_tables(statement, context)
        case ShowCreateMaterializedTable():
            return show.show_create(statement, context)
        case ShowRefreshHistory():
            return history.show_history(statement, context)
        case ShowLineage():
            return show.show_lineage(statement, context)
        case ShowLag():
            return show.show_lag(context)
        case ShowVersions():
            return history.show_versions(statement, context)
        case _:
            assert_never(statement)


def _explain(statement: Explain, text: str, context: Context) -> Result:
    match statement.statement:
        case CreateMaterializedTable() as inner:
            return create.explain_create(inner, text, context, statement.detail)
        case AlterRefresh() as inner:
            return refresh.explain_refresh(inner, context)
        case AlterAsQuery() as inner:
            return redefine.explain_alter_query(inner, text, context)
        case AlterRollbackDefinition() as inner:
            return rollback.explain_definition(inner, text, context)
        case _:
            assert_never(statement.statement)
