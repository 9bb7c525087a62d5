from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.protocol.gateway import FakeClock
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.model.result import nothing
from tidegate_server.core.model.states import OPERATION_MOVES, OperationState
from tidegate_server.gateway.session.handle import issue
from tidegate_server.gateway.session.operation import (
    MESSAGE_LENGTH,
    MESSAGES,
    Operation,
    OperationKind,
    OperationLog,
)


def new_operation() -> Operation:
    return Operation(
        handle=issue(str(uuid.uuid4())),
        kind=OperationKind.EXECUTE_STATEMENT,
        clock=FakeClock(),
        statement="SELECT 1",
    )


def running_operation() -> Operation:
    operation = new_operation()
    assert operation.move(OperationState.PENDING)
    assert operation.move(OperationState.RUNNING)
    return operation


def progress(done: int, total: int) -> Progress:
    return Progress(
        stages_done=0, stages_total=1, tasks_done=done, tasks_running=1, tasks_total=total
    )


@given(st.lists(st.sampled_from(list(OperationState))))
def test_states_follow_the_life_cycle_whatever_is_tried(moves: list[OperationState]) -> None:
    operation = new_operation()
    for to in moves:
        before = operation.state
        moved = operation.move(to)
        assert moved == (to in OPERATION_MOVES[before])
        assert operation.state is (to if moved else before)


def test_a_finish_after_a_cancel_is_lost() -> None:
    operation = running_operation()
    assert operation.cancel()
    assert not operation.finish(nothing())
    assert operation.state is OperationState.CANCELED


def test_only_one_of_many_racing_ends_wins() -> None:
    operation = running_operation()
    start = threading.Barrier(8)
    won: list[bool] = []

    def end(number: int) -> None:
        start.wait()
        won.append(operation.cancel() if number % 2 else operation.finish(nothing()))

    threads = [threading.Thread(target=end, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1


def test_what_was_ended_is_not_wanted_any_more() -> None:
    operation = running_operation()
    operation.require_wanted()
    operation.cancel(" by user eva")
    with pytest.raises(ServerError, match="canceled by user eva"):
        operation.require_wanted()
    closed = running_operation()
    closed.close()
    with pytest.raises(ServerError, match="Invalid OperationHandle"):
        closed.require_wanted()
    late = running_operation()
    late.time_out(3)
    with pytest.raises(ServerError, match="timeout of 3 s"):
        late.require_wanted()


def test_a_failed_operation_raises_its_error_when_read() -> None:
    operation = running_operation()
    operation.fail(error(Code.NOT_SUPPORTED, what="This"))
    with pytest.raises(ServerError, match="This is not supported"):
        operation.result()


def test_a_timeout_names_its_seconds() -> None:
    operation = running_operation()
    assert operation.time_out(1.5)
    with pytest.raises(ServerError, match=r"timeout of 1\.5 s"):
        operation.result()


def test_a_closed_operation_is_no_longer_known() -> None:
    operation = running_operation()
    operation.finish(nothing())
    operation.close()
    with pytest.raises(ServerError, match="Invalid OperationHandle"):
        operation.result()


def test_listeners_hear_of_changes_until_they_leave() -> None:
    operation = new_operation()
    heard: list[OperationState] = []
    leave = operation.subscribe(lambda: heard.append(operation.state))
    operation.move(OperationState.PENDING)
    leave()
    operation.move(OperationState.RUNNING)
    assert heard == [OperationState.PENDING]


def test_progress_is_logged_in_the_words_that_superset_reads() -> None:
    operation = running_operation()
    operation.report(progress(1, 4))
    operation.report(progress(1, 4))
    operation.report(progress(4, 4))
    assert operation.log.read(10)[1] == [
        "INFO  : Total jobs = 1",
        "INFO  : Launching Job 1 out of 1",
        "INFO  : Stage-1 map = 25%,  reduce = 25%",
        "INFO  : Stage-1 map = 100%,  reduce = 100%",
    ]


def test_the_page_of_the_first_job_is_named_once() -> None:
    operation = running_operation()
    for job, done in enumerate((1, 4)):
        url = f"http://127.0.0.1:4040/jobs/job/?id={job}"
        operation.report(replace(progress(done, 4), tracking_url=url))
    lines = operation.log.read(10)[1]
    said = [line.split("Tracking URL = ")[1] for line in lines if "Tracking URL = " in line]
    assert said == ["http://127.0.0.1:4040/jobs/job/?id=0"]
    assert lines.index(f"INFO  : Tracking URL = {said[0]}") == 2


def test_what_a_statement_waits_for_is_warned_of_once() -> None:
    operation = running_operation()
    for message in ("", "no executor", "no executor", "", "no executor"):
        operation.report(replace(progress(0, 4), message=message))
    warnings = [line for line in operation.log.read(10)[1] if line.startswith("WARN")]
    assert warnings == ["WARN  : no executor"] * 2


def test_progress_of_stopped_tasks_is_not_told() -> None:
    operation = running_operation()
    operation.report(progress(1, 4))
    operation.cancel()
    operation.report(progress(4, 4))
    shown = [line for line in operation.log.read(10)[1] if "Stage-1" in line]
    assert shown == ["INFO  : Stage-1 map = 25%,  reduce = 25%"]
    assert operation.view(with_progress=True).progress == progress(1, 4)


def test_warnings_and_notes_are_messages_and_lines_of_the_log() -> None:
    operation = running_operation()
    operation.write_log("Warning: the ice is thin")
    operation.write_log("one line")
    operation.write_log("Note: nothing was changed")
    assert operation.view().messages == ("Warning: the ice is thin", "Note: nothing was changed")
    assert operation.log.read(9)[1] == [
        "WARN  : the ice is thin",
        "INFO  : one line",
        "INFO  : nothing was changed",
    ]


def test_messages_are_bounded_and_the_log_has_them_whole() -> None:
    operation = running_operation()
    for _ in range(2 * MESSAGES):
        operation.write_log("Warning: " + "x" * 2 * MESSAGE_LENGTH)
    messages = operation.view().messages
    assert (len(messages), len(messages[0])) == (MESSAGES, MESSAGE_LENGTH)
    assert len(operation.log.read(1)[1][0]) > MESSAGE_LENGTH


def test_a_log_is_read_once_unless_from_its_start() -> None:
    log = OperationLog()
    for line in "abc":
        log.append(line)
    assert log.read(2) == (0, ["a", "b"])
    assert log.read(9) == (2, ["c"])
    assert log.read(9) == (3, [])
    assert log.read(9, start=0) == (0, ["a", "b", "c"])
    assert log.read(1, start=1) == (1, ["b"])
    assert log.read(1) == (2, ["c"])
    assert log.read(1, start=9) == (3, [])


def test_a_full_log_drops_its_oldest_lines() -> None:
    log = OperationLog(limit=2)
    for line in "abc":
        log.append(line)
    assert log.read(9) == (1, ["b", "c"])
