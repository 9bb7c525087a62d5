"""Which failures, suspensions and lags raise an alert, and how often."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.examples import NOON, name, run, source, table
from tests.gateway.observability.receiver import receiving
from tests.gateway.scheduler.fakes import FakeClock
from tests.gateway.test_app import FAKE_ENGINE
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AlertsSection, EngineSection, ServerSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import RefreshMode
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.observability.alerts import Alert
from tidegate_server.gateway.runs.alerts import Alerts, couriers
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.breaches import Breaches
from tidegate_server.gateway.store.database import Database

LOST = {"error_class": "ENGINE_LOST", "sqlstate": "08006", "error_message": "it died"}
HOUR = 3600.0


class World:
    """Alerts over a real store, with a list in place of the outside."""

    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path / 'store.db'}")
        self.database.open()
        self.clock = FakeClock()
        self.catalog = MemoryCatalog()
        self.ledger = SqlLedger(self.database)
        self.told: list[Alert] = []
        self.alerts = self.another()

    def another(self, **changes: Any) -> Alerts:
        return Alerts(
            config=Config(**changes),
            catalog=self.catalog,
            ledger=self.ledger,
            breaches=Breaches(self.database),
            clock=self.clock,
            new_id=lambda: f"a-{len(self.told) + 1}",
            server_id="gate",
            tell=[self.told.append],
        )

    def events(self) -> list[str]:
        return [alert.event.value for alert in self.told]

    def record_refresh(self, number: int, table_id: str = "t-1") -> None:
        now = self.clock.now()
        good = {"state": RunState.SUCCEEDED, "action": Strategy.FULL, "sources": {"delta-ev": 1}}
        times = {"queued_at": now, "started_at": now, "finished_at": now, "data_timestamp": now}
        self.ledger.record(
            run(refresh_id=f"r-{number}", table_id=table_id, epoch=number, **good, **times)
        )

    def check_later(self, seconds: float) -> list[str]:
        self.clock.advance(seconds)
        self.alerts.check_lag()
        return self.events()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def failed_run(**changes: Any) -> RefreshRun:
    return run(**{"state": RunState.FAILED, "trigger": Trigger.SCHEDULED, **LOST, **changes})


# ---- failures ----------------------------------------------------------------------------------


def test_a_failed_refresh_is_told_with_its_cause(world: World) -> None:
    world.alerts.refresh_ended(failed_run(trigger=Trigger.MANUAL))
    [alert] = world.told
    assert (alert.id, alert.server, alert.time) == ("a-1", "gate", NOON)
    assert (alert.table, alert.table_id, alert.refresh_id) == (
        "spark_catalog.d.Daily",
        "t-1",
        "r-1",
    )
    assert (alert.trigger, alert.error_class, alert.sqlstate) == ("MANUAL", "ENGINE_LOST", "08006")
    assert alert.text == "A refresh of spark_catalog.d.Daily failed with ENGINE_LOST: it died"


@pytest.mark.parametrize(
    "state", [RunState.SUCCEEDED, RunState.SKIPPED, RunState.CANCELLED, RunState.UPSTREAM_FAILED]
)
def test_other_ends_are_not_told(world: World, state: RunState) -> None:
    world.alerts.refresh_ended(failed_run(state=state))
    assert world.told == []


def test_a_fire_that_is_tried_again_is_told_when_it_is_given_up(world: World) -> None:
    world.catalog.create(table(options={"materialized-table.refresh.retries": "1"}))
    world.alerts.refresh_ended(failed_run(attempt=1))
    assert world.told == []
    world.alerts.refresh_ended(failed_run(attempt=2))
    world.alerts.refresh_ended(
        failed_run(attempt=1, error_class="DIVIDE_BY_ZERO", sqlstate="22012")
    )
    assert [(a.attempt, a.error_class) for a in world.told] == [
        (2, "ENGINE_LOST"),
        (1, "DIVIDE_BY_ZERO"),
    ]


def test_what_another_scheduler_fires_is_told_at_once(world: World) -> None:
    world.catalog.create(table())
    world.another(scheduler={"type": "airflow"}).refresh_ended(failed_run(attempt=1))
    assert world.events() == ["REFRESH_FAILED"]


def test_news_that_cannot_be_told_harm_no_refresh(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(alert: Alert) -> None:
        raise RuntimeError("no way out")

    alerts = world.another()
    alerts._tell = (fail,)
    alerts.refresh_ended(failed_run())
    assert "could not be reported" in caplog.text


def test_a_suspended_table_is_told_with_the_reason(world: World) -> None:
    world.alerts.report_suspended(table(), "SUSPENDED_DUE_TO_ERRORS: 5 refreshes failed")
    [alert] = world.told
    assert (alert.event.value, alert.reason) == (
        "TABLE_SUSPENDED",
        "SUSPENDED_DUE_TO_ERRORS: 5 refreshes failed",
    )


def test_only_chosen_events_are_told(world: World) -> None:
    alerts = world.another(alerts={"events": ["suspended"]})
    assert not alerts.watches_lag
    alerts.refresh_ended(failed_run())
    alerts.report_suspended(table(), "it failed")
    assert world.events() == ["TABLE_SUSPENDED"]


# ---- lag ---------------------------------------------------------------------------------------


def test_a_breach_is_told_once_and_once_more_when_it_is_over(world: World) -> None:
    world.catalog.create(table(sources=(source("ev", "delta-ev"),)))
    world.record_refresh(1)
    assert world.check_later(HOUR + 59) == []
    assert world.check_later(2) == ["LAG_EXCEEDED"]
    assert world.check_later(HOUR) == ["LAG_EXCEEDED"]
    world.record_refresh(2)
    assert world.check_later(1) == ["LAG_EXCEEDED", "LAG_RECOVERED"]
    assert world.check_later(HOUR + 60) == ["LAG_EXCEEDED", "LAG_RECOVERED", "LAG_EXCEEDED"]
    first, over, _ = world.told
    assert (first.lag_seconds, first.target_seconds, first.cause) == (HOUR + 61, HOUR, "SCHEDULE")
    assert over.lag_seconds == 1
    assert "3661 s of 3600 s" in first.text


def test_a_breach_is_not_told_again_after_a_restart_or_by_another_server(world: World) -> None:
    world.catalog.create(table())
    world.record_refresh(1)
    world.check_later(3 * HOUR)
    world.alerts = world.another()
    assert world.check_later(1) == ["LAG_EXCEEDED"]


def test_servers_that_look_at_once_tell_once(world: World) -> None:
    breaches = Breaches(world.database)
    assert breaches.begin("t-1", NOON)
    assert not breaches.begin("t-1", NOON)
    assert breaches.end("t-1")
    assert not breaches.end("t-1")


@pytest.mark.parametrize(
    "changes",
    [
        {"status": RefreshStatus.SUSPENDED},
        {"status": RefreshStatus.INITIALIZING},
        {"downstream": True},
        {"refresh_mode": RefreshMode.CONTINUOUS, "sources": (source("ev", "delta-ev"),)},
    ],
)
def test_tables_that_need_not_keep_pace_are_left_out(
    world: World, changes: dict[str, object]
) -> None:
    world.catalog.create(table(**changes))
    world.record_refresh(1)
    assert world.check_later(5 * HOUR) == []


def test_a_table_that_was_never_refreshed_has_no_lag(world: World) -> None:
    world.catalog.create(table())
    assert world.check_later(5 * HOUR) == []


def test_a_dropped_table_is_forgotten_in_silence(world: World) -> None:
    world.catalog.create(table())
    world.record_refresh(1)
    world.check_later(3 * HOUR)
    world.catalog.drop("t-1")
    assert world.check_later(1) == ["LAG_EXCEEDED"]
    assert Breaches(world.database).open_tables() == frozenset()


# ---- put together ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"webhook": "file:///etc/passwd"},
        {"webhook": "https://"},
        {"webhook": "http://[::1/x"},
        {"webhook": "http://gate.example:99999/"},
        {"command": ("",)},
    ],
)
def test_an_unusable_way_out_is_refused_at_the_start(config: dict[str, Any]) -> None:
    with pytest.raises(ServerError) as caught:
        couriers(AlertsSection(**config), lambda channel, outcome: None)
    assert caught.value.code == "ALERTS_CONFIGURATION"
    for secret in ("passwd", "gate.example"):
        assert secret not in str(caught.value)


def test_a_gateway_posts_what_happens_to_its_tables(tmp_path: Path) -> None:
    with receiving() as receiver:
        config = Config(
            data=tmp_path,
            server=ServerSection(port=0),
            engine=EngineSection(start_timeout=30),
            alerts=AlertsSection(webhook=receiver.url, lag_interval=0.05),
        )
        gateway = Gateway(
            config,
            java_home=tmp_path,
            engine_command=[sys.executable, str(FAKE_ENGINE), "broken"],
        )
        with gateway:
            services = gateway._services
            services.catalog.create(table())
            request = RefreshRequest(
                table_id="t-1", trigger=Trigger.MANUAL, requested_by="ana", refresh_id="r-7"
            )
            services.run_refresh(request)
            alert = receiver.next()
            assert (alert["event"], alert["refresh_id"]) == ("REFRESH_FAILED", "r-7")
            assert alert["error_class"] == "ENGINE_UNAVAILABLE"
            long_ago = services.clock.now() - timedelta(hours=5)
            times = dict.fromkeys(("queued_at", "started_at", "finished_at"), long_ago)
            good = {"state": RunState.SUCCEEDED, "action": Strategy.FULL, "epoch": 9}
            services.ledger.record(replace(run(refresh_id="r-old"), **good, **times))
            assert receiver.next()["event"] == "LAG_EXCEEDED"
            assert 'tidegate_alerts_total{channel="webhook",outcome="delivered"}' in (
                services.metrics.text().decode()
            )


def test_a_name_of_a_table_is_written_in_full(world: World) -> None:
    world.alerts.report_suspended(table(name=name("other", "s")), "why")
    assert world.told[0].table == "spark_catalog.s.other"
