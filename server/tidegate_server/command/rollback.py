"""ALTER MATERIALIZED TABLE ... ROLLBACK TO VERSION."""

from __future__ import annotations

import logging

from tidegate_server.command import definitions, lifecycle, resolve, rollback_definition
from tidegate_server.command.context import Context
from tidegate_server.command.refresh import raise_failure
from tidegate_server.errors import Code, error
from tidegate_server.model.result import Result, nothing
from tidegate_server.model.runs import Trigger
from tidegate_server.model.states import RefreshStatus
from tidegate_server.refresh.request import RefreshRequest
from tidegate_server.sql.places import place_behind
from tidegate_server.sql.statements import (
    AlterResume,
    AlterRollback,
    AlterRollbackDefinition,
    AlterSuspend,
    RolledBack,
)

log = logging.getLogger(__name__)


def roll_back(statement: AlterRollback, text: str, context: Context) -> Result:
    """Bring back the rows of an earlier version, the definition they were made by, or both.

    Of both the rows come first, which leaves the table suspended: whoever dies in between leaves
    what a rollback of the rows alone leaves, and the same statement completes it.

    :raises ServerError: MT_STATE while the table is INITIALIZING; the error of the run that failed,
        such as MT_ROLLBACK_IMPOSSIBLE; for the definition what ROLLBACK DEFINITION raises, before
        anything was done.
    """
    if statement.what is RolledBack.DATA:
        return _roll_back_data(statement, context)
    table = resolve.materialized_table(statement.name, context)
    made_by = definitions.of_data(table, statement.version, context.services.ledger)
    if made_by is None:
        problem = error(
            Code.MT_ROLLBACK_IMPOSSIBLE,
            table=str(table.name),
            version=statement.version,
            reason="the history knows no refresh that made it",
            hint=f"SHOW VERSIONS {table.name} lists those it knows.",
        )
        problem.line, problem.column = place_behind(text, "TO", "VERSION")
        raise problem
    definition = AlterRollbackDefinition(name=statement.name, version=made_by)
    if statement.what is RolledBack.BOTH:
        rollback_definition.check(definition, text, context)
        _roll_back_data(statement, context)
    return rollback_definition.roll_back_definition(definition, text, context)


def _roll_back_data(statement: AlterRollback, context: Context) -> Result:
    """Suspend a table and restore the rows of an earlier version as a new version.

    The table stays suspended, since its next refresh would undo the rollback. When it cannot be
    rolled back it goes on as before.
    """
    table = resolve.materialized_table(statement.name, context)
    if table.refresh_status is RefreshStatus.INITIALIZING:
        raise lifecycle.wrong_state(table, "ROLLBACK", "ACTIVATED or SUSPENDED")
    active = table.refresh_status is RefreshStatus.ACTIVATED
    if active:
        lifecycle.suspend(AlterSuspend(name=statement.name), context)
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.MANUAL,
        requested_by=context.session.user,
        refresh_id=context.operation_id,
        rollback_to=statement.version,
    )
    try:
        raise_failure(context.services.run_refresh(request))
    except Exception:
        if active:
            # As it was resumed last, options included.
            again = AlterResume(name=statement.name, options=table.resume_options)
            lifecycle.resume(again, context)
        raise
    log.info("Rolled %s back to version %d", table.name, statement.version)
    context.log(
        f"{table.name} holds the rows of version {statement.version} and is suspended; "
        "RESUME or REFRESH brings it up to date again."
    )
    return nothing()
