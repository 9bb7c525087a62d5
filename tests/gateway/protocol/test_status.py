"""The status of an operation: its end, cancellation, progress and query id."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.gateway.protocol.gateway import (
    Gateway,
    talk,
)
from tests.gateway.protocol.peer import STATES, Peer, numbers
from tidegate.wire.service import (
    TApplicationException,
    ttypes,
)
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.context import Context


def test_the_status_waits_for_the_end(gateway: Gateway, peer: Peer) -> None:
    def soon(_: Any) -> RowsResult:
        time.sleep(0.3)
        return nothing()

    gateway.answers["SOON"] = soon
    assert peer.status(peer.start(peer.session(), "SOON")).operationState == STATES.FINISHED_STATE


def test_a_fetch_waits_for_the_end(gateway: Gateway, peer: Peer) -> None:
    def late(context: Any) -> Any:
        time.sleep(0.3)
        return numbers(2)(context)

    gateway.answers["SELECT late"] = late
    operation = peer.start(peer.session(), "SELECT late")
    assert peer.fetch(operation).results.columns[0].i64Val.values == [0, 1]


def test_news_release_the_status_of_a_client_that_follows_logs(
    gateway: Gateway, peer: Peer
) -> None:
    let_go = threading.Event()

    def chatty(context: Any) -> RowsResult:
        context.log("begun")
        assert let_go.wait(20)
        return nothing()

    gateway.answers["CHATTY"] = chatty
    operation = peer.start(peer.session(), "CHATTY")
    assert peer.status(operation).operationState == STATES.RUNNING_STATE
    log = peer.fetch(operation, fetchType=1).results.columns[0].stringVal.values
    assert log[1:] == [b"INFO  : begun"]
    let_go.set()
    assert peer.status(operation).operationState == STATES.FINISHED_STATE


def test_queued_operations_never_show_as_pending(gateway: Gateway, peer: Peer) -> None:
    session = peer.session()
    blocked = [peer.start(session, "WAIT FOR CANCEL") for _ in range(4)]
    queued = peer.start(session, "SELECT 1")
    assert peer.status(queued).operationState == STATES.INITIALIZED_STATE
    for operation in blocked:
        peer.client.CancelOperation(ttypes.TCancelOperationReq(operation))
    assert peer.status(queued).operationState == STATES.FINISHED_STATE


def test_a_cancel_shows_at_once_and_says_by_whom(peer: Peer) -> None:
    operation = peer.start(peer.session(), "WAIT FOR CANCEL")
    request = ttypes.TCancelOperationReq(operation)
    assert peer.client.CancelOperation(request).status.statusCode == 0
    status = peer.status(operation)
    assert status.operationState == STATES.CANCELED_STATE
    assert "canceled by user eva" in status.errorMessage


def test_a_timeout_shows_as_such(peer: Peer) -> None:
    operation = peer.start(peer.session(), "WAIT FOR CANCEL", queryTimeout=1)
    # The server holds an answer for some seconds at most.
    answers = (peer.status(operation).operationState for _ in range(20))
    ended = next(state for state in answers if state != STATES.RUNNING_STATE)
    assert ended == STATES.TIMEDOUT_STATE


def test_modified_rows_are_told(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["INSERT"] = lambda _: RowsResult(
        Schema(), [], has_result_set=False, modified_rows=3
    )
    assert peer.status(peer.start(peer.session(), "INSERT")).numModifiedRows == 3


@pytest.mark.parametrize("text", ["SELECT 1", "USE default"])
def test_what_counts_no_rows_says_minus_one_which_ends_the_results_of_jdbc(
    peer: Peer, text: str
) -> None:
    assert peer.status(peer.start(peer.session(), text)).numModifiedRows == -1


def test_progress_has_nine_columns_and_every_field(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "TALK").operationHandle
    progress = peer.status(operation, getProgressUpdate=True).progressUpdateResponse
    assert len(progress.headerNames) == len(progress.rows[0]) == 9
    assert progress.status == ttypes.TJobExecutionStatus.COMPLETE
    assert progress.progressedPercentage == 1.0
    assert None not in (progress.footerSummary, progress.startTime)


def test_progress_of_what_has_ended_is_told_once(peer: Peer) -> None:
    """Or beeline, which asks before each row, draws it over the rows."""
    operation = peer.execute(peer.session(), "TALK").operationHandle
    told = [
        peer.status(operation, getProgressUpdate=True).progressUpdateResponse.status
        for _ in range(3)
    ]
    statuses = ttypes.TJobExecutionStatus
    assert told == [statuses.COMPLETE, statuses.NOT_AVAILABLE, statuses.NOT_AVAILABLE]


def test_progress_of_what_failed_does_not_say_finished(gateway: Gateway, peer: Peer) -> None:
    def fail(context: Context) -> Result:
        talk(context)
        raise error(Code.NOT_SUPPORTED, what="This")

    gateway.answers["TALK AND FAIL"] = fail
    operation = peer.start(peer.session(), "TALK AND FAIL")
    progress = peer.status(operation, getProgressUpdate=True).progressUpdateResponse
    assert progress.rows[0][2] == "FAILED"


def test_progress_before_any_is_known_has_every_field_too(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    progress = peer.status(operation, getProgressUpdate=True).progressUpdateResponse
    assert progress.status == ttypes.TJobExecutionStatus.NOT_AVAILABLE
    assert (progress.headerNames, progress.rows, progress.footerSummary) == ([], [], "")


def test_the_query_id_is_the_operations_id(gateway: Gateway, peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    answered = peer.client.GetQueryId(ttypes.TGetQueryIdReq(operation)).queryId
    assert len(answered) == 36


def test_the_query_id_of_a_bad_handle_is_an_exception(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    operation.operationId.guid = bytes(16)
    with pytest.raises(TApplicationException, match="Invalid OperationHandle"):
        peer.client.GetQueryId(ttypes.TGetQueryIdReq(operation))
