"""Results: a schema and Arrow batches, readable from any row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from tidegate_server.core.model.types import Schema


class Result(Protocol):
    """The immutable outcome of an operation.

    Columns have the Arrow type that corresponds to the Spark type (integers, floats, decimal128,
    string, binary, date32, timestamp[us] with or without zone), or hold strings formatted for
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
        """Rows changed by DML, if known."""
        ...

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        """Yield batches starting at row ``start_row`` (from 0); may be called concurrently."""
        ...

    def close(self) -> None:
        """Release the result's resources; later calls do nothing."""
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
        """Build the batch; ``types`` are the Arrow types, by default all strings."""
        self.schema = schema
        self.has_result_set = has_result_set
        self.modified_rows = modified_rows
        kinds = types or tuple(pa.string() for _ in schema)
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
        arrays = [pa.array(c, type=t) for c, t in zip(columns, kinds, strict=True)]
        self._batch = pa.RecordBatch.from_arrays(arrays, names=list(schema.names()))

    @property
    def num_bytes(self) -> int:
        """The size of the values in memory."""
        return int(self._batch.nbytes)

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        if start_row < self._batch.num_rows:
            yield self._batch.slice(start_row)

    def close(self) -> None:
        return None


def nothing() -> RowsResult:
    """Return the result of a statement without rows."""
    return RowsResult(Schema(), [], has_result_set=False)
