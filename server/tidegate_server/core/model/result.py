"""A result: a schema and Arrow batches that can be read from any row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from tidegate_server.core.model.types import Schema


class Result(Protocol):
    """The immutable outcome of an operation.

    Columns hold one of: the Arrow type natural for the Spark type (integers, floats, decimal128,
    string, binary, date32, timestamp[us] with or without zone), or a string already formatted for
    the wire (nested types as JSON, intervals, variant).
    """

    @property
    def schema(self) -> Schema:
        """The columns with their Spark types."""
        ...

    @property
    def has_result_set(self) -> bool:
        """Whether clients should fetch: false for DDL and DML."""
        ...

    @property
    def modified_rows(self) -> int | None:
        """Rows changed by DML when known."""
        ...

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        """Yield batches from row ``start_row`` (counted from 0) on; may be called concurrently."""
        ...

    def close(self) -> None:
        """Free what stands behind the result; later calls are harmless."""
        ...


class RowsResult:
    """A result held in memory, built from Python values."""

    def __init__(
        self,
        schema: Schema,
        rows: list[tuple[Any, ...]],
        *,
        has_result_set: bool = True,
        modified_rows: int | None = None,
        types: tuple[pa.DataType, ...] | None = None,
    ) -> None:
        """Take rows of values; ``types`` are the Arrow types, all strings when left out."""
        self.schema = schema
        self.has_result_set = has_result_set
        self.modified_rows = modified_rows
        kinds = types or tuple(pa.string() for _ in schema)
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
        arrays = [pa.array(c, type=t) for c, t in zip(columns, kinds, strict=True)]
        self._batch = pa.RecordBatch.from_arrays(arrays, names=list(schema.names()))

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        if start_row < self._batch.num_rows:
            yield self._batch.slice(start_row)

    def close(self) -> None:
        return None


def nothing() -> RowsResult:
    """Return the result of a statement that answers no rows."""
    return RowsResult(Schema(), [], has_result_set=False)
