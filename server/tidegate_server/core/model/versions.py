"""Sources, their versions and the partitions a refresh covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.types import Schema


class SourceKind(Enum):
    """How a source's change can be known."""

    VERSIONED = "VERSIONED"  # a table format with snapshots: Delta
    PLAIN = "PLAIN"  # parquet, csv, jdbc: no versions, change is told by files or assumed
    STREAM = "STREAM"  # files that arrive, Kafka, rate: taken in once, by an offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table the definition query reads, views looked through."""

    name: TableName
    kind: SourceKind
    table_id: str
    """The format's own identity of the table (Delta: metadata id); changes when it is recreated."""
    materialized_table: bool = False
    via: tuple[TableName, ...] = ()
    """The views through which the query reads it, outermost first."""
    columns: Schema = Schema()
    """The columns it had when the query was defined; empty in older definitions."""


def is_streaming(sources: Sequence[Source]) -> bool:
    """Say whether a query with these sources takes in a stream, which then is its only one."""
    return any(source.kind is SourceKind.STREAM for source in sources)


SourceVector = Mapping[str, int]
"""The version of every versioned source one refresh read, by the source's table_id; of a source
without versions the fingerprint of its files, if there is one."""

PartitionSpec = Mapping[str, str]
"""Partition column to value, compared as strings; values are data and never pasted into SQL."""
