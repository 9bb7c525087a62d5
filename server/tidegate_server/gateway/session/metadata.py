"""The metadata calls: pure functions from a listing to rows with JDBC's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidegate_server.core.model.names import DEFAULT_CATALOG, FunctionName, TableName
from tidegate_server.core.model.result import RowsResult
from tidegate_server.core.model.table import PrimaryKey
from tidegate_server.core.model.types import (
    Column,
    ColumnType,
    Schema,
    TypeKind,
    field_types,
    parse_type,
    sql_name,
)
from tidegate_server.gateway.session.patterns import compile_pattern

TABLE, VIEW, MATERIALIZED_TABLE = "TABLE", "VIEW", "MATERIALIZED_TABLE"
PLAIN_TYPES = (TABLE, VIEW)
TABLE_TYPES = (*PLAIN_TYPES, MATERIALIZED_TABLE)
_TYPE_WORDS = {
    **dict.fromkeys(("BASE_TABLE", "MANAGED_TABLE", "EXTERNAL_TABLE"), TABLE),
    "VIRTUAL_VIEW": VIEW,
    "MATERIALIZED_VIEW": MATERIALIZED_TABLE,
}
"""The names of the types in Hive and the SQL standard."""
_CATALOG_WORDS = frozenset({"spark", "hive", "default"})
"""Catalog names of other servers, which saved connections of clients may still contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """A table in a metadata call; ``type`` is one of TABLE_TYPES."""

    name: TableName
    type: str
    comment: str | None = None
    columns: tuple[Column, ...] = ()
    primary_key: PrimaryKey | None = None
    owner: str = ""
    """Empty if unknown, as that of a materialized table always is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All schemas and tables, ordered by name."""

    schemas: tuple[str, ...] = ()
    tables: tuple[ListedTable, ...] = ()
    schema_owners: Mapping[str, str] = field(default_factory=dict)
    catalog: str = DEFAULT_CATALOG
    """The catalog that they are in."""


@dataclass(frozen=True, slots=True)
class TablePattern:
    """The tables that a call requests; None and the empty string mean all."""

    catalog: str | None = None
    schema: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class _JdbcType:
    """A type in JDBC; ``size`` is Spark's ``defaultSize`` if the type has a fixed one."""

    code: int
    size: int | None = None
    digits: int | None = None
    radix: int | None = None


_JDBC_TYPES: dict[TypeKind, _JdbcType] = {
    TypeKind.VOID: _JdbcType(0, 1),
    TypeKind.BOOLEAN: _JdbcType(16, 1),
    TypeKind.TINYINT: _JdbcType(-6, 1, 0, 10),
    TypeKind.SMALLINT: _JdbcType(5, 2, 0, 10),
    TypeKind.INT: _JdbcType(4, 4, 0, 10),
    TypeKind.BIGINT: _JdbcType(-5, 8, 0, 10),
    TypeKind.FLOAT: _JdbcType(6, 4, 7, 10),
    TypeKind.DOUBLE: _JdbcType(8, 8, 15, 10),
    TypeKind.DECIMAL: _JdbcType(3, 8, 18, 10),
    TypeKind.STRING: _JdbcType(12),
    TypeKind.CHAR: _JdbcType(1),
    TypeKind.VARCHAR: _JdbcType(12),
    TypeKind.BINARY: _JdbcType(-2),
    TypeKind.DATE: _JdbcType(91, 4),
    TypeKind.TIMESTAMP: _JdbcType(93, 8, 6),
    TypeKind.TIMESTAMP_NTZ: _JdbcType(93, 8, 6),
    TypeKind.INTERVAL_DAY_TIME: _JdbcType(1111, 8),
    TypeKind.INTERVAL_YEAR_MONTH: _JdbcType(1111, 4),
    TypeKind.INTERVAL: _JdbcType(1111, 16),
    TypeKind.ARRAY: _JdbcType(2003),
    TypeKind.MAP: _JdbcType(2000),
    TypeKind.STRUCT: _JdbcType(2002),
}
_OTHER = _JdbcType(1111)
_PRECISION_OF_LONG = 18

