"""The HTTP port of a whole gateway."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import pytest

import tidegate
from tests.gateway.command.fakes import FixedClock
from tests.gateway.test_app import build, cursor_of
from tests.support.waiting import wait_until
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection
from tidegate_server.gateway import app
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.store import database


def url(gateway: Gateway, path: str) -> str:
    return f"http://127.0.0.1:{gateway.http_port}{path}"


def test_a_gateway_serves_health_and_metrics_while_its_engine_is_missing(tmp_path: Path) -> None:
    with build(tmp_path, "mute") as gateway, cursor_of(gateway) as cursor:
        cursor.execute("SHOW MATERIALIZED TABLES")
        ready = httpx.get(url(gateway, "/health/ready"))
        assert (ready.status_code, ready.json()["missing"]) == (503, ["engine"])
        lines = httpx.get(url(gateway, "/metrics")).text.splitlines()
    for line in (
        "tidegate_sessions 1.0",
        "tidegate_engine_up 0.0",
        "tidegate_engine_restarts_total 0.0",
        "tidegate_store_up 1.0",
        "tidegate_scheduler_due_workflows 0.0",
        "tidegate_materialized_tables 0.0",
        'tidegate_operations_total{kind="EXECUTE_STATEMENT",state="FINISHED"} 1.0',
    ):
        assert line in lines


def test_the_port_can_be_switched_off(tmp_path: Path) -> None:
    config = Config(data=tmp_path, server=ServerSection(port=0, http_port=-1))
    with Gateway(config, java_home=tmp_path, clock=FixedClock(), engine_command=["false"]) as off:
        assert off.http_port is None


def test_two_gateways_on_one_http_port_are_told_apart(tmp_path: Path) -> None:
    with build(tmp_path / "one", "mute") as gateway:
        server = ServerSection(port=0, http_port=gateway.http_port)
        config = Config(data=tmp_path / "two", server=server)
        other = Gateway(config, java_home=tmp_path, engine_command=["false"])
        with pytest.raises(OSError, match="in use") as refused, other:
            pass
        assert refused.value.filename == f"127.0.0.1:{gateway.http_port}"


def test_a_store_deleted_under_a_running_gateway_is_said_by_all(tmp_path: Path) -> None:
    with build(tmp_path, "mute") as gateway, cursor_of(gateway) as cursor:
        cursor.execute("SHOW MATERIALIZED TABLES")
        for each in tmp_path.glob("store.db*"):
            each.unlink()
        ready = httpx.get(url(gateway, "/health/ready"))
        assert (ready.status_code, ready.json()["missing"]) == (503, ["store", "engine"])
        assert ready.json()["problems"][0].startswith("[STORE_DAMAGED] The store is damaged")
        with pytest.raises(tidegate.OperationalError, match="STORE_DAMAGED") as caught:
            cursor.execute("SHOW MATERIALIZED TABLES")
        assert caught.value.sqlstate == "58030"
        assert "--recover-catalog" in caught.value.hint
        assert httpx.get(url(gateway, "/v1/materialized-tables")).status_code == 500
        assert "tidegate_store_up 0.0" in httpx.get(url(gateway, "/metrics")).text.splitlines()


def test_a_store_that_is_locked_is_said_by_health_and_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    monkeypatch.setattr(app, "CHECK_SECONDS", 0.2)
    with build(tmp_path, "mute") as gateway, closing(_lock(tmp_path / "store.db")) as other:
        wait_until(
            lambda: _problem(gateway).startswith("[STORE_BUSY]"), "health does not show the lock"
        )
        metrics = httpx.get(url(gateway, "/metrics")).text
        assert "tidegate_store_up 0.0" in metrics.splitlines()
        assert 'tidegate_store_failures_total{code="STORE_BUSY"}' in metrics
        other.execute("ROLLBACK")
        wait_until(lambda: not _problem(gateway), "health still shows the lock")


def _lock(file: Path) -> sqlite3.Connection:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def _problem(gateway: Gateway) -> str:
    problems = httpx.get(url(gateway, "/health/ready")).json()["problems"]
    return problems[0] if problems else ""
