"""A small HiveServer2 whose answers a test sets."""

# ruff: noqa: N802 - the calls have the names of the protocol

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from thrift.transport.TTransport import TBufferedTransport

from tidegate.network.auth import SaslTransport
from tidegate.network.transport import SocketTransport
from tidegate.wire import sasl
from tidegate.wire.columns import encode_column, row_set
from tidegate.wire.schema import WireColumn, WireType, table_schema
from tidegate.wire.service import Processor, TApplicationException, accelerated_protocol, ttypes

OK = ttypes.TStatus(ttypes.TStatusCode.SUCCESS_STATUS)


def failure(message: str, sqlstate: str | None = None, info: list[str] | None = None) -> Any:
    """Return an error status."""
    return ttypes.TStatus(
        ttypes.TStatusCode.ERROR_STATUS,
        infoMessages=info,
        sqlState=sqlstate,
        errorCode=7,
        errorMessage=message,
    )


@dataclass
class Answer:
    """The outcome of one statement: columns with rows in pages, DML, an error, or no end."""

    columns: Sequence[tuple[str, str | WireType]] = ()
    rows: Sequence[Sequence[Any]] = ()
    page: int = 1000
    streams: Sequence[Sequence[bytes]] | None = None
    modified: int | None = None
    error: Any = None
    refused: Any = None
    polls: int = 0
    endless: bool = False
    messages: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def wire_columns(self) -> list[WireColumn]:
        return [
            WireColumn(name, WireType(kind) if isinstance(kind, str) else kind)
            for name, kind in self.columns
        ]


@dataclass(frozen=True)
class Credentials:
    """The user and password of a client that logged in with PLAIN."""

    user: str
    password: str


