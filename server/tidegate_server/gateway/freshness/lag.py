"""Lag of a table behind its sources, and the causes; pure.

The lag is the age of the oldest source change that the table does not include yet. The history
records when each refresh read and was published, but not when sources changed. So the earliest
possible time is assumed: right after the last refresh without the change. A refresh triggered by
a change narrows this down; one that found no changes rules it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import zip_longest

from tidegate_server.core.errors import Code
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable

WINDOW = timedelta(hours=24)
"""Period covered by shares and percentiles."""


class LagCause(Enum):
    """Reason why a change is not yet in the table."""

    SCHEDULE = "SCHEDULE"
    """Waiting for the next fire, or gathering changes."""
    UPSTREAM = "UPSTREAM"
    """The refresh of a materialized source failed."""
    QUEUE = "QUEUE"
    """Waiting for a free slot, or for the table's previous refresh."""
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    """Refreshes that failed."""
    SUSPENDED = "SUSPENDED"
    HELD = "HELD"
    """The held version has to be published or discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """Measured freshness of a table; lags in seconds, None without a refresh."""

    table_id: str
    table: TableName
    target: float
    """The lag in seconds that FRESHNESS allows."""
    actual: float | None
    exact: bool
    """Whether ``actual`` is exact; else it is an upper bound."""
    data_timestamp: datetime | None
    """The table includes all source changes before this time."""
    p50: float | None
    p95: float | None
    longest: float | None
    within_target: float | None
    """Share of the window, 0 to 1, with a lag within the target."""
    causes: Mapping[LagCause, float]
    """Seconds of the current lag by cause."""

    @property
    def breached(self) -> bool:
        """Whether the table lags more than its freshness allows."""
        return self.actual is not None and self.actual > self.target

    @property
    def cause(self) -> LagCause | None:
        """Main cause of the current lag, or None without lag."""
        return max(self.causes, key=lambda c: self.causes[c]) if self.causes else None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Time between two publications; from ``changed`` on, if set, a change is pending."""

    begin: datetime
    end: datetime
    changed: datetime | None


def lag_report(
    table: MaterializedTable,
    runs: Iterable[RefreshRun],
    now: datetime,
    *,
    current: Mapping[str, int] | None = None,
) -> LagReport:
    """Measure the freshness of a table.

    :param runs: the table's history in any order, at least over the window.
    :param current: the newest versions of its versioned sources by table id, if known.
    """
    history = sorted(runs, key=lambda run: run.queued_at)
    stretches = _stretches(table, history, now, current)
    pieces = _pieces(stretches, now - WINDOW)
    last = next((run for run in reversed(history) if _is_whole(run)), None)
    changed = stretches[-1].changed if stretches else None
    waiting = (now - changed).total_seconds() if changed is not None else 0.0
    return LagReport(
        table_id=table.id,
        table=table.name,
        target=table.definition.freshness.seconds,
        actual=waiting if last is not None else None,
        exact=current is not None and changed is None,
        data_timestamp=_read_at(last) if last is not None else None,
        p50=_percentile(pieces, 0.5),
        p95=_percentile(pieces, 0.95),
        longest=max((end for _, end, _ in pieces), default=None),
        within_target=_share(pieces, table.definition.freshness.seconds),
        causes=_causes(table, history, changed, now) if changed is not None else {},
    )


def _is_whole(run: RefreshRun) -> bool:
    return run.state is RunState.SUCCEEDED and run.action is not Strategy.PARTITION


def _read_at(run: RefreshRun) -> datetime:
    return run.data_timestamp or run.started_at or run.queued_at


def _shown_at(run: RefreshRun) -> datetime:
    return run.finished_at or _read_at(run)


def _stretches(
    table: MaterializedTable,
    history: Sequence[RefreshRun],
    now: datetime,
    current: Mapping[str, int] | None,
) -> list[_Stretch]:
    """Return the time since the first publication, split at each publication."""
    places = [place for place, run in enumerate(history) if _is_whole(run)]
    found = []
    for place, next_place in zip_longest(places, places[1:]):
        run = history[place]
        if next_place is not None:
            following = history[next_place]
            nothing = following.action is Strategy.NO_DATA
            between = history[place + 1 : next_place + 1]
            changed = None if nothing else _time_of_change(table, run, between)
            found.append(_Stretch(_shown_at(run), _shown_at(following), changed))
            continue
        after = history[place + 1 :]
        unchanged = current is not None and dict(current) == dict(run.sources)
        changed = (
            None if unchanged else _time_of_change(table, run, after, known=current is not None)
        )
        found.append(_Stretch(_shown_at(run), now, changed))
    return found


