"""The rows of a statement as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tidegate_server.core.model.result import Result


def stream(
    result: Result, schema: pa.Schema, max_bytes: int, count: Callable[[int, int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a result.

    :param schema: the types that the client was told.
    :param max_bytes: the maximum size of a batch of several rows; gRPC's clients limit messages.
    :param count: gets the number of rows and bytes of each batch.
    """
    for batch in result.batches(0):
        columns = [_cast(*pair) for pair in zip(batch.columns, schema.types, strict=True)]
        shown = pa.RecordBatch.from_arrays(columns, schema=schema)
        for part in _split(shown, max_bytes):
            count(part.num_rows, part.nbytes)
            yield part


def _split(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= max_bytes or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half), max_bytes)
    yield from _split(batch.slice(half), max_bytes)


def _cast(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)
