"""ALTER MATERIALIZED TABLE ... ROLLBACK of the data or the definition to an earlier version."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable, RollingBack
from tidegate_server.core.refresh.request import RefreshRequest, Rollback
from tidegate_server.core.sql.places import place_after
from tidegate_server.core.sql.statements import AlterRollback, AlterRollbackDefinition, RolledBack
from tidegate_server.gateway.command import lifecycle
from tidegate_server.gateway.command.redefine import (
    alterable,
    carry_out,
    compare,
    explain_evolution,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import history, resolve
from tidegate_server.gateway.definition.build import asked_mode, define
from tidegate_server.gateway.definition.evolution import Evolution
from tidegate_server.gateway.definition.locks import settling
from tidegate_server.gateway.definition.statement import creating
from tidegate_server.gateway.definition.transaction import apply_definition, changing, compensate
from tidegate_server.gateway.recovery.definitions import restore_definition
from tidegate_server.gateway.runs.failures import raise_failure
from tidegate_server.gateway.runs.orders import refuse_half_done, step_id

log = logging.getLogger(__name__)


def roll_back(statement: AlterRollback, text: str, context: Context) -> Result:
    """Restore the rows of an earlier version, the definition that made them, or both.

    :raises ServerError: MT_STATE while the table is INITIALIZING; the failed run's error, such as
        MT_ROLLBACK_IMPOSSIBLE; for the definition the errors of ROLLBACK DEFINITION, before any
        change.
    """
    if statement.what is not RolledBack.BOTH:
        return _roll_back(statement, text, context)
    with settling(resolve.materialized_table(statement.name, context), context):
        return _roll_back(statement, text, context)


def _roll_back(statement: AlterRollback, text: str, context: Context) -> Result:
    table = _table(statement, context)
    if statement.what is RolledBack.DATA:
        return _roll_back_data(table, statement.version, context)
    made_by = history.of_data(table, statement.version, context.services.ledger)
    if made_by is None:
        problem = error(
            Code.MT_ROLLBACK_IMPOSSIBLE,
            table=str(table.name),
            version=statement.version,
            reason="the history knows no refresh that made it",
            hint=f"SHOW VERSIONS {table.name} lists those it knows.",
        )
        problem.line, problem.column = place_after(text, "TO", "VERSION")
        raise problem
    definition = AlterRollbackDefinition(name=statement.name, version=made_by)
    if statement.what is RolledBack.DEFINITION:
        return roll_back_definition(definition, text, context)
    found = way_back(definition, text, context)
    if not found.changes:
        return _roll_back_data(table, statement.version, context)
    return _roll_back_both(found, statement.version, context)


def _table(statement: AlterRollback, context: Context) -> MaterializedTable:
    """Return the table, after completing or undoing a half-done ROLLBACK."""
    table = resolve.materialized_table(statement.name, context)
    if table.state.status is RefreshStatus.INITIALIZING:
        raise lifecycle.wrong_state(table, "ROLLBACK", "ACTIVATED or SUSPENDED")
    mark = table.pending if isinstance(table.pending, RollingBack) else None
    run = None if mark is None else context.services.ledger.find(mark.refresh_id)
    ended = run is None or run.state not in (RunState.QUEUED, RunState.RUNNING)
    if mark is None or statement.what is not RolledBack.BOTH or not ended:
        refuse_half_done(table, "ROLLBACK")
        return table
    settled, came = restore_definition(table, context.services.engine)
    apply_definition(table, settled, context)
    if not came:
        _resume(settled, mark, context)
    return lifecycle.current(table, context)


def _roll_back_data(table: MaterializedTable, version: int, context: Context) -> Result:
    """Suspend a table and restore the rows of an earlier version as a new version.

    The table stays suspended, since its next refresh would undo the rollback. If the rollback
    fails, it is resumed.
    """
    active = table.state.status is RefreshStatus.ACTIVATED
    if active:
        lifecycle.suspend_table(table, context)
    try:
        _restore(table, version, context.operation_id, context)
    except Exception:
        if active:
            # With the options of its last RESUME.
            lifecycle.resume_table(table, table.state.resume_options, context)
        raise
    return _report(table, version, context)


def _roll_back_both(found: Evolution, version: int, context: Context) -> Result:
    """Restore rows and definition, both or neither.

    The table is marked meanwhile: after a crash, the next start restores the definition if the
    rows were restored, and otherwise removes the mark.
    """
    active = found.before.state.status is RefreshStatus.ACTIVATED
    now, user = context.services.clock.now(), context.session.user
    definition = replace(found.after.definition, defined_by=user, defined_at=now)
    after = replace(found.after, definition=definition)
    mark = RollingBack(refresh_id=context.operation_id, active=active, to=after)
    table = replace(found.before, pending=mark)
    made: list[RefreshRun] = []
    with ExitStack() as undo:
        compensate(undo, lambda: _take_back(found.before, mark, made, context))
        with changing([found.before], context):
            context.services.catalog.replace(table)
        if active:
            lifecycle.suspend_table(table, context)
        made.append(_restore(table, version, mark.refresh_id, context))
        pause_at(Point.BETWEEN_HALVES)
        carry_out(replace(found, before=table), context)
        undo.pop_all()
    return _report(table, version, context)


def _take_back(
    table: MaterializedTable, mark: RollingBack, made: list[RefreshRun], context: Context
) -> None:
    """Restore the previous rows and status; if that fails the mark stays.

    It also stays while the fate of the rows is unknown: recovery decides.
    """
    services = context.services
    if lifecycle.current(table, context).pending != mark:
        return  # it was settled meanwhile
    for run in made:
        if run.from_version is None:
            raise error(Code.INTERNAL, reason=f"{run.refresh_id} was built on no version")
        _restore(table, run.from_version, step_id(mark.refresh_id, "back"), context)
    known = services.ledger.find(mark.refresh_id)
    if known is not None and known.state is RunState.RUNNING:
        return
    services.catalog.replace(table)
    _resume(table, mark, context)


def _resume(table: MaterializedTable, mark: RollingBack, context: Context) -> None:
    """Resume a table suspended for its rollback, with the options of its last RESUME."""
    suspended = lifecycle.current(table, context).state.status is RefreshStatus.SUSPENDED
    if mark.active and suspended:
        lifecycle.resume_table(table, table.state.resume_options, context)


def _restore(
    table: MaterializedTable, version: int, refresh_id: str, context: Context
) -> RefreshRun:
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.MANUAL,
        requested_by=context.session.user,
        refresh_id=refresh_id,
        task=Rollback(version=version),
    )
    run = context.services.run_refresh(request)
    raise_failure(run, "ROLLBACK")
    return run


def _report(table: MaterializedTable, version: int, context: Context) -> Result:
    log.info("Rolled %s back to version %d", table.name, version)
    context.note(
        f"{table.name} holds the rows of version {version} and is suspended; "
        "RESUME or REFRESH brings it up to date again."
    )
    return nothing()


def roll_back_definition(statement: AlterRollbackDefinition, text: str, context: Context) -> Result:
    """Restore an earlier definition, as CREATE OR ALTER with that definition does.

    It becomes a new definition version; rows stay until the next refresh.

    :raises ServerError: MT_DEFINITION_NOT_FOUND, or any code of CREATE OR ALTER.
    """
    earlier, found = _find_target(statement, text, context)
    carry_out(found, context)
    version = earlier.definition.version
    log.info("Rolled the definition of %s back to version %d", found.before.name, version)
    context.note(_changed_definition(found, version))
    return nothing()


def way_back(statement: AlterRollbackDefinition, text: str, context: Context) -> Evolution:
    """Return the changes :func:`roll_back_definition` would make; raises the same."""
    _, found = _find_target(statement, text, context)
    if found.rejection is not None:
        raise found.rejection
    return found


def explain_definition(statement: AlterRollbackDefinition, text: str, context: Context) -> Result:
    """Return the changes and the plan of the next refresh; changes nothing.

    :raises ServerError: MT_DEFINITION_NOT_FOUND, or any error of the earlier query's analysis.
    """
    return explain_evolution(_find_target(statement, text, context)[1], context)


def _find_target(
    statement: AlterRollbackDefinition, text: str, context: Context
) -> tuple[MaterializedTable, Evolution]:
    """Return an earlier definition and its evolution."""
    table = alterable(statement.name, context)
    try:
        earlier = history.find(table, statement.version, context.services.catalog)
    except ServerError as problem:
        if statement.version is not None:
            problem.line, problem.column = place_after(text, "TO", "VERSION")
        raise
    return earlier, _evolution(table, earlier, context)


def _changed_definition(found: Evolution, version: int) -> str:
    """Describe the outcome."""
    name, now = found.before.name, found.after.definition.version
    if not found.changes:
        return f"{name} is what definition version {version} says already."
    if now == found.before.definition.version:
        return f"{name} is again what definition version {version} says; its content stays."
    return (
        f"{name} has definition version {now}, which is that of version {version}; its next "
        "refresh uses it."
    )


def _evolution(table: MaterializedTable, earlier: MaterializedTable, context: Context) -> Evolution:
    """Return the changes, by the rules of CREATE OR ALTER."""
    old = earlier.definition
    creation = replace(
        creating(replace(earlier, name=table.name), or_alter=True),
        refresh_mode=asked_mode(old.logical_refresh_mode),
    )
    try:
        wanted = define(creation, "", context, existing=table)
    except ServerError as problem:
        # Its position is in the earlier statement, not in the one that was sent.
        problem.line = problem.column = None
        raise
    definition = replace(
        wanted.definition, original_query=old.original_query, declared=old.declared
    )
    found = compare(table, replace(wanted, definition=definition), context)
    if found.after.definition.version == table.definition.version:
        return found
    definition = replace(found.after.definition, settings=old.settings, restored_from=old.version)
    return replace(found, after=replace(found.after, definition=definition))
