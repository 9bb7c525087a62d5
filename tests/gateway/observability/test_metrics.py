"""What is counted, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

import tidegate
from tests.contract.examples import NOON, run
from tests.gateway.protocol.gateway import Gateway, running_gateway
from tidegate_server.core.log_context import current_log_context
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.observability.runs import observe_refreshes


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with running_gateway() as running:
        yield running


def test_statements_are_counted_by_how_they_ended(gateway: Gateway) -> None:
    connection = tidegate.connect(host=gateway.host, port=gateway.port)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        with pytest.raises(tidegate.Error):
            cursor.execute("SELECT nothing")
    text = gateway.sessions.metrics.text().decode()
    kind = 'kind="EXECUTE_STATEMENT"'
    assert f'tidegate_operations_total{{{kind},state="FINISHED"}} 1.0' in text
    assert f'tidegate_operations_total{{{kind},state="ERROR"}} 1.0' in text
    assert 'tidegate_statement_duration_seconds_count{state="FINISHED"} 1.0' in text
    assert "tidegate_fetched_rows_total 1.0" in text
    assert "tidegate_fetched_bytes_total 0.0" not in text


def test_a_refresh_is_counted_with_its_strategy_and_its_time() -> None:
    metrics = Metrics()
    ended = run(
        state=RunState.SUCCEEDED,
        action=Strategy.FULL,
        started_at=NOON,
        finished_at=NOON + timedelta(seconds=2),
    )
    request = RefreshRequest(table_id="t-1", trigger=ended.trigger, requested_by="ann")
    told: list[tuple[str | None, str | None]] = []

    def run_refresh(asked: RefreshRequest) -> RefreshRun:
        told.append((asked.refresh_id, current_log_context().refresh_id))
        return ended

    carried_out = observe_refreshes(run_refresh, metrics, lambda: "r-new")
    assert carried_out(request) is ended
    carried_out(replace(request, refresh_id="r-7"))
    assert told == [("r-new", "r-new"), ("r-7", "r-7")]
    assert current_log_context().refresh_id is None
    metrics.refresh_ended(run(state=RunState.SKIPPED, finished_at=NOON))
    text = metrics.text().decode()
    assert (
        'tidegate_refreshes_total{state="SUCCEEDED",strategy="FULL",trigger="MANUAL"} 2.0' in text
    )
    assert 'tidegate_refreshes_total{state="SKIPPED",strategy="NONE",trigger="MANUAL"} 1.0' in text
    assert 'tidegate_refresh_duration_seconds_sum{strategy="FULL"} 4.0' in text


def test_two_gateways_of_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.authentication_failed("thrift")
    assert 'port="thrift"' not in other.text().decode()
