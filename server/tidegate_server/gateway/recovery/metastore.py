"""Restores lost entries of the metastore from the Delta tables in the warehouse."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import FoundTable, TablesFound
from tidegate_server.core.messages.requests import FindTables, ListNames, RegisterTable
from tidegate_server.core.model.names import SYSTEM_SCHEMA, TableName
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.definition.derived import views
from tidegate_server.gateway.link.client import ABSENCE, Engine
from tidegate_server.gateway.store.stored_table import decode_definition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reregistered:
    """Numbers of tables that were registered in the metastore."""

    materialized: int = 0
    plain: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: TableName
    table: FoundTable


def metastore_is_lost(catalog: CatalogReader, engine: Engine) -> bool:
    """Return whether there are materialized tables although the metastore is empty."""
    if not catalog.tables():
        return False
    answer = engine.call(ListNames(), wait=0)
    return not any(known.tables for known in answer.schemas if known.schema != SYSTEM_SCHEMA)


def reregister(catalog: CatalogReader, engine: Engine) -> Reregistered:
    """Register the tables of the warehouse that are missing from the metastore.

    Materialized tables are identified by the id in their properties, and get the name in the
    catalog or else in their definition. Other Delta tables get the name of their directory, and are
    only registered in an empty metastore: otherwise a directory without an entry may be intended.
    Idempotent.

    :raises ServerError: from the engine.
    """
    places = tuple(table.location for table in catalog.tables() if table.location)
    answer = engine.call(FindTables(locations=places))
    own = [
        entry for entry in _materialized_entries(answer.found, catalog) if _is_free(entry, answer)
    ]
    plain = [entry for entry in _plain_entries(answer.found) if _is_free(entry, answer)]
    if any(name.schema != SYSTEM_SCHEMA for name in answer.entries):
        for entry in plain:
            logger.warning(
                "%s is not in the metastore; register it with CREATE TABLE %s USING delta "
                "LOCATION '%s'",
                entry.table.location,
                entry.name.quoted(),
                entry.table.location,
            )
        plain = []
    # Plain tables first: with materialized tables the metastore would no longer be empty.
    return Reregistered(
        plain=sum(_register(entry, engine) for entry in plain),
        materialized=sum(_register(entry, engine) for entry in own),
    )


def put_views(catalog: CatalogReader, engine: Engine) -> None:
    """Create the views of all materialized tables that are exposed through one."""
    for table in catalog.tables():
        for view in views(table):
            try:
                engine.call(view)
            except ServerError as error:
                # It may use a function that was lost with the metastore.
                logger.warning("the view %s was not restored: %s", view.name, error)


def _materialized_entries(found: Sequence[FoundTable], catalog: CatalogReader) -> list[_Entry]:
    copies = Counter(table.table_id for table in found)
    entries = []
    for table in found:
        if not table.table_id:
            continue
        known = catalog.by_id(table.table_id)
        if copies[table.table_id] > 1 and (known is None or not _is_at(known, table.location)):
            logger.warning(
                "%s was not registered: several directories claim to be materialized table %s",
                table.location,
                table.table_id,
            )
            continue
        name = known.storage if known is not None else _defined_name(table)
        if name is not None:
            entries.append(_Entry(name=name, table=table))
    return entries


def _plain_entries(found: Sequence[FoundTable]) -> list[_Entry]:
    return [
        _Entry(name=table.directory, table=table)
        for table in found
        if not table.table_id and table.directory is not None
    ]


def _defined_name(table: FoundTable) -> TableName | None:
    """Return the name in a table's own definition; None if there is no readable one."""
    try:
        return decode_definition(table.definition or "").storage
    except msgspec.DecodeError as error:
        logger.warning("the definition in %s cannot be read: %s", table.location, error)
        return None


def _is_at(table: MaterializedTable, location: str) -> bool:
    return table.location.rstrip("/") == location.rstrip("/")


def _is_free(entry: _Entry, answer: TablesFound) -> bool:
    if entry.name.folded() not in {name.folded() for name in answer.entries}:
        return True
    logger.warning(
        "%s was not registered: another table is called %s", entry.table.location, entry.name
    )
    return False


def _register(entry: _Entry, engine: Engine) -> bool:
    request = RegisterTable(
        name=entry.name, location=entry.table.location, table_id=entry.table.table_id
    )
    try:
        engine.call(request)
    except ServerError as error:
        if error.code in ABSENCE:
            raise
        # One table that cannot be registered must not block the others.
        logger.warning("%s was not registered as %s: %s", entry.table.location, entry.name, error)
        return False
    return True
