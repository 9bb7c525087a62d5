"""Writes a result as a file of Arrow or Parquet, with the types of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from tidegate.cli.formats import FILE_FORMATS, FormatError

ARROW, _ = FILE_FORMATS


def open_writer(name: str, schema: Any, out: BinaryIO) -> Any:
    """Return a writer of record batches, which ends the file when it is closed.

    :param name: one of FILE_FORMATS.
    :param schema: a ``pyarrow.Schema``.
    :raises FormatError: if the format has no such types.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pa.ipc.new_file(out, schema) if name == ARROW else pq.ParquetWriter(out, schema)
    except pa.ArrowException as error:
        raise FormatError(f"The result cannot be written as {name}: {error}") from error


def write_batches(name: str, schema: Any, batches: Iterator[Any], out: BinaryIO) -> int:
    """Write all batches and return the number of rows; raises as :func:`open_writer`."""
    count = 0
    with open_writer(name, schema, out) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count
