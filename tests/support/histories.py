"""Judges what concurrent clients saw of rows that were appended and passed down a chain of tables.

The model is that of Elle's list-append workloads (Kingsbury and Alvaro, VLDB 2020), with rows that
are unique instead of lists: a reader sees a set of appends, and that set must be one that some
serial order explains, in which whatever had ended came before whatever began later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """When a statement was sent, and when its answer came, in seconds of one clock."""

    began: float
    ended: float
    """Infinite if no answer came: the statement may have had its effect, or may have it later."""


@dataclass(frozen=True, slots=True)
class Append:
    """Rows, unique in the history, that one statement appended to the source."""

    span: Span
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Refresh:
    """A refresh of all tables of the chain, one after another."""

    span: Span


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of a table that one statement returned."""

    span: Span
    level: int
    """The number of tables between the table and the source: 0 for the source itself."""
    rows: tuple[Row, ...]


@dataclass(slots=True)
class History:
    """What happened, in any order."""

    appends: list[Append] = field(default_factory=list)
    refreshes: list[Refresh] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    def anomalies(self) -> list[str]:
        """Return a sentence for everything that no correct chain of tables shows."""
        writers = {row: number for number, one in enumerate(self.appends) for row in one.rows}
        reads = sorted(self.reads, key=lambda read: read.span.began)
        seen = [frozenset(writers[row] for row in read.rows if row in writers) for read in reads]
        found: list[str] = []
        for read, appends in zip(reads, seen, strict=True):
            found += (
                f"level {read.level}, {read.span.began:.3f} s: {text}"
                for text in (
                    *_invented_or_doubled(read, writers),
                    *self._torn(read, appends),
                    *self._reordered(appends),
                    *self._lost(read, appends),
                )
            )
        return [*found, *_vanished(reads, seen)]

    def _torn(self, read: Read, appends: Iterable[int]) -> Iterator[str]:
        rows = set(read.rows)
        for number in appends:
            if not rows.issuperset(self.appends[number].rows):
                yield f"only a part of {self.appends[number].rows} is there"

    def _reordered(self, appends: frozenset[int]) -> Iterator[str]:
        newest = max((self.appends[number].span.began for number in appends), default=-inf)
        for number, append in enumerate(self.appends):
            if append.span.ended < newest and number not in appends:
                yield f"{append.rows} is not there, later rows are"

    def _lost(self, read: Read, appends: frozenset[int]) -> Iterator[str]:
        """Yield the appends that had arrived at the table before the read began."""
        arrived = read.span.began
        if read.level:
            done = (r.span for r in self.refreshes if r.span.ended < read.span.began)
            arrived = max((span.began for span in done), default=-inf)
        for number, append in enumerate(self.appends):
            if append.span.ended < arrived and number not in appends:
                yield f"{append.rows} has been lost"


def _invented_or_doubled(read: Read, known: Iterable[Row]) -> Iterator[str]:
    for row, times in Counter(read.rows).items():
        if row not in known:
            yield f"{row} was never appended"
        if times > 1:
            yield f"{row} is there {times} times"


def _vanished(reads: Sequence[Read], seen: Sequence[frozenset[int]]) -> Iterator[str]:
    """Yield what a read saw and a later one did not, of the same table or one nearer the source.

    A table has only what the tables before it had already.
    """
    ended = sorted(zip(reads, seen, strict=True), key=lambda pair: pair[0].span.ended)
    before: defaultdict[int, set[int]] = defaultdict(set)
    place = 0
    for read, appends in zip(reads, seen, strict=True):
        while ended[place][0].span.ended < read.span.began:
            before[ended[place][0].level].update(ended[place][1])
            place += 1
        levels = (found for level, found in before.items() if level >= read.level)
        if gone := set[int]().union(*levels) - appends:
            yield f"level {read.level}, {read.span.began:.3f} s: {len(gone)} appends have vanished"
