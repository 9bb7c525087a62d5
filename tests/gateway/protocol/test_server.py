from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from tests.gateway.protocol.gateway import (
    BatchResult,
    Gateway,
    eventually,
    rows_of,
    running_gateway,
    talk,
)
from tidegate.wire.sasl import SaslStatus, negotiation_frame
from tidegate.wire.service import (
    CALLS,
    Client,
    TApplicationException,
    accelerated_protocol,
    args_class,
    encode_message,
    ttypes,
)
from tidegate_server.core.config import Config, ServerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import ListTemporaryFunctions
from tidegate_server.core.model.names import FunctionName
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.protocol.handler import Handler
from tidegate_server.gateway.protocol.scan import MessageScanner
from tidegate_server.gateway.protocol.status import failure

V = ttypes.TProtocolVersion
CODES = ttypes.TStatusCode
STATES = ttypes.TOperationState


class Peer:
    """A client of our own bindings over a bare connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._transport = TBufferedTransport(TSocket(gateway.host, gateway.port))
        self._transport.open()
        self.client = Client(accelerated_protocol(self._transport))

    def close(self) -> None:
        self._transport.close()

    def open(self, version: int = V.HIVE_CLI_SERVICE_PROTOCOL_V10, **configuration: str) -> Any:
        request = ttypes.TOpenSessionReq(
            client_protocol=version, username="eva", configuration=configuration
        )
        return self.client.OpenSession(request)

    def session(self, version: int = V.HIVE_CLI_SERVICE_PROTOCOL_V10, **configuration: str) -> Any:
        return self.open(version, **configuration).sessionHandle

    def execute(self, session: Any, text: str, **options: Any) -> Any:
        return self.client.ExecuteStatement(
            ttypes.TExecuteStatementReq(sessionHandle=session, statement=text, **options)
        )

    def start(self, session: Any, text: str, **options: Any) -> Any:
        return self.execute(session, text, runAsync=True, **options).operationHandle

    def status(self, operation: Any, **options: Any) -> Any:
        return self.client.GetOperationStatus(
            ttypes.TGetOperationStatusReq(operationHandle=operation, **options)
        )

    def fetch(self, operation: Any, rows: int = 100, **options: Any) -> Any:
        return self.client.FetchResults(
            ttypes.TFetchResultsReq(operationHandle=operation, maxRows=rows, **options)
        )

    def names(self, operation: Any) -> list[str]:
        request = ttypes.TGetResultSetMetadataReq(operationHandle=operation)
        columns = self.client.GetResultSetMetadata(request).schema.columns
        return [column.columnName for column in columns]

    def info(self, session: Any, kind: int) -> Any:
        request = ttypes.TGetInfoReq(sessionHandle=session, infoType=kind)
        return self.client.GetInfo(request).infoValue


@contextmanager
def connected(gateway: Gateway) -> Iterator[Peer]:
    peer = Peer(gateway)
    try:
        yield peer
    finally:
        peer.close()


@pytest.fixture
def peer(gateway: Gateway) -> Iterator[Peer]:
    with connected(gateway) as peer:
        yield peer


def numbers(count: int) -> Callable[[Any], BatchResult]:
    schema = Schema((Column(name="n", type="bigint"),))
    values = pa.array(range(count), pa.int64())
    batch = pa.RecordBatch.from_arrays([values], names=["n"])
    return lambda _: BatchResult(schema, [batch])


# ---- sessions ------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [0, 5, 9, 10])
def test_the_version_answered_is_the_one_asked_for(peer: Peer, asked: int) -> None:
    assert peer.open(asked).serverProtocolVersion == asked


def test_a_version_of_the_future_is_answered_with_v11(peer: Peer) -> None:
    assert peer.open(99).serverProtocolVersion == V.HIVE_CLI_SERVICE_PROTOCOL_V11


def test_the_configuration_answered_tells_fetch_size_and_format(peer: Peer) -> None:
    answered = peer.open(**{"tidegate.result.format": "arrow"}).configuration
    assert int(answered["hive.server2.thrift.resultset.default.fetch.size"]) > 0
    assert "hive.default.nulls.last" in answered
    assert answered["tidegate.result.format"] == "arrow"


def test_an_unknown_schema_fails_the_opening(peer: Peer) -> None:
    response = peer.open(**{"use:database": "nowhere"})
    assert (response.status.statusCode, response.status.sqlState) == (CODES.ERROR_STATUS, "42704")


def test_several_sessions_share_a_socket(peer: Peer) -> None:
    first, second = peer.session(), peer.session()
    peer.execute(first, "USE other_db")
    assert peer.client.CloseSession(ttypes.TCloseSessionReq(first)).status.statusCode == 0
    assert peer.execute(second, "SELECT 1").status.statusCode == 0


def test_a_session_is_used_from_another_socket(gateway: Gateway, peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    with connected(gateway) as other:
        assert other.fetch(operation).results.columns[0].i32Val.values == [1]


def test_a_bad_session_handle_says_so(peer: Peer) -> None:
    handle = ttypes.TSessionHandle(ttypes.THandleIdentifier(b"x" * 16, b"y" * 16))
    status = peer.execute(handle, "SELECT 1").status
    assert status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert "Invalid SessionHandle" in status.errorMessage
    assert "Invalid SessionHandle" in status.infoMessages[0]


def test_a_bad_operation_handle_says_so(peer: Peer) -> None:
    session = peer.session()
    operation = peer.execute(session, "SELECT 1").operationHandle
    operation.operationId.secret = bytes(16)
    for response in (peer.status(operation), peer.fetch(operation)):
        assert response.status.statusCode == CODES.INVALID_HANDLE_STATUS
        assert "Invalid OperationHandle" in response.status.infoMessages[0]


def test_closing_an_operation_twice_is_harmless(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    request = ttypes.TCloseOperationReq(operation)
    assert peer.client.CloseOperation(request).status.statusCode == 0
    assert peer.client.CloseOperation(request).status.statusCode == 0


def test_sessions_of_a_closed_socket_are_closed(gateway: Gateway) -> None:
    with connected(gateway) as peer:
        guid = peer.session().sessionId.guid
        assert guid in {s.handle.guid for s in gateway.sessions.sessions()}
    assert eventually(lambda: guid not in {s.handle.guid for s in gateway.sessions.sessions()})


def test_a_client_that_dies_in_a_synchronous_statement_leaves_nothing_behind(
    gateway: Gateway,
) -> None:
    with connected(gateway) as peer:
        session = peer.session()
        other_thread = threading.Thread(
            target=swallow_eof, args=(lambda: peer.execute(session, "WAIT FOR CANCEL"),)
        )
        other_thread.start()
        found = next(
            s for s in gateway.sessions.sessions() if s.handle.guid == session.sessionId.guid
        )
        assert eventually(lambda: found.idle_since() is None)
        peer._transport._TBufferedTransport__trans.handle.shutdown(socket.SHUT_RDWR)
        other_thread.join(10)
    assert eventually(lambda: found not in gateway.sessions.sessions())


def swallow_eof(call: Callable[[], Any]) -> None:
    with pytest.raises((EOFError, OSError, TTransportException)):
        call()


# ---- statements ----------------------------------------------------------------------------


def test_a_result_set_is_announced_in_the_reply(peer: Peer) -> None:
    session = peer.session()
    assert peer.execute(session, "SELECT 1").operationHandle.hasResultSet is True
    assert peer.execute(session, "USE default").operationHandle.hasResultSet is False


def test_a_result_set_can_be_forced(peer: Peer) -> None:
    operation = peer.execute(
        peer.session(**{"tidegate.result.set": "always"}), "USE default"
    ).operationHandle
    assert operation.hasResultSet is True
    schema = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
    assert [c.columnName for c in schema.columns] == ["Result"]
    assert len(peer.fetch(operation).results.columns) == 1


def test_a_failing_statement_fails_its_synchronous_call(peer: Peer) -> None:
    response = peer.execute(peer.session(), "SELECT nope")
    status = response.status
    assert (status.statusCode, status.sqlState) == (CODES.ERROR_STATUS, "42P01")
    told = "[TABLE_OR_VIEW_NOT_FOUND] cannot run SELECT nope (SQLSTATE '42P01')"
    assert status.errorMessage == told
    assert status.infoMessages[0].startswith("*java.sql.SQLException:[TABLE_OR_VIEW_NOT_FOUND]")
    assert status.infoMessages[1:] == ["first line", "second line"]
    assert status.errorCode is not None
    assert response.operationHandle is None


def test_a_failing_statement_tells_its_error_in_status_and_fetch(peer: Peer) -> None:
    operation = peer.start(peer.session(), "SELECT nope")
    status = peer.status(operation)
    assert (status.operationState, status.sqlState) == (STATES.ERROR_STATE, "42P01")
    assert status.errorMessage == "[TABLE_OR_VIEW_NOT_FOUND] cannot run SELECT nope"
    fetched = peer.fetch(operation)
    assert fetched.status.errorMessage == f"{status.errorMessage} (SQLSTATE '42P01')"
    # What Superset makes of PyHive's exception, whose text is this.
    found = re.search(r'errorMessage="(.*?)(?<!\\)"', repr(fetched))
    assert found is not None
    assert found[1] == fetched.status.errorMessage


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("The table `a`.`b` is not there", "The table 'a'.'b' is not there"),
        ("The table `a` isn't there", "The table `a` isn't there"),
        ('Near "x"', "Near 'x'"),
        ("Division by zero", "Division by zero (SQLSTATE '22012')"),
    ],
)
def test_messages_can_be_found_in_the_text_of_their_response(told: str, shown: str) -> None:
    problem = ServerError(code="X", sqlstate="22012", message=told)
    answer = failure(problem)
    assert answer.errorMessage == f"[X] {shown}"
    assert f'errorMessage="[X] {shown}"' in repr(answer)


def test_a_message_of_several_lines_is_sent_whole_before_its_hint() -> None:
    message = "by row:\n - x : 1"
    answer = failure(
        ServerError(code="X", sqlstate="23001", message=message, hint="Don't.", line=1, column=3)
    )
    assert answer.errorMessage == "[X] by row: (line 1, column 3)\n - x : 1\nHint: Don't."
    assert len(answer.infoMessages) == 1


def test_a_line_with_a_star_is_no_exception() -> None:
    problem = ServerError(code="X", sqlstate="22012", message="m", detail="*(1) Scan\nplan")
    assert failure(problem).infoMessages[1:] == [" *(1) Scan", "plan"]


@pytest.mark.parametrize("text", ["SHOW TABLES IN `zoo`", "show views", "/* x */ SHOW TABLES"])
def test_names_are_listed_as_hive_lists_them_where_that_is_asked_for(
    gateway: Gateway, peer: Peer, text: str
) -> None:
    columns = (("namespace", "string"), ("tableName", "string"), ("isTemporary", "boolean"))
    schema = Schema(tuple(Column(name=name, type=kind) for name, kind in columns))
    rows = [("zoo", f"t{number}", False) for number in range(3)]
    types = (pa.string(), pa.string(), pa.bool_())
    gateway.answers[text] = lambda _: RowsResult(schema, list(rows), types=types)
    spark = peer.execute(peer.session(), text).operationHandle
    assert peer.names(spark) == ["namespace", "tableName", "isTemporary"]
    hive = peer.execute(peer.session(**{"tidegate.show.tables": "hive"}), text).operationHandle
    assert peer.names(hive) == ["tab_name"]
    assert peer.fetch(hive, 2).results.columns[0].stringVal.values == [b"t0", b"t1"]
    assert peer.fetch(hive, 2).results.columns[0].stringVal.values == [b"t2"]


@pytest.mark.parametrize("name", ["zoo.nosuch", "nosuch"])
def test_pyhives_dialect_knows_a_missing_table(gateway: Gateway, peer: Peer, name: str) -> None:
    quoted = ".".join(f"`{part}`" for part in name.split("."))

    def missing(_: Context) -> Result:
        message = f"The table or view {quoted} cannot be found. Verify the `search path`."
        raise ServerError(code="TABLE_OR_VIEW_NOT_FOUND", sqlstate="42P01", message=message)

    gateway.answers["DESCRIBE nosuch"] = missing
    # As pyhive.sqlalchemy_hive looks for it in the text of its exception.
    said = repr(peer.execute(peer.session(), "DESCRIBE nosuch"))
    wanted = rf"TExecuteStatementResp.*SemanticException.*Table not found {re.escape(name)}'"
    assert re.search(wanted, said)


def test_the_status_waits_for_the_end(gateway: Gateway, peer: Peer) -> None:
    def soon(_: Any) -> RowsResult:
        time.sleep(0.3)
        return nothing()

    gateway.answers["SOON"] = soon
    assert peer.status(peer.start(peer.session(), "SOON")).operationState == STATES.FINISHED_STATE


def test_the_status_of_what_has_ended_may_be_asked_for_again_and_again(peer: Peer) -> None:
    """As Hive's JDBC driver 2.3 does: once per row."""
    session = peer.session()
    operation, other = peer.start(session, "SELECT 1"), peer.start(session, "FAIL")
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
    for _ in range(5):
        assert peer.status(operation).operationState == STATES.FINISHED_STATE
        assert peer.status(operation, getProgressUpdate=True).progressUpdateResponse is not None
        assert peer.status(other).operationState == STATES.ERROR_STATE
    peer.client.CloseOperation(ttypes.TCloseOperationReq(operationHandle=other))
    assert peer.status(other).status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
    peer.client.CloseSession(ttypes.TCloseSessionReq(sessionHandle=session))
    for _ in range(2):
        assert peer.status(operation).status.statusCode == CODES.INVALID_HANDLE_STATUS


