"""The calls of the service: one method per call, from request to response."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from tidegate.wire.service import encode_struct, ttypes
from tidegate_server.core.config_sections import ServerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.log_context import bind_log_context, log_context
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.states import OperationState
from tidegate_server.core.model.types import Schema, text_schema
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import (
    ANONYMOUS,
    Identity,
    Peer,
    is_loopback,
    login_error,
)
from tidegate_server.gateway.auth.logins import is_usable_name
from tidegate_server.gateway.auth.tokens import DelegationTokens
from tidegate_server.gateway.context import WARNING
from tidegate_server.gateway.protocol import convert, encode, status
from tidegate_server.gateway.protocol.ahead import Fetched, PagesAhead
from tidegate_server.gateway.protocol.information import information
from tidegate_server.gateway.protocol.old_rows import as_rows
from tidegate_server.gateway.session import metadata
from tidegate_server.gateway.session.configuration import (
    FETCH_SIZE_KEY,
    RESULT_FORMAT_KEY,
    RESUME_KEY,
    STATEMENT_ID_KEY,
    ResultFormat,
    normalise,
)
from tidegate_server.gateway.session.cursor import FetchOrientation, Page
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.metadata import TablePattern
from tidegate_server.gateway.session.operation import Operation, OperationKind, OperationView
from tidegate_server.gateway.session.session import Session
from tidegate_server.gateway.session.waiting import STATUS_WAIT, wait_for_news, wait_until_ended

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_PROTOCOL = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V11
FIRST_COLUMNAR = 6
FIRST_FOLLOWING_LOGS = 10
FETCH_WAIT = 300.0
"""Seconds that a fetch waits for a running operation."""
_LOG_FETCH = 1
_UNCOUNTED = -1
_YEAR = 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class CachedStatusReply:
    """The status reply for an ended operation, valid until the operation is closed."""

    body: bytes
    """The request without the message's header."""
    operation: Operation
    reply: bytes


@dataclass(slots=True)
class Caller:
    """The connection of a call, and its login."""

    connection_id: int
    peer: Peer
    identity: Identity = ANONYMOUS
    act_as: str = ""
    """The user to impersonate, from the transport; empty for none."""
    has_session: bool = False
    cached_status: CachedStatusReply | None = None
    """The last status reply for an ended operation."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded response struct."""

    data: bytes


