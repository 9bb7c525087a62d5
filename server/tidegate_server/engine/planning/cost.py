"""Predicts a refresh's duration from the rows it reads and writes and from its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median, median_low

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import PastRun

HYSTERESIS = 1.1
"""An incremental refresh must be cheaper by this factor before a table switches to it. It switches
back as soon as full ones are cheaper: no refresh may take much longer than a full one."""

_WORTH_RECORDING = 2.0
"""Totals are recorded if a full refresh takes this many times as long as a small incremental one;
recording adds about a quarter to a full refresh."""

_LEARNED_FROM = 5
_TRUSTED = (0.1, 10.0)


class Way(Enum):
    """How rows reach the table."""

    OVERWRITE = "OVERWRITE"
    APPEND = "APPEND"
    REWRITE = "REWRITE"
    """The change removes and adds rows."""
    RECOMPUTE = "RECOMPUTE"
    """The rows of some keys are recomputed from the sources."""


_WAYS: Mapping[str, Way] = {
    Reason.ROWS_APPENDED: Way.APPEND,
    Reason.KEYS_AFFECTED: Way.RECOMPUTE,
}
"""The way that an incremental refresh's reason implies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Seconds per refresh, per row read, extra per changed row, and per row written."""

    fixed: float
    read: float
    changed: float
    written: float


MEASURED_CORES = 2
"""The cores of the machine on which the prices were measured."""

# Measured by bench/incremental.py: two cores, local disks, 200,000 to 20,000,000 rows.
# Each table's history corrects them.
_PRICES = {
    Way.OVERWRITE: Price(fixed=1.0, read=0.3e-6, changed=0.0, written=0.05e-6),
    Way.APPEND: Price(fixed=0.45, read=0.3e-6, changed=0.0, written=0.3e-6),
    Way.REWRITE: Price(fixed=1.1, read=0.15e-6, changed=1.7e-6, written=4.0e-6),
    Way.RECOMPUTE: Price(fixed=1.9, read=0.2e-6, changed=1.7e-6, written=60.0e-6),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Estimated rows that a refresh processes.

    ``rows_changed`` are those rows read that belong to a source's change.
    """

    rows_read: int
    rows_written: int
    rows_changed: int = 0


def predict(way: Way, work: Work, history: Sequence[PastRun], cores: int = MEASURED_CORES) -> float:
    """Return the predicted seconds.

    :param history: the table's last runs, newest first.
    :param cores: those of the cluster, by which the price of rows is divided.
    """
    return _list_price(way, work, cores) * _correction(way, history, cores)


def worth_recording(full: Work, history: Sequence[PastRun]) -> bool:
    """Say whether a full refresh should record totals for incremental ones.

    :param history: the table's last runs, newest first. Full ones do not count for a refresh of few
        rows here, else a costly query would never record totals.
    """
    own = _ratios(history, lambda way: way is Way.REWRITE)
    few = _list_price(Way.REWRITE, Work(rows_read=0, rows_written=0))
    little = few * (median_low(own) if own else 1.0)
    return predict(Way.OVERWRITE, full, history) >= _WORTH_RECORDING * little


def _list_price(way: Way, work: Work, cores: int = MEASURED_CORES) -> float:
    price = _PRICES[way]
    rows = (
        price.read * work.rows_read
        + price.changed * work.rows_changed
        + price.written * work.rows_written
    )
    return price.fixed + rows * MEASURED_CORES / cores


def _correction(way: Way, history: Sequence[PastRun], cores: int) -> float:
    """Return the median ratio of this table's last runs to the list price.

    Runs of all other ways count as one run: a slow machine or a costly query slows every way. A
    single slow run, for example on a JVM that has just started, should not rule out a way
    permanently.
    """
    own = _ratios(history, lambda w: w is way, cores)
    others = _ratios(history, lambda w: w is not way, cores)
    known = [*own, median(others)] if others else own
    low, high = _TRUSTED
    return min(max(median_low(known), low), high) if known else 1.0


def _ratios(
    history: Sequence[PastRun], wanted: Callable[[Way], bool], cores: int = MEASURED_CORES
) -> list[float]:
    """Return the newest runs' durations as multiples of the list price."""
    ratios = []
    for run in history:
        way, read = _way_of(run), run.metrics.rows_read
        if way is not None and wanted(way) and read is not None:
            work = Work(
                rows_read=read,
                rows_written=run.metrics.rows_written or 0,
                rows_changed=run.rows_changed,
            )
            ratios.append(run.seconds / _list_price(way, work, cores))
    return ratios[:_LEARNED_FROM]


def _way_of(run: PastRun) -> Way | None:
    match run.strategy:
        case Strategy.FULL:
            return Way.OVERWRITE
        case Strategy.INCREMENTAL:
            return _WAYS.get(run.reason_code, Way.REWRITE)
        case _:
            return None
