"""The listing of metadata calls without what a user may not see; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate_server.core.model.names import SYSTEM_SCHEMA
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.authorization.listings import visible_schemas
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    SecuredObject,
    secured,
    secured_table,
)
from tidegate_server.gateway.session.metadata import VIEW, ListedTable, Listing


def narrow_metadata(
    listing: Listing, materialized: Iterable[MaterializedTable], rights: Rights
) -> Listing:
    """Return a listing with the schemas, tables and views that a user may see.

    A quarantine is as visible as its materialized table; everyone sees the system tables.
    """
    known = {}
    for table in materialized:
        on = secured_table(table)
        known[table.name.folded()] = on
        if table.quarantine is not None:
            known[table.quarantine.folded()] = on

    def is_visible(table: ListedTable) -> bool:
        on = known.get(table.name.folded()) or _plain(table)
        return table.name.schema.lower() == SYSTEM_SCHEMA or rights.may(Action.SEE, on)

    tables = tuple(filter(is_visible, listing.tables))
    within = {table.name.schema.lower() for table in tables}
    owners = ((schema, listing.schema_owners.get(schema, "")) for schema in listing.schemas)
    return replace(listing, tables=tables, schemas=visible_schemas(owners, within, rights))


def _plain(table: ListedTable) -> SecuredObject:
    kind = SecuredKind.VIEW if table.type == VIEW else SecuredKind.TABLE
    return secured(kind, table.name, table.owner)
