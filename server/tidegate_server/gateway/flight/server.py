"""The Flight SQL server: each call is a statement or a metadata call of a session.

https://arrow.apache.org/docs/format/FlightSql.html
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as flight

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.log_context import log_context
from tidegate_server.core.model.result import Result
from tidegate_server.gateway.flight import metadata
from tidegate_server.gateway.flight.messages import decode, encode, encode_bare
from tidegate_server.gateway.flight.parameters import Prepared, bound
from tidegate_server.gateway.flight.results import stream
from tidegate_server.gateway.flight.sessions import Caller, FlightSessions, authorization_of
from tidegate_server.gateway.flight.types import arrow_schema
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.session.metadata import TablePattern
from tidegate_server.gateway.session.operation import Operation
from tidegate_server.gateway.session.session import Session

_CREATE, _CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
_CLOSE_SESSION: Final = "CloseSession"
_LOGIN: Final = "login"
_SCHEMA, _TABLE = "db_schema_filter_pattern", "table_name_filter_pattern"
_LOOK: Final = 0.5
"""Seconds between two looks whether the client of a running statement is still there."""
_UNKNOWN: Final = -1
_ERRORS: Final[Mapping[str, type[Exception]]] = {
    Code.LOGIN_REFUSED.name: flight.FlightUnauthenticatedError,
    Code.ACCESS_DENIED.name: flight.FlightUnauthorizedError,
    Code.PROXY_REFUSED.name: flight.FlightUnauthorizedError,
    Code.OPERATION_CANCELED.name: flight.FlightCancelledError,
    Code.OPERATION_TIMEOUT.name: flight.FlightTimedOutError,
    Code.ENGINE_UNAVAILABLE.name: flight.FlightUnavailableError,
    Code.ENGINE_LOST.name: flight.FlightUnavailableError,
    Code.LOGIN_UNAVAILABLE.name: flight.FlightUnavailableError,
    Code.INTERNAL.name: flight.FlightInternalError,
}
"""What errors are for gRPC; others are unknown to it. ArrowInvalid and the like would have a better
status, but pyarrow sends their tracebacks to the client."""


class _NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Logins are in the header authorization; the handshake only carries it."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        return None

    def is_valid(self, token: bytes) -> str:
        return ""


class _Login(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.caller.token}"} if self.caller.fresh else {}


class _Logins(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, sessions: FlightSessions) -> None:
        self._sessions = sessions

    def start_call(self, info: Any, headers: Mapping[str, list[str | bytes]]) -> _Login:
        with _flight_errors():
            header = authorization_of(headers.get("authorization", ()))
            handshake = info.method == flight.FlightMethod.HANDSHAKE
            return _Login(self._sessions.log_in(header, handshake=handshake))


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Listens from its construction on; :meth:`serve` blocks until :meth:`shutdown`."""

    def __init__(
        self, location: str, config: Config, sessions: FlightSessions, metrics: Metrics
    ) -> None:
        """``location`` is the address as a URL, ``grpc://host:port`` or ``grpc+tls://…``."""
        certificates = None
        if config.tls.certificate:
            pair = (config.tls.certificate, config.tls.key)
            certificates = [tuple(Path(each).read_bytes() for each in pair)]
        super().__init__(
            location,
            auth_handler=_NoHandshake(),
            tls_certificates=certificates,
            middleware={_LOGIN: _Logins(sessions)},
        )
        self._config = config
        self._sessions = sessions
        self._metrics = metrics

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._call(context) as session:
            name, message = decode(descriptor.command)
            match name:
                case "CommandStatementQuery":
                    return self._execute(session, message.query, context, descriptor)
                case "CommandPreparedStatementQuery":
                    text = Prepared.of(message.prepared_statement_handle).executed
                    return self._execute(session, text, context, descriptor)
            # The ticket of a metadata call is the call itself.
            return _info(self._schema_of(name, message), descriptor, descriptor.command)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with self._call(context):
            name, message = decode(descriptor.command)
            return flight.SchemaResult(self._schema_of(name, message))

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._call(context) as session:
            name, message = decode(ticket.ticket)
            if name != "TicketStatementQuery":
                return flight.RecordBatchStream(self._metadata(session, name, message))
            operation = _operation(session, message.statement_handle)
            result = operation.result()
            schema = arrow_schema(result.schema, session.zone)
            batches = self._batches(session, operation, result, schema)
            return flight.GeneratorStream(schema, batches)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call(context) as session:
            name, message = decode(descriptor.command)
            match name:
                case "CommandStatementUpdate":
                    count = self._update(session, [message.query], context)
                case "CommandPreparedStatementUpdate":
                    text = Prepared.of(message.prepared_statement_handle).text
                    count = self._update(session, bound(text, reader.read_all()), context)
                case "CommandPreparedStatementQuery":
                    # The handle of the statement with its values replaces that without them.
                    prepared = Prepared.of(message.prepared_statement_handle)
                    handle = prepared.bind(reader.read_all()).handle
                    name = "DoPutPreparedStatementResult"
                    reply = encode_bare(name, prepared_statement_handle=handle)
                    writer.write(pa.py_buffer(reply))
                    return
                case _:
                    raise error(Code.NOT_SUPPORTED, what=f"Writing with {name}", hint="")
            writer.write(pa.py_buffer(encode_bare("DoPutUpdateResult", record_count=count)))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [
            (_CREATE, "Prepare a statement."),
            (_CLOSE, "Forget a prepared statement."),
            (_CLOSE_SESSION, "Close the session."),
        ]

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        if action.type == _CLOSE_SESSION:
            with _flight_errors():
                self._sessions.close(_caller(context), _peer(context))
            return iter(())
        with self._call(context):
            match action.type:
                case "CreatePreparedStatement":
                    name, message = decode(action.body.to_pybytes())
                    if name != "ActionCreatePreparedStatementRequest":
                        raise error(Code.NOT_SUPPORTED, what=f"{name} in {_CREATE}", hint="")
                    handle = Prepared(message.query).handle
                    name = "ActionCreatePreparedStatementResult"
                    return iter([encode(name, prepared_statement_handle=handle)])
                case "ClosePreparedStatement":
                    return iter(())
            raise error(Code.NOT_SUPPORTED, what=f"{action.type} over Arrow Flight SQL", hint="")

    # ---- statements ------------------------------------------------------------------------

    def _execute(self, session: Session, text: str, context: Any, descriptor: Any) -> Any:
        operation = self._run(session, text, context)
        schema = arrow_schema(operation.result().schema, session.zone)
        handle = operation.handle.guid
        return _info(schema, descriptor, encode("TicketStatementQuery", statement_handle=handle))

    def _update(self, session: Session, texts: Iterable[str], context: Any) -> int:
        """Run statements one after the other; return how many rows they changed, or _UNKNOWN."""
        counts = []
        for text in texts:
            operation = self._run(session, text, context)
            counts.append(operation.result().modified_rows)
            session.release(operation)
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else _UNKNOWN

    def _run(self, session: Session, text: str, context: Any) -> Operation:
        """Run a statement to its end; it is canceled if its client goes away.

        :raises ServerError: that of the statement.
        """
        operation = session.submit(text)
        changed = threading.Event()
        unsubscribe = operation.subscribe(changed.set)
        try:
            while not operation.state.terminal:
                changed.wait(_LOOK)
                changed.clear()
                if context.is_cancelled():
                    session.cancel(operation)
            operation.result()
        except BaseException:
            session.release(operation)
            raise
        finally:
            unsubscribe()
        return operation

    def _batches(
        self, session: Session, operation: Operation, result: Result, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        with _flight_errors():
            try:
                limit = self._config.server.max_reply_bytes
                yield from stream(result, schema, limit, self._metrics.count_fetch)
            finally:
                session.release(operation)

    # ---- metadata --------------------------------------------------------------------------

    def _schema_of(self, name: str, message: Any) -> pa.Schema:
        match name:
            case "CommandGetCatalogs":
                return metadata.CATALOGS
            case "CommandGetDbSchemas":
                return metadata.SCHEMAS
            case "CommandGetTables":
                with_schema = message.include_schema
                return metadata.TABLES_WITH_SCHEMA if with_schema else metadata.TABLES
            case "CommandGetTableTypes":
                return metadata.TABLE_TYPES
            case "CommandGetSqlInfo":
                return metadata.SQL_INFO
        raise error(Code.NOT_SUPPORTED, what=f"{name} here", hint="")

    def _metadata(self, session: Session, name: str, message: Any) -> pa.Table:
        match name:
            case "CommandGetCatalogs":
                return metadata.catalogs(session.catalogs())
            case "CommandGetDbSchemas":
                catalog, schema = _given(message, "catalog"), _given(message, _SCHEMA)
                listing = session.listing(TablePattern(catalog, schema, None), tables=False)
                return metadata.schemas(listing, catalog, schema)
            case "CommandGetTables":
                pattern = TablePattern(
                    *(_given(message, each) for each in ("catalog", _SCHEMA, _TABLE))
                )
                types = tuple(message.table_types)
                if message.include_schema:
                    listing, zone = session.columns_of(pattern), session.zone
                    return metadata.tables_with_schema(listing, pattern, types, zone)
                return metadata.tables(session.listing(pattern), pattern, types)
            case "CommandGetTableTypes":
                return metadata.table_types()
            case "CommandGetSqlInfo":
                return metadata.sql_info(tuple(message.info))
        raise error(Code.NOT_SUPPORTED, what=f"{name} here", hint="")

    @contextmanager
    def _call(self, context: Any) -> Iterator[Session]:
        """Yield the session of a call; its errors become those of Flight."""
        with _flight_errors():
            session = self._sessions.session(_caller(context), _peer(context))
            with log_context(user=session.user, session_id=session.id):
                yield session


@contextmanager
def _flight_errors() -> Iterator[None]:
    try:
        yield
    except ServerError as problem:
        raise _ERRORS.get(problem.code, flight.FlightServerError)(str(problem)) from problem


def _caller(context: Any) -> Caller:
    caller: Caller = context.get_middleware(_LOGIN).caller
    return caller


def _peer(context: Any) -> str:
    peer = context.peer()
    return peer if isinstance(peer, str) else peer.decode()


def _operation(session: Session, guid: bytes) -> Operation:
    operation = session.find(guid)
    if operation is None:
        shown = uuid.UUID(bytes=guid) if len(guid) == 16 else "of another kind"
        raise error(Code.INVALID_OPERATION_HANDLE, handle=shown)
    return operation


def _info(schema: pa.Schema, descriptor: Any, ticket: bytes) -> Any:
    endpoint = flight.FlightEndpoint(ticket, [])
    return flight.FlightInfo(schema, descriptor, [endpoint], _UNKNOWN, _UNKNOWN)


def _given(message: Any, field: str) -> str | None:
    """Return an optional field; None if it was left out."""
    return getattr(message, field) if message.HasField(field) else None
