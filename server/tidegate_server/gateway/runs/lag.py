"""Measures lag and formats facts about a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa

from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.gateway.freshness.lag import LagReport, lag_report
from tidegate_server.gateway.scheduler.base import Ledger

_RUNS_OF_A_DAY = 500  # one day's runs at a freshness of three minutes
_RUNS_FOR_NOW = 50  # the newest determine the present lag and its cause


def moment(time: datetime | None) -> str | None:
    """Format a time to the second, in UTC."""
    return None if time is None else time.strftime("%Y-%m-%d %H:%M:%S UTC")


def freshness(definition: Definition) -> str:
    """Format a freshness without quotes; DOWNSTREAM includes its derived value."""
    text = f"{definition.freshness.value} {definition.freshness.unit.name}"
    return f"DOWNSTREAM ({text})" if definition.downstream else text


def lag(report: LagReport) -> str | None:
    """Format a lag in seconds, marking upper bounds."""
    if report.actual is None:
        return None
    return f"{'' if report.exact else 'at most '}{report.actual:.0f} s"


def held_since(table: MaterializedTable) -> str | None:
    """Return which version of a table is held, since when and why."""
    found = table.state.held
    if found is None:
        return None
    return f"{found.refresh_id} since {moment(found.since)}: {found.reason}"


def present_at(table: MaterializedTable, ledger: Ledger, now: datetime) -> LagReport:
    """Measure a table's lag at ``now`` from its history alone."""
    return lag_report(table, _newest(table, ledger, _RUNS_FOR_NOW), now)


def measure(table: MaterializedTable, ledger: Ledger, now: datetime) -> LagReport:
    """Measure a table's lag at ``now`` and over the preceding day."""
    return lag_report(table, _newest(table, ledger, _RUNS_OF_A_DAY), now)


def _newest(table: MaterializedTable, ledger: Ledger, limit: int) -> tuple[RefreshRun, ...]:
    """Return a table's newest runs, always including its last success."""
    runs, success = ledger.runs(table.id, limit), ledger.last_success(table.id)
    if success is None or any(run.refresh_id == success.refresh_id for run in runs):
        return runs
    return (*runs, success)


def strategy(run: RefreshRun | None) -> str | None:
    """Return what a run did and why."""
    if run is None or run.action is None:
        return None
    return f"{run.action.value} ({run.reason_code})" if run.reason_code else run.action.value


_TEXT, _NUMBER = pa.string(), pa.float64()
LAG: tuple[tuple[str, str, pa.DataType, Callable[[LagReport], object]], ...] = (
    ("catalog", "string", _TEXT, lambda lag: lag.table.catalog),
    ("database", "string", _TEXT, lambda lag: lag.table.schema),
    ("table", "string", _TEXT, lambda lag: lag.table.table),
    ("target_seconds", "double", _NUMBER, lambda lag: float(lag.target)),
    ("lag_seconds", "double", _NUMBER, lambda lag: lag.actual),
    ("exact", "boolean", pa.bool_(), lambda lag: lag.exact),
    ("breached", "boolean", pa.bool_(), lambda lag: lag.breached),
    ("cause", "string", _TEXT, lambda lag: lag.cause.value if lag.cause else None),
    ("causes", "string", _TEXT, lambda lag: _causes(lag)),
    ("within_target", "double", _NUMBER, lambda lag: lag.within_target),
    ("p50_seconds", "double", _NUMBER, lambda lag: lag.p50),
    ("p95_seconds", "double", _NUMBER, lambda lag: lag.p95),
    ("longest_seconds", "double", _NUMBER, lambda lag: lag.longest),
    ("data_timestamp", "timestamp", pa.timestamp("us", "UTC"), lambda lag: lag.data_timestamp),
)
"""The columns of SHOW LAG and of its system table: name, type, Arrow type, value."""


def _causes(lag: LagReport) -> str:
    return json.dumps({cause.value: round(seconds, 3) for cause, seconds in lag.causes.items()})
