"""ALTER MATERIALIZED TABLE ... ROLLBACK TO VERSION."""

from __future__ import annotations

import logging

from tidegate_server.command import lifecycle, resolve
from tidegate_server.command.context import Context
from tidegate_server.command.refresh import raise_failure
from tidegate_server.model.result import Result, nothing
from tidegate_server.model.runs import Trigger
from tidegate_server.model.states import RefreshStatus
from tidegate_server.refresh.request import RefreshRequest
from tidegate_server.sql.statements import AlterResume, AlterRollback, AlterSuspend

log = logging.getLogger(__name__)


def roll_back(statement: AlterRollback, context: Context) -> Result:
    """Suspend a table and restore the rows of an earlier version as a new version.

    The table stays suspended, since its next refresh would undo the rollback. When it cannot be
    rolled back it goes on as before.

    :raises ServerError: MT_STATE while it is INITIALIZING, or the error of the run that failed,
        such as MT_ROLLBACK_IMPOSSIBLE.
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
