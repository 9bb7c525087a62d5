"""SQLAlchemy dialect for Tidegate: ``tidegate://`` URLs."""

from tidegate_sqlalchemy.ddl import (
    AlterMaterializedTableQuery,
    CreateMaterializedTable,
    DropMaterializedTable,
    RefreshMaterializedTable,
    RenameMaterializedTable,
    ResumeMaterializedTable,
    SetMaterializedTableFreshness,
    SetMaterializedTableImmutable,
    SetMaterializedTableRefreshMode,
    SetMaterializedTableRefreshTrigger,
    SuspendMaterializedTable,
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
    "CreateMaterializedTable",
    "DropMaterializedTable",
    "RefreshMaterializedTable",
    "RenameMaterializedTable",
    "ResumeMaterializedTable",
    "SetMaterializedTableFreshness",
    "SetMaterializedTableImmutable",
    "SetMaterializedTableRefreshMode",
    "SetMaterializedTableRefreshTrigger",
    "SuspendMaterializedTable",
    "TidegateDialect",
    "parse_type",
]
