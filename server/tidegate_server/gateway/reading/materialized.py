"""Finds the materialized tables that a statement reads."""

from __future__ import annotations

from collections.abc import Collection

from tidegate_server.core.messages.answers import Reading
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.base import CatalogReader


def materialized(
    readings: Collection[Reading], catalog: CatalogReader
) -> tuple[MaterializedTable, ...]:
    """Return the materialized tables among readings."""
    names = (reading.name for reading in readings if reading.name is not None)
    locations = (reading.location for reading in readings if reading.location)
    return catalog.tables_at(names, locations)
