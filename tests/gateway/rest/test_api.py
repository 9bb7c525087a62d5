"""Calls of the REST interface and what they answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from tests.contract.examples import name, run, table
from tests.gateway.command.fakes import NOW
from tests.gateway.rest.parts import Rest, rest_over_sqlite
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.rest.openapi import public_path
from tidegate_server.gateway.rest.problems import is_flinks

TABLES = "/v1/materialized-tables"
DS = {"partition.fields.Ds.date-formatter": "yyyy-MM-dd"}


def refresh(rest: Rest, body: object = None, of: str = "t-1") -> Any:
    return rest.client().post(f"{TABLES}/{of}/refresh", json=body)


def refresh_request(rest: Rest, body: object) -> RefreshRequest:
    assert refresh(rest, body).status_code == 202
    [request] = rest.requests
    return request


def problem(answer: Any, status: int, code: str) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert (told["status"], told["code"]) == (status, code)
    assert told["sqlstate"]
    return f"{told['detail']} {told['hint']}"


# ---- tables ----------------------------------------------------------------------------------


def test_tables_are_listed_by_name(rest: Rest) -> None:
    rest.catalog.create(table(id="t-2", name=name("hourly", schema="other")))
    tables = rest.client().get(TABLES).json()["materializedTables"]
    assert [found["name"] for found in tables] == ["Daily", "hourly"]
    only = rest.client().get(TABLES, params={"schema": "OTHER"}).json()["materializedTables"]
    assert [found["id"] for found in only] == ["t-2"]


@pytest.mark.parametrize("written", ["t-1", "d.daily", "spark_catalog.D.DAILY"])
def test_a_table_is_found_by_its_id_or_its_name(rest: Rest, written: str) -> None:
    told = rest.client().get(f"{TABLES}/{written}").json()
    assert (told["id"], told["refreshStatus"], told["freshness"]) == ("t-1", "ACTIVATED", "1 HOUR")
    assert told["columns"][0] == {
        "name": "Ds",
        "type": "string",
        "nullable": False,
        "comment": "the day",
    }
    assert told["originalQuery"].endswith("-- süß")


@pytest.mark.parametrize("written", ["nope", "d.nope", "a.b.c.d"])
def test_an_unknown_table_is_a_problem(rest: Rest, written: str) -> None:
    assert written in problem(rest.client().get(f"{TABLES}/{written}"), 404, "MT_NOT_FOUND")


def test_a_table_tells_of_its_last_run(rest: Rest) -> None:
    rest.ledger.record(run(refresh_id="r-9"))
    assert rest.client().get(f"{TABLES}/t-1").json()["lastRefresh"]["id"] == "r-9"


def test_suspend_and_resume_change_the_status(rest: Rest) -> None:
    client = rest.client()
    suspended = client.post(f"{TABLES}/t-1/suspend")
    assert (suspended.status_code, suspended.json()["refreshStatus"]) == (200, "SUSPENDED")
    problem(client.post(f"{TABLES}/t-1/suspend"), 409, "MT_STATE")
    assert client.post(f"{TABLES}/t-1/resume").json()["refreshStatus"] == "ACTIVATED"


# ---- refreshes -------------------------------------------------------------------------------


def test_a_refresh_is_begun_and_its_run_can_be_asked_for(rest: Rest) -> None:
    started = refresh(rest)
    assert started.status_code == 202
    refresh_id = started.json()["refreshId"]
    assert started.headers["location"] == f"/v1/refreshes/{refresh_id}"
    told = rest.client().get(started.headers["location"]).json()
    assert (told["state"], told["trigger"], told["requestedBy"]) == ("RUNNING", "MANUAL", "rest")


def test_static_partitions_limit_a_refresh(rest: Rest) -> None:
    request = refresh_request(rest, {"staticPartitions": {"ds": "2024-01-02"}})
    assert (request.recompute.partitions, request.trigger) == (
        ({"Ds": "2024-01-02"},),
        Trigger.MANUAL,
    )


def test_an_unknown_partition_column_is_a_problem(rest: Rest) -> None:
    answer = refresh(rest, {"staticPartitions": {"hh": "1"}})
    assert "Ds" in problem(answer, 400, "MT_PARTITION_UNKNOWN")


def test_a_periodic_refresh_covers_the_partition_of_its_schedule_time(rest: Rest) -> None:
    request = refresh_request(rest, {"isPeriodic": True, "scheduleTime": "2024-01-02 00:00:00"})
    assert request.trigger is Trigger.SCHEDULED
    assert request.schedule_time == datetime(2024, 1, 2, tzinfo=UTC)
    assert request.recompute.partitions == ({"Ds": "2024-01-02"},)


NEW_YEAR_IN_TOKYO = datetime(2024, 12, 31, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {**DS, "materialized-table.schedule.timezone": "Asia/Tokyo"}},
        {"settings": {"spark.sql.session.timeZone": "Asia/Tokyo"}},
    ],
)
@pytest.mark.parametrize("time", ["2025-01-01 00:00:00", "2024-12-31T15:00:00Z"])
def test_a_fire_is_read_and_named_in_the_zone_of_its_table(
    rest: Rest, changes: dict[str, Any], time: str
) -> None:
    rest.catalog.replace(table(**changes))
    request = refresh_request(rest, {"isPeriodic": True, "scheduleTime": time})
    assert request.schedule_time == NEW_YEAR_IN_TOKYO
    assert request.recompute.partitions == ({"Ds": "2025-01-01"},)


def test_an_offset_tells_the_two_hours_of_a_doubled_one_apart(rest: Rest) -> None:
    rest.catalog.replace(table(settings={"spark.sql.session.timeZone": "Europe/Berlin"}))
    for offset in ("+02:00", "+01:00"):
        body = {"isPeriodic": True, "scheduleTime": f"2024-10-27 02:00:00{offset}"}
        assert refresh(rest, body).status_code == 202
    first, second = (request.schedule_time for request in rest.requests)
    assert (first, second) == (
        datetime(2024, 10, 27, 0, tzinfo=UTC),
        datetime(2024, 10, 27, 1, tzinfo=UTC),
    )


def test_the_options_of_the_last_resume_hold_for_a_periodic_refresh(rest: Rest) -> None:
    policy = {"materialized-table.partition-refresh.policy": "WINDOW_START"}
    rest.catalog.replace(table(resume_options=policy))
    request = refresh_request(rest, {"isPeriodic": True, "scheduleTime": "2024-01-02 00:00:00"})
    assert request.recompute.partitions == ({"Ds": "2024-01-01"},)


def test_dynamic_options_hold_for_one_periodic_refresh(rest: Rest) -> None:
    policy = {"materialized-table.partition-refresh.policy": "WINDOW_START"}
    body = {"isPeriodic": True, "scheduleTime": "2024-01-02 00:00:00", "dynamicOptions": policy}
    assert refresh_request(rest, body).recompute.partitions == ({"Ds": "2024-01-01"},)


def test_the_execution_configuration_reaches_the_run(rest: Rest) -> None:
    settings = {"spark.sql.shuffle.partitions": "3"}
    assert refresh_request(rest, {"executionConfig": settings}).settings == settings


def test_a_setting_that_is_not_free_is_denied_where_users_matter(tmp_path: Path) -> None:
    config = Config(authorization=AuthorizationSection(enabled=True))
    with rest_over_sqlite(tmp_path, config=config) as guarded:
        guarded.catalog.create(table(owner="rest"))
        for key in ("spark.sql.runSQLOnFiles", "spark.hadoop.fs.s3a.endpoint"):
            problem(refresh(guarded, {"executionConfig": {key: "true"}}), 403, "ACCESS_DENIED")
        assert not guarded.requests


@pytest.mark.parametrize(
    ("time", "told"),
    [
        (None, "null"),
        ("20240103 00:00:00.000", "yyyy-MM-dd HH:mm:ss"),
        ("2024-01-03", "yyyy-MM-dd HH:mm:ss"),
        ("2024-1-3 0:0:0", "yyyy-MM-dd HH:mm:ss"),
        ("2024-02-30 00:00:00", "yyyy-MM-dd HH:mm:ss"),
    ],
)
def test_a_periodic_refresh_needs_a_schedule_time(rest: Rest, time: str | None, told: str) -> None:
    answer = refresh(rest, {"isPeriodic": True, "scheduleTime": time})
    assert told in problem(answer, 400, "MT_SCHEDULE_TIME")
    assert not rest.requests


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"isPeriodic": "yes"}, "INVALID_REQUEST"),
        ({"unknown": 1}, "INVALID_REQUEST"),
        ({"scheduleTime": "2024-01-02 00:00:00"}, "INVALID_REQUEST"),
        (
            {
                "isPeriodic": True,
                "scheduleTime": "2024-01-02 00:00:00",
                "staticPartitions": {"ds": "x"},
            },
            "INVALID_REQUEST",
        ),
        ({"dynamicOptions": {"format": "json"}}, "NOT_SUPPORTED"),
        ({"executionConfig": {"execution.mode": "remote"}}, "NOT_SUPPORTED"),
        ({"executionConfig": {"parallelism.default": "4"}}, "NOT_SUPPORTED"),
        ({"executionConfig": {"spark.sql.ansi.enable": "true"}}, "INVALID_REQUEST"),
        ({"executionConfig": {"spark.app.name": "x"}}, "INVALID_REQUEST"),
        (
            {"dynamicOptions": {"materialized-table.partition-refresh.policy": "WINDOW"}},
            "INVALID_REQUEST",
        ),
        (
            {"dynamicOptions": {"materialized-table.partition-refresh.policy": "NO"}},
            "MT_OPTION_VALUE",
        ),
    ],
)
def test_an_unusable_body_is_a_problem_and_nothing_runs(
    rest: Rest, body: object, code: str
) -> None:
    rest.engine.similar = {"spark.sql.ansi.enable": "spark.sql.ansi.enabled"}
    problem(refresh(rest, body), 400, code)
    assert not rest.requests


def test_text_that_is_no_json_and_bodies_without_end_are_refused(rest: Rest) -> None:
    path = f"{TABLES}/t-1/refresh"
    problem(rest.client().post(path, content=b"{"), 400, "INVALID_REQUEST")
    problem(rest.client().post(path, content=b" " * (1 << 17)), 400, "INVALID_REQUEST")


def test_a_table_that_is_initializing_is_not_refreshed(rest: Rest) -> None:
    rest.catalog.create(table(id="t-3", name=name("new"), status=RefreshStatus.INITIALIZING))
    problem(refresh(rest, of="t-3"), 409, "MT_STATE")


def test_the_runs_of_a_table_are_listed_newest_first(rest: Rest) -> None:
    for number in range(3):
        rest.ledger.record(run(refresh_id=f"r-{number}"))
    path = f"{TABLES}/t-1/refreshes"
    told = rest.client().get(path, params={"limit": 2}).json()["refreshes"]
    assert [found["id"] for found in told] == ["r-2", "r-1"]
    for limit in ("0", "many", "1001"):
        problem(rest.client().get(path, params={"limit": limit}), 400, "INVALID_REQUEST")


def test_a_run_at_work_can_be_canceled(rest: Rest) -> None:
    refresh_id = refresh(rest).json()["refreshId"]
    answer = rest.client().post(f"/v1/refreshes/{refresh_id}/cancel")
    assert (answer.status_code, rest.canceled) == (202, [refresh_id])


def test_a_run_that_ended_cannot_be_canceled(rest: Rest) -> None:
    rest.ledger.record(run(refresh_id="r-1", state=RunState.FAILED, finished_at=NOW))
    problem(rest.client().post("/v1/refreshes/r-1/cancel"), 409, "MT_STATE")


def test_an_unknown_refresh_is_a_problem(rest: Rest) -> None:
    problem(rest.client().get("/v1/refreshes/r-7"), 404, "REFRESH_NOT_FOUND")
    problem(rest.client().post("/v1/refreshes/r-7/cancel"), 404, "REFRESH_NOT_FOUND")


# ---- health, metrics, description ------------------------------------------------------------


def test_a_gateway_that_lacks_a_part_lives_but_is_not_ready(rest: Rest) -> None:
    assert rest.client().get("/health/ready").status_code == 200
    rest.gone = ("engine",)
    unready = rest.client().get("/health/ready")
    assert (unready.status_code, unready.json()["missing"]) == (503, ["engine"])
    assert rest.client().get("/health/live").json()["status"] == "ok"


def test_metrics_come_in_prometheus_format(rest: Rest) -> None:
    rest.services.metrics.count_fetch(3, 100)
    answer = rest.client().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "tidegate_fetched_rows_total 3.0" in answer.text


def test_unknown_paths_and_methods_are_problems(rest: Rest) -> None:
    problem(rest.client().get("/nowhere"), 404, "INVALID_REQUEST")
    problem(rest.client().delete(f"{TABLES}/t-1"), 405, "INVALID_REQUEST")


def test_the_description_is_valid_and_has_every_path(rest: Rest) -> None:
    described = rest.client().get("/v1/openapi.json").json()
    validate(described)
    paths = {(method.upper(), path) for path, call in described["paths"].items() for method in call}
    guard: Any = rest.client().app
    served = {
        (method, public_path(route.path))
        for route in guard._app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    assert paths == {entry for entry in served if entry[0] != "HEAD"}


def test_every_path_has_its_place_in_the_manual(rest: Rest) -> None:
    from tests.test_docs import ROOT

    pages = ("rest.md", "operations.md", "flink-clients.md")
    manual = "".join((ROOT / "docs" / page).read_text("utf-8") for page in pages)
    shown = set(re.findall(r"`(?:GET|POST|DELETE) (/[^`?\s\[]+)", manual))
    described = rest.client().get("/v1/openapi.json").json()["paths"]
    flinks = {path for path in described if is_flinks(path)}
    assert described.keys() - flinks <= shown
    assert {re.sub(r"^/v\d", "", path) for path in flinks} <= shown
