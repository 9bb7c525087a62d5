"""Counters and histograms for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.refresh.maintenance import MaintenanceRun

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATEMENT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_REFRESH_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_UNDECIDED = "NONE"  # a run that ended before it was planned


class Metrics:
    """The counters of one gateway; thread-safe.

    Label values come from enumerations only, so the number of series is bounded.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._operations = self._counter(
            "tidegate_operations", "Operations that ended.", "kind", "state"
        )
        self._statements = Histogram(
            "tidegate_statement_duration_seconds",
            "Time from the arrival of a statement to its end, without fetching.",
            ("state",),
            buckets=_STATEMENT_SECONDS,
            registry=self._registry,
        )
        self._rows = self._counter("tidegate_fetched_rows", "Rows given to clients.")
        self._bytes = self._counter("tidegate_fetched_bytes", "Bytes of rows given to clients.")
        self._refreshes = self._counter(
            "tidegate_refreshes", "Refresh runs that ended.", "state", "strategy", "trigger"
        )
        self._refresh_seconds = Histogram(
            "tidegate_refresh_duration_seconds",
            "Time from the beginning of a refresh run to its end, without waiting.",
            ("strategy",),
            buckets=_REFRESH_SECONDS,
            registry=self._registry,
        )
        self._logins = self._counter("tidegate_authentication_failures", "Refused logins.", "port")
        self._denials = self._counter(
            "tidegate_access_denials", "Statements denied for insufficient privileges."
        )
        self._audit_failures = self._counter(
            "tidegate_audit_failures", "Events that could not be written to the audit log."
        )
        self._maintenances = self._counter(
            "tidegate_upkeeps", "Maintenance runs of tables.", "outcome"
        )
        self._maintenance_files = self._counter(
            "tidegate_upkeep_files", "Files of tables rewritten as fewer ones, or removed.", "fate"
        )
        self._comparisons = self._counter(
            "tidegate_verifications", "Comparisons of tables with their queries.", "outcome"
        )
        self._alerts = self._counter("tidegate_alerts", "Alerts that ended.", "channel", "outcome")

    def maintenance_ended(self, run: MaintenanceRun) -> None:
        """Count a maintenance run and its outcome."""
        self._maintenances.labels("FAILED" if run.error_class else "DONE").inc()
        if run.rewritten is not None:
            self._maintenance_files.labels("rewritten").inc(run.rewritten.removed)
        if run.removed is not None:
            self._maintenance_files.labels("removed").inc(run.removed.files)
        if run.compared is not None:
            self._comparisons.labels("EQUAL" if run.compared.equal else "DIFFERENT").inc()

    def alert_ended(self, channel: str, outcome: str) -> None:
        """Count an alert that was delivered, failed, or dropped."""
        self._alerts.labels(channel, outcome).inc()

    def operation_ended(self, kind: str, state: str) -> None:
        """Count an operation."""
        self._operations.labels(kind, state).inc()

    def statement_ended(self, state: str, seconds: float) -> None:
        """Record how long a statement took."""
        self._statements.labels(state).observe(seconds)

    def count_fetch(self, rows: int, size: int) -> None:
        """Count rows sent to a client, and their size in bytes."""
        self._rows.inc(rows)
        self._bytes.inc(size)

    def refresh_ended(self, run: RefreshRun) -> None:
        """Count a refresh run, and record how long it took if it started."""
        strategy = run.action.value if run.action else _UNDECIDED
        self._refreshes.labels(run.state.value, strategy, run.trigger.value).inc()
        if run.seconds is not None:
            self._refresh_seconds.labels(strategy).observe(run.seconds)

    def authentication_failed(self, port: str) -> None:
        """Count a rejected login; ``port`` is ``thrift`` or ``http``."""
        self._logins.labels(port).inc()

    def access_denied(self) -> None:
        """Count a statement denied for insufficient privileges."""
        self._denials.inc()

    def audit_failed(self) -> None:
        """Count an event that could not be written to the audit log."""
        self._audit_failures.inc()

    def add(self, collector: Collector) -> None:
        """Add a collector whose values are determined at each scrape."""
        self._registry.register(collector)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self._registry)
