"""Decides when to compact a materialized table, remove its old files, and compare it with its
query; pure.

A version is readable while its files exist and the log describes it. Versions are kept for the
retention time; if a table is refreshed every few seconds, only a limited number is kept. Within the
retention, a version is kept regardless of the limit while a downstream table still has to compare
with it, or a running refresh may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate_server.core.model.freshness import Freshness, parse_duration
from tidegate_server.core.model.names import TableName

MAINTENANCE_OPTION = "materialized-table.upkeep"
FILES_OPTION = "materialized-table.upkeep.small-files"
RETENTION_OPTION = "materialized-table.upkeep.retention"
VERSIONS_OPTION = "materialized-table.upkeep.versions"
INTERVAL_OPTION = "materialized-table.upkeep.interval"
VERIFY_OPTION = "materialized-table.upkeep.verify"
PARTS_OPTION = "materialized-table.upkeep.verify-parts"

_FILE_RETENTION = "delta.deletedFileRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"

LARGE_FILE = 128 * 2**20
"""Bytes per file written by compaction."""
LEAST_AGE = timedelta(hours=6)
"""Minimum age of removed versions; queries may read newer ones."""

_COMMITS = 10
_PAUSE = timedelta(minutes=10)
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRules:
    """A table's maintenance options."""

    on: bool = True
    """Whether its files are maintained."""
    small_files: int = 50
    """Number of files beyond those its size requires at which it is compacted; 0 disables this."""
    retention: timedelta | None = None
    """How long versions are kept; None uses the table's own Delta property."""
    versions: int = 20_000
    """Maximum number of versions kept within the retention; 0 for no limit."""
    interval: timedelta = timedelta(days=1)
    """Time between two removals of files."""
    verify: timedelta | None = None
    """Time between two comparisons of the content with the query; None disables them."""
    parts: int = 0
    """Number of parts the rows are hashed into; each incremental refresh compares one. 0 disables
    this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededVersion:
    """When a version was made, and since when its files may have been replaced."""

    made: datetime
    left: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """Statistics from a table's newest version and its log, read without a Spark job."""

    version: int
    files: int
    size: int
    retention: timedelta
    """The table's own ``delta.deletedFileRetentionDuration``."""
    log_retention: timedelta
    """The table's own ``delta.logRetentionDuration``."""
    needed: tuple[NeededVersion, ...] = ()
    """The requested versions, except the newest and those missing in the log."""
    oldest_wanted: datetime | None = None
    """When the oldest version to keep by number was made; None if fewer exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRewritten:
    """The result of a compaction."""

    added: int = 0
    removed: int = 0
    """Files removed from the newest version; older versions still need them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRemoved:
    """Permanently deleted files."""

    files: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """One of ``of`` parts of similar size into which a table's rows are hashed."""

    number: int
    """From 0."""
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentCompared:
    """Comparison of a table's version with its query."""

    version: int
    missing_rows: int = 0
    extra_rows: int = 0
    part: RowPart | None = None
    """The part that was compared; None if all rows were."""

    @property
    def equal(self) -> bool:
        """Whether the rows match the query's."""
        return not self.missing_rows and not self.extra_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The time before which versions need not be readable."""

    before: datetime
    shortens_log: bool
    """Whether the log before it is removed too, because there are too many versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """The record of one maintenance run; times are aware UTC."""

    maintenance_id: str
    table_id: str
    table: TableName
    server_id: str
    started_at: datetime
    finished_at: datetime
    rewritten: FilesRewritten | None = None
    """None without a compaction."""
    files_left: int | None = None
    """The newest version's files after it."""
    removed: FilesRemoved | None = None
    """None without a removal."""
    removed_before: datetime | None = None
    """The time before which versions may be unreadable."""
    compared: ContentCompared | None = None
    """None if not compared, or if that was impossible."""
    error_class: str | None = None
    error_message: str | None = None

    @property
    def did_something(self) -> bool:
        """Whether the run is recorded."""
        done = (self.rewritten, self.removed, self.compared, self.error_class)
        return any(part is not None for part in done)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMaintenance:
    """Results of earlier runs: files after the last compaction, and the times of the last removal
    and the last comparison, possible or not."""

    files_left: int = 0
    removed_at: datetime | None = None
    compared_at: datetime | None = None


def read_maintenance_rules(option: Callable[[str], str | None]) -> MaintenanceRules:
    """Parse a table's options, which were validated when set."""
    rules = MaintenanceRules()
    interval = parse_duration(option(INTERVAL_OPTION) or "")
    retention = parse_duration(option(RETENTION_OPTION) or "")
    verify = parse_duration(option(VERIFY_OPTION) or "")
    return MaintenanceRules(
        on=(option(MAINTENANCE_OPTION) or "").strip().upper() != "FALSE",
        small_files=int(option(FILES_OPTION) or rules.small_files),
        retention=retention.duration if retention else None,
        versions=int(option(VERSIONS_OPTION) or rules.versions),
        interval=interval.duration if interval else rules.interval,
        verify=verify.duration if verify else None,
        parts=int(option(PARTS_OPTION) or rules.parts),
    )


def inspection_due(commits: int, since: timedelta) -> bool:
    """Say whether to inspect a table after that many commits and time since the last check."""
    return commits >= _COMMITS or (commits > 0 and since >= _PAUSE)


def has_small_files(found: FileStatistics, rules: MaintenanceRules, settled: int) -> bool:
    """Say whether compaction pays.

    :param settled: files after the last compaction; partitions may need as many.
    """
    fitting = max(settled, 1 + found.size // LARGE_FILE)
    return 0 < rules.small_files <= found.files - fitting


def time_to_compact(freshness: Freshness) -> timedelta:
    """Return the time limit of a compaction, since due refreshes wait for it."""
    return min(max(_SHORTEST, freshness.duration / 10), _LONGEST)


def removal_due(rules: MaintenanceRules, last: datetime, now: datetime) -> bool:
    """Say whether to remove files again; ``last`` is the creation or last removal."""
    return now - last >= rules.interval


def comparison_due(rules: MaintenanceRules, last: datetime, now: datetime) -> bool:
    """Say whether to compare the content; ``last`` is the creation or last comparison."""
    return rules.verify is not None and now - last >= rules.verify


def longer_retentions(found: FileStatistics, rules: MaintenanceRules) -> Mapping[str, str]:
    """Return the Delta retention properties to raise to the option's value.

    After that time, Delta forgets removed files and no longer treats them as the table's.
    """
    wanted = rules.retention or timedelta()
    present = {_FILE_RETENTION: found.retention, _LOG_RETENTION: found.log_retention}
    span = f"interval {int(wanted.total_seconds())} seconds"
    return {name: span for name, time in present.items() if time < wanted}


def horizon(
    found: FileStatistics, rules: MaintenanceRules, now: datetime, at_work: datetime | None = None
) -> Horizon:
    """Return the time before which versions may go.

    :param at_work: start of a running refresh that uses the table, if any.
    """
    retention = min(found.retention, rules.retention or found.retention)
    oldest = wanted = now - max(retention, LEAST_AGE)
    if found.oldest_wanted is not None:
        wanted = max(oldest, min(found.oldest_wanted, now - LEAST_AGE))
    # Versions replaced before the retention may be gone already.
    needed = [version for version in found.needed if version.left >= oldest]
    before = min([wanted, *(version.left for version in needed)])
    # Files written by a running refresh do not belong to any version yet.
    before = before if at_work is None else min(before, at_work)
    described = all(version.made > before for version in needed)
    return Horizon(before=before, shortens_log=oldest < before and described)
