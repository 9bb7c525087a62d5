"""The log of an operation as clients read it."""

from __future__ import annotations

import re
import threading
import time

from tests.gateway.protocol.gateway import (
    Gateway,
)
from tests.gateway.protocol.peer import STATES, Peer
from tidegate.wire.service import (
    ttypes,
)
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.gateway.context import Context


def test_the_log_is_drained(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "TALK").operationHandle
    first = peer.fetch(operation, fetchType=1).results.columns
    assert first[0].stringVal.values[1] == b"INFO  : one line of the log"
    second = peer.fetch(operation, fetchType=1).results.columns
    assert [c.stringVal.values for c in second] == [[]]


def test_the_log_of_a_short_statement_says_what_ran_and_how_long(
    gateway: Gateway, peer: Peer
) -> None:
    gateway.answers["SELECT\n  1"] = lambda _: nothing()
    query_id, lines = run_and_read_log(peer, "SELECT\n  1")
    assert lines[0] == f"INFO  : Executing command(queryId={query_id}): SELECT 1"
    taken = rf"INFO  : Completed executing command\(queryId={query_id}\); Time taken: \d+\.\d{{3}}"
    assert re.match(taken, lines[1])
    assert len(lines) == 2


def test_the_log_of_a_failed_statement_says_why(gateway: Gateway, peer: Peer) -> None:
    def fail(_: Context) -> Result:
        raise ServerError(code="X", sqlstate="23001", message="by row:\n - x : 1")

    gateway.answers["FAIL SO"] = fail
    _, lines = run_and_read_log(peer, "FAIL SO")
    assert lines[1:3] == ["ERROR : FAILED: [X] by row:", "ERROR :  - x : 1"]
    assert len(lines) == 4


def run_and_read_log(peer: Peer, text: str) -> tuple[str, list[str]]:
    """Run a statement and return its id and its whole log."""
    operation = peer.start(peer.session(), text)
    assert peer.status(operation).operationState in (STATES.FINISHED_STATE, STATES.ERROR_STATE)
    answer = peer.fetch(operation, fetchType=1)
    assert not answer.hasMoreRows
    query_id = peer.client.GetQueryId(ttypes.TGetQueryIdReq(operation)).queryId
    return query_id, [line.decode() for line in answer.results.columns[0].stringVal.values]


def test_the_lines_of_a_statements_start_wake_nobody(gateway: Gateway, peer: Peer) -> None:
    """Or clients that do not read the log would ask twice a second."""

    begun = threading.Event()

    def slow(_: Context) -> RowsResult:
        begun.set()
        time.sleep(1.5)
        return nothing()

    gateway.answers["SLOW"] = slow
    operation = peer.start(peer.session(), "SLOW")
    assert begun.wait(10)
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
