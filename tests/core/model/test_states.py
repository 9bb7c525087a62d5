"""Life cycles lead only where their tables say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from tidegate_server.core.model.states import (
    OPERATION_MOVES,
    REFRESH_MOVES,
    RUN_MOVES,
    OperationState,
    RunState,
    allowed,
)


@pytest.mark.parametrize("moves", [OPERATION_MOVES, REFRESH_MOVES, RUN_MOVES])
def test_every_state_has_its_row(moves: Mapping[Enum, Any]) -> None:
    kind = type(next(iter(moves)))
    assert set(moves) == set(kind)


def test_every_operation_can_be_closed_but_a_closed_one() -> None:
    for state in OperationState:
        expected = state is not OperationState.CLOSED
        assert allowed(OPERATION_MOVES, state, OperationState.CLOSED) is expected


def test_a_finished_run_never_moves_again() -> None:
    assert not RUN_MOVES[RunState.SUCCEEDED]


def test_a_finished_operation_cannot_be_canceled() -> None:
    assert not allowed(OPERATION_MOVES, OperationState.FINISHED, OperationState.CANCELED)