_ARROW = {"string": pa.string(), "int": pa.int32(), "smallint": pa.int16(), "boolean": pa.bool_()}
_ARROW["tinyint"] = pa.int8()


def as_plain_tables(listing: Listing) -> Listing:
    """Return a listing that shows materialized tables as plain tables."""
    tables = (replace(t, type=TABLE) if t.type == MATERIALIZED_TABLE else t for t in listing.tables)
    return replace(listing, tables=tuple(tables))


def get_catalogs(others: Iterable[str] = ()) -> RowsResult:
    """Return the session catalog and others."""
    return _rows("TABLE_CAT", [(name,) for name in sorted({DEFAULT_CATALOG, *others})])


def get_schemas(listing: Listing, catalog: str | None, schema: str | None) -> RowsResult:
    """Return the schemas that match a pattern."""
    wanted = compile_pattern(schema)
    within = _in_catalog(catalog, listing.catalog)
    names = [name for name in listing.schemas if within and wanted.fullmatch(name)]
    return _rows("TABLE_SCHEM TABLE_CATALOG", [(name, listing.catalog) for name in names])


def get_table_types(types: Collection[str] = TABLE_TYPES) -> RowsResult:
    """Return the table types."""
    return _rows("TABLE_TYPE", [(t,) for t in types])


def get_tables(
    listing: Listing, pattern: TablePattern, types: Collection[str] | None
) -> RowsResult:
    """Return the matching tables of the given types (None, ``%`` or empty: all types).

    Tools that know only TABLE and VIEW would never show a materialized table, so a request for
    TABLE that does not name MATERIALIZED_TABLE gets it as TABLE.
    """
    wanted = _requested_types(types or ())
    rows = [
        (t.name.catalog, t.name.schema, t.name.table, shown, t.comment or "", *[None] * 5)
        for t in _matching_tables(listing, pattern)
        if (shown := _reported_type(t.type, wanted)) is not None
    ]
    columns = (
        "TABLE_CAT TABLE_SCHEM TABLE_NAME TABLE_TYPE REMARKS TYPE_CAT TYPE_SCHEM TYPE_NAME "
        "SELF_REFERENCING_COL_NAME REF_GENERATION"
    )
    return _rows(columns, rows)


def get_columns(listing: Listing, pattern: TablePattern, column: str | None) -> RowsResult:
    """Return the matching columns of the matching tables."""
    wanted = compile_pattern(column)
    rows = [
        _column_row(table, c, position)
        for table in _matching_tables(listing, pattern)
        for position, c in enumerate(table.columns, start=1)
        if wanted.fullmatch(c.name)
    ]
    columns = (
        "TABLE_CAT TABLE_SCHEM TABLE_NAME COLUMN_NAME DATA_TYPE:int TYPE_NAME COLUMN_SIZE:int "
        "BUFFER_LENGTH:tinyint DECIMAL_DIGITS:int NUM_PREC_RADIX:int NULLABLE:int REMARKS "
        "COLUMN_DEF SQL_DATA_TYPE:int SQL_DATETIME_SUB:int CHAR_OCTET_LENGTH:int "
        "ORDINAL_POSITION:int IS_NULLABLE SCOPE_CATALOG SCOPE_SCHEMA SCOPE_TABLE "
        "SOURCE_DATA_TYPE:smallint IS_AUTO_INCREMENT"
    )
    return _rows(columns, rows)


def get_functions(
    functions: Iterable[FunctionName],
    catalog: str | None,
    schema: str | None,
    function: str | None,
) -> RowsResult:
    """Return the matching functions; those without a schema are visible in every schema."""
    in_schema, wanted = compile_pattern(schema), compile_pattern(function)
    found = [
        (None if f.schema is None else DEFAULT_CATALOG, f.schema, f.name, "", 1, f.name)
        for f in functions
        if _in_catalog(catalog)
        and (f.schema is None or in_schema.fullmatch(f.schema))
        and wanted.fullmatch(f.name)
    ]
    columns = "FUNCTION_CAT FUNCTION_SCHEM FUNCTION_NAME REMARKS FUNCTION_TYPE:int SPECIFIC_NAME"
    # FUNCTION_TYPE 1: it is not known whether the function returns a table.
    return _rows(columns, found)


