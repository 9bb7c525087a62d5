"""Predicts a refresh's duration from what it reads and writes and from its history."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from statistics import median, median_low
from typing import NamedTuple

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Strategy, Work
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


class Price(NamedTuple):
    """The seconds that a refresh takes for each of its :func:`amounts`, in the same order."""

    fixed: float
    column: float
    lookup: float = 0.0
    byte: float = 0.0
    grouped: float = 0.0
    changed: float = 0.0
    written: float = 0.0
    stored: float = 0.0


MEASURED_CORES = 2
"""The cores of the machine on which the prices were measured."""

# Fitted by bench/prices.py on two cores and local disks; each table's history corrects them. Those
# of bytes are not above that of a full refresh: few of the data sets are large enough to tell.
_PRICES = {
    Way.OVERWRITE: Price(0.36, 4e-3, byte=1.5e-9, grouped=0.08e-6, written=0.2e-6),
    Way.APPEND: Price(0.31, 4e-3, byte=1.5e-9, written=0.3e-6),
    Way.REWRITE: Price(
        0.55, 6e-3, lookup=0.2, byte=1.5e-9, changed=1.0e-6, written=15e-6, stored=20e-9
    ),
    Way.RECOMPUTE: Price(
        0.70, 6e-3, lookup=0.5, byte=1.3e-9, changed=0.9e-6, written=60e-6, stored=10e-9
    ),
    Way.REREAD: Price(
        0.70, 7e-3, lookup=0.3, byte=1.3e-9, changed=0.7e-6, written=44e-6, stored=10e-9
    ),
}


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


def amounts(work: Work, cores: int = MEASURED_CORES) -> tuple[float, ...]:
    """Return what the prices of a refresh are multiplied by, those of rows for so many cores."""
    rows = (
        work.rows_read * work.row_bytes,
        work.rows_grouped,
        work.rows_changed,
        work.rows_written,
        work.rows_in_table * work.row_bytes,
    )
    share = MEASURED_CORES / cores
    return 1, work.columns, max(work.lookups - 1, 0), *(each * share for each in rows)


def _list_price(way: Way, work: Work, cores: int = MEASURED_CORES) -> float:
    return sum(price * n for price, n in zip(_PRICES[way], amounts(work, cores), strict=True))


def _correction(
    way: Way, history: Sequence[PastRun], cores: int, elsewhere: Sequence[PastRun]
) -> float:
    """Return the median ratio of last runs to the list price.

    These are the table's own runs of the way, and all others as one run, since a single slow run,
    for example on a JVM that has just started, should not rule out a way permanently. Without own
    ones, those of the way of other tables show how fast the machine is.

    Of two middle ratios the lower one counts, since an incremental refresh that was expected to be
    fast shows what it takes; for full ones, which may take many times as long, their mean.
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
    if not known:
        return 1.0
    fair = math.exp(median(map(math.log, known)))
    return fair if way is Way.OVERWRITE else median_low(known)


def _transferred(ratio: float) -> float:
    """Return what the ratio of one way to its list price says about another way.

    A slow machine makes every way slower, a costly sort or aggregation mainly those that process
    all rows. Which of them it is cannot be known, so both count the same.
    """
    return math.sqrt(ratio) if ratio > 1 else ratio


def _ratios(
    history: Sequence[PastRun], wanted: Callable[[Way], bool], cores: int = MEASURED_CORES
) -> list[float]:
    """Return the newest runs' durations as multiples of the list price, within trusted bounds."""
    low, high = _TRUSTED
    ratios = [
        min(max(seconds / _list_price(way, work, cores), low), high)
        for run in history
        for way, work, seconds in observations(run)
        if wanted(way)
    ]
    return ratios[:_LEARNED_FROM]


def observations(run: PastRun) -> Iterator[tuple[Way, Work, float]]:
    """Yield each way that a run went or tried, the work if it is known, and the seconds."""
    for way, seconds in _ways(run).items():
        work = _work(run, way)
        if work is not None:
            yield way, work, seconds


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
    work, written = metrics.work, metrics.rows_written
    if attempt is not None and way is not Way.OVERWRITE:
        work, written = attempt.work, metrics.affected_keys
    return None if work is None else replace(work, rows_written=written or 0)
