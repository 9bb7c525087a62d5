"""Failures that may pass, and failures that tell something."""

from __future__ import annotations

import pytest

from tests.contract.examples import run
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState
from tidegate_server.gateway.freshness.retries import (
    counts_as_failure,
    retries_left,
    retry_pause,
    suspension_reason,
    transient,
    whole_number,
)


def failed_run(error_class: str, sqlstate: str, attempt: int = 1) -> RefreshRun:
    return run(state=RunState.FAILED, error_class=error_class, sqlstate=sqlstate, attempt=attempt)


@pytest.mark.parametrize(
    ("error_class", "sqlstate", "expected"),
    [
        ("ENGINE_LOST", "08006", True),
        ("ENGINE_UNAVAILABLE", "08006", True),
        ("DELTA_CONCURRENT_WRITE", "2D521", True),
        ("TOO_MANY", "53300", True),
        ("DIVIDE_BY_ZERO", "22012", False),
        ("INTERNAL", "XX000", False),
        ("OPERATION_CANCELED", "57014", False),
    ],
)
def test_only_some_failures_may_pass(error_class: str, sqlstate: str, expected: bool) -> None:
    assert transient(failed_run(error_class, sqlstate)) is expected
    assert retries_left(failed_run(error_class, sqlstate), 1) is expected


def test_retries_are_counted() -> None:
    assert retries_left(failed_run("ENGINE_LOST", "08006", attempt=3), 3)
    assert not retries_left(failed_run("ENGINE_LOST", "08006", attempt=4), 3)
    assert not retries_left(failed_run("ENGINE_LOST", "08006"), 0)
    assert not retries_left(run(state=RunState.CANCELLED, sqlstate="08006"), 3)


def test_pauses_double_up_to_a_bound() -> None:
    seconds = [retry_pause(attempt).total_seconds() for attempt in (1, 2, 3, 7, 8, 1000)]
    assert seconds == [5, 10, 20, 300, 300, 300]


def test_an_absent_engine_is_no_failure_of_the_table() -> None:
    assert counts_as_failure(failed_run("ENGINE_LOST", "08006"))
    assert not counts_as_failure(failed_run("ENGINE_UNAVAILABLE", "08006"))
    assert not counts_as_failure(run(state=RunState.UPSTREAM_FAILED))


def test_the_reason_of_a_suspension_names_the_last_error() -> None:
    assert suspension_reason(5, failed_run("DIVIDE_BY_ZERO", "22012")).startswith(
        "SUSPENDED_DUE_TO_ERRORS: 5 refreshes failed in a row, the last with DIVIDE_BY_ZERO"
    )


@pytest.mark.parametrize(
    ("text", "number"), [(None, 7), ("0", 0), (" 12 ", 12), ("-1", 7), ("x", 7), ("²", 7)]
)
def test_a_number_that_cannot_be_read_is_the_default(text: str | None, number: int) -> None:
    assert whole_number(text, 7) == number
