"""Storage locations of tables."""

from __future__ import annotations

from tidegate_server.core.messages.requests import PlaceTables, TablePlace
from tidegate_server.core.model.table import MaterializedTable


def places(*tables: MaterializedTable) -> PlaceTables:
    """Return the request to point table names at their storage."""
    return PlaceTables(
        places=tuple(
            TablePlace(name=table.storage, location=table.location, table_id=table.id)
            for table in tables
        )
    )
