"""Follows the refreshes of the demo's tables through the server's history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from tidegate_server.gateway.demo.gateway import Rows, Say

_HISTORY = """
SELECT refresh_id, table_name, action, rows_written,
       unix_millis(started_at), unix_millis(finished_at)
FROM information_schema.materialized_table_refresh_history
WHERE table_schema = 'flights' AND state = 'SUCCEEDED' AND action <> 'NO_DATA'
ORDER BY finished_at DESC
LIMIT 50
"""
_COUNTS = """
SELECT
  (SELECT COUNT(*) FROM flights.ods_flights),
  (SELECT COUNT(arr_delay) FROM flights.ods_flights),
  (SELECT COUNT(*) FROM flights.dwd_flights),
  (SELECT COUNT(arr_delay) FROM flights.dwd_flights),
  (SELECT COALESCE(SUM(flights), 0) FROM flights.dws_delays
   WHERE airline = 'all' AND origin = 'all')
"""


class Runner(Protocol):
    """The part of the gateway that the watch uses."""

    def run(self, sql: str) -> Rows: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """One refresh of the history; times are aware UTC."""

    refresh_id: str
    table: str
    action: str
    rows: int | None
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many flights each layer holds."""

    ods: int
    ods_landed: int
    dwd: int
    dwd_landed: int
    dws: int

    @property
    def level(self) -> bool:
        """Whether both materialized tables have everything that arrived."""
        return (self.ods, self.ods_landed) == (self.dwd, self.dwd_landed) and self.dws == self.ods


class Watch:
    """Reports each refresh once, with the lag of the oldest change it included."""

    def __init__(self, gateway: Runner, say: Say) -> None:
        self._gateway = gateway
        self._say = say
        self._reported: set[str] = set()
        self._waiting: list[datetime] = []

    def skip(self) -> None:
        """Skip the refreshes that ended before now."""
        self._reported.update(refresh.refresh_id for refresh in self._new())

    def note_change(self, moment: datetime) -> None:
        """Note that the sources of dwd_flights were changed at ``moment`` (UTC)."""
        self._waiting.append(moment)

    def report_new(self) -> bool:
        """Report the refreshes that ended since the last report, oldest first.

        :return: whether there were any.
        """
        new = self._new()
        for refresh in new:
            self._reported.add(refresh.refresh_id)
            self._say(f"    {describe(refresh)}{self._age(refresh)}")
        return bool(new)

    def counts(self) -> Counts:
        """Return the row counts of the layers."""
        [row] = self._gateway.run(_COUNTS)
        ods, ods_landed, dwd, dwd_landed, dws = map(int, row)
        return Counts(ods=ods, ods_landed=ods_landed, dwd=dwd, dwd_landed=dwd_landed, dws=dws)

    def _new(self) -> list[Refresh]:
        rows = self._gateway.run(_HISTORY)
        refreshes = [
            Refresh(
                refresh_id=row[0],
                table=row[1],
                action=row[2],
                rows=row[3],
                started_at=_utc(row[4]),
                finished_at=_utc(row[5]),
            )
            for row in reversed(rows)
        ]
        return [refresh for refresh in refreshes if refresh.refresh_id not in self._reported]

    def _age(self, refresh: Refresh) -> str:
        if refresh.table != "dwd_flights":
            return ""
        included = [moment for moment in self._waiting if moment <= refresh.started_at]
        self._waiting = [moment for moment in self._waiting if moment > refresh.started_at]
        if not included:
            return ""
        lag = (refresh.finished_at - min(included)).total_seconds()
        return f", {lag:.1f} s behind the flights"


def describe(refresh: Refresh) -> str:
    """Return a refresh as a human-readable line."""
    seconds = (refresh.finished_at - refresh.started_at).total_seconds()
    rows = "" if refresh.rows is None else f", {refresh.rows:,} rows"
    return f"{refresh.table:<12} {refresh.action:<11} in {seconds:.1f} s{rows}"


def _utc(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
