"""Sources, their versions and the partitions a refresh covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.types import Schema


class SourceKind(Enum):
    """How a source's change is detected."""

    VERSIONED = "VERSIONED"  # a table format with snapshots: Delta, or Iceberg in a catalog
    PLAIN = "PLAIN"  # parquet, csv, jdbc: no versions; compared by files, or assumed to change
    STREAM = "STREAM"  # arriving files, Kafka, rate: ingested once, by offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table the definition query reads, with views expanded."""

    name: TableName
    kind: SourceKind
    table_id: str
    """The format's id of the table (Delta: metadata id, Iceberg: UUID); changes when it is
    recreated."""
    materialized_table: bool = False
    via: tuple[TableName, ...] = ()
    """The views through which the query reads it, outermost first."""
    columns: Schema = Schema()
    """Its columns when the query was defined; empty in older definitions."""


def is_streaming(sources: Sequence[Source]) -> bool:
    """Say whether a query ingests a stream, which is then its only source."""
    return any(source.kind is SourceKind.STREAM for source in sources)


SourceVector = Mapping[str, int]
"""The versions that one refresh read, by the source's table_id: of Delta those of the log, of
Iceberg the sequence numbers of snapshots; for a source without versions, the fingerprint of its
files, if any."""

PartitionSpec = Mapping[str, str]
"""Partition column to value, compared as strings; values are never pasted into SQL."""
