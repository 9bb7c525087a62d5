"""What is looked up for metrics and health."""

from __future__ import annotations

from datetime import timedelta

from tests.contract.examples import NOON, name, run, table
from tests.gateway.command.fakes import FakeEngine
from tests.gateway.rest.parts import Rest
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.gateway.observability.gauges import LONGEST_LIST, Gauges, Picture, TableLag
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.rest.status import Health, health, lags_of


class BrokenCatalog:
    """A catalog whose store is gone."""

    def by_id(self, table_id: str) -> None:
        raise OSError("no store")


def test_a_gateway_with_store_and_engine_lacks_nothing(rest: Rest) -> None:
    assert health(rest.catalog, rest.engine) == Health()


def test_what_is_missing_is_named() -> None:
    engine = FakeEngine()
    engine.ready = False
    found = health(BrokenCatalog(), engine)  # type: ignore[arg-type]
    assert found.missing == ("store", "engine")


def test_the_lag_counts_from_the_last_good_refresh(rest: Rest) -> None:
    good = {"state": RunState.SUCCEEDED, "action": Strategy.FULL, "started_at": NOON}
    rest.ledger.record(run(refresh_id="r-1", finished_at=NOON, **good))
    rest.ledger.record(run(refresh_id="r-2", state=RunState.FAILED, finished_at=NOON))
    never = table(id="t-2", name=name("never"))
    lags = lags_of((table(), never), rest.ledger, NOON + timedelta(seconds=90))
    assert lags == (TableLag(table="spark_catalog.d.Daily", seconds=90.0),)


def picture(**changes: object) -> Picture:
    known: dict[str, object] = {
        "sessions": 2,
        "operations": 1,
        "engine_up": True,
        "engine_restarts": 3,
        "running_refreshes": 1,
        "due_workflows": 4,
        "tables": 1,
        "jobs": {"RUNNING": 2, "FAILED": 0},
        "lags": (TableLag(table="spark_catalog.d.t", seconds=1.5),),
    }
    return Picture(**{**known, **changes})  # type: ignore[arg-type]


def metrics_text(seen: Picture) -> str:
    metrics = Metrics()
    metrics.add(Gauges(lambda: seen))
    return metrics.text().decode()


def test_a_picture_becomes_gauges() -> None:
    text = metrics_text(picture())
    for line in (
        "tidegate_sessions 2.0",
        "tidegate_operations_open 1.0",
        "tidegate_engine_up 1.0",
        "tidegate_engine_restarts_total 3.0",
        "tidegate_refreshes_running 1.0",
        "tidegate_scheduler_due_workflows 4.0",
        "tidegate_store_up 1.0",
        'tidegate_jobs{status="RUNNING"} 2.0',
        'tidegate_jobs{status="FAILED"} 0.0',
        'tidegate_materialized_table_lag_seconds{table="spark_catalog.d.t"} 1.5',
    ):
        assert line in text.splitlines()


def test_without_store_the_other_gauges_are_still_told() -> None:
    lines = metrics_text(picture(tables=None, lags=None, due_workflows=None)).splitlines()
    assert "tidegate_store_up 0.0" in lines
    assert "tidegate_sessions 2.0" in lines
    assert not [line for line in lines if "lag_seconds" in line or "due_workflows" in line]


def test_the_number_of_tables_with_a_series_is_bounded() -> None:
    lags = tuple(TableLag(table=f"t{n}", seconds=n) for n in range(LONGEST_LIST + 10))
    lines = [
        line for line in metrics_text(picture(lags=lags)).splitlines() if "lag_seconds{" in line
    ]
    assert len(lines) == LONGEST_LIST
    assert lines[0].endswith(f" {LONGEST_LIST + 9}.0")