class Handler:
    """Executes calls with the session manager.

    Methods take ``(request, caller)`` and return the response, or raise ServerError; only ``call``
    turns exceptions into a status.
    """

    def __init__(self, settings: ServerSection, sessions: SessionManager, access: Access) -> None:
        self._settings = settings
        self._sessions = sessions
        self._access = access
        self._pages = PagesAhead(sessions.executor.short)

    async def call(self, name: str, request: Any, caller: Caller) -> Any:
        """Return the response of a call; only raises if it is canceled."""
        method = getattr(self, name)
        # Log lines of the call have the ids that are added during the call.
        with log_context():
            try:
                return await method(request, caller)
            except ServerError as cause:
                logger.debug("%s failed: %s", name, cause)
                return failure_response(name, cause)
            except Exception as cause:
                logger.exception("%s failed inside the server", name)
                reason = f"{type(cause).__name__}: {cause}"
                return failure_response(name, error(Code.INTERNAL, reason=reason))

    # ---- sessions --------------------------------------------------------------------------

    async def OpenSession(self, request: Any, caller: Caller) -> Any:
        version = max(0, min(request.client_protocol, MAX_PROTOCOL))
        real, effective = self._users(request, caller)
        session = await self._run_in_pool(
            lambda: self._sessions.open(
                effective,
                request.configuration,
                caller.connection_id,
                version + 1,
                real_user=real,
                groups=caller.identity.groups,
                address=caller.peer.address,
            )
        )
        caller.has_session = True
        return ttypes.TOpenSessionResp(
            status=status.success([WARNING + text for text in session.options.warnings]),
            serverProtocolVersion=version,
            sessionHandle=convert.session_handle(session.handle),
            configuration={
                FETCH_SIZE_KEY: str(session.options.fetch_size or self._settings.fetch_size),
                "hive.default.nulls.last": "false",
                RESULT_FORMAT_KEY: session.options.result_format.value,
                RESUME_KEY: "true",
            },
        )

    async def CloseSession(self, request: Any, caller: Caller) -> Any:
        session = self._session(request, caller)
        await self._run_in_pool(lambda: self._sessions.close(session))
        return ttypes.TCloseSessionResp(status=status.success())

    async def SetClientInfo(self, request: Any, caller: Caller) -> Any:
        session = self._session(request, caller)
        logger.debug("Session %s: client info %s", session.id, request.configuration)
        return ttypes.TSetClientInfoResp(status=status.success())

    async def GetInfo(self, request: Any, caller: Caller) -> Any:
        session = self._session(request, caller)
        value = information(
            request.infoType, session.user, max_statement_bytes=session.max_statement_bytes
        )
        return ttypes.TGetInfoResp(status=status.success(), infoValue=value)

    # ---- statements ------------------------------------------------------------------------

    async def ExecuteStatement(self, request: Any, caller: Caller) -> Any:
        session = self._session(request, caller)
        timeout = _timeout_seconds(request.queryTimeout)
        overlay = dict(request.confOverlay or {})
        statement_id = overlay.pop(STATEMENT_ID_KEY, None)
        submit = session.submit
        if statement_id is not None:
            submit = partial(session.submit_once, statement_id)
        operation = await self._run_in_pool(
            lambda: submit(request.statement, overlay=overlay, timeout=timeout)
        )
        if not request.runAsync:
            await wait_until_ended(operation, None)
            await self._require_result(session, operation)
        return ttypes.TExecuteStatementResp(
            status=status.success(_messages(operation.view())),
            operationHandle=convert.operation_handle(operation),
        )

    def ended_status(self, request: Any, caller: Caller) -> tuple[Operation, Any] | None:
        """Return an ended operation with its GetOperationStatus response.

        None if it has not ended, or if the next response will differ.

        :raises ServerError: INVALID_OPERATION_HANDLE.
        """
        with log_context():
            _, operation = self._operation(request, caller)
        with_progress = bool(request.getProgressUpdate)
        if not operation.state.terminal or (with_progress and operation.has_progress):
            return None
        return operation, _operation_status(operation, with_progress=with_progress)

    def is_current(self, cached: CachedStatusReply, caller: Caller) -> bool:
        """Return whether a reply is still valid; if so, mark operation and session as used."""
        return self._sessions.is_still_open(cached.operation, caller.connection_id)

    async def GetOperationStatus(self, request: Any, caller: Caller) -> Any:
        session, operation = self._operation(request, caller)
        if session.protocol >= FIRST_FOLLOWING_LOGS:
            await wait_for_news(operation)
        else:
            # Older clients poll and read the log on one thread. As dbt and Superset sleep after an
            # unfinished poll, early replies would cost them more than late log lines.
            await wait_until_ended(operation, STATUS_WAIT)
        return _operation_status(operation, with_progress=bool(request.getProgressUpdate))

    async def CancelOperation(self, request: Any, caller: Caller) -> Any:
        session, operation = self._operation(request, caller)
        urgent = self._sessions.executor.urgent
        await self._run_in_pool(lambda: session.cancel(operation), urgent)
        return ttypes.TCancelOperationResp(status=status.success())

    async def CloseOperation(self, request: Any, caller: Caller) -> Any:
        handle = convert.read_operation_handle(request.operationHandle)
        found = self._sessions.find_operation(handle, caller.connection_id)
        if found is not None and not _belongs_to_another_user(found[0], caller):
            session, operation = found
            if operation.is_small:
                session.release(operation)
            else:
                await self._run_in_pool(lambda: session.release(operation))
        return ttypes.TCloseOperationResp(status=status.success())

    async def GetResultSetMetadata(self, request: Any, caller: Caller) -> Any:
        session, operation = self._operation(request, caller)
        await wait_until_ended(operation, FETCH_WAIT)
        schema = _result_schema(operation)
        zone = session.state.settings.get("spark.sql.session.timeZone")
        return ttypes.TGetResultSetMetadataResp(
            status=status.success(), schema=convert.table_schema(schema, session.protocol, zone)
        )

    async def FetchResults(self, request: Any, caller: Caller) -> Any:
        session, operation = self._operation(request, caller)
        rows = request.maxRows if request.maxRows > 0 else self._settings.fetch_size
        orientation = _orientation(request.orientation)
        start = _start_row(orientation, request.startRow)
        if request.fetchType == _LOG_FETCH:
            return _fetch_log(session, operation, start, rows)
        if not await wait_until_ended(operation, FETCH_WAIT):
            return ttypes.TFetchResultsResp(status=status.still_executing(), hasMoreRows=True)
        if session.protocol < FIRST_COLUMNAR and operation.more_follow:
            # Clients of the first protocol versions request every page as the first one.
            orientation = _as_continuation(orientation)
        fetch = partial(self._fetch, session, operation)
        if operation.is_small:
            fetched = fetch(orientation, rows, start or 0)
        else:
            fetched = await self._pages.fetch(
                operation, orientation, rows, fetch, start_row=start or 0
            )
        operation.more_follow = fetched.page.has_more
        self._sessions.metrics.count_fetch(fetched.page.num_rows, len(fetched.response))
        return Encoded(fetched.response)

    async def GetQueryId(self, request: Any, caller: Caller) -> Any:
        _, operation = self._operation(request, caller)
        return ttypes.TGetQueryIdResp(queryId=operation.id)

    # ---- metadata --------------------------------------------------------------------------

    async def GetTypeInfo(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request, caller, OperationKind.GET_TYPE_INFO, lambda _: metadata.get_type_info()
        )
        return ttypes.TGetTypeInfoResp(status=status.success(), operationHandle=operation)

    async def GetCatalogs(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_CATALOGS,
            lambda s: metadata.get_catalogs(s.catalogs()),
        )
        return ttypes.TGetCatalogsResp(status=status.success(), operationHandle=operation)

    async def GetSchemas(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_SCHEMAS,
            lambda s: metadata.get_schemas(
                s.listing(TablePattern(request.catalogName, request.schemaName), tables=False),
                request.catalogName,
                request.schemaName,
            ),
        )
        return ttypes.TGetSchemasResp(status=status.success(), operationHandle=operation)

    async def GetTables(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_TABLES,
            lambda s: metadata.get_tables(
                s.listing(_pattern(request)), _pattern(request), request.tableTypes
            ),
        )
        return ttypes.TGetTablesResp(status=status.success(), operationHandle=operation)

    async def GetTableTypes(self, request: Any, caller: Caller) -> Any:
        plain = self._settings.materialized_as_table
        types = metadata.PLAIN_TYPES if plain else metadata.TABLE_TYPES
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_TABLE_TYPES,
            lambda _: metadata.get_table_types(types),
        )
        return ttypes.TGetTableTypesResp(status=status.success(), operationHandle=operation)

    async def GetColumns(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_COLUMNS,
            lambda s: metadata.get_columns(
                s.columns_of(_pattern(request)), _pattern(request), request.columnName
            ),
        )
        return ttypes.TGetColumnsResp(status=status.success(), operationHandle=operation)

    async def GetFunctions(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_FUNCTIONS,
            lambda s: metadata.get_functions(
                s.functions(), request.catalogName, request.schemaName, request.functionName
            ),
        )
        return ttypes.TGetFunctionsResp(status=status.success(), operationHandle=operation)

    async def GetPrimaryKeys(self, request: Any, caller: Caller) -> Any:
        # Hive also sends the type GET_FUNCTIONS here, since this call has no type of its own.
        operation = await self._run_metadata_call(
            request,
            caller,
            OperationKind.GET_FUNCTIONS,
            lambda s: metadata.get_primary_keys(s.listing(), _pattern(request)),
        )
        return ttypes.TGetPrimaryKeysResp(status=status.success(), operationHandle=operation)

    async def GetCrossReference(self, request: Any, caller: Caller) -> Any:
        operation = await self._run_metadata_call(
            request, caller, OperationKind.GET_FUNCTIONS, lambda _: metadata.get_cross_reference()
        )
        return ttypes.TGetCrossReferenceResp(status=status.success(), operationHandle=operation)

    # ---- delegation tokens -----------------------------------------------------------------

    async def GetDelegationToken(self, request: Any, caller: Caller) -> Any:
        session, who, tokens = self._session(request, caller), caller.identity, self._tokens()
        if not self._access.allows_secrets(caller.peer):
            hint = "Connect with ssl=true or saslQop=auth-conf."
            raise login_error("Tokens are only issued over an encrypted connection", hint)
        owner = request.owner or session.user
        if owner != session.user:
            owner = self._access.effective_user(who, owner, caller.peer)
        token = await self._run_in_pool(lambda: tokens.issue(who, owner, request.renewer))
        return ttypes.TGetDelegationTokenResp(status=status.success(), delegationToken=token)

    async def CancelDelegationToken(self, request: Any, caller: Caller) -> Any:
        self._session(request, caller)
        user, tokens = caller.identity.user, self._tokens()
        await self._run_in_pool(lambda: tokens.cancel(request.delegationToken, user))
        return ttypes.TCancelDelegationTokenResp(status=status.success())

    async def RenewDelegationToken(self, request: Any, caller: Caller) -> Any:
        self._session(request, caller)
        user, tokens = caller.identity.user, self._tokens()
        await self._run_in_pool(lambda: tokens.renew(request.delegationToken, user))
        return ttypes.TRenewDelegationTokenResp(status=status.success())

    # ---- not supported ---------------------------------------------------------------------

    async def UploadData(self, request: Any, caller: Caller) -> Any:
        raise error(Code.NOT_SUPPORTED, what="UploadData")

    async def DownloadData(self, request: Any, caller: Caller) -> Any:
        raise error(Code.NOT_SUPPORTED, what="DownloadData")

    # ---- parts -----------------------------------------------------------------------------

    def _users(self, request: Any, caller: Caller) -> tuple[str, str]:
        """Return the user who opens a session and the user it acts for."""
        who = caller.identity
        if not who.user:
            who = replace(who, user=request.username or "")
        if who.user and not is_usable_name(who.user):
            raise error(Code.INVALID_REQUEST, reason=f"{who.user[:64]!r} is not a valid user name")
        other = normalise(request.configuration).proxy_user or caller.act_as
        return who.user, self._access.effective_user(who, other, caller.peer)

    def _tokens(self) -> DelegationTokens:
        if self._access.tokens is None:
            hint = "Delegation tokens require authentication: set server.auth."
            raise error(Code.NOT_SUPPORTED, what="A delegation token", hint=hint)
        return self._access.tokens

    def _session(self, request: Any, caller: Caller) -> Session:
        handle = convert.read_session_handle(request.sessionHandle)
        session = self._sessions.get(handle, caller.connection_id)
        if _belongs_to_another_user(session, caller):
            raise error(Code.INVALID_SESSION_HANDLE, handle=handle)
        caller.has_session = True
        bind_log_context(user=session.user, session_id=session.id)
        return session

    def _operation(self, request: Any, caller: Caller) -> tuple[Session, Operation]:
        handle = convert.read_operation_handle(request.operationHandle)
        found = self._sessions.find_operation(handle, caller.connection_id)
        if found is None or _belongs_to_another_user(found[0], caller):
            raise error(Code.INVALID_OPERATION_HANDLE, handle=handle)
        caller.has_session = True
        session, operation = found
        bind_log_context(user=session.user, session_id=session.id, operation_id=operation.id)
        return found

    async def _run_metadata_call(
        self,
        request: Any,
        caller: Caller,
        kind: OperationKind,
        work: Callable[[Session], Result],
    ) -> Any:
        session = self._session(request, caller)
        operation = await self._run_in_pool(
            lambda: session.run_metadata_call(kind, lambda: work(session))
        )
        await self._require_result(session, operation)
        return convert.operation_handle(operation)

    async def _require_result(self, session: Session, operation: Operation) -> None:
        """Raise the operation's error and close it, since the client will not get its handle."""
        failure = operation.view().error
        if failure is not None:
            await self._run_in_pool(lambda: session.release(operation))
            raise failure

    def _fetch(
        self,
        session: Session,
        operation: Operation,
        orientation: FetchOrientation,
        rows: int,
        start_row: int,
    ) -> Fetched:
        schema = _result_schema(operation)
        limit = self._settings.max_reply_bytes
        page = operation.fetch(orientation, rows, limit, encode.wire_size, start_row=start_row)
        return Fetched(page, _encode_page(session, schema, page).data)

    async def _run_in_pool(self, work: Callable[[], T], pool: Executor | None = None) -> T:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        pool = pool or self._sessions.executor.short
        return await loop.run_in_executor(pool, context.run, work)


