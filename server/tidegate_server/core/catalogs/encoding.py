"""Tables as JSON, for the calls of the engine and for catalogs that store them so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tidegate_server.core.catalogs.base import CatalogTable, Derivation, SerDe, TableColumn
from tidegate_server.core.catalogs.rows import RowFilter


def encode_table(table: CatalogTable) -> Mapping[str, Any]:
    """Return a table as JSON."""
    return {
        **asdict(table),
        "options": dict(table.options),
        "properties": dict(table.properties),
    }


def decode_table(fields: Mapping[str, Any]) -> CatalogTable:
    """Return the table that :func:`encode_table` encoded."""
    return CatalogTable(
        **{
            **fields,
            "columns": tuple(TableColumn(**column) for column in fields["columns"]),
            "partition_keys": tuple(fields["partition_keys"]),
            "derivation": _derivation(fields.get("derivation")),
            "serde": SerDe(**serde) if (serde := fields.get("serde")) else None,
        }
    )


def _derivation(fields: Mapping[str, Any] | None) -> Derivation | None:
    if fields is None:
        return None
    return Derivation(
        source=tuple(TableColumn(**column) for column in fields["source"]),
        values=fields["values"],
        columns=tuple(fields["columns"]),
    )


def decode_filter(fields: Mapping[str, Any]) -> RowFilter:
    """Return a condition as ``PythonRows.java`` writes it."""
    return RowFilter(
        op=fields["op"],
        column=fields.get("column", ""),
        values=tuple(fields.get("values", ())),
        parts=tuple(map(decode_filter, fields.get("parts", ()))),
    )
