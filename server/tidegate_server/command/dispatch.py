"""From a statement's text to its result: the one match over statements."""

from __future__ import annotations

import logging
from typing import assert_never

from tidegate_server.command import (
    alter,
    create,
    lifecycle,
    refresh,
    settings,
    show,
    spark,
)
from tidegate_server.command.context import Context
from tidegate_server.command.validate import not_yet
from tidegate_server.errors import ServerError
from tidegate_server.model.result import Result
from tidegate_server.sql.parse import parse
from tidegate_server.sql.query import begins_like_rows
from tidegate_server.sql.statements import (
    AlterAdd,
    AlterAsQuery,
    AlterCancelRefresh,
    AlterDrop,
    AlterModify,
    AlterRefresh,
    AlterRename,
    AlterResetOptions,
    AlterResume,
    AlterRollback,
    AlterSetFreshness,
    AlterSetOptions,
    AlterSetRefreshMode,
    AlterSuspend,
    CreateMaterializedTable,
    DescribeTable,
    DropMaterializedTable,
    Explain,
    ResetOption,
    SetOption,
    ShowCreateMaterializedTable,
    ShowLag,
    ShowLineage,
    ShowMaterializedTables,
    ShowOption,
    ShowRefreshHistory,
    ShowVersions,
    SparkStatement,
    Statement,
    VerifyMaterializedTable,
)

log = logging.getLogger(__name__)

_RECREATE = "DROP MATERIALIZED TABLE and CREATE it with the new definition."


def execute(text: str, context: Context) -> Result:
    """Parse one statement, carry it out and return its result.

    :raises ServerError: whatever is wrong with the text or its execution.
    """
    statement = parse(text)
    log.info("Operation %s: %s", context.operation_id, type(statement).__name__)
    return _carry_out(statement, text, context)


def returns_rows(text: str) -> bool:
    """Say whether clients should fetch after this statement, by its words alone; never raises."""
    try:
        statement = parse(text)
    except ServerError:
        return False
    match statement:
        case AlterRefresh():
            return True
        case _:
            return begins_like_rows(text)


def _carry_out(statement: Statement, text: str, context: Context) -> Result:
    match statement:
        case SparkStatement():
            return spark.execute(text, context)
        case CreateMaterializedTable():
            return create.create(statement, text, context)
        case VerifyMaterializedTable():
            raise not_yet("VERIFY MATERIALIZED TABLE", "Compare the table with its query.")
        case DropMaterializedTable():
            return lifecycle.drop(statement, context)
        case SetOption():
            return settings.set_option(statement, context)
        case ShowOption():
            return settings.show_option(statement, context)
        case ResetOption():
            return settings.reset_option(statement, context)
        case DescribeTable():
            return show.describe(statement, text, context)
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
            return _alter(statement, context)


Alteration = (
    AlterSuspend
    | AlterResume
    | AlterRefresh
    | AlterCancelRefresh
    | AlterAsQuery
    | AlterSetOptions
    | AlterResetOptions
    | AlterSetFreshness
    | AlterSetRefreshMode
    | AlterAdd
    | AlterModify
    | AlterDrop
    | AlterRename
    | AlterRollback
)


def _alter(statement: Alteration, context: Context) -> Result:
    match statement:
        case AlterSuspend():
            return lifecycle.suspend(statement, context)
        case AlterResume():
            return lifecycle.resume(statement, context)
        case AlterRefresh():
            return refresh.refresh(statement, context)
        case AlterSetFreshness():
            return alter.set_freshness(statement, context)
        case AlterSetRefreshMode():
            return alter.set_refresh_mode(statement, context)
        case AlterSetOptions():
            return alter.set_options(statement, context)
        case AlterResetOptions():
            return alter.reset_options(statement, context)
        case AlterCancelRefresh():
            raise not_yet("CANCEL REFRESH", "Cancel the operation that runs the REFRESH.")
        case AlterAsQuery():
            raise not_yet("ALTER MATERIALIZED TABLE ... AS", _RECREATE)
        case AlterAdd():
            raise not_yet("ALTER MATERIALIZED TABLE ... ADD", _RECREATE)
        case AlterModify():
            raise not_yet("ALTER MATERIALIZED TABLE ... MODIFY", _RECREATE)
        case AlterDrop():
            raise not_yet("ALTER MATERIALIZED TABLE ... DROP", _RECREATE)
        case AlterRollback():
            raise not_yet("ROLLBACK TO VERSION", "Refresh the table instead.")
        case AlterRename():
            raise not_yet("ALTER MATERIALIZED TABLE ... RENAME TO", _RECREATE)
        case _:
            assert_never(statement)


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
            return show.show_history(statement, context)
        case ShowLineage():
            return show.show_lineage(statement, context)
        case ShowLag():
            raise not_yet("SHOW LAG", "SHOW MATERIALIZED TABLES EXTENDED has the lag.")
        case ShowVersions():
            raise not_yet("SHOW VERSIONS", "DESCRIBE HISTORY of the table lists its commits.")
        case _:
            assert_never(statement)


def _explain(statement: Explain, text: str, context: Context) -> Result:
    match statement.statement:
        case CreateMaterializedTable() as inner:
            return create.explain_create(inner, text, context)
        case AlterRefresh() as inner:
            return refresh.explain_refresh(inner, context)
        case AlterAsQuery():
            raise not_yet("EXPLAIN ALTER MATERIALIZED TABLE ... AS", "EXPLAIN the query itself.")
        case _:
            assert_never(statement.statement)