def get_primary_keys(listing: Listing, pattern: TablePattern) -> RowsResult:
    """Return the declared primary keys of tables; names are not patterns in this call.

    None and the empty string mean every schema and every table.
    """
    rows = [
        (t.name.catalog, t.name.schema, t.name.table, column, sequence, t.primary_key.name)
        for t in listing.tables
        if t.primary_key is not None
        and _in_catalog(pattern.catalog, listing.catalog)
        and _is_same(pattern.schema, t.name.schema)
        and _is_same(pattern.table, t.name.table)
        for sequence, column in enumerate(t.primary_key.columns, start=1)
    ]
    return _rows("TABLE_CAT TABLE_SCHEM TABLE_NAME COLUMN_NAME KEY_SEQ:int PK_NAME", rows)


def get_cross_reference() -> RowsResult:
    """Return no rows: foreign keys cannot be declared."""
    columns = (
        "PKTABLE_CAT PKTABLE_SCHEM PKTABLE_NAME PKCOLUMN_NAME FKTABLE_CAT FKTABLE_SCHEM "
        "FKTABLE_NAME FKCOLUMN_NAME KEY_SEQ:int UPDATE_RULE:int DELETE_RULE:int FK_NAME PK_NAME "
        "DEFERRABILITY:int"
    )
    return _rows(columns, [])


def get_type_info() -> RowsResult:
    """Return the SQL types in the order that Hive clients expect."""
    columns = (
        "TYPE_NAME DATA_TYPE:int PRECISION:int LITERAL_PREFIX LITERAL_SUFFIX CREATE_PARAMS "
        "NULLABLE:smallint CASE_SENSITIVE:boolean SEARCHABLE:smallint UNSIGNED_ATTRIBUTE:boolean "
        "FIXED_PREC_SCALE:boolean AUTO_INCREMENT:boolean LOCAL_TYPE_NAME MINIMUM_SCALE:smallint "
        "MAXIMUM_SCALE:smallint SQL_DATA_TYPE:int SQL_DATETIME_SUB:int NUM_PREC_RADIX:int"
    )
    return _rows(columns, [_type_info_row(*entry) for entry in _TYPE_INFO])


_TYPE_INFO: tuple[tuple[str, TypeKind, int], ...] = (
    ("VOID", TypeKind.VOID, 0),
    ("BOOLEAN", TypeKind.BOOLEAN, 0),
    ("TINYINT", TypeKind.TINYINT, 3),
    ("SMALLINT", TypeKind.SMALLINT, 5),
    ("INT", TypeKind.INT, 10),
    ("BIGINT", TypeKind.BIGINT, 19),
    ("FLOAT", TypeKind.FLOAT, 7),
    ("DOUBLE", TypeKind.DOUBLE, 15),
    ("STRING", TypeKind.STRING, 0),
    ("BINARY", TypeKind.BINARY, 0),
    ("DECIMAL", TypeKind.DECIMAL, 38),
    ("DATE", TypeKind.DATE, 0),
    ("TIMESTAMP", TypeKind.TIMESTAMP, 0),
    ("ARRAY", TypeKind.ARRAY, 0),
    ("MAP", TypeKind.MAP, 0),
    ("STRUCT", TypeKind.STRUCT, 0),
    ("INTERVAL", TypeKind.INTERVAL, 0),
)
_NOT_SEARCHABLE = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.STRUCT, TypeKind.INTERVAL)


def _type_info_row(name: str, kind: TypeKind, precision: int) -> tuple[Any, ...]:
    jdbc = _JDBC_TYPES.get(kind, _OTHER)
    text = kind is TypeKind.STRING
    quote = "'" if text else None
    searchable = 0 if kind in _NOT_SEARCHABLE else 3
    head = (name, jdbc.code, precision, quote, quote, None, 1, text, searchable)
    return (*head, jdbc.radix is None, False, False, None, 0, 0, None, None, jdbc.radix)