class Operation:
    """An operation under way."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.at = 0
        self.polls_left = answer.polls
        self.log_at = 0
        self.canceled = threading.Event()


class FakeServer:
    """Serves each connection in a thread; statements are looked up in ``answers``."""

    def __init__(
        self,
        answers: dict[str, Answer] | Callable[[str], Answer] | None = None,
        *,
        auth: str = "NONE",
        configuration: dict[str, str] | None = None,
        unknown: Sequence[str] = (),
        max_statement_bytes: int | None = None,
        newest: int = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V11,
    ) -> None:
        self.answers = answers or {}
        self.auth = auth
        self.configuration = configuration or {}
        self.unknown = unknown
        self.max_statement_bytes = max_statement_bytes
        self.newest = newest
        self.calls: list[tuple[str, Any]] = []
        self.credentials: list[Credentials] = []
        self.connections = 0
        self.operations: dict[bytes, Operation] = {}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> FakeServer:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for operation in self.operations.values():
            operation.canceled.set()
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)

    def drop_connections(self) -> None:
        """Close every connection, like a server that dies."""
        for opened in self._sockets:
            try:
                opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def requests(self, call: str) -> list[Any]:
        """Return the requests of one call, oldest first."""
        return [request for name, request in list(self.calls) if name == call]

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listening.accept()
            except OSError:
                return
            self._sockets.append(opened)
            self.connections += 1
            self._start(self._serve, opened)

    def _serve(self, opened: socket.socket) -> None:
        inner = SocketTransport(("", 0), timeout=None)
        inner._socket = opened
        try:
            transport: Any = TBufferedTransport(inner)
            if self.auth != "NOSASL":
                self._negotiate(inner)
                transport = SaslTransport(inner)
            protocol = accelerated_protocol(transport)
            processor = Processor(_Handler(self))
            for name in self.unknown:
                del processor._processMap[name]
            while True:
                processor.process(protocol, protocol)
        except (EOFError, OSError):
            return
        finally:
            opened.close()

    def _negotiate(self, inner: SocketTransport) -> None:
        for _ in range(2):
            header = inner.readAll(sasl.NEGOTIATION_HEADER)
            status, length = sasl.parse_negotiation_header(header)
            payload = inner.readAll(length)
        assert status is sasl.SaslStatus.OK
        _, user, password = payload.decode().split("\0")
        credentials = Credentials(user, password)
        self.credentials.append(credentials)
        if credentials.password == "wrong":
            inner.write(sasl.negotiation_frame(sasl.SaslStatus.BAD, b"no such user"))
            raise EOFError
        inner.write(sasl.negotiation_frame(sasl.SaslStatus.COMPLETE, b""))


class _Handler:
    """The calls; any other one answers with an empty metadata result."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        if not name.startswith("Get"):
            raise AttributeError(name)

        def metadata(request: Any) -> Any:
            self.server.calls.append((name, request))
            return getattr(ttypes, f"T{name}Resp")(OK, self._begin(self._answer(name)))

        return metadata

    def OpenSession(self, request: Any) -> Any:
        self.server.calls.append(("OpenSession", request))
        if request.client_protocol > self.server.newest:
            raise TApplicationException(
                TApplicationException.PROTOCOL_ERROR, "Required field 'client_protocol' is unset!"
            )
        if request.configuration.get("use:database") == "nowhere":
            return ttypes.TOpenSessionResp(failure("no schema nowhere", "42000"))
        return ttypes.TOpenSessionResp(
            OK,
            request.client_protocol,
            ttypes.TSessionHandle(ttypes.THandleIdentifier(b"s" * 16, b"t" * 16)),
            self.server.configuration,
        )

    def CloseSession(self, request: Any) -> Any:
        self.server.calls.append(("CloseSession", request))
        return ttypes.TCloseSessionResp(OK)

    def GetInfo(self, request: Any) -> Any:
        self.server.calls.append(("GetInfo", request))
        limit = self.server.max_statement_bytes
        if request.infoType == ttypes.TGetInfoType.CLI_MAX_STATEMENT_LEN and limit is not None:
            return ttypes.TGetInfoResp(OK, ttypes.TGetInfoValue(lenValue=limit))
        return ttypes.TGetInfoResp(OK, ttypes.TGetInfoValue(stringValue="fake"))

    def ExecuteStatement(self, request: Any) -> Any:
        self.server.calls.append(("ExecuteStatement", request))
        answer = self._answer(request.statement)
        if answer.refused is not None:
            return ttypes.TExecuteStatementResp(answer.refused)
        return ttypes.TExecuteStatementResp(OK, self._begin(answer))

    def GetOperationStatus(self, request: Any) -> Any:
        operation = self._operation(request)
        answer = operation.answer
        if answer.endless:
            operation.canceled.wait(30)
            state = ttypes.TOperationState.CANCELED_STATE
            message = "[OPERATION_CANCELED] canceled by a test"
            return ttypes.TGetOperationStatusResp(OK, state, errorMessage=message)
        if operation.polls_left:
            operation.polls_left -= 1
            return ttypes.TGetOperationStatusResp(OK, ttypes.TOperationState.RUNNING_STATE)
        if answer.error is not None:
            return ttypes.TGetOperationStatusResp(
                OK,
                ttypes.TOperationState.ERROR_STATE,
                sqlState=answer.error.sqlState,
                errorCode=answer.error.errorCode,
                errorMessage=answer.error.errorMessage,
            )
        return ttypes.TGetOperationStatusResp(
            ttypes.TStatus(OK.statusCode, infoMessages=answer.messages or None),
            ttypes.TOperationState.FINISHED_STATE,
            hasResultSet=bool(answer.columns),
            numModifiedRows=answer.modified,
        )

    def GetResultSetMetadata(self, request: Any) -> Any:
        columns = self._operation(request).answer.wire_columns()
        return ttypes.TGetResultSetMetadataResp(OK, table_schema(columns))

    def FetchResults(self, request: Any) -> Any:
        self.server.calls.append(("FetchResults", request))
        operation = self._operation(request)
        if request.fetchType == 1:
            lines = operation.answer.log[operation.log_at :]
            operation.log_at += len(lines)
            return ttypes.TFetchResultsResp(
                OK, False, row_set(["STRING"], [[line] for line in lines])
            )
        if operation.answer.streams is not None:
            return self._streams(operation)
        answer = operation.answer
        rows = answer.rows[operation.at : operation.at + min(answer.page, request.maxRows)]
        operation.at += len(rows)
        names = [column.type.name for column in answer.wire_columns()]
        return ttypes.TFetchResultsResp(OK, False, row_set(names, rows))

    def _streams(self, operation: Operation) -> Any:
        pages = operation.answer.streams or ()
        streams = pages[operation.at] if operation.at < len(pages) else ()
        operation.at += 1
        column = encode_column("BINARY", streams)
        return ttypes.TFetchResultsResp(
            OK, operation.at < len(pages), ttypes.TRowSet(0, [], [column])
        )

    def CancelOperation(self, request: Any) -> Any:
        self.server.calls.append(("CancelOperation", request))
        self._operation(request).canceled.set()
        return ttypes.TCancelOperationResp(OK)

    def CloseOperation(self, request: Any) -> Any:
        self.server.calls.append(("CloseOperation", request))
        self._operation(request).canceled.set()
        return ttypes.TCloseOperationResp(OK)

    def GetQueryId(self, request: Any) -> Any:
        guid = request.operationHandle.operationId.guid
        return ttypes.TGetQueryIdResp(f"query-{UUID(bytes=guid).int}")

    def _answer(self, statement: str) -> Answer:
        answers = self.server.answers
        return answers(statement) if callable(answers) else answers.get(statement, Answer())

    def _begin(self, answer: Answer) -> Any:
        guid = (len(self.server.operations) + 1).to_bytes(16, "big")
        self.server.operations[guid] = Operation(answer)
        return ttypes.TOperationHandle(
            ttypes.THandleIdentifier(guid, b"x" * 16),
            ttypes.TOperationType.EXECUTE_STATEMENT,
            bool(answer.columns),
        )

    def _operation(self, request: Any) -> Operation:
        return self.server.operations[request.operationHandle.operationId.guid]
