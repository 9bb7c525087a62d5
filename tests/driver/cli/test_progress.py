"""The line that shows how far a statement is."""

from __future__ import annotations

import pytest

from tidegate.cli.terminal.progress import progress_line
from tidegate.operation import OperationState, OperationStatus, TaskCounts, _stages, _tasks
from tidegate.wire.service import ttypes


def status(
    tasks: TaskCounts | None = None, stages: tuple[int, int] | None = None
) -> OperationStatus:
    return OperationStatus(
        state=OperationState.RUNNING, has_result_set=True, tasks=tasks, stages=stages
    )


def test_stages_and_tasks_are_shown() -> None:
    tasks = TaskCounts(total=200, completed=50, running=4)
    line = progress_line(12.7, status(tasks, (1, 3)), "Stage-1 map = 25%", 100)
    assert line == "12 s  █████░░░░░░░░░░░░░░░  25%  stages 1/3  tasks 50/200 (4 running)"


def test_other_terminals_get_other_characters() -> None:
    tasks = TaskCounts(total=2, completed=2, running=0)
    line = progress_line(1, status(tasks), "", 100, blocks=False)
    assert line == "1 s  #################### 100%  tasks 2/2"


@pytest.mark.parametrize("found", [None, status()])
def test_without_tasks_the_log_is_shown(found: OperationStatus | None) -> None:
    assert progress_line(3, found, "INFO  : Map 1: 0/4", 80) == "3 s  Map 1: 0/4"
    assert progress_line(3, found, "WARN  : Warning: no executor", 80) == "3 s  no executor"
    assert progress_line(3, found, "", 80) == "3 s"
    assert progress_line(3, found, "INFO  : Executing command(queryId=x): SELECT", 80) == "3 s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.9, "59 s"), (61, "1 min 01 s"), (3723, "1 h 02 min")]
)
def test_long_times_are_readable(seconds: float, text: str) -> None:
    assert progress_line(seconds, None, "", 80) == text


def test_it_never_folds() -> None:
    assert progress_line(3, None, "x" * 100, 20) == "3 s  " + "x" * 14 + "…"


def test_the_counts_are_those_that_beeline_draws() -> None:
    names = ["VERTICES", "ATTEMPT", "STATUS", "TOTAL", "COMPLETED", "RUNNING", "PENDING", "FAILED"]
    update = ttypes.TProgressUpdateResp(
        headerNames=names,
        rows=[
            ["Map 1", "0", "RUNNING", "4", "3", "1", "0", "0"],
            ["Reducer 2", "0", "INITED", "2", "0", "0", "2", "0"],
        ],
        footerSummary="VERTICES: 00/02",
    )
    assert _tasks(update) == TaskCounts(total=6, completed=3, running=1)
    assert _stages(update) == (0, 2)


@pytest.mark.parametrize(
    "update",
    [
        None,
        ttypes.TProgressUpdateResp(headerNames=[], rows=[], footerSummary=""),
        ttypes.TProgressUpdateResp(headerNames=["TOTAL", "COMPLETED", "RUNNING"], rows=[["?"]]),
    ],
)
def test_a_server_may_count_nothing(update: object) -> None:
    assert _tasks(update) is None
    assert _stages(update) is None
