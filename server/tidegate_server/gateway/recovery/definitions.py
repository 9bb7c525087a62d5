"""Realigns storage and schedules with the catalog after a server died during a change.

Every change of a definition writes the catalog last, so anything that differs from the catalog
belongs to a change that was never reported as complete.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import TableInfo
from tidegate_server.core.messages.requests import (
    DropView,
    InspectTable,
    LastCommit,
    ListDefinitions,
    ListTables,
    PutView,
    RenameTable,
)
from tidegate_server.core.model.names import TableName, quarantine_name, visible_name
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import (
    Dropping,
    Leaving,
    MaterializedTable,
    RollingBack,
    Swapping,
)
from tidegate_server.gateway.catalog.base import Catalog, CatalogReader
from tidegate_server.gateway.definition.derived import views
from tidegate_server.gateway.definition.places import places
from tidegate_server.gateway.definition.transaction import taken_back
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.scheduler.base import (
    DEFINITION_LEASE,
    ROLLBACK_LEASE,
    CreateWorkflow,
    Ledger,
    ModifyWorkflow,
    WorkflowScheduler,
)
from tidegate_server.gateway.scheduler.cron import CRON_OPTION, check_cron
from tidegate_server.gateway.scheduler.workflows import table_option, workflow_for

logger = logging.getLogger(__name__)

_LEASE_SECONDS = 60.0


def realign_workflows(
    catalog: Catalog,
    scheduler: WorkflowScheduler,
    timezone: str,
    options: Mapping[str, str] | None = None,
) -> tuple[TableName, ...]:
    """Give every table the workflow that its definition requires; return those that changed.

    A table is suspended, with the reason, if its cron expression was accepted by an earlier release
    but is invalid now.
    """
    changed = []
    for stored in _complete_tables(catalog):
        table = _suspend_if_unreadable(stored, catalog, options or {})
        wanted, found = workflow_for(table, timezone, options), scheduler.workflow(table.id)
        try:
            if found is None and wanted.active:
                scheduler.create(CreateWorkflow(workflow=wanted, table=table))
            elif found is not None and replace(found, next_fire=wanted.next_fire) != wanted:
                scheduler.modify(ModifyWorkflow(workflow=wanted, table=table))
            else:
                continue
        except ServerError as problem:
            # One invalid schedule must not keep the server from starting.
            logger.warning("the workflow of %s could not be restored: %s", table.name, problem)
            continue
        logger.warning("restored the workflow of %s", table.name)
        changed.append(table.name)
    return tuple(changed)


def _suspend_if_unreadable(
    table: MaterializedTable, catalog: Catalog, options: Mapping[str, str]
) -> MaterializedTable:
    cron = table_option(table, options)(CRON_OPTION)
    if cron is None or table.definition.watched or table.definition.downstream:
        return table
    try:
        check_cron(cron.strip())
    except ServerError as problem:
        start, end = RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED
        if catalog.move(table.id, start, end, problem.message):
            logger.warning("suspended %s: %s", table.name, problem)
        return catalog.by_id(table.id) or table
    return table


def realign_storage(
    catalog: Catalog, ledger: Ledger, engine: Engine, now: datetime, server_id: str
) -> tuple[TableName, ...]:
    """Move storage and views to where the catalog says; return the tables that were changed.

    A single listing of the metastore shows whether there is anything to do. Lost storage is not
    restored, and tables that a statement of this server is changing are skipped. An interrupted
    CONVERT TO TABLE and SWAP are undone; an interrupted ROLLBACK of data and definition is either
    completed or undone. Only for a store that is not shared.
    """
    suspects = [*_find_misplaced(catalog, engine), *interrupted_tables(catalog)]
    owner = f"{server_id}/realign"
    claimed = {
        table.id
        for table in suspects
        if all(_claim(key, ledger, owner, now, server_id) for key in _keys(table.id))
    }
    try:
        if not claimed:
            return ()
        # Read again: a statement may have finished meanwhile.
        kept = [table for table in interrupted_tables(catalog) if table.id in claimed]
        there = _places(engine) if kept else {}
        for table in kept:
            _restore_storage(table, there.get(table.id), catalog, engine)
        # The views of a restored definition still have the names of the newer definition.
        back = {table.id for table in kept if isinstance(table.pending, RollingBack)}
        places = _places(engine)
        found = [
            table
            for table in {
                t.id: t
                for t in (*_find_misplaced(catalog, engine), *_tables_with_ids(back, catalog))
            }.values()
            if table.id in claimed and table.id in places
        ]
        for table in found:
            _move_storage(table, places[table.id], engine)
            if table.id in back:
                catalog.replace(replace(table, location=_location(table, engine)))
            logger.warning("restored the storage location of %s", table.name)
        return tuple({table.id: table.name for table in (*kept, *found)}.values())
    finally:
        for table in suspects:
            for key in _keys(table.id):
                ledger.release(key, owner)


def _find_misplaced(catalog: CatalogReader, engine: Engine) -> list[MaterializedTable]:
    answer = engine.call(ListTables(), wait=0)
    listed = {info.name.folded(): info for info in answer.tables}
    own = (table for table in _complete_tables(catalog) if not table.name.is_foreign)
    return [table for table in own if not _is_placed(table, listed)]


def interrupted_tables(catalog: CatalogReader) -> list[MaterializedTable]:
    """Return tables with an unfinished CONVERT TO TABLE, SWAP WITH or ROLLBACK of both."""
    return [t for t in catalog.tables() if isinstance(t.pending, Leaving | Swapping | RollingBack)]


def restore_definition(table: MaterializedTable, engine: Engine) -> tuple[MaterializedTable, bool]:
    """Return a table's definition after an interrupted ROLLBACK of both, and whether its rows were
    rolled back, which the table's own last commit shows."""
    mark = table.pending
    if not isinstance(mark, RollingBack):
        raise error(Code.INTERNAL, reason=f"{table.name} is not being rolled back")
    answer = engine.call(LastCommit(name=table.storage, table_id=table.id))
    commit = answer.commit
    if commit is None or commit.refresh_id != mark.refresh_id:
        return replace(table, pending=None), False
    state = replace(mark.to.state, checkpoint_floor=commit.epoch)
    return replace(mark.to, state=state, pending=None), True


