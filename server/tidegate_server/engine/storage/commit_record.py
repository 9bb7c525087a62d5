"""What the commit of a refresh records, from which the next refresh goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from tidegate_server.core.refresh.request import CommittedRefresh


class Boundary(Enum):
    """How the known first rows of an ordered query end; the values are what commits store."""

    COMPLETE = "whole"
    """There are no other rows."""
    DISTINCT = "clear"
    """The next row, which is unknown, comes after the last known one."""
    TIED = "tied"
    """Rows tie where LIMIT cuts, so that either could have been kept."""


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The first rows of an ordered query: those that LIMIT keeps in the table, and spare ones."""

    boundary: Boundary
    spare: str = ""
    """The rows that come next, as ``top_n.py`` writes them; empty if there are none."""


@dataclass(frozen=True, slots=True)
class AggregateState:
    """The partial aggregates of every group, as JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class TooManyGroups:
    """The partial aggregates are not recorded, because there are too many groups."""


IncrementalState = AggregateState | TooManyGroups | KnownRows
"""What an incremental refresh continues from besides the table's rows."""


class RowPreconditions(Enum):
    """Whether the rows read are as incremental refreshes need them."""

    SATISFIED = "hold"
    TIED = "tied"
    """Rows tie that differ, so that any of them may come first."""
    LARGE = "large"
    """Numbers are so large that their average depends on the order of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """What a refresh knows of the rows it commits."""

    vector: Mapping[str, int]
    """The version read of each source, by table id."""
    definition_version: int
    logical_time: datetime
    fingerprint: str | None = None
    """Identifies the query with its views expanded; None if the query is not stable."""
    source_commits: Mapping[str, str] = field(default_factory=dict)
    """Identifies the commits of the versions read, by table id: a source that was restored or
    created again has other commits under the same versions."""
    offsets: str | None = None
    """Up to where the stream was read, in the words of its source; None without a stream."""
    incremental: IncrementalState | None = None
    """None if nothing was recorded."""
    preconditions: RowPreconditions | None = None
    """None if they were not checked."""
    unique: tuple[str, ...] = ()
    """Columns of the key that was checked and found to be unique and never NULL."""
    filled: bool = True
    """Whether every part of the table was computed, or backfilled, by this commit or before."""
    frozen_at: datetime | None = None
    """The moment for which IMMUTABLE WHERE was taken; None if the commit could change every row."""
    rolled_back_to: int | None = None
    """The version whose rows were restored."""
    backfilled_from: str | None = None
    """The table whose rows were copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRefresh:
    """A commit of a refresh as it is found in the table's log."""

    epoch: int
    version: int
    refresh_id: str
    record: CommitRecord
    strategy: str = "FULL"
    partial: bool = False
    """True when the commit replaced only some partitions, so that the vector does not hold for
    the whole table."""
    foreign_version: int | None = None
    """A later version that no refresh made, so that the content is not known any more."""
    breaks: str | None = None
    """Which assertion a held version breaks, and how; None of what is served."""

    def with_state(self, state: IncrementalState | None) -> RecordedRefresh:
        """Return the commit with an incremental state that was stored beside it."""
        return replace(self, record=replace(self.record, incremental=state))

    def summary(self) -> CommittedRefresh:
        """Return what the gateway needs to know of it."""
        return CommittedRefresh(
            epoch=self.epoch,
            version=self.version,
            definition_version=self.record.definition_version,
            vector=self.record.vector,
            refresh_id=self.refresh_id,
            strategy=self.strategy,
            partial=self.partial,
            logical_time=self.record.logical_time,
            breaks=self.breaks,
        )


def stored_incremental(state: IncrementalState | None) -> str | None:
    """Return the text by which a commit stores the state; None stores nothing."""
    match state:
        case AggregateState(text):
            return text
        case TooManyGroups():
            return ""
        case KnownRows(boundary, spare):
            return f"{boundary.value} {spare}".rstrip()
    return None


def read_incremental(text: str | None) -> IncrementalState | None:
    """Return the state that a commit stores as this text."""
    if not text:
        return None if text is None else TooManyGroups()
    first, _, spare = text.partition(" ")
    if first in {boundary.value for boundary in Boundary}:
        return KnownRows(Boundary(first), spare)
    return AggregateState(text)


def read_preconditions(text: str | None) -> RowPreconditions | None:
    """Return what a commit stores as this text; None for what only a later release knows."""
    known = {each.value: each for each in RowPreconditions}
    return known.get(text or "")
