"""Which engine runs a refresh: that of the table, or a bigger one for its first load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from tidegate_server.core.config_sections import EngineTargetSection
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.request import (
    Backfill,
    Publish,
    Recompute,
    RefreshRequest,
    Rollback,
)
from tidegate_server.gateway.link.targets import LOAD_ENGINE_KEY, load_target

Engines = Mapping[str, EngineTargetSection]
"""The sections of the configuration by name."""


def engine_of(
    table: MaterializedTable,
    request: RefreshRequest,
    last_success: Callable[[str], RefreshRun | None],
    engines: Engines,
) -> str:
    """Return the stored form of the target that runs a request.

    It depends on what has been committed, so that a failed load is retried in the same engine.

    :param last_success: returns the last refresh of a whole table.
    """
    name = table.definition.options.get(LOAD_ENGINE_KEY)
    if name is None or not is_load(table, request, last_success):
        return table.execution_target
    return str(load_target(name, engines, table.id))


def is_load(
    table: MaterializedTable,
    request: RefreshRequest,
    last_success: Callable[[str], RefreshRun | None],
) -> bool:
    """Return whether a request computes the table, or a range of it, from the beginning.

    These are the first refresh of a table, of a changed definition and after a restart, REFRESH
    FULL, and backfills.
    """
    match request.task:
        case Backfill():
            return True
        case Publish() | Rollback():
            return False
        case Recompute() as task:
            if request.trigger in (Trigger.INITIAL, Trigger.BACKFILL):
                return True
            if task.is_partial:
                return False
            return task.force or _starts_over(table, last_success(table.id))
        case other:
            assert_never(other)


def _starts_over(table: MaterializedTable, last: RefreshRun | None) -> bool:
    if last is None or last.definition_version < table.definition.version:
        return True
    return last.epoch is not None and last.epoch <= table.state.checkpoint_floor
