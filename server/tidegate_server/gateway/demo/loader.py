"""Loads the flights of 2013 into the gateway, day after day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_server.gateway.demo.gateway import Rows
from tidegate_server.gateway.demo.nyc import Year, known_in_the_evening, landed_after_midnight


class Runner(Protocol):
    """The part of the gateway that the loader uses."""

    def run(self, sql: str) -> Rows: ...

    def run_script(self, name: str, **facts: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What one step loaded."""

    first: date
    last: date
    flights: int
    corrected: int
    """Flights of the day before whose landing became known."""


class Loader:
    """Writes arrivals, corrections and deletions with plain, idempotent SQL."""

    def __init__(self, gateway: Runner, year: Year, staging: Path) -> None:
        """Take the gateway, the data, and a directory that Spark can read."""
        self._gateway = gateway
        self._year = year
        self._staging = staging
        self._days = year.days()

    @property
    def first_day(self) -> date:
        """The first day with flights."""
        return self._days[0]

    def prepare(self) -> None:
        """Create missing tables and fill empty dimensions."""
        self._gateway.run_script("ods")
        if self._gateway.run("SELECT COUNT(*) FROM flights.ods_weather") == [(0,)]:
            for name, table in self._year.dimensions.items():
                self._stage(name, table)
            self._gateway.run_script("dimensions", staging=str(self._staging))
        self._gateway.run_script("dwd_flights")
        self._gateway.run_script("dws_delays")

    def remaining(self) -> list[date]:
        """Return the days that are not loaded yet, in order."""
        [(last,)] = self._gateway.run("SELECT MAX(flight_day) FROM flights.ods_flights")
        return self._days if last is None else [day for day in self._days if day > last]

    def history(self, days: list[date]) -> Loaded:
        """Load several days at once; only the last one is still open."""
        *past, evening = days
        known = known_in_the_evening(self._year.between(evening, evening))
        if past:
            known = pa.concat_tables([self._year.between(past[0], past[-1]), known])
        return self._arrive(days[0], evening, known, corrected=0)

    def close_last_day(self) -> None:
        """Apply the final data to the newest day, as loading the next day would."""
        [(last,)] = self._gateway.run("SELECT MAX(flight_day) FROM flights.ods_flights")
        if last is not None:
            self.correct(last)

    def day(self, day: date) -> Loaded:
        """Load one day and correct the day before."""
        index = self._days.index(day)
        corrected = self.correct(self._days[index - 1]) if index else 0
        evening = known_in_the_evening(self._year.between(day, day))
        return self._arrive(day, day, evening, corrected=corrected)

    def correct(self, day: date) -> int:
        """Apply a day's final data; return how many landings became known."""
        landed = landed_after_midnight(self._year.between(day, day))
        self._stage("corrections", landed)
        self._gateway.run_script("corrections", staging=str(self._staging), day=day.isoformat())
        return int(landed.num_rows)

    def _arrive(self, first: date, last: date, flights: pa.Table, *, corrected: int) -> Loaded:
        self._stage("arrival", flights)
        self._gateway.run_script(
            "arrival", staging=str(self._staging), first=str(first), last=str(last)
        )
        return Loaded(first=first, last=last, flights=flights.num_rows, corrected=corrected)

    def _stage(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self._staging / f"{name}.parquet")


Step = Callable[[], Loaded]


def steps(loader: Loader, *, history: int, days: int | None) -> list[Step]:
    """Return the remaining steps: the history at once, then ``days`` days one by one.

    ``history`` is the number of first days, loaded in one step if none is loaded yet; ``days`` None
    means the rest of the year. An interrupted load is continued.
    """
    remaining = loader.remaining()
    plan: list[Step] = []
    if history and remaining[:1] == [loader.first_day]:
        head, remaining = remaining[:history], remaining[history:]
        plan.append(partial(loader.history, head))
    plan.extend(partial(loader.day, day) for day in remaining[:days])
    return plan