def test_what_is_asked_again_without_waiting_is_answered_in_order(gateway: Gateway) -> None:
    """Whole, cut at any place, and several at once: each gets the reply to its own number."""
    with connected(gateway) as peer:
        operation = peer.start(peer.session(), "SELECT 1")
        assert peer.status(operation).operationState == STATES.FINISHED_STATE

        def asking(number: int) -> bytes:
            request = ttypes.TGetOperationStatusReq(operationHandle=operation)
            arguments = args_class("GetOperationStatus")(req=request)
            return bytes(encode_message("GetOperationStatus", 1, number, arguments))

        other = bytes(encode_message("GetLog", 1, 99, args_class("GetInfo")()))
        with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
            size = len(asking(0))
            parts = [asking(1), asking(2), asking(3) + asking(4), asking(5)[:7], asking(5)[7:]]
            parts += [asking(6) + other, asking(7), other[:3], other[3:] + asking(8)[: size - 1]]
            parts += [asking(8)[-1:], asking(9)]
            for part in parts:
                raw.sendall(part)
                time.sleep(0.02)
            assert _answered(raw) == [1, 2, 3, 4, 5, 6, 99, 7, 99, 8, 9]


def test_what_is_asked_again_in_frames_is_answered_in_frames(gateway: Gateway) -> None:
    """One frame for each message, or a message in two frames, or two frames at once."""
    with connected(gateway) as peer:
        operation = peer.start(peer.session(), "SELECT 1")
        request = ttypes.TGetOperationStatusReq(operationHandle=operation)
        arguments = args_class("GetOperationStatus")(req=request)

        def framed(*pieces: bytes) -> bytes:
            return b"".join(struct.pack(">i", len(piece)) + piece for piece in pieces)

        def asking(number: int) -> bytes:
            return bytes(encode_message("GetOperationStatus", 1, number, arguments))

        with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
            raw.sendall(negotiation_frame(SaslStatus.START, b"PLAIN"))
            raw.sendall(negotiation_frame(SaslStatus.OK, b"\0eva\0x"))
            assert raw.recv(5) == negotiation_frame(SaslStatus.COMPLETE, b"")
            parts = [framed(asking(number)) for number in (1, 2, 3)]
            parts += [framed(asking(4)[:9], asking(4)[9:]), framed(asking(5)[:9])]
            parts += [framed(asking(5)[9:]), framed(asking(6), asking(7)), framed(asking(8))]
            for part in parts:
                raw.sendall(part)
                time.sleep(0.02)
            raw.shutdown(socket.SHUT_WR)
            scanner = MessageScanner(1 << 20)
            received = b"".join(iter(lambda: raw.recv(65536), b""))
            while received:
                (length,) = struct.unpack_from(">i", received)
                scanner.feed(received[4 : 4 + length])
                received = received[4 + length :]
        answered = iter(scanner.next_message, None)
        assert [message.sequence for message in answered] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_question_asked_again_waits_for_the_answer_to_the_first(
    gateway: Gateway, peer: Peer
) -> None:
    """Both come while the operation runs; it ends in between; the first is answered first."""
    release = threading.Event()

    def held(context: Any) -> Any:
        assert release.wait(10)
        return numbers(2)(context)

    gateway.answers["SELECT held"] = held
    operation = peer.start(peer.session(), "SELECT held")
    request = ttypes.TGetOperationStatusReq(operationHandle=operation)
    arguments = args_class("GetOperationStatus")(req=request)
    other = bytes(encode_message("GetLog", 1, 1, args_class("GetInfo")()))
    asking = [bytes(encode_message("GetOperationStatus", 1, n, arguments)) for n in (2, 3, 4)]
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(other + asking[0])
        time.sleep(0.1)
        release.set()
        raw.sendall(asking[1])
        raw.sendall(asking[2])
        assert _answered(raw) == [1, 2, 3, 4]