def _time_of_change(
    table: MaterializedTable,
    last: RefreshRun,
    after: Sequence[RefreshRun],
    *,
    known: bool = False,
) -> datetime | None:
    """Return the earliest possible source change after ``last`` read; None if none.

    A watched table requests a refresh on each change: no request means no change.
    """
    if not table.definition.watched or not table.state.kept_fresh:
        return _read_at(last)
    asked = next((r for r in after if r.trigger is Trigger.UPSTREAM_CHANGE), None)
    if asked is None:
        return _read_at(last) if after or known else None
    return max(_read_at(last), asked.queued_at - table.definition.gathering)


# ---- over the window -------------------------------------------------------------------------

_Piece = tuple[float, float, float]
"""Lag at the start and end, seconds in between; the lag grows linearly or stays 0."""


def _pieces(stretches: Iterable[_Stretch], since: datetime) -> list[_Piece]:
    found: list[_Piece] = []
    for stretch in stretches:
        begin, end = max(stretch.begin, since), stretch.end
        if end <= begin:
            continue
        rise = max(begin, stretch.changed) if stretch.changed is not None else end
        if rise > begin:
            found.append((0.0, 0.0, (min(rise, end) - begin).total_seconds()))
        if rise < end and stretch.changed is not None:
            low, high = (moment - stretch.changed for moment in (rise, end))
            found.append((low.total_seconds(), high.total_seconds(), (end - rise).total_seconds()))
    return found


def _share(pieces: Sequence[_Piece], limit: float) -> float | None:
    """Return the share of time with a lag up to ``limit``."""
    total = sum(seconds for _, _, seconds in pieces)
    if total == 0:
        return None
    return sum(_below(piece, limit) for piece in pieces) / total


def _below(piece: _Piece, limit: float) -> float:
    low, high, seconds = piece
    if high <= limit:
        return seconds
    return 0.0 if limit <= low else seconds * (limit - low) / (high - low)


def _percentile(pieces: Sequence[_Piece], share: float) -> float | None:
    """Return the lag not exceeded for this share of the time, to the millisecond."""
    if not pieces:
        return None
    low, high = 0.0, max(end for _, end, _ in pieces)
    if (_share(pieces, low) or 0.0) >= share:
        return low
    while high - low > 0.001:
        middle = (low + high) / 2
        if (_share(pieces, middle) or 0.0) >= share:
            high = middle
        else:
            low = middle
    return round(high, 3)


# ---- the present lag -------------------------------------------------------------------------


def _causes(
    table: MaterializedTable, history: Sequence[RefreshRun], changed: datetime, now: datetime
) -> Mapping[LagCause, float]:
    """Split the time since a change by cause; time outside of runs is ``idle``."""
    idle = LagCause.SCHEDULE
    if table.state.status is RefreshStatus.SUSPENDED:
        idle = LagCause.SUSPENDED
    elif table.state.held is not None:
        idle = LagCause.HELD
    seconds: dict[LagCause, float] = {}
    reached, waiting = changed, idle
    for run in history:
        for begin, cause in _phases(run, idle):
            if begin <= reached:
                waiting = cause
                continue
            _add(seconds, waiting, reached, min(begin, now))
            reached, waiting = min(begin, now), cause
    _add(seconds, waiting, reached, now)
    return seconds


def _phases(run: RefreshRun, idle: LagCause) -> list[tuple[datetime, LagCause]]:
    """Return the phases of a run: start time and cause of waiting."""
    if run.state is RunState.SKIPPED:
        return []
    found = [(run.queued_at, LagCause.QUEUE)]
    if run.started_at is not None:
        found.append((run.started_at, LagCause.RUNNING))
    if run.finished_at is not None:
        held = run.error_class == Code.MT_VERSION_HELD.name
        found.append((run.finished_at, LagCause.HELD if held else _AFTER.get(run.state, idle)))
    return found


_AFTER = {
    RunState.FAILED: LagCause.FAILING,
    RunState.ABANDONED: LagCause.FAILING,
    RunState.UPSTREAM_FAILED: LagCause.UPSTREAM,
}


def _add(seconds: dict[LagCause, float], cause: LagCause, begin: datetime, end: datetime) -> None:
    length = (end - begin).total_seconds()
    if length > 0:
        seconds[cause] = seconds.get(cause, 0.0) + length
