"""When files are maintained, and which of them may go."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.refresh.maintenance import (
    LARGE_FILE,
    LEAST_AGE,
    FileStatistics,
    Horizon,
    MaintenanceRules,
    NeededVersion,
    has_small_files,
    horizon,
    inspection_due,
    longer_retentions,
    read_maintenance_rules,
    removal_due,
    time_to_compact,
)

NOW = datetime(2024, 1, 20, tzinfo=UTC)
WEEK, DAY, HOUR = timedelta(days=7), timedelta(days=1), timedelta(hours=1)
FOUND = FileStatistics(version=99, files=1, size=1000, retention=WEEK, log_retention=30 * DAY)
RULES = MaintenanceRules()


def needed_version(left: timedelta, made: timedelta | None = None) -> NeededVersion:
    """Return a version that was made and left so long ago."""
    return NeededVersion(made=NOW - (made or left), left=NOW - left)


@pytest.mark.parametrize(
    ("commits", "minutes", "due"),
    [(0, 600, False), (1, 9, False), (1, 10, True), (9, 1, False), (10, 0, True)],
)
def test_a_table_is_inspected_after_some_commits_or_some_time(
    commits: int, minutes: int, due: bool
) -> None:
    assert inspection_due(commits, timedelta(minutes=minutes)) is due


@pytest.mark.parametrize(
    ("files", "size", "settled", "compacts"),
    [
        (50, 1000, 0, False),
        (51, 1000, 0, True),
        (60, 10 * LARGE_FILE, 0, False),
        (61, 10 * LARGE_FILE, 0, True),
        (1049, 1000, 1000, False),
        (1050, 1000, 1000, True),
    ],
)
def test_files_count_beyond_those_that_size_and_partitions_ask_for(
    files: int, size: int, settled: int, compacts: bool
) -> None:
    found = replace(FOUND, files=files, size=size)
    assert has_small_files(found, RULES, settled) is compacts
    assert not has_small_files(found, replace(RULES, small_files=0), settled)


def test_files_are_removed_once_an_interval() -> None:
    assert not removal_due(RULES, NOW - timedelta(hours=23), NOW)
    assert removal_due(RULES, NOW - DAY, NOW)


def test_versions_stay_for_the_tables_own_retention() -> None:
    assert horizon(FOUND, RULES, NOW) == Horizon(before=NOW - WEEK, shortens_log=False)


def test_a_tables_option_shortens_the_retention_or_has_it_raised() -> None:
    rules = replace(RULES, retention=2 * DAY)
    assert horizon(FOUND, rules, NOW) == Horizon(before=NOW - 2 * DAY, shortens_log=False)
    assert longer_retentions(FOUND, rules) == longer_retentions(FOUND, RULES) == {}
    short = replace(RULES, retention=HOUR)
    assert horizon(FOUND, short, NOW).before == NOW - LEAST_AGE
    long = replace(RULES, retention=30 * DAY)
    files, log = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
    assert longer_retentions(FOUND, long) == {files: "interval 2592000 seconds"}
    assert set(longer_retentions(FOUND, replace(long, retention=31 * DAY))) == {files, log}
    assert horizon(FOUND, long, NOW).before == NOW - WEEK
    assert longer_retentions(replace(FOUND, retention=30 * DAY), long) == {}


def test_of_a_busy_table_only_the_newest_versions_stay() -> None:
    busy = replace(FOUND, oldest_wanted=NOW - DAY)
    assert horizon(busy, RULES, NOW) == Horizon(before=NOW - DAY, shortens_log=True)
    hasty = replace(FOUND, oldest_wanted=NOW - HOUR)
    assert horizon(hasty, RULES, NOW) == Horizon(before=NOW - LEAST_AGE, shortens_log=True)
    slow = replace(FOUND, oldest_wanted=NOW - 2 * WEEK)
    assert horizon(slow, RULES, NOW) == Horizon(before=NOW - WEEK, shortens_log=False)


def test_a_version_with_which_a_reader_will_compare_stays_within_the_retention() -> None:
    busy = replace(
        FOUND, oldest_wanted=NOW - DAY, needed=(needed_version(HOUR), needed_version(3 * DAY))
    )
    assert horizon(busy, RULES, NOW) == Horizon(before=NOW - 3 * DAY, shortens_log=False)
    # Left late, made early: the log must tell of it as well.
    late = replace(FOUND, oldest_wanted=NOW - DAY, needed=(needed_version(HOUR, made=2 * WEEK),))
    assert horizon(late, RULES, NOW) == Horizon(before=NOW - DAY, shortens_log=False)
    given_up = replace(FOUND, oldest_wanted=NOW - DAY, needed=(needed_version(8 * DAY),))
    assert horizon(given_up, RULES, NOW) == Horizon(before=NOW - DAY, shortens_log=True)


def test_what_a_refresh_at_work_has_written_stays_however_long_it_takes() -> None:
    assert horizon(FOUND, RULES, NOW, NOW - 2 * WEEK).before == NOW - 2 * WEEK
    assert horizon(FOUND, RULES, NOW, NOW - HOUR).before == NOW - WEEK


def test_a_due_refresh_waits_for_compaction_in_proportion_to_its_freshness() -> None:
    seconds = [
        time_to_compact(Freshness(value, TimeUnit.SECOND)).total_seconds()
        for value in (1, 300, 86_400)
    ]
    assert seconds == [10, 30, 60]


def test_options_are_read_with_their_defaults() -> None:
    assert read_maintenance_rules({}.get) == RULES
    given = {
        "materialized-table.upkeep": "false",
        "materialized-table.upkeep.small-files": " 0",
        "materialized-table.upkeep.versions": "7",
        "materialized-table.upkeep.retention": "3 d",
        "materialized-table.upkeep.interval": "2 h",
        "materialized-table.upkeep.verify": "7 d",
    }
    assert read_maintenance_rules(given.get) == MaintenanceRules(
        on=False,
        small_files=0,
        retention=3 * DAY,
        versions=7,
        interval=2 * HOUR,
        verify=7 * DAY,
    )