def _belongs_to_another_user(session: Session, caller: Caller) -> bool:
    """Return whether another user than the caller opened a session."""
    return caller.identity.proven and caller.identity.user != session.real_user


def failure_response(name: str, failure: ServerError) -> Any:
    """Return the response of a failed call, with the fields that its type requires."""
    if name == "GetQueryId":
        return failure  # its response has no status; it is sent as an exception
    response = getattr(ttypes, f"T{name}Resp")(status=status.failure(failure))
    if name == "GetInfo":
        response.infoValue = ttypes.TGetInfoValue(stringValue="")
    if name in ("UploadData", "DownloadData"):
        response.operationHandle = convert.no_operation_handle()
    return response


def _timeout_seconds(seconds: int | None) -> float | None:
    """Return the client's timeout; None if it is not positive or longer than a year."""
    return float(seconds) if seconds is not None and 0 < seconds < _YEAR else None


def _pattern(request: Any) -> TablePattern:
    return TablePattern(request.catalogName, request.schemaName, request.tableName)


def _orientation(number: int) -> FetchOrientation:
    name = ttypes.TFetchOrientation._VALUES_TO_NAMES.get(number)
    if name is None:
        raise error(Code.FETCH_ORIENTATION, orientation=number)
    return FetchOrientation(name)


