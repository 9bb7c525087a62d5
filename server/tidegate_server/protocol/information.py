"""What GetInfo answers."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from tidegate.wire.service import ttypes

SERVER_NAME: Final = "Tidegate"
# BI tools choose their SQL dialect by this name, and the dialect spoken here is Spark's.
DBMS_NAME: Final = "Spark SQL"
_NAME_LENGTH: Final = 128
_KEYWORDS: Final = (
    "ADD,AFTER,ANALYZE,ANTI,ARCHIVE,BUCKET,BUCKETS,CACHE,CHANGE,CLEAR,CLUSTER,CLUSTERED,CODEGEN,"
    "COLLECTION,COLUMNS,COMMENT,COMPACT,COMPACTIONS,CONCATENATE,COST,DATA,DATABASE,DATABASES,DBPROPERTIES,"
    "DEFINED,DELIMITED,DFS,DIRECTORIES,DIRECTORY,DISTRIBUTE,ESCAPED,EXCHANGE,EXPLAIN,EXPORT,"
    "EXTENDED,FIELDS,FILEFORMAT,FORMAT,FORMATTED,FRESHNESS,FUNCTIONS,IF,IGNORE,IMPORT,INDEX,"
    "INDEXES,INPATH,INPUTFORMAT,ITEMS,KEYS,LAZY,LINES,LIST,LOAD,LOCATION,LOCK,LOCKS,LOGICAL,"
    "MACRO,MAP,MATERIALIZED,MSCK,NAMESPACE,NAMESPACES,NULLS,OPTIONS,OUTPUTFORMAT,OVERWRITE,"
    "PARTITIONED,PARTITIONS,PERCENT,PIVOT,PLACING,PURGE,RECORDREADER,RECORDWRITER,RECOVER,REDUCE,"
    "REFRESH,RENAME,REPAIR,REPLACE,RESET,RESUME,RLIKE,ROLE,ROLES,SCHEMAS,SEMI,SEPARATED,SERDE,"
    "SERDEPROPERTIES,SETS,SHOW,SKEWED,SORT,SORTED,STATISTICS,STORED,STRATIFY,STRUCT,SUSPEND,"
    "TABLES,TBLPROPERTIES,TERMINATED,TOUCH,TRANSFORM,UNARCHIVE,UNCACHE,UNLOCK,UNSET,USE,VIEW,"
    "VIEWS"
)

_I = ttypes.TGetInfoType
_TEXTS: Final = {
    _I.CLI_DATA_SOURCE_NAME: SERVER_NAME,
    _I.CLI_SERVER_NAME: SERVER_NAME,
    _I.CLI_SEARCH_PATTERN_ESCAPE: "\\",
    _I.CLI_DBMS_NAME: DBMS_NAME,
    _I.CLI_DATA_SOURCE_READ_ONLY: "N",
    _I.CLI_IDENTIFIER_QUOTE_CHAR: "`",
    _I.CLI_CATALOG_NAME: "Y",
    _I.CLI_ODBC_KEYWORDS: _KEYWORDS,
}
_LENGTHS: Final = frozenset(
    {
        _I.CLI_MAX_COLUMN_NAME_LEN,
        _I.CLI_MAX_SCHEMA_NAME_LEN,
        _I.CLI_MAX_CATALOG_NAME_LEN,
        _I.CLI_MAX_TABLE_NAME_LEN,
        _I.CLI_MAX_IDENTIFIER_LEN,
    }
)


def information(kind: int, user: str) -> Any:
    """Return the TGetInfoValue of an info type; an empty text for those nobody answers."""
    if kind in _LENGTHS:
        return ttypes.TGetInfoValue(lenValue=_NAME_LENGTH)
    if kind == _I.CLI_DBMS_VER:
        return ttypes.TGetInfoValue(stringValue=spark_version())
    if kind == _I.CLI_USER_NAME:
        return ttypes.TGetInfoValue(stringValue=user)
    return ttypes.TGetInfoValue(stringValue=_TEXTS.get(kind, ""))


def spark_version() -> str:
    """Return the installed Spark's version without loading it."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "4.1"
