"""Each refresh is said once, with how long the oldest news in it had waited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate_server.gateway.demo.gateway import Rows
from tidegate_server.gateway.demo.watch import Counts, Watch

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class FakeHistory:
    """Answers the history it is given, newest first."""

    def __init__(self) -> None:
        self.refreshes: list[tuple[Any, ...]] = []

    def run(self, sql: str) -> Rows:
        return self.refreshes

    def add(self, number: int, table: str, start: float, end: float, rows: int | None = 7) -> None:
        times = (round(_at(second).timestamp() * 1000) for second in (start, end))
        self.refreshes.insert(0, (f"r{number}", table, "FULL", rows, *times))


def _at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.fixture
def history() -> FakeHistory:
    return FakeHistory()


@pytest.fixture
def printed_lines() -> list[str]:
    return []


@pytest.fixture
def watch(history: FakeHistory, printed_lines: list[str]) -> Watch:
    return Watch(history, printed_lines.append)


def test_a_refresh_is_said_once(
    history: FakeHistory, watch: Watch, printed_lines: list[str]
) -> None:
    history.add(1, "dws_delays", 0, 1.5, 1234)
    watch.report_new()
    watch.report_new()
    assert printed_lines == ["    dws_delays   FULL        in 1.5 s, 1,234 rows"]


def test_refreshes_of_before_are_left_out(
    history: FakeHistory, watch: Watch, printed_lines: list[str]
) -> None:
    history.add(1, "dws_delays", 0, 1)
    watch.skip()
    watch.report_new()
    assert printed_lines == []


def test_refreshes_are_said_oldest_first(
    history: FakeHistory, watch: Watch, printed_lines: list[str]
) -> None:
    history.add(1, "dws_delays", 0, 1)
    history.add(2, "dwd_flights", 2, 3)
    watch.report_new()
    assert [line.split()[0] for line in printed_lines] == ["dws_delays", "dwd_flights"]


def test_the_oldest_change_in_a_refresh_counts(
    history: FakeHistory, watch: Watch, printed_lines: list[str]
) -> None:
    watch.note_change(_at(0))
    watch.note_change(_at(2))
    history.add(1, "dwd_flights", 3, 5)
    watch.report_new()
    assert printed_lines[0].endswith("5.0 s behind the flights")


def test_a_change_after_the_start_of_a_refresh_waits_for_the_next(
    history: FakeHistory, watch: Watch, printed_lines: list[str]
) -> None:
    watch.note_change(_at(4))
    history.add(1, "dwd_flights", 3, 5)
    watch.report_new()
    history.add(2, "dwd_flights", 6, 8)
    watch.report_new()
    assert "behind" not in printed_lines[0]
    assert printed_lines[1].endswith("4.0 s behind the flights")


def test_unknown_rows_are_left_out(
    history: FakeHistory, watch: Watch, printed_lines: list[str]
) -> None:
    history.add(1, "dws_delays", 0, 1, rows=None)
    watch.report_new()
    assert printed_lines == ["    dws_delays   FULL        in 1.0 s"]


@pytest.mark.parametrize(
    ("dwd_landed", "dws", "level"), [(9, 10, True), (8, 10, False), (9, 8, False)]
)
def test_both_tables_have_everything_when_rows_and_landings_agree(
    dwd_landed: int, dws: int, level: bool
) -> None:
    counts = Counts(ods=10, ods_landed=9, dwd=10, dwd_landed=dwd_landed, dws=dws)
    assert counts.level is level