def _location(table: MaterializedTable, engine: Engine) -> str:
    answer = engine.call(InspectTable(name=table.storage), wait=0)
    return answer.location


def _tables_with_ids(ids: Collection[str], catalog: CatalogReader) -> list[MaterializedTable]:
    return [table for table in catalog.tables() if table.id in ids]


def _restore_storage(
    table: MaterializedTable, there: TableName | None, catalog: Catalog, engine: Engine
) -> None:
    """Restore a table's storage after an interrupted CONVERT TO TABLE, SWAP WITH or ROLLBACK.

    :param there: where the storage was found.
    """
    kept, resumes = replace(table, pending=None), False
    evolved = taken_back(kept)
    try:
        if isinstance(table.pending, Swapping):
            engine.call(places(table), wait=0)
        if isinstance(table.pending, RollingBack):
            found = table if there is None else replace(table, storage_table=there)
            made, came = restore_definition(found, engine)
            if came:
                kept = made
            resumes = table.pending.active and not came
            evolved = replace(taken_back(kept), name=found.storage)
        engine.call(evolved, wait=0)
    except ServerError as problem:
        if problem.code != Code.MT_DATA_LOST.name:
            raise
        logger.warning("the storage of %s is lost: %s", table.name, problem)
    catalog.replace(kept)
    if resumes:
        catalog.move(table.id, RefreshStatus.SUSPENDED, RefreshStatus.ACTIVATED)
    logger.warning("recovered %s from a statement that was interrupted", table.name)


def _keys(table_id: str) -> tuple[str, ...]:
    """Return the keys of a table's leases: refresh, definition, and ROLLBACK of both."""
    return table_id, f"{DEFINITION_LEASE}{table_id}", f"{ROLLBACK_LEASE}{table_id}"


def _claim(key: str, ledger: Ledger, owner: str, now: datetime, server_id: str) -> bool:
    """Take a lease, even one that a dead server still holds."""
    holder = ledger.holder(key, now)
    if holder is not None and not holder.startswith(f"{server_id}/"):
        ledger.release(key, holder)
    return ledger.claim(key, owner, now, _LEASE_SECONDS) is not None


def _complete_tables(catalog: CatalogReader) -> list[MaterializedTable]:
    tables = (t for t in catalog.tables() if not isinstance(t.pending, Dropping))
    return [t for t in tables if t.state.status is not RefreshStatus.INITIALIZING]


def _is_placed(table: MaterializedTable, listed: Mapping[TableName, TableInfo]) -> bool:
    storage = listed.get(table.storage.folded())
    if storage is None or storage.type != "TABLE":
        return False
    if table.storage_table is None:
        return True
    # A statement may have died while changing the quarantine view, which its comment identifies.
    held = table.quarantine is not None
    extra = not held and quarantine_name(table.name).folded() in listed
    return not extra and all(_is_there(view, listed) for view in views(table))


def _is_there(view: PutView, listed: Mapping[TableName, TableInfo]) -> bool:
    found = listed.get(view.name.folded())
    if found is None or found.type != "VIEW":
        return False
    return view.quarantine_of is None or found.comment == view.comment


def _places(engine: Engine) -> Mapping[str, TableName]:
    """Return the storage of every materialized table by its id."""
    answer = engine.call(ListDefinitions(), wait=0)
    return {found.table_id: found.storage for found in answer.found}


def _move_storage(table: MaterializedTable, storage: TableName, engine: Engine) -> None:
    # A view may have the name that the storage has now, or is to have.
    for shown in {visible_name(storage), table.name}:
        for name in (quarantine_name(shown), shown):
            engine.call(DropView(name=name, table_id=table.id), wait=0)
    if storage.folded() != table.storage.folded():
        rename = RenameTable(name=storage, new_name=table.storage, table_id=table.id)
        engine.call(rename, wait=0)
    for view in views(table):
        engine.call(view, wait=0)
