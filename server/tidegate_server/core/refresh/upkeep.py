"""When a materialized table is looked after: its files, which of them may go, and whether it
equals its query; pure.

A version can be read as long as its files are there and the log describes it. Versions stay for a
time, the retention; of a table that is refreshed every few seconds only the newest many of them do.
Within the retention a version stays whatever their number as long as a table that reads this one
will compare with it, or a refresh at work may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate_server.core.model.freshness import Freshness, parse_duration
from tidegate_server.core.model.names import TableName

UPKEEP_OPTION = "materialized-table.upkeep"
FILES_OPTION = "materialized-table.upkeep.small-files"
RETENTION_OPTION = "materialized-table.upkeep.retention"
VERSIONS_OPTION = "materialized-table.upkeep.versions"
INTERVAL_OPTION = "materialized-table.upkeep.interval"
VERIFY_OPTION = "materialized-table.upkeep.verify"
PARTS_OPTION = "materialized-table.upkeep.verify-parts"

_FILE_RETENTION = "delta.deletedFileRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"

LARGE_FILE = 128 * 2**20
"""Bytes of a file as compaction writes it."""
LEAST_AGE = timedelta(hours=6)
"""How long every version stays: a query may go on reading it."""

_COMMITS = 10
_PAUSE = timedelta(minutes=10)
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRules:
    """What is wanted for a table."""

    on: bool = True
    """Whether its files are looked after."""
    small_files: int = 50
    """Files beyond those that its size asks for, from which on it is compacted; 0 never does."""
    retention: timedelta | None = None
    """How long versions stay; None is as long as Delta's own property of the table says."""
    versions: int = 20_000
    """How many versions stay, if that many are made within the retention; 0 sets no bound."""
    interval: timedelta = timedelta(days=1)
    """Time between two removals of files."""
    verify: timedelta | None = None
    """Time between two comparisons of the content with the query; None never compares."""
    parts: int = 0
    """Into how many parts rows are told, one of which is compared after each incremental refresh;
    0 compares none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededVersion:
    """When a version was made, and since when others have taken its files away."""

    made: datetime
    left: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesFound:
    """What a look at a table's newest version and its log tells, without a Spark job."""

    version: int
    files: int
    size: int
    retention: timedelta
    """The table's own ``delta.deletedFileRetentionDuration``."""
    log_retention: timedelta
    """The table's own ``delta.logRetentionDuration``."""
    needed: tuple[NeededVersion, ...] = ()
    """The versions asked for, without the newest and those of which the log does not tell."""
    oldest_wanted: datetime | None = None
    """When the version so many back was made; None if there are not so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRewritten:
    """What a compaction did."""

    added: int = 0
    removed: int = 0
    """How many files the newest version has no more; they stay for the versions before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRemoved:
    """What was deleted for good."""

    files: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """One of ``of`` parts of about the same size into which hashes tell the rows of a table."""

    number: int
    """From 0 on."""
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentCompared:
    """How a version of a table compares with its query."""

    version: int
    missing_rows: int = 0
    extra_rows: int = 0
    part: RowPart | None = None
    """The part that was compared; None if all rows were."""

    @property
    def equal(self) -> bool:
        """Whether the rows are those of the query."""
        return not self.missing_rows and not self.extra_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The moment before which versions need not be readable any more."""

    before: datetime
    shortens_log: bool
    """Whether the log before it goes too: versions are so many that it would grow too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRun:
    """The record of looking after a table once; times are aware UTC."""

    upkeep_id: str
    table_id: str
    table: TableName
    server_id: str
    started_at: datetime
    finished_at: datetime
    rewritten: FilesRewritten | None = None
    """None without a compaction."""
    files_left: int | None = None
    """Files of the newest version after it."""
    removed: FilesRemoved | None = None
    """None without a removal."""
    removed_before: datetime | None = None
    """The moment before which versions may not be readable any more."""
    compared: ContentCompared | None = None
    """None without a comparison, or if it was impossible."""
    error_class: str | None = None
    error_message: str | None = None

    @property
    def did_something(self) -> bool:
        """Whether it is worth a record."""
        done = (self.rewritten, self.removed, self.compared, self.error_class)
        return any(part is not None for part in done)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUpkeep:
    """What earlier runs left: files after the last compaction, the times of the last removal and
    of the last comparison, or of the last that was impossible."""

    files_left: int = 0
    removed_at: datetime | None = None
    compared_at: datetime | None = None


