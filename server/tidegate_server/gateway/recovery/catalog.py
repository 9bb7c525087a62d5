"""Rebuilds a lost catalog from the definitions in the tables' properties."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import FoundDefinition
from tidegate_server.core.messages.requests import LastCommit, ListDefinitions
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import HeldVersion, MaterializedTable
from tidegate_server.core.refresh.request import CommittedRefresh
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.scheduler.base import CreateWorkflow, Ledger, WorkflowScheduler
from tidegate_server.gateway.scheduler.workflows import workflow_for
from tidegate_server.gateway.store.stored_table import decode_definition

logger = logging.getLogger(__name__)


def rebuild(
    catalog: Catalog,
    ledger: Ledger,
    scheduler: WorkflowScheduler,
    engine: Engine,
    timezone: str,
    options: Mapping[str, str] | None = None,
) -> int:
    """Add every definition that is in the warehouse but not in the catalog; return how many.

    The tables are SUSPENDED with the reason REBUILT, since another server may be keeping them
    fresh. Idempotent.
    """
    answer = engine.call(ListDefinitions())
    added = 0
    for found in answer.found:
        table = _read(found)
        if table is None or catalog.by_id(table.id) is not None:
            continue
        if catalog.find(table.name) is not None:
            logger.warning("%s was not rebuilt: another table has its name", table.name)
            continue
        _add(table, catalog, ledger, scheduler, engine, timezone, options)
        added += 1
    return added


def _read(found: FoundDefinition) -> MaterializedTable | None:
    """Return a definition under the current name of its storage; None if it is damaged."""
    try:
        table = decode_definition(found.definition)
    except msgspec.DecodeError as problem:
        logger.warning("the definition in %s cannot be read: %s", found.storage, problem)
        return None
    return replace(
        table,
        name=visible_name(found.storage),
        storage_table=found.storage if table.storage_table is not None else None,
        location=found.location,
        state=replace(
            table.state, status=RefreshStatus.SUSPENDED, status_reason=Reason.REBUILT, held=None
        ),
    )


def _held_version(table: MaterializedTable, commit: CommittedRefresh) -> HeldVersion:
    reason = error(Code.MT_VERSION_HELD, table=table.name, reason=commit.breaks or "an assertion")
    return HeldVersion(
        refresh_id=commit.refresh_id,
        since=commit.logical_time or table.created_at,
        reason=reason.message,
    )


def _add(
    table: MaterializedTable,
    catalog: Catalog,
    ledger: Ledger,
    scheduler: WorkflowScheduler,
    engine: Engine,
    timezone: str,
    options: Mapping[str, str] | None = None,
) -> None:
    answer = engine.call(LastCommit(name=table.storage, table_id=table.id))
    commit = answer.commit
    if commit is not None:
        # The table itself rejects epochs up to that of its last commit.
        ledger.raise_epoch(table.id, commit.epoch)
    held = None if answer.held is None else _held_version(table, answer.held)
    catalog.create(replace(table, state=replace(table.state, held=held)))
    workflow = workflow_for(table, timezone, options)
    scheduler.create(CreateWorkflow(workflow=workflow, table=table))
    logger.info("Rebuilt materialized table %s (%s)", table.name, table.id)
