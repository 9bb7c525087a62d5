"""Writes rows into a Paimon table: files in workers, and one commit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegate_server.core.catalogs.rows import Overwrite, RowWriter

_FIXED, _UNAWARE = "HASH_FIXED", "BUCKET_UNAWARE"
_DYNAMIC: Final = "dynamic-partition-overwrite"


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """Writes the rows of a task in a worker."""

    table: Any
    overwrite: Overwrite

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Return what is to be committed."""
        from pypaimon.schema.data_types import PyarrowFieldParser

        schema = PyarrowFieldParser.from_paimon_schema(self.table.table_schema.fields)
        writer = _builder(self.table, self.overwrite).new_write()
        try:
            for batch in batches:
                rows = pa.Table.from_batches([batch]).rename_columns(schema.names)
                writer.write_arrow(rows.cast(schema))
            return pickle.dumps(writer.prepare_commit())
        finally:
            writer.close()


def plan_write(table: Any, overwrite: Overwrite) -> RowWriter:
    """Return how rows are written.

    Rows of one key go through one task, since the last one that a task writes is the one that is
    kept. Only buckets of a fixed number can be filled by several tasks that do not know of each
    other.
    """
    mode = table.bucket_mode().name
    buckets = table.table_schema.options.get("bucket-key", "").split(",")
    keys = tuple(table.primary_keys) or tuple(filter(None, map(str.strip, buckets)))
    return RowWriter(
        write=WriteFiles(table, overwrite),
        cluster_by=() if mode == _UNAWARE else keys,
        one_task=mode not in (_FIXED, _UNAWARE),
    )


def commit(table: Any, overwrite: Overwrite, written: Sequence[bytes]) -> None:
    """Commit what the tasks wrote as one snapshot."""
    committer = _builder(table, overwrite).new_commit()
    try:
        committer.commit(_messages(written))
    finally:
        committer.close()


def discard(table: Any, written: Sequence[bytes]) -> None:
    """Delete the files that tasks wrote."""
    committer = _builder(table, Overwrite.NOTHING).new_commit()
    try:
        committer.abort(_messages(written))
    finally:
        committer.close()


def _messages(written: Sequence[bytes]) -> list[Any]:
    return [message for task in written for message in pickle.loads(task)]


def _builder(table: Any, overwrite: Overwrite) -> Any:
    if overwrite is Overwrite.NOTHING:
        return table.new_batch_write_builder()
    partitions = "true" if overwrite is Overwrite.PARTITIONS else "false"
    replacing = table.copy_without_time_travel({_DYNAMIC: partitions})
    return replacing.new_batch_write_builder().overwrite({})