def read_upkeep(option: Callable[[str], str | None]) -> UpkeepRules:
    """Read a table's options, which were checked when they were set."""
    rules = UpkeepRules()
    interval = parse_duration(option(INTERVAL_OPTION) or "")
    retention = parse_duration(option(RETENTION_OPTION) or "")
    verify = parse_duration(option(VERIFY_OPTION) or "")
    return UpkeepRules(
        on=(option(UPKEEP_OPTION) or "").strip().upper() != "FALSE",
        small_files=int(option(FILES_OPTION) or rules.small_files),
        retention=retention.duration if retention else None,
        versions=int(option(VERSIONS_OPTION) or rules.versions),
        interval=interval.duration if interval else rules.interval,
        verify=verify.duration if verify else None,
        parts=int(option(PARTS_OPTION) or rules.parts),
    )


def worth_a_look(commits: int, since: timedelta) -> bool:
    """Say whether a table is looked at, after so many commits and so long since the last look."""
    return commits >= _COMMITS or (commits > 0 and since >= _PAUSE)


def has_small_files(found: FilesFound, rules: UpkeepRules, settled: int) -> bool:
    """Say whether compaction pays.

    :param settled: files that the last compaction left, as many as partitions may need.
    """
    fitting = max(settled, 1 + found.size // LARGE_FILE)
    return 0 < rules.small_files <= found.files - fitting


def time_to_compact(freshness: Freshness) -> timedelta:
    """Return how long a compaction may take, for which a refresh that is due waits."""
    return min(max(_SHORTEST, freshness.duration / 10), _LONGEST)


def removal_due(rules: UpkeepRules, last: datetime, now: datetime) -> bool:
    """Say whether it is time to remove files, after ``last``: the creation or a removal."""
    return now - last >= rules.interval


def comparison_due(rules: UpkeepRules, last: datetime, now: datetime) -> bool:
    """Say whether it is time to compare the content, after ``last``: creation or comparison."""
    return rules.verify is not None and now - last >= rules.verify


def longer_retentions(found: FilesFound, rules: UpkeepRules) -> Mapping[str, str]:
    """Return Delta's own properties that are to be raised, if the option asks for more.

    What was removed longer ago than they say, Delta does not know for a table's file any more.
    """
    wanted = rules.retention or timedelta()
    present = {_FILE_RETENTION: found.retention, _LOG_RETENTION: found.log_retention}
    span = f"interval {int(wanted.total_seconds())} seconds"
    return {name: span for name, time in present.items() if time < wanted}


def horizon(
    found: FilesFound, rules: UpkeepRules, now: datetime, at_work: datetime | None = None
) -> Horizon:
    """Return up to when versions may go.

    :param at_work: since when a refresh runs that reads or writes the table, if one does.
    """
    retention = min(found.retention, rules.retention or found.retention)
    oldest = wanted = now - max(retention, LEAST_AGE)
    if found.oldest_wanted is not None:
        wanted = max(oldest, min(found.oldest_wanted, now - LEAST_AGE))
    # What was left before the retention may be gone already, and holds nothing back.
    needed = [version for version in found.needed if version.left >= oldest]
    before = min([wanted, *(version.left for version in needed)])
    # What a refresh at work has written belongs to no version yet, however long it takes.
    before = before if at_work is None else min(before, at_work)
    described = all(version.made > before for version in needed)
    return Horizon(before=before, shortens_log=oldest < before and described)
