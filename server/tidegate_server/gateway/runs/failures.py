"""Turns failed refresh runs into statement errors."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState


def raise_failure(run: RefreshRun, what: str = "Refresh") -> None:
    """Raise the error of a run that did not succeed; see :func:`raise_failures`."""
    raise_failures([run], what)


def raise_failures(runs: Sequence[RefreshRun], what: str = "Refresh") -> None:
    """Raise the first error of runs that did not all succeed.

    ``what`` names the attempted action.

    :raises ServerError: with the run's own error class, or OPERATION_CANCELED.
    """
    failed = [run for run in runs if run.state is not RunState.SUCCEEDED]
    if not failed:
        return
    failed.sort(key=lambda run: run.state is RunState.UPSTREAM_FAILED)
    run = failed[0]
    if run.state is RunState.CANCELLED:
        raise error(Code.OPERATION_CANCELED, by="")
    held = run.error_class == Code.MT_VERSION_HELD.name
    hint = f"SHOW REFRESH HISTORY FOR {run.table} lists it as {run.refresh_id}."
    message = run.error_message or run.reason_text or f"the run ended {run.state.value}"
    if len(runs) > 1:
        message += f" ({len(runs) - len(failed)} of {len(runs)} refreshes succeeded)"
    raise ServerError(
        code=run.error_class or Code.INTERNAL.name,
        sqlstate=run.sqlstate or "XX000",
        message=f"{what} of {run.table} {run.state.value}: {message}",
        hint=error(Code.MT_VERSION_HELD, table=run.table, reason="").hint if held else hint,
    )
