"""Decides which events become alerts and dispatches them to couriers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from httpx2 import InvalidURL

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AlertsSection
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.freshness.lag import LagReport
from tidegate_server.gateway.freshness.retries import (
    DEFAULT_RETRIES,
    RETRIES_OPTION,
    retries_left,
    whole_number,
)
from tidegate_server.gateway.observability.alerts import Alert, Event, Facts
from tidegate_server.gateway.observability.delivery import Command, CountOutcome, Courier, Webhook
from tidegate_server.gateway.runs import lag
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.scheduler.workflows import table_option
from tidegate_server.gateway.store.breaches import Breaches

log = logging.getLogger(__name__)

Tell = Callable[[Alert], None]


class Alerts:
    """Reports failed refreshes, suspended tables and lag, without blocking its callers."""

    def __init__(
        self,
        *,
        config: Config,
        catalog: CatalogReader,
        ledger: Ledger,
        breaches: Breaches,
        clock: Clock,
        new_id: Callable[[], str],
        server_id: str,
        tell: Sequence[Tell],
    ) -> None:
        """Each alert is passed to every callable in ``tell``."""
        self._config = config
        self._catalog = catalog
        self._ledger = ledger
        self._breaches = breaches
        self._clock = clock
        self._new_id = new_id
        self._server_id = server_id
        self._tell = tuple(tell)
        self._events = frozenset(config.alerts.events) if tell else frozenset()

    @property
    def watches_lag(self) -> bool:
        """Whether :meth:`check_lag` has work to do."""
        return "lag" in self._events

    def refresh_ended(self, run: RefreshRun) -> None:
        """Alert on a refresh that failed for good; errors in here are only logged."""
        if run.state is not RunState.FAILED or "failed" not in self._events:
            return
        try:
            if not self._comes_again(run):
                self._send(_failure(run), run.table_id, str(run.table))
        except Exception:
            # A failing alert must not affect the refresh, which has ended.
            log.exception("refresh %s failed, and could not be reported", run.refresh_id)

    def report_suspended(self, table: MaterializedTable, reason: str) -> None:
        """Alert on a table suspended after repeated failures."""
        if "suspended" not in self._events:
            return
        text = f"{table.name} is suspended: {reason}"
        facts = Facts(event=Event.TABLE_SUSPENDED, text=text, reason=reason)
        self._send(facts, table.id, str(table.name))

    def check_lag(self) -> None:
        """Alert once when a table starts to lag too much, and once when it recovers."""
        now = self._clock.now()
        known = self._breaches.open_tables()
        tables = self._catalog.tables()
        for table in tables:
            if self._keeps_pace(table):
                self._judge(table, table.id in known, now)
        for gone in known - {table.id for table in tables}:
            self._breaches.end(gone)

    def _keeps_pace(self, table: MaterializedTable) -> bool:
        if table.state.status is not RefreshStatus.ACTIVATED:
            return False
        return not table.definition.downstream or bool(self._catalog.consumers(table.name))

    def _judge(self, table: MaterializedTable, known: bool, now: datetime) -> None:
        report = lag.present_at(table, self._ledger, now)
        late = timedelta(seconds=report.target + self._config.alerts.lag_grace)
        if report.actual is None:
            return
        if not known and report.actual > late.total_seconds():
            if self._breaches.begin(table.id, now):
                self._send(_lag(report, Event.LAG_EXCEEDED), table.id, str(table.name))
        elif known and not report.breached and self._breaches.end(table.id):
            self._send(_lag(report, Event.LAG_RECOVERED), table.id, str(table.name))

    def _comes_again(self, run: RefreshRun) -> bool:
        """Return whether the gateway itself will retry a failed fire."""
        table = self._catalog.by_id(run.table_id)
        if table is None or run.trigger is not Trigger.SCHEDULED or not self._config.fires_itself:
            return False
        option = table_option(table, self._config.options)
        return retries_left(run, whole_number(option(RETRIES_OPTION), DEFAULT_RETRIES))

    def _send(self, facts: Facts, table_id: str, table: str) -> None:
        alert = Alert(
            id=self._new_id(),
            time=self._clock.now(),
            server=self._server_id,
            table=table,
            table_id=table_id,
            **asdict(facts),
        )
        log.info("alert %s: %s", alert.id, alert.text)
        for tell in self._tell:
            tell(alert)


def couriers(config: AlertsSection, counted: CountOutcome) -> tuple[Courier, ...]:
    """Return an unstarted courier for each channel.

    :raises ServerError: ALERTS_CONFIGURATION if one is invalid.
    """
    found = []
    if config.webhook:
        send = _webhook(config)
        found.append(Courier("webhook", send, attempts=config.attempts, count=counted))
    if config.command:
        if not config.command[0]:
            raise error(Code.ALERTS_CONFIGURATION, key="alerts.command", reason="it has no program")
        run = Command(config.command, config.timeout)
        found.append(Courier("command", run, attempts=config.attempts, count=counted))
    return tuple(found)


def _webhook(config: AlertsSection) -> Webhook:
    # The message repeats neither URL nor headers: both may hold secrets.
    try:
        parts = urlsplit(config.webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
        return Webhook(config.webhook, config.webhook_headers, config.timeout)
    except (ValueError, TypeError, InvalidURL):
        reason = "the URL or a header cannot be used"
        raise error(Code.ALERTS_CONFIGURATION, key="alerts.webhook", reason=reason) from None


def _failure(run: RefreshRun) -> Facts:
    return Facts(
        event=Event.REFRESH_FAILED,
        text=f"A refresh of {run.table} failed with {run.error_class}: {run.error_message}",
        refresh_id=run.refresh_id,
        trigger=run.trigger.value,
        attempt=run.attempt,
        schedule_time=run.schedule_time,
        error_class=run.error_class,
        sqlstate=run.sqlstate,
        error_message=run.error_message,
    )


def _lag(report: LagReport, event: Event) -> Facts:
    exceeded = event is Event.LAG_EXCEEDED
    words = (
        "lags more than its freshness allows" if exceeded else "is as fresh again as it has to be"
    )
    return Facts(
        event=event,
        text=f"{report.table} {words}: {report.actual:.0f} s of {report.target:.0f} s",
        lag_seconds=report.actual,
        target_seconds=report.target,
        cause=report.cause.value if report.cause else None,
    )