def _column_row(table: ListedTable, column: Column, position: int) -> tuple[Any, ...]:
    kind = parse_type(column.type)
    jdbc = _JDBC_TYPES.get(kind.kind, _OTHER)
    size, digits = _column_size(kind), _column_digits(kind)
    octets = size if kind.kind in (TypeKind.STRING, TypeKind.CHAR, TypeKind.VARCHAR) else None
    name = (table.name.catalog, table.name.schema, table.name.table, column.name)
    type_part = (jdbc.code, sql_name(kind.text), size, None, digits, jdbc.radix)
    rest = (1 if column.nullable else 0, column.comment or "", None, None, None, octets, position)
    nullable = "YES" if column.nullable else "NO"
    return (*name, *type_part, *rest, nullable, None, None, None, None, "NO")


def _column_size(kind: ColumnType) -> int | None:
    """Return the precision of a decimal, and for other types the size in Spark Thrift Server.

    That is the bytes of a value, or the length of a string type.
    """
    return kind.precision if kind.kind is TypeKind.DECIMAL else _value_size(kind)


def _value_size(kind: ColumnType) -> int | None:
    match kind.kind:
        case TypeKind.DECIMAL:
            return 8 if (kind.precision or 0) <= _PRECISION_OF_LONG else 16
        case TypeKind.CHAR | TypeKind.VARCHAR:
            return kind.length
        case TypeKind.STRUCT:
            sizes = [_value_size(parse_type(each)) for each in field_types(kind.text)]
            known = [size for size in sizes if size is not None]
            return sum(known) if len(known) == len(sizes) else None
    return _JDBC_TYPES.get(kind.kind, _OTHER).size


def _column_digits(kind: ColumnType) -> int | None:
    is_decimal = kind.kind is TypeKind.DECIMAL
    return kind.scale if is_decimal else _JDBC_TYPES.get(kind.kind, _OTHER).digits


def _requested_types(types: Collection[str]) -> set[str]:
    """Return the types of a request by their names here; an empty set means all."""
    words = {"_".join(each.strip(" '").upper().split()) for each in types}
    return set() if words & {"", "%"} else {_TYPE_WORDS.get(word, word) for word in words}


def _reported_type(actual: str, wanted: set[str]) -> str | None:
    if not wanted or actual in wanted:
        return actual
    return TABLE if actual == MATERIALIZED_TABLE and TABLE in wanted else None


def _matching_tables(listing: Listing, pattern: TablePattern) -> Iterator[ListedTable]:
    if not _in_catalog(pattern.catalog, listing.catalog):
        return
    schema, table = compile_pattern(pattern.schema), compile_pattern(pattern.table)
    for listed in listing.tables:
        # A temporary view has no schema: it is visible in every schema.
        in_schema = not listed.name.schema or schema.fullmatch(listed.name.schema)
        if in_schema and table.fullmatch(listed.name.table):
            yield listed


def _is_same(wanted: str | None, name: str) -> bool:
    return not wanted or wanted.lower() == name.lower()


def _in_catalog(pattern: str | None, catalog: str = DEFAULT_CATALOG) -> bool:
    if pattern is not None and pattern.lower() in _CATALOG_WORDS and catalog == DEFAULT_CATALOG:
        return True
    return compile_pattern(pattern).fullmatch(catalog) is not None


def _rows(columns: str, rows: Iterable[tuple[Any, ...]]) -> RowsResult:
    """Build a result from ``NAME`` or ``NAME:type`` words."""
    pairs = [(name, kind or "string") for name, _, kind in map(_split, columns.split())]
    schema = Schema(tuple(Column(name=name, type=kind) for name, kind in pairs))
    return RowsResult(schema, list(rows), types=tuple(_ARROW[kind] for _, kind in pairs))


def _split(word: str) -> tuple[str, str, str]:
    return word.partition(":")
