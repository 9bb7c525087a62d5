"""SQLAlchemy dialect for Tidegate: ``tidegate://`` URLs."""

from tidegate_sqlalchemy.ddl import (
    AlterMaterializedTableQuery,
    ConvertMaterializedTable,
    CreateMaterializedTable,
    DropMaterializedTable,
    RefreshMaterializedTable,
    RenameMaterializedTable,
    ResumeMaterializedTable,
    RollbackMaterializedTableDefinition,
    SetMaterializedTableFreshness,
    SetMaterializedTableRefreshMode,
    SetMaterializedTableRefreshTrigger,
    SuspendMaterializedTable,
    SwapMaterializedTables,
)
from tidegate_sqlalchemy.dialect import TidegateDialect
from tidegate_sqlalchemy.types import (
    ARRAY,
    INTERVAL,
    MAP,
    STRUCT,
    TIMESTAMP_NTZ,
    TINYINT,
    VARIANT,
    parse_type,
)

__all__ = [
    "ARRAY",
    "INTERVAL",
    "MAP",
    "STRUCT",
    "TIMESTAMP_NTZ",
    "TINYINT",
    "VARIANT",
    "AlterMaterializedTableQuery",
    "ConvertMaterializedTable",
    "CreateMaterializedTable",
    "DropMaterializedTable",
    "RefreshMaterializedTable",
    "RenameMaterializedTable",
    "ResumeMaterializedTable",
    "RollbackMaterializedTableDefinition",
    "SetMaterializedTableFreshness",
    "SetMaterializedTableRefreshMode",
    "SetMaterializedTableRefreshTrigger",
    "SuspendMaterializedTable",
    "SwapMaterializedTables",
    "TidegateDialect",
    "parse_type",
]
