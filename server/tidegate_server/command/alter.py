"""ALTER MATERIALIZED TABLE: freshness, refresh mode and options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.command import resolve
from tidegate_server.command.context import Context
from tidegate_server.command.create import definition_properties, need_scheduler
from tidegate_server.command.lifecycle import pipeline, wrong_state
from tidegate_server.command.validate import (
    Pace,
    check_options,
    date_formatters,
    is_text,
    logical_mode,
    pace,
)
from tidegate_server.errors import Code, error
from tidegate_server.link.messages import SetTableProperties
from tidegate_server.model.result import Result, nothing
from tidegate_server.model.states import RefreshStatus
from tidegate_server.model.table import LogicalRefreshMode, MaterializedTable
from tidegate_server.scheduler.base import CreateWorkflow, DeleteWorkflow, ModifyWorkflow
from tidegate_server.sql.statements import (
    AlterResetOptions,
    AlterSetFreshness,
    AlterSetOptions,
    AlterSetRefreshMode,
    Name,
    RequestedMode,
)

log = logging.getLogger(__name__)

_RESERVED = "connector"


def set_freshness(statement: AlterSetFreshness, context: Context) -> Result:
    """Change how fresh a table is; in AUTOMATIC mode the refresh mode follows the threshold.

    :raises ServerError: MT_FRESHNESS_*, MT_STATE while INITIALIZING, MT_NO_SCHEDULER.
    """
    table = _alterable(statement.name, context)
    chosen = pace(statement.freshness, _requested(table.logical_refresh_mode), context.setting)
    return _change_pace(table, chosen, context)


def set_refresh_mode(statement: AlterSetRefreshMode, context: Context) -> Result:
    """Change the refresh mode to an explicit one; raises as :func:`set_freshness`."""
    table = _alterable(statement.name, context)
    logical_mode(statement.mode)
    chosen = pace(table.freshness, statement.mode, context.setting)
    return _change_pace(table, chosen, context)


def set_options(statement: AlterSetOptions, context: Context) -> Result:
    """Add or replace options.

    :raises ServerError: MT_OPTION_VALUE or MT_DATE_FORMATTER_* for unusable ones.
    """
    table = _alterable(statement.name, context)
    check_options(statement.options)
    _check_formatters(statement.options, table)
    changed = replace(table, options={**table.options, **statement.options})
    return _store(table, changed, context)


def reset_options(statement: AlterResetOptions, context: Context) -> Result:
    """Remove options; unknown keys are ignored.

    :raises ServerError: MT_OPTION_RESERVED for ``connector``.
    """
    table = _alterable(statement.name, context)
    if _RESERVED in statement.keys:
        raise error(Code.MT_OPTION_RESERVED, key=_RESERVED)
    kept = {key: value for key, value in table.options.items() if key not in statement.keys}
    return _store(table, replace(table, options=kept), context)


def _alterable(name: Name, context: Context) -> MaterializedTable:
    table = resolve.materialized_table(name, context)
    if table.refresh_status is RefreshStatus.INITIALIZING:
        raise wrong_state(table, "ALTER", "ACTIVATED or SUSPENDED")
    return table


def _requested(logical: LogicalRefreshMode) -> RequestedMode | None:
    automatic = logical is LogicalRefreshMode.AUTOMATIC
    return None if automatic else RequestedMode[logical.value]


def _change_pace(table: MaterializedTable, chosen: Pace, context: Context) -> Result:
    need_scheduler("ALTER", chosen.mode, context)
    changed = replace(
        table,
        freshness=chosen.freshness,
        logical_refresh_mode=chosen.logical_mode,
        refresh_mode=chosen.mode,
    )
    return _store(table, changed, context)


def _check_formatters(options: Mapping[str, str], table: MaterializedTable) -> None:
    keys = {key.lower() for key in table.partition_keys}
    for name in date_formatters(options):
        column = table.schema.find(name)
        if name.lower() not in keys or column is None:
            shown = ", ".join(table.partition_keys) or "none"
            raise error(Code.MT_DATE_FORMATTER_NOT_PARTITION, name=name, available=shown)
        if not is_text(column.type):
            raise error(Code.MT_DATE_FORMATTER_TYPE, name=name, type=column.type.upper())


def _store(table: MaterializedTable, changed: MaterializedTable, context: Context) -> Result:
    """Write a changed definition and its workflow as one step; a failure restores both."""
    if changed == table:
        return nothing()
    services = context.services
    with ExitStack() as undo:
        services.catalog.replace(changed)
        undo.callback(services.catalog.replace, table)
        _change_workflow(table, changed, context, undo)
        services.engine.call(
            SetTableProperties(name=changed.name, properties=definition_properties(changed))
        )
        undo.pop_all()
    log.info("Altered materialized table %s", table.name)
    return nothing()


def _change_workflow(
    table: MaterializedTable, changed: MaterializedTable, context: Context, undo: ExitStack
) -> None:
    scheduler = context.services.scheduler
    before, wanted = scheduler.workflow(table.id), pipeline(changed, context)
    if before is None:
        scheduler.create(CreateWorkflow(workflow=wanted))
        undo.callback(scheduler.delete, DeleteWorkflow(table_id=table.id))
    else:
        scheduler.modify(ModifyWorkflow(workflow=wanted))
        undo.callback(scheduler.modify, ModifyWorkflow(workflow=before))
