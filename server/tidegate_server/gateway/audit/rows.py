"""The newest lines of the audit log as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from tidegate_server.gateway.audit.record import Line

MAX_ROWS = 100_000
"""Maximum number of rows of ``information_schema.audit_log``."""

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("server_id", pa.string()),
        ("event", pa.string()),
        ("user", pa.string()),
        ("real_user", pa.string()),
        ("address", pa.string()),
        ("session_id", pa.string()),
        ("operation_id", pa.string()),
        ("statement_kind", pa.string()),
        ("text", pa.string()),
        ("objects", pa.string()),
        ("allowed", pa.bool_()),
        ("reason", pa.string()),
        ("outcome", pa.string()),
        ("duration_ms", pa.float64()),
    ]
)

_decode = msgspec.json.Decoder(Line).decode


def rows_of(lines: Iterable[bytes]) -> tuple[pa.Table, int]:
    """Return the first ``MAX_ROWS`` lines as a table, and how many lines were unreadable."""
    rows: list[tuple[Any, ...]] = []
    unreadable = 0
    for text in lines:
        if len(rows) == MAX_ROWS:
            break
        try:
            rows.append(msgspec.structs.astuple(_decode(text)))
        except msgspec.MsgspecError:
            unreadable += 1
    if not rows:
        return SCHEMA.empty_table(), unreadable
    columns = dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True))
    columns["objects"] = tuple(bytes(objects).decode() for objects in columns["objects"])
    return pa.table(columns, schema=SCHEMA), unreadable
