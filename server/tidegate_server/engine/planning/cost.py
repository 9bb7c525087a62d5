"""Predicts a refresh's duration from what it reads and writes and from its history."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

_OPTIMISM = 0.25
"""The share of its predicted seconds that a way without runs may take at best."""
_REGRET = 0.05
"""The share of a table's refresh time that trials of such a way may be expected to cost."""


class Way(Enum):
    """How rows reach the table."""

    OVERWRITE = "OVERWRITE"
    APPEND = "APPEND"
    REWRITE = "REWRITE"
    """The change removes and adds rows."""
    RECOMPUTE = "RECOMPUTE"
    """The rows of some keys are recomputed from the sources."""
    REREAD = "REREAD"
    """Parts of the query are computed at both versions, and compared."""


_WAYS: Mapping[str, Way] = {
    Reason.ROWS_APPENDED: Way.APPEND,
    Reason.KEYS_AFFECTED: Way.RECOMPUTE,
    Reason.SOURCES_REREAD: Way.REREAD,
}


def way_of(reason_code: str) -> Way:
    """Return the way that an incremental refresh's reason implies."""
    return _WAYS.get(reason_code, Way.REWRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Seconds per refresh, per row read, extra per changed row, and per row written."""

    fixed: float
    read: float
    changed: float
    written: float


MEASURED_CORES = 2
"""The cores of the machine on which the prices were measured."""
MEASURED_BYTES = 40
"""The bytes of a row on which they were measured; wider rows cost more, in proportion."""
_LOOKUP = 0.3
"""Seconds of each operator beyond the first whose rows are looked up by keys or compared."""

# Measured by bench/incremental.py: two cores, local disks, 200,000 to 20,000,000 rows.
# Each table's history corrects them.
_PRICES = {
    Way.OVERWRITE: Price(fixed=1.0, read=0.3e-6, changed=0.0, written=0.05e-6),
    Way.APPEND: Price(fixed=0.45, read=0.3e-6, changed=0.0, written=0.3e-6),
    Way.REWRITE: Price(fixed=1.1, read=0.15e-6, changed=1.7e-6, written=4.0e-6),
    Way.RECOMPUTE: Price(fixed=1.9, read=0.2e-6, changed=1.7e-6, written=60.0e-6),
    Way.REREAD: Price(fixed=1.9, read=0.15e-6, changed=1.7e-6, written=10.0e-6),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The estimated amount of work of a refresh."""

    rows_read: int
    rows_written: int
    rows_changed: int = 0
    """Those rows read that belong to a source's change."""
    row_bytes: int = MEASURED_BYTES
    """Of a row read, in the columns used."""
    lookups: int = 0
    """The operators whose rows are looked up by affected keys or compared."""


def predict(
    way: Way,
    work: Work,
    history: Sequence[PastRun],
    cores: int = MEASURED_CORES,
    elsewhere: Sequence[PastRun] = (),
) -> float:
    """Return the predicted seconds.

    :param history: the table's last runs, newest first.
    :param cores: those of the cluster, by which the price of rows is divided.
    :param elsewhere: the last runs of other tables, newest first.
    """
    return _list_price(way, work, cores) * _correction(way, history, cores, elsewhere)


def worth_a_trial(way: Way, predicted: float, full: float, history: Sequence[PastRun]) -> bool:
    """Say whether to refresh in a way only to learn what it takes.

    Only its own runs correct the price of a way well. Without trials, a table whose full refreshes
    seem cheaper would be refreshed fully for ever.

    :param predicted: the predicted seconds of the refresh.
    :param full: those of a full refresh, which seems to be cheaper.
    """
    if any(way in _ways(run) for run in history):
        return False
    allowed = _REGRET * sum(run.seconds for run in history)
    return _OPTIMISM * predicted < full and predicted - full <= allowed


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
    width = max(work.row_bytes / MEASURED_BYTES, 1.0)
    read = width * (price.read * work.rows_read + price.changed * work.rows_changed)
    rows = read + price.written * work.rows_written
    further = _LOOKUP * max(work.lookups - 1, 0)
    return price.fixed + further + rows * MEASURED_CORES / cores


def _correction(
    way: Way, history: Sequence[PastRun], cores: int, elsewhere: Sequence[PastRun]
) -> float:
    """Return the median ratio of last runs to the list price.

    These are the table's own runs of the way, and all others as one run, since a single slow run,
    for example on a JVM that has just started, should not rule out a way permanently. Without own
    ones, those of the way of other tables show how fast the machine is.
    """
    own = _ratios(history, lambda w: w is way, cores)
    others = _ratios(history, lambda w: w is not way, cores)
    alike = [] if own else _ratios(elsewhere, lambda w: w is way, cores)
    if alike:
        known = [median(alike)]
    elif others:
        known = [*own, _transferred(median(others))]
    else:
        known = own
    low, high = _TRUSTED
    return min(max(median_low(known), low), high) if known else 1.0


def _transferred(ratio: float) -> float:
    """Return what the ratio of one way to its list price says about another way.

    A slow machine makes every way slower, a costly sort or aggregation mainly those that process
    all rows. Which of them it is cannot be known, so both count the same.
    """
    return math.sqrt(ratio) if ratio > 1 else ratio


def _ratios(
    history: Sequence[PastRun], wanted: Callable[[Way], bool], cores: int = MEASURED_CORES
) -> list[float]:
    """Return the newest runs' durations as multiples of the list price."""
    ratios = [
        seconds / _list_price(way, work, cores)
        for run in history
        for way, seconds in _ways(run).items()
        if wanted(way) and (work := _work(run, way)) is not None
    ]
    return ratios[:_LEARNED_FROM]


def _ways(run: PastRun) -> Mapping[Way, float]:
    """Return the seconds of each way that a run went or tried."""
    attempt = run.metrics.attempt
    match run.strategy:
        case Strategy.INCREMENTAL:
            return {way_of(run.reason_code): run.seconds}
        case Strategy.FULL if attempt is not None:
            # The full refresh is part of what the choice of the other way cost.
            full = max(run.seconds - attempt.seconds, 0.0)
            return {Way(attempt.way): run.seconds, Way.OVERWRITE: full}
        case Strategy.FULL:
            return {Way.OVERWRITE: run.seconds}
        case _:
            return {}


def _work(run: PastRun, way: Way) -> Work | None:
    """Return what a run did, or would have done, in one of its ways; None if it is not known."""
    metrics, attempt = run.metrics, run.metrics.attempt
    if metrics.rows_read is None:
        return None
    work = Work(
        rows_read=metrics.rows_read,
        rows_written=metrics.rows_written or 0,
        rows_changed=run.rows_changed,
        row_bytes=metrics.row_bytes or MEASURED_BYTES,
        lookups=metrics.lookups,
    )
    if attempt is None or way is Way.OVERWRITE:
        return work
    return replace(
        work,
        rows_read=attempt.rows_read,
        rows_written=metrics.affected_keys or 0,
        lookups=attempt.lookups,
    )