def _answered(raw: socket.socket) -> list[int]:
    """End a connection and return the numbers of the replies on it, in their order."""
    raw.shutdown(socket.SHUT_WR)
    scanner = MessageScanner(1 << 20)
    while received := raw.recv(65536):
        scanner.feed(received)
    numbers_answered = []
    while (message := scanner.next_message()) is not None:
        numbers_answered.append(message.sequence)
    return numbers_answered


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


# ---- fetching ------------------------------------------------------------------------------


def test_pages_tell_their_offset_and_whether_more_follows(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["SELECT five"] = numbers(5)
    operation = peer.execute(peer.session(), "SELECT five").operationHandle
    pages = [peer.fetch(operation, 2) for _ in range(4)]
    assert [p.results.columns[0].i64Val.values for p in pages] == [[0, 1], [2, 3], [4], []]
    assert [p.results.startRowOffset for p in pages] == [0, 2, 4, 5]
    assert [p.hasMoreRows for p in pages] == [True, True, False, False]
    again = peer.fetch(operation, 2, orientation=ttypes.TFetchOrientation.FETCH_FIRST)
    assert again.results.columns[0].i64Val.values == [0, 1]


@pytest.mark.parametrize("version", [V.HIVE_CLI_SERVICE_PROTOCOL_V1, 4])
def test_old_protocols_read_on_by_asking_for_the_first_page(
    gateway: Gateway, peer: Peer, version: int
) -> None:
    gateway.answers["SELECT many"] = numbers(200_000)
    operation = peer.execute(peer.session(version), "SELECT many").operationHandle
    first = ttypes.TFetchOrientation.FETCH_FIRST

    def drained() -> list[int]:
        got: list[int] = []
        while True:
            page = peer.fetch(operation, 30_000, orientation=first)
            assert page.results.startRowOffset == len(got)
            got += [row.colVals[0].i64Val.value for row in page.results.rows]
            if not page.hasMoreRows:
                return got

    assert drained() == list(range(200_000))
    # After the last page it begins again, as the words say.
    assert drained() == list(range(200_000))


def test_newer_protocols_get_the_first_page_when_they_ask_for_it(
    gateway: Gateway, peer: Peer
) -> None:
    gateway.answers["SELECT five"] = numbers(5)
    session = peer.session(V.HIVE_CLI_SERVICE_PROTOCOL_V6)
    operation = peer.execute(session, "SELECT five").operationHandle
    first = ttypes.TFetchOrientation.FETCH_FIRST
    for _ in range(2):
        page = peer.fetch(operation, 2, orientation=first)
        assert page.results.columns[0].i64Val.values == [0, 1]


def test_an_unsupported_orientation_is_refused(peer: Peer) -> None:
    operation = peer.execute(peer.session(), "SELECT 1").operationHandle
    last = peer.fetch(operation, orientation=ttypes.TFetchOrientation.FETCH_LAST)
    assert (last.status.statusCode, last.status.sqlState) == (CODES.ERROR_STATUS, "HY106")


def test_parallel_fetches_over_several_sockets_get_each_row_once(gateway: Gateway) -> None:
    gateway.answers["SELECT many"] = numbers(5000)
    got: list[int] = []

    def drain(operation: Any) -> None:
        with connected(gateway) as peer:
            while (page := peer.fetch(operation, 37).results).columns[0].i64Val.values:
                values = page.columns[0].i64Val.values
                assert values[0] == page.startRowOffset
                got.extend(values)

    with connected(gateway) as peer:
        operation = peer.execute(peer.session(), "SELECT many").operationHandle
        threads = [threading.Thread(target=drain, args=(operation,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == list(range(5000))


def test_replies_are_cut_by_bytes() -> None:
    section = ServerSection(port=0, max_reply_bytes=64 << 10, disconnect_grace=0.0)
    with running_gateway(Config(server=section)) as gateway, connected(gateway) as peer:
        texts = pa.array(["x" * 1000] * 200)
        gateway.answers["SELECT wide"] = lambda _: rows_of("s", "string", texts)
        operation = peer.execute(peer.session(), "SELECT wide").operationHandle
        page = peer.fetch(operation, 200)
        assert page.hasMoreRows
        assert 50 < len(page.results.columns[0].stringVal.values) <= 65


def test_arrow_sessions_get_streams(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["SELECT five"] = numbers(5)
    session = peer.session(**{"tidegate.result.format": "arrow"})
    operation = peer.execute(session, "SELECT five").operationHandle
    (column,) = peer.fetch(operation).results.columns
    (stream,) = column.binaryVal.values
    assert pa.ipc.open_stream(stream).read_all().to_pydict() == {"n": [0, 1, 2, 3, 4]}
    assert [c.binaryVal.values for c in peer.fetch(operation).results.columns] == [[]]


def test_old_protocols_get_rows(gateway: Gateway, peer: Peer) -> None:
    gateway.answers["SELECT texts"] = lambda _: rows_of("s", "string", pa.array(["a", None]))
    session = peer.session(V.HIVE_CLI_SERVICE_PROTOCOL_V5)
    results = peer.fetch(peer.execute(session, "SELECT texts").operationHandle).results
    assert [row.colVals[0].stringVal.value for row in results.rows] == ["a", None]


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
    query_id, lines = logged(peer, "SELECT\n  1")
    assert lines[0] == f"INFO  : Executing command(queryId={query_id}): SELECT 1"
    taken = rf"INFO  : Completed executing command\(queryId={query_id}\); Time taken: \d+\.\d{{3}}"
    assert re.match(taken, lines[1])
    assert len(lines) == 2


def test_the_log_of_a_failed_statement_says_why(gateway: Gateway, peer: Peer) -> None:
    def fail(_: Context) -> Result:
        raise ServerError(code="X", sqlstate="23001", message="by row:\n - x : 1")

    gateway.answers["FAIL SO"] = fail
    _, lines = logged(peer, "FAIL SO")
    assert lines[1:3] == ["ERROR : FAILED: [X] by row:", "ERROR :  - x : 1"]
    assert len(lines) == 4


def logged(peer: Peer, text: str) -> tuple[str, list[str]]:
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


def test_warnings_and_notes_come_with_a_success_that_every_client_takes(peer: Peer) -> None:
    messages = ["Warning: the ice is thin", "Note: nothing was changed"]
    synchronous = peer.execute(peer.session(), "WARN").status
    assert (synchronous.statusCode, synchronous.infoMessages) == (CODES.SUCCESS_STATUS, messages)
    operation = peer.start(peer.session(), "WARN")
    status = peer.status(operation)
    while status.operationState != STATES.FINISHED_STATE:
        status = peer.status(operation)
    assert status.status.statusCode == CODES.SUCCESS_STATUS
    assert status.status.infoMessages == messages
    _, *lines, _ = peer.fetch(operation, fetchType=1).results.columns[0].stringVal.values
    assert lines == [b"WARN  : the ice is thin", b"INFO  : nothing was changed"]


def test_warnings_about_the_settings_of_a_session_come_with_it(peer: Peer) -> None:
    opened = peer.open(**{"set:hiveconf:parallelism.default": "3"})
    assert opened.status.statusCode == CODES.SUCCESS_STATUS
    [message] = opened.status.infoMessages
    assert message.startswith("Warning: parallelism.default changes nothing here")
    assert peer.open().status.infoMessages is None


def test_the_error_of_a_statement_that_warned_has_no_warnings_in_it(peer: Peer) -> None:
    operation = peer.start(peer.session(), "WARN AND FAIL")
    status = peer.status(operation)
    while status.operationState != STATES.ERROR_STATE:
        status = peer.status(operation)
    assert status.status.infoMessages is None
    assert "ice" not in status.errorMessage


# ---- types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark_type", "version", "type_id"),
    [
        ("array<int>", 9, "ARRAY_TYPE"),
        ("map<string,int>", 9, "MAP_TYPE"),
        ("struct<a:int>", 9, "STRUCT_TYPE"),
        ("timestamp", 10, "TIMESTAMP_TYPE"),
        ("timestamp_ntz", 5, "TIMESTAMP_TYPE"),
        ("interval day to second", 5, "STRING_TYPE"),
        ("interval day to second", 9, "INTERVAL_DAY_TIME_TYPE"),
        ("interval year to month", 9, "INTERVAL_YEAR_MONTH_TYPE"),
        ("interval", 9, "STRING_TYPE"),
        ("variant", 9, "STRING_TYPE"),
        ("void", 9, "NULL_TYPE"),
        ("char(3)", 9, "CHAR_TYPE"),
    ],
)
def test_every_type_is_one_primitive_entry(
    gateway: Gateway, peer: Peer, spark_type: str, version: int, type_id: str
) -> None:
    gateway.answers["SELECT typed"] = lambda _: rows_of("c", spark_type, pa.array(["x"]))
    operation = peer.execute(peer.session(version), "SELECT typed").operationHandle
    schema = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
    (entry,) = schema.columns[0].typeDesc.types
    assert ttypes.TTypeId._VALUES_TO_NAMES[entry.primitiveEntry.type] == type_id


def test_sizes_are_qualifiers(gateway: Gateway, peer: Peer) -> None:
    for spark_type, expected in (
        ("decimal(10,2)", {"precision": 10, "scale": 2}),
        ("varchar(7)", {"characterMaximumLength": 7}),
    ):
        gateway.answers["SELECT sized"] = lambda _, t=spark_type: rows_of("c", t, pa.array(["1"]))
        operation = peer.execute(peer.session(), "SELECT sized").operationHandle
        schema = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
        found = schema.columns[0].typeDesc.types[0].primitiveEntry.typeQualifiers.qualifiers
        assert {k: v.i32Value for k, v in found.items()} == expected


def test_names_keep_their_case_and_may_repeat(gateway: Gateway, peer: Peer) -> None:
    schema = Schema((Column(name="A.b", type="string"), Column(name="A.b", type="string")))
    gateway.answers["SELECT twice"] = lambda _: RowsResult(schema, [("x", "y")])
    operation = peer.execute(peer.session(), "SELECT twice").operationHandle
    answer = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
    assert [(c.columnName, c.position) for c in answer.columns] == [("A.b", 1), ("A.b", 2)]


# ---- other calls ---------------------------------------------------------------------------


def test_every_call_of_the_service_has_its_method() -> None:
    assert len(CALLS) == 25
    assert {name for name in vars(Handler) if name[0].isupper()} == CALLS


def test_information_is_answered(peer: Peer) -> None:
    session = peer.session()
    kinds = ttypes.TGetInfoType
    assert peer.info(session, kinds.CLI_SERVER_NAME).stringValue == "Tidegate"
    assert peer.info(session, kinds.CLI_DBMS_NAME).stringValue == "Spark SQL"
    assert peer.info(session, kinds.CLI_DBMS_VER).stringValue.startswith("4.")
    assert peer.info(session, kinds.CLI_MAX_TABLE_NAME_LEN).lenValue == 128
    assert "MATERIALIZED" in peer.info(session, kinds.CLI_ODBC_KEYWORDS).stringValue.split(",")
    assert peer.info(session, kinds.CLI_XOPEN_CLI_YEAR).stringValue == "1995"
    assert peer.info(session, kinds.CLI_NULL_COLLATION).smallIntValue == 1


def test_what_is_not_served_says_so_in_its_own_type(peer: Peer) -> None:
    session = peer.session()
    token = peer.client.GetDelegationToken(
        ttypes.TGetDelegationTokenReq(sessionHandle=session, owner="a", renewer="b")
    )
    upload = peer.client.UploadData(ttypes.TUploadDataReq(sessionHandle=session, values=b""))
    for response in (token, upload):
        status = response.status
        assert (status.statusCode, status.sqlState) == (CODES.ERROR_STATUS, "0A000")
    assert upload.operationHandle is not None


def test_client_information_is_taken(peer: Peer) -> None:
    request = ttypes.TSetClientInfoReq(sessionHandle=peer.session(), configuration={"a": "b"})
    assert peer.client.SetClientInfo(request).status.statusCode == 0


def test_table_types_are_listed(peer: Peer) -> None:
    response = peer.client.GetTableTypes(ttypes.TGetTableTypesReq(peer.session()))
    assert response.operationHandle.hasResultSet
    values = peer.fetch(response.operationHandle).results.columns[0].stringVal.values
    assert values == [b"TABLE", b"VIEW", b"MATERIALIZED_TABLE"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("GetTypeInfo", 18),
        ("GetCatalogs", 1),
        ("GetSchemas", 2),
        ("GetTables", 10),
        ("GetColumns", 23),
        ("GetFunctions", 6),
        ("GetPrimaryKeys", 6),
        ("GetCrossReference", 14),
    ],
)
def test_metadata_calls_have_jdbcs_columns(peer: Peer, name: str, count: int) -> None:
    options = {"functionName": "%"} if name == "GetFunctions" else {}
    request = getattr(ttypes, f"T{name}Req")(sessionHandle=peer.session(), **options)
    operation = getattr(peer.client, name)(request).operationHandle
    assert len(peer.fetch(operation).results.columns) == count


def functions_of(peer: Peer, session: Any, name: str) -> list[tuple[bytes, bytes]]:
    request = ttypes.TGetFunctionsReq(sessionHandle=session, functionName=name)
    columns = peer.fetch(peer.client.GetFunctions(request).operationHandle).results.columns
    return list(zip(columns[1].stringVal.values, columns[2].stringVal.values, strict=True))


def test_temporary_functions_are_seen_by_their_session_alone(peer: Peer, gateway: Gateway) -> None:
    one, other = peer.session(), peer.session()
    assert functions_of(peer, other, "f") == [(b"other_db", b"f")]
    peer.execute(one, "CREATE TEMPORARY FUNCTION mine AS 'x.Mine'")
    assert functions_of(peer, one, "mine") == []
    calls = gateway.engine.calls
    (asked,) = (call for call in calls if isinstance(call, ListTemporaryFunctions))
    gateway.engine.temporary[asked.session_id] = (FunctionName("mine"),)
    assert [name for _, name in functions_of(peer, one, "mine")] == [b"mine"]
    assert functions_of(peer, other, "mine") == []


# ---- the stream ----------------------------------------------------------------------------


def exchange(gateway: Gateway, data: bytes, size: int = 65536) -> bytes:
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(data)
        received = b""
        while len(received) < size and (more := raw.recv(65536)):
            received += more
        return received


def bare_call(name: bytes, body: bytes, sequence: int = 1) -> bytes:
    head = b"\x80\x01\x00\x01" + struct.pack(">i", len(name)) + name
    return head + struct.pack(">i", sequence) + body


def test_headers_without_a_version_are_taken_as_hive_takes_them(gateway: Gateway) -> None:
    with connected(gateway) as peer:
        peer.client = Client(TBinaryProtocol(peer._transport, strictWrite=False))
        session = peer.session()
        operation = peer.execute(session, "SELECT 1").operationHandle
        # The same question again, and then one that needs another thread.
        assert [peer.status(operation).operationState for _ in range(3)] == [2, 2, 2]
        assert peer.fetch(operation).results.columns[0].i32Val.values == [1]


def test_a_large_request_without_a_version_is_closed_before_login(gateway: Gateway) -> None:
    head = struct.pack(">i", 11) + b"OpenSession\x01" + struct.pack(">i", 1)
    text = b"\x0c\x00\x01\x0b\x00\x02" + struct.pack(">i", 1 << 20)
    assert exchange(gateway, head + text) == b""


def test_an_unknown_call_leaves_the_connection_in_step(gateway: Gateway) -> None:
    with connected(gateway) as peer:
        transport = peer._transport
        transport.write(bare_call(b"GetLog", b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x01x\x00\x00"))
        transport.flush()
        protocol = accelerated_protocol(transport)
        name, kind, _ = protocol.readMessageBegin()
        problem = TApplicationException()
        problem.read(protocol)
        protocol.readMessageEnd()
        assert (name, kind, problem.type) == ("GetLog", 3, TApplicationException.UNKNOWN_METHOD)
        assert peer.open().status.statusCode == 0


def test_an_unreadable_request_leaves_the_connection_in_step(gateway: Gateway) -> None:
    with connected(gateway) as peer:
        transport = peer._transport
        transport.write(bare_call(b"OpenSession", b"\x00"))
        transport.flush()
        protocol = accelerated_protocol(transport)
        protocol.readMessageBegin()
        problem = TApplicationException()
        problem.read(protocol)
        assert problem.type == TApplicationException.PROTOCOL_ERROR
        assert peer.open().status.statusCode == 0


def test_a_request_without_its_handle_is_answered(peer: Peer) -> None:
    peer.client.send_GetInfo(ttypes.TGetInfoReq(ttypes.TSessionHandle(), 17))
    response = peer.client.recv_GetInfo()
    assert response.status.statusCode == CODES.INVALID_HANDLE_STATUS


def test_tls_is_refused_by_an_alert_where_there_is_none(gateway: Gateway) -> None:
    assert exchange(gateway, b"\x16\x03\x01\x02\x00", 7).startswith(b"\x15\x03")


@pytest.mark.parametrize("first", [b"hello", b"\x00\x00\x00\x05\x80\x01"])
def test_other_protocols_are_closed(gateway: Gateway, first: bytes) -> None:
    assert exchange(gateway, first) == b""


def test_a_large_request_before_login_is_closed(gateway: Gateway) -> None:
    start = bare_call(b"OpenSession", b"\x0c\x00\x01\x0b\x00\x02" + struct.pack(">i", 1 << 20))
    assert exchange(gateway, start) == b""


def test_a_large_request_in_a_session_is_taken(peer: Peer) -> None:
    session = peer.session()
    status = peer.execute(session, "SELECT " + "x" * 300_000).status
    assert "cannot run" in status.errorMessage


def test_an_unknown_mechanism_is_refused_with_a_sentence(gateway: Gateway) -> None:
    answer = exchange(gateway, b"\x01\x00\x00\x00\x06GSSAPI")
    assert answer[0] == 3
    assert b"PLAIN" in answer


def test_sasl_takes_a_message_in_several_frames(gateway: Gateway) -> None:
    call = bare_call(b"GetLog", b"\x00")
    frames = b"".join(struct.pack(">i", 1) + call[n : n + 1] for n in range(len(call)))
    login = b"\x01\x00\x00\x00\x05PLAIN" + b"\x02\x00\x00\x00\x06\x00eva\x00x"
    answer = exchange(gateway, login + frames, 20)
    assert answer[:5] == b"\x05\x00\x00\x00\x00"
    assert b"GetLog" in answer


def test_a_silent_connection_is_closed() -> None:
    section = ServerSection(port=0, login_timeout=0.2)
    with running_gateway(Config(server=section)) as gateway:
        assert exchange(gateway, b"\x80\x01") == b""


def test_arguments_are_read_by_the_bindings_own_names() -> None:
    assert args_class("OpenSession").__name__ == "OpenSession_args"