def _start_row(orientation: FetchOrientation, start_row: int | None) -> int | None:
    """Return the row or line with which a fetch begins; None to read on."""
    if orientation is FetchOrientation.ABSOLUTE:
        if start_row is None or start_row < 0:
            raise error(Code.FETCH_ORIENTATION, orientation=f"{orientation.value} without a row")
        return start_row
    return 0 if orientation is FetchOrientation.FIRST else None


def _as_continuation(orientation: FetchOrientation) -> FetchOrientation:
    first = orientation is FetchOrientation.FIRST
    return FetchOrientation.NEXT if first else orientation


def _result_schema(operation: Operation) -> Schema:
    """Return the columns of a result; a text column if there are none but rows were promised."""
    schema = operation.result().schema
    return text_schema("Result") if not schema and operation.view().has_result_set else schema


def _messages(view: OperationView) -> tuple[str, ...]:
    """Return the warnings and notes of a successful statement.

    If it failed, clients would show them as part of the error; they are in the log anyway.
    """
    return view.messages if view.state is OperationState.FINISHED else ()


def _operation_status(operation: Operation, *, with_progress: bool) -> Any:
    view = operation.view(with_progress=with_progress)
    failure = view.error
    return ttypes.TGetOperationStatusResp(
        status=status.success(_messages(view)),
        operationState=status.wire_state(view.state),
        sqlState=failure.sqlstate if failure else None,
        errorCode=status.ERROR_NUMBER if failure else None,
        errorMessage=status.summary(failure) if failure else None,
        taskStatus="[]",
        operationStarted=convert.milliseconds(view.started_at),
        operationCompleted=convert.milliseconds(view.ended_at) if view.ended_at else None,
        hasResultSet=view.has_result_set,
        progressUpdateResponse=convert.progress_update(view) if with_progress else None,
        # If unset, Hive's JDBC driver 4 reads 0, which in JDBC means that another result follows.
        numModifiedRows=_UNCOUNTED if view.modified_rows is None else view.modified_rows,
    )


def _fetch_log(session: Session, operation: Operation, start: int | None, rows: int) -> Any:
    start, lines = operation.log.read(rows, start=start)
    row_set = encode.encode_text_row_set(lines, start)
    return _response(session, row_set, has_more=operation.log.unread)


def _encode_page(session: Session, schema: Schema, page: Page) -> Encoded:
    if session.options.result_format is ResultFormat.ARROW:
        # Within a machine, compressing takes longer than copying.
        compressed = not is_loopback(session.state.address)
        row_set = encode.encode_arrow_row_set(page.batch, page.start_row, compressed=compressed)
    else:
        row_set = encode.encode_row_set(schema, page.batch, page.start_row)
    return _response(session, row_set, has_more=page.has_more)


def _response(session: Session, row_set: bytes, *, has_more: bool) -> Encoded:
    if session.protocol < FIRST_COLUMNAR:
        row_set = as_rows(row_set)
    head = encode_struct(ttypes.TFetchResultsResp(status=status.success(), hasMoreRows=has_more))
    return Encoded(encode.with_row_set(head, row_set))
