"""The answers of GetInfo."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from tidegate.wire.service import ttypes

SERVER_NAME: Final = "Tidegate"
# BI tools choose their SQL dialect by this name, and this server's dialect is Spark's.
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
    # A listed table is not necessarily readable.
    _I.CLI_ACCESSIBLE_TABLES: "N",
    _I.CLI_ACCESSIBLE_PROCEDURES: "N",
    _I.CLI_INTEGRITY: "N",
    _I.CLI_ORDER_BY_COLUMNS_IN_SELECT: "N",
    _I.CLI_SPECIAL_CHARACTERS: "",
    _I.CLI_XOPEN_CLI_YEAR: "1995",
    _I.CLI_DESCRIBE_PARAMETER: "N",
    _I.CLI_COLLATION_SEQ: "UTF8_BINARY",
}
# The following numbers are those of SQLGetInfo:
# https://learn.microsoft.com/sql/odbc/reference/syntax/sqlgetinfo-function
_SMALL: Final = {
    _I.CLI_MAX_DRIVER_CONNECTIONS: 0,  # as a limit, 0 means none or unknown
    _I.CLI_MAX_CONCURRENT_ACTIVITIES: 0,
    _I.CLI_CURSOR_COMMIT_BEHAVIOR: 2,  # SQL_CB_PRESERVE
    _I.CLI_IDENTIFIER_CASE: 2,  # SQL_IC_LOWER
    _I.CLI_TXN_CAPABLE: 0,  # SQL_TC_NONE
    _I.CLI_NULL_COLLATION: 1,  # SQL_NC_LOW: first when ascending
    _I.CLI_MAX_COLUMNS_IN_GROUP_BY: 0,
    _I.CLI_MAX_COLUMNS_IN_INDEX: 0,
    _I.CLI_MAX_COLUMNS_IN_ORDER_BY: 0,
    _I.CLI_MAX_COLUMNS_IN_SELECT: 0,
    _I.CLI_MAX_COLUMNS_IN_TABLE: 0,
    _I.CLI_MAX_TABLES_IN_SELECT: 0,
}
_BITS: Final = {
    _I.CLI_FETCH_DIRECTION: 0x1 | 0x2,  # next, first
    _I.CLI_DEFAULT_TXN_ISOLATION: 0,  # there are no transactions
    _I.CLI_TXN_ISOLATION_OPTION: 0,
    _I.CLI_SCROLL_CONCURRENCY: 0x1,  # read only
    _I.CLI_GETDATA_EXTENSIONS: 0,
    _I.CLI_ALTER_TABLE: 0x1 | 0x20,  # ADD COLUMN, in ODBC 2 and in ODBC 3
    # Left, right, full, nested, in any order, mixed with inner ones, with any comparison.
    _I.CLI_OJ_CAPABILITIES: 0x7F,
}
_FLAGS: Final = {
    _I.CLI_CURSOR_SENSITIVITY: 1,  # SQL_INSENSITIVE: a result does not change
}
_LENGTHS: Final = {
    _I.CLI_MAX_COLUMN_NAME_LEN: _NAME_LENGTH,
    _I.CLI_MAX_SCHEMA_NAME_LEN: _NAME_LENGTH,
    _I.CLI_MAX_CATALOG_NAME_LEN: _NAME_LENGTH,
    _I.CLI_MAX_TABLE_NAME_LEN: _NAME_LENGTH,
    _I.CLI_MAX_IDENTIFIER_LEN: _NAME_LENGTH,
    _I.CLI_MAX_CURSOR_NAME_LEN: 0,
    _I.CLI_MAX_INDEX_SIZE: 0,
    _I.CLI_MAX_ROW_SIZE: 0,
    _I.CLI_MAX_USER_NAME_LEN: 0,
}
_NUMBERS: Final = {
    **{kind: {"smallIntValue": value} for kind, value in _SMALL.items()},
    **{kind: {"integerBitmask": value} for kind, value in _BITS.items()},
    **{kind: {"integerFlag": value} for kind, value in _FLAGS.items()},
    **{kind: {"lenValue": value} for kind, value in _LENGTHS.items()},
}


def information(kind: int, user: str, *, max_statement_bytes: int) -> Any:
    """Return the TGetInfoValue of an info type; an empty string for unknown ones.

    :param max_statement_bytes: what CLI_MAX_STATEMENT_LEN answers; 0 means no limit.
    """
    if kind == _I.CLI_MAX_STATEMENT_LEN:
        return ttypes.TGetInfoValue(lenValue=max_statement_bytes)
    if kind in _NUMBERS:
        return ttypes.TGetInfoValue(**_NUMBERS[kind])
    if kind == _I.CLI_DBMS_VER:
        return ttypes.TGetInfoValue(stringValue=spark_version())
    if kind == _I.CLI_USER_NAME:
        return ttypes.TGetInfoValue(stringValue=user)
    return ttypes.TGetInfoValue(stringValue=_TEXTS.get(kind, ""))


def spark_version() -> str:
    """Return the version of the installed Spark without importing it."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "4.1"
