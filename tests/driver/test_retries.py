"""How often and how long a lost connection is opened again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.network.line import STATEMENT_ID, is_repeatable
from tidegate.network.retries import Budget, RetryPolicy, pause_before
from tidegate.wire.service import ttypes


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_pauses_grow_to_five_seconds(attempt: int, jitter: float) -> None:
    pause = pause_before(attempt, jitter)
    assert 0.05 <= pause <= 5
    assert pause_before(attempt, 0) / 2 <= pause <= pause_before(attempt, 0)
    assert pause_before(attempt, jitter) <= pause_before(attempt + 1, jitter)


def test_attempts_are_counted() -> None:
    budget = Budget(RetryPolicy(2, 60))
    assert [budget.next_pause() is None for _ in range(3)] == [False, False, True]
    assert str(budget) == "2 attempts within 0.0 s"


def test_a_pause_beyond_the_seconds_is_not_made() -> None:
    assert Budget(RetryPolicy(100, 0.01)).next_pause() is None


@pytest.mark.parametrize(
    ("call", "request_", "expected"),
    [
        ("GetOperationStatus", None, True),
        ("GetDelegationToken", None, False),
        ("CancelDelegationToken", None, False),
        ("CloseSession", None, False),
        ("FetchResults", ttypes.TFetchResultsReq(None, 0, 10), False),
        ("FetchResults", ttypes.TFetchResultsReq(None, 3, 10, startRow=7), True),
        ("ExecuteStatement", ttypes.TExecuteStatementReq(None, "q"), False),
        ("ExecuteStatement", ttypes.TExecuteStatementReq(None, "q", {STATEMENT_ID: "a"}), True),
    ],
)
def test_only_what_the_server_recognizes_is_sent_again(
    call: str, request_: object, expected: bool
) -> None:
    assert is_repeatable(call, request_) is expected
