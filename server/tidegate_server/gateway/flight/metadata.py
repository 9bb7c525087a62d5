"""What Flight SQL's calls for metadata answer; pure, from the listings of a session."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa

from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.core.model.result import RowsResult
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.flight.types import arrow_schema
from tidegate_server.gateway.session import metadata
from tidegate_server.gateway.session.metadata import Listing, TablePattern

_TEXT: Final = pa.string()
CATALOGS: Final = pa.schema([pa.field("catalog_name", _TEXT, nullable=False)])
SCHEMAS: Final = pa.schema(
    [("catalog_name", _TEXT), pa.field("db_schema_name", _TEXT, nullable=False)]
)
TABLE_TYPES: Final = pa.schema([pa.field("table_type", _TEXT, nullable=False)])
TABLES: Final = pa.schema(
    [
        ("catalog_name", _TEXT),
        ("db_schema_name", _TEXT),
        pa.field("table_name", _TEXT, nullable=False),
        pa.field("table_type", _TEXT, nullable=False),
    ]
)
TABLES_WITH_SCHEMA: Final = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
_VALUES: Final[Mapping[str, pa.DataType]] = {
    "string_value": _TEXT,
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": pa.int32(),
    "string_list": pa.list_(_TEXT),
    "int32_to_int32_list_map": pa.map_(pa.int32(), pa.list_(pa.int32())),
}
SQL_INFO: Final = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union([pa.field(name, kind) for name, kind in _VALUES.items()]),
            nullable=False,
        ),
    ]
)

# SqlInfo of FlightSql.proto: the name of the server, its version, that of Arrow, whether it is read
# only, has SQL, Substrait, transactions (0: none) and cancels statements, the quote of identifiers.
_INFO: Final[Mapping[int, tuple[str, Any]]] = {
    0: ("string_value", "Tidegate"),
    1: ("string_value", version("tidegate")),
    2: ("string_value", pa.__version__),
    3: ("bool_value", False),
    4: ("bool_value", True),
    5: ("bool_value", False),
    8: ("int32_bitmask", 0),
    9: ("bool_value", True),
    504: ("string_value", "`"),
}


def catalogs(others: Sequence[str]) -> pa.Table:
    """Return the session catalog and others."""
    names = sorted({DEFAULT_CATALOG, *others})
    return pa.table([names], schema=CATALOGS)


def schemas(listing: Listing, catalog: str | None, pattern: str | None) -> pa.Table:
    """Return the schemas that match a pattern."""
    found = _columns(metadata.get_schemas(listing, catalog, pattern))
    rows = sorted(zip(found["TABLE_CATALOG"], found["TABLE_SCHEM"], strict=True))
    return _table(rows, SCHEMAS)


def table_types() -> pa.Table:
    """Return the kinds of tables."""
    return pa.table([sorted(metadata.TABLE_TYPES)], schema=TABLE_TYPES)


def tables(listing: Listing, pattern: TablePattern, types: Collection[str]) -> pa.Table:
    """Return the tables that match a pattern."""
    return _table(_table_rows(listing, pattern, types), TABLES)


def tables_with_schema(
    listing: Listing, pattern: TablePattern, types: Collection[str], zone: str
) -> pa.Table:
    """Return the tables that match a pattern, with their columns."""
    columns = {(t.name.catalog, t.name.schema, t.name.table): t.columns for t in listing.tables}
    rows = [
        (*row, _encoded(columns.get(row[:3], ()), zone))
        for row in _table_rows(listing, pattern, types)
    ]
    return _table(rows, TABLES_WITH_SCHEMA)


def sql_info(wanted: Sequence[int]) -> pa.Table:
    """Return what the server is and can do; all of it if nothing is named."""
    names = [name for name in _INFO if not wanted or name in wanted]
    kinds = list(_VALUES)
    children: dict[str, list[Any]] = {kind: [] for kind in kinds}
    ids, offsets = [], []
    for name in names:
        kind, value = _INFO[name]
        ids.append(kinds.index(kind))
        offsets.append(len(children[kind]))
        children[kind].append(value)
    values = pa.UnionArray.from_dense(
        pa.array(ids, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(children[kind], _VALUES[kind]) for kind in kinds],
        kinds,
    )
    return pa.table([pa.array(names, pa.uint32()), values], schema=SQL_INFO)


def _table_rows(
    listing: Listing, pattern: TablePattern, types: Collection[str]
) -> list[tuple[Any, ...]]:
    found = _columns(metadata.get_tables(listing, pattern, types or None))
    names = ("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE")
    rows = zip(*(found[name] for name in names), strict=True)
    return sorted(rows, key=lambda row: tuple(map(str, row)))


def _columns(result: RowsResult) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in result.schema.names()}
    for batch in result.batches(0):
        for name, column in zip(found, batch.columns, strict=True):
            found[name] += column.to_pylist()
    return found


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _encoded(columns: Sequence[Column], zone: str) -> bytes:
    return bytes(arrow_schema(Schema(tuple(columns)), zone).serialize())
