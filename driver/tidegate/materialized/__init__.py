"""Materialized tables as typed records; ``Connection.materialized_tables`` returns them."""

from __future__ import annotations

from tidegate.materialized.records import (
    CanceledRefresh,
    ColumnLineageEdge,
    Lag,
    LineageEdge,
    MaterializedTable,
    MaterializedTableSummary,
    Refresh,
    Refreshed,
    TableColumn,
    Verification,
)
from tidegate.materialized.statements import Cascade, RefreshKind
from tidegate.materialized.tables import MaterializedTables

__all__ = [
    "CanceledRefresh",
    "Cascade",
    "ColumnLineageEdge",
    "Lag",
    "LineageEdge",
    "MaterializedTable",
    "MaterializedTables",
    "MaterializedTableSummary",
    "Refresh",
    "Refreshed",
    "RefreshKind",
    "TableColumn",
    "Verification",
]
