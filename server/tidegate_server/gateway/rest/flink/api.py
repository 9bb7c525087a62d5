"""The calls of Flink's interface, one method for each; all run on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from tidegate_server.core.errors import Code, error
from tidegate_server.core.jobs import JOB_COLUMN
from tidegate_server.core.log_context import bind_log_context
from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.states import OperationState
from tidegate_server.gateway.authorization.redaction import redact
from tidegate_server.gateway.authorization.setting_checks import may_see
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.rest.endpoints import AsyncCall
from tidegate_server.gateway.rest.flink.bodies import (
    CompletionBody,
    CompletionRequestBody,
    ConfigureSessionBody,
    InfoBody,
    NothingBody,
    OpenSessionBody,
    OperationBody,
    OperationStatusBody,
    PageBody,
    RefreshOrderBody,
    ResultBody,
    SessionBody,
    SessionConfigBody,
    StatementBody,
    VersionsBody,
)
from tidegate_server.gateway.rest.flink.completion import candidates
from tidegate_server.gateway.rest.flink.logical_types import columns_of
from tidegate_server.gateway.rest.flink.pages import Fetched, Pages
from tidegate_server.gateway.rest.flink.refresh import RefreshCall, command_of
from tidegate_server.gateway.rest.flink.sessions import FlinkSession, FlinkSessions
from tidegate_server.gateway.rest.flink.shapes import QUERIES, Shape, shape_of
from tidegate_server.gateway.rest.flink.values import ARROW, RowFormat, arrow_stream, rows_of
from tidegate_server.gateway.rest.requests import decode_body, identity_of, json_response, peer_of
from tidegate_server.gateway.session.cursor import FetchOrientation
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.operation import Operation
from tidegate_server.gateway.session.session import Session
from tidegate_server.gateway.session.waiting import wait_until_ended

logger = logging.getLogger(__name__)

T = TypeVar("T")

VERSIONS: Final = ("V1", "V2", "V3", "V4")
NOT_READY_WAIT: Final = 1.0
"""Seconds that a fetch waits for a running statement."""

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_STATUS: Final[Mapping[OperationState, str]] = {OperationState.TIMEDOUT: "TIMEOUT"}
"""Flink's names of states, where they differ."""
_SCRIPTS: Final = "Run the file with the SQL client: sql-client.sh gateway -e HOST:PORT -f FILE."
_TEXT_SHARE: Final = 4
"""How many times longer rows may be as JSON than in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The page that a call asks for."""

    token: int
    path: str
    """The path of the result, without a token."""
    form: RowFormat
    as_arrow: bool
    query: str
    """What follows the token of the next page."""

    def uri(self, token: int) -> str:
        """Return the path of another page."""
        return f"{self.path}/{token}{self.query}"


class FlinkApi:
    """Executes calls with the sessions that Thrift clients also use.

    Errors are raised as ServerError; the application writes them as Flink's clients expect.
    """

    def __init__(
        self, services: Services, manager: SessionManager, sessions: FlinkSessions
    ) -> None:
        self._services = services
        self._settings = services.config.server
        self._executor = manager.executor
        self._metrics = manager.metrics
        self._sessions = sessions

    # ---- the gateway -----------------------------------------------------------------------

    async def info(self, _: Request) -> Response:
        """Return what this gateway is."""
        return json_response(InfoBody(product_name="Tidegate", version=version("tidegate")))

    async def versions(self, _: Request) -> Response:
        """Return the versions of the interface."""
        return json_response(VersionsBody(versions=VERSIONS))

    # ---- sessions --------------------------------------------------------------------------

    async def open_session(self, request: Request) -> Response:
        """Open a session; its properties are settings."""
        body = decode_body(request, OpenSessionBody)
        identity, peer = identity_of(request), peer_of(request)
        opened = await self._run(lambda: self._sessions.open(identity, peer, body.properties or {}))
        return json_response(SessionBody(session_handle=opened.handle))

    async def close_session(self, request: Request) -> Response:
        """Close a session and its operations."""
        session = self._session(request)
        await self._run(lambda: self._sessions.close(session))
        return json_response(OperationStatusBody(status="CLOSED"))

    async def session_config(self, request: Request) -> Response:
        """Return the settings of a session."""
        session = self._session(request)
        config, user = self._services.config, session.session.user
        shown = {
            key: redact(key, value, config) or ""
            for key, value in sorted(session.settings().items())
            if key in session.properties or may_see(key, self._services, user)
        }
        return json_response(SessionConfigBody(properties=shown))

    async def configure_session(self, request: Request) -> Response:
        """Run a statement that changes the session, and wait for its end."""
        session, body = self._session(request), decode_body(request, ConfigureSessionBody)
        operation = await self._run(
            lambda: session.session.submit(body.statement, timeout=_seconds(body.execution_timeout))
        )
        try:
            await wait_until_ended(operation, None)
            operation.result()
        finally:
            await self._run(lambda: session.release(operation))
        return json_response(NothingBody())

    async def heartbeat(self, request: Request) -> Response:
        """Keep a session open."""
        self._session(request)
        return json_response(NothingBody())

    # ---- statements ------------------------------------------------------------------------

    async def execute(self, request: Request) -> Response:
        """Start a statement."""
        session, body = self._session(request), decode_body(request, StatementBody)
        operation = await self._run(
            lambda: session.session.submit(
                body.statement,
                overlay=body.execution_config or {},
                timeout=_seconds(body.execution_timeout),
            )
        )
        return json_response(OperationBody(operation_handle=operation.id))

    async def complete(self, request: Request) -> Response:
        """Return the words that may stand at a place in a statement."""
        session, body = self._session(request), decode_body(request, CompletionRequestBody)
        names = _SessionNames(session.session)
        found = await self._run(lambda: candidates(body.statement, body.position, names))
        return json_response(CompletionBody(candidates=found))

    async def refresh(self, request: Request) -> Response:
        """Start the refresh of a materialized table as an operation."""
        session, body = self._session(request), decode_body(request, RefreshOrderBody)
        call = RefreshCall(request.path_params["identifier"], command_of(body))
        operation = await self._run(lambda: session.session.start(call.text, call))
        return json_response(OperationBody(operation_handle=operation.id))

    async def deploy_script(self, request: Request) -> Response:
        """Reject a script: there are no Flink clusters that could run it."""
        self._session(request)
        raise error(Code.NOT_SUPPORTED, what="Deploying a script to a cluster", hint=_SCRIPTS)

    # ---- operations ------------------------------------------------------------------------

    async def status(self, request: Request) -> Response:
        """Return the status of an operation."""
        _, operation = self._operation(request)
        return _status(operation)

    async def cancel(self, request: Request) -> Response:
        """Cancel an operation, unless it has ended."""
        session, operation = self._operation(request)
        await self._run(lambda: session.session.cancel(operation), self._executor.urgent)
        return _status(operation)

    async def close_operation(self, request: Request) -> Response:
        """Close an operation and free its result."""
        session, operation = self._operation(request)
        await self._run(lambda: session.release(operation))
        return _status(operation)

    def results(self, since: str) -> AsyncCall:
        """Return the call of one version, ``v1`` to ``v4``, that fetches a page."""

        async def fetch(request: Request) -> Response:
            """Return one page of a result."""
            session, operation = self._operation(request)
            form = _row_format(request)
            wanted = _Wanted(
                token=request.path_params["token"],
                path=request.url.path.rpartition("/")[0],
                form=form,
                as_arrow=request.headers.get("accept", "").strip().lower() == ARROW,
                query="" if since == "v1" else f"?rowFormat={form}",
            )
            if await wait_until_ended(operation, NOT_READY_WAIT):
                return await self._run(lambda: self._page(session, operation, wanted))
            if wanted.token != 0:
                # Only an operation that has ended has a first page, which precedes others.
                reason = f"its token is {wanted.token}, but must be 0"
                raise error(Code.INVALID_REQUEST, reason=reason)
            body = PageBody(result_type="NOT_READY", next_result_uri=wanted.uri(0))
            return json_response(body)

        return fetch

    # ---- parts -----------------------------------------------------------------------------

    def _page(self, session: FlinkSession, operation: Operation, wanted: _Wanted) -> Response:
        shape = _shape(operation)
        pages = session.pages_of(operation, lambda: self._pages(operation, shape))
        fetched = pages.page(wanted.token)
        uri = None if fetched.next_token is None else wanted.uri(fetched.next_token)
        if wanted.as_arrow:
            response = _arrow_response(shape, fetched, uri)
        else:
            zone = session.session.zone
            body = _page_body(shape, fetched, wanted.form, zone, uri)
            response = Response(_ENCODER.encode(body), media_type="application/json")
        rows = 0 if fetched.batch is None else fetched.batch.num_rows
        self._metrics.count_fetch(rows, len(response.body))
        return response

    def _pages(self, operation: Operation, shape: Shape) -> Pages:
        if shape.rows is not None:
            left = iter([shape.rows])
            return Pages(lambda: next(left, None))
        rows = self._settings.fetch_size
        size = max(self._settings.max_reply_bytes // _TEXT_SHARE, 1)

        def fetch() -> pa.RecordBatch | None:
            page = operation.fetch(FetchOrientation.NEXT, rows, size, _bytes_of)
            return None if page.batch is None else shape.take(page.batch)

        return Pages(fetch)

    def _session(self, request: Request) -> FlinkSession:
        found = self._sessions.find(request.path_params["session"], identity_of(request))
        bind_log_context(user=found.session.user, session_id=found.session.id)
        return found

    def _operation(self, request: Request) -> tuple[FlinkSession, Operation]:
        session = self._session(request)
        operation = session.operation(request.path_params["operation"])
        inner = session.session
        bind_log_context(user=inner.user, session_id=inner.id, operation_id=operation.id)
        return session, operation

    async def _run(self, work: Callable[[], T], pool: Executor | None = None) -> T:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        return await loop.run_in_executor(pool or self._executor.short, context.run, work)


class _SessionNames:
    """The names that the user of a session may see; implements ``completion.Names``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def catalogs(self) -> Iterable[str]:
        return (DEFAULT_CATALOG, *self._session.catalogs())

    def schemas(self) -> Iterable[str]:
        return self._session.listing(tables=False).schemas

    def tables(self) -> Iterable[str]:
        current = self._session.state.schema.lower()
        for each in self._session.listing().tables:
            schema, table = each.name.schema, each.name.table
            yield table if schema.lower() in ("", current) else f"{schema}.{table}"


def _shape(operation: Operation) -> Shape:
    """Return the form of an ended operation's result; raises the operation's error."""
    result, view = operation.result(), operation.view()
    return shape_of(
        result.schema,
        operation.statement_kind,
        has_rows=result.has_result_set and bool(len(result.schema)),
        messages=view.messages,
        job_ids=_job_ids(result, operation.statement_kind),
    )


def _job_ids(result: Result, statement_kind: str) -> list[str]:
    """Return the ids of the jobs that a statement became."""
    if result.schema.names() != (JOB_COLUMN,) or statement_kind in QUERIES:
        return []
    return [str(id) for batch in result.batches(0) for id in batch.column(0).to_pylist()]


def _page_body(
    shape: Shape, fetched: Fetched, form: RowFormat, zone: str, uri: str | None
) -> PageBody:
    return PageBody(
        result_type="EOS" if uri is None else "PAYLOAD",
        is_query_result=shape.is_query,
        job_id=shape.job_id,
        result_kind=shape.kind,
        results=ResultBody(
            columns=columns_of(shape.schema),
            row_format=form.value,
            data=rows_of(shape.schema, fetched.batch, form, zone),
        ),
        next_result_uri=uri,
    )


def _arrow_response(shape: Shape, fetched: Fetched, uri: str | None) -> Response:
    """Return a page as an Arrow stream, with the next one in ``Link``; 204 at the end."""
    if fetched.batch is None or uri is None:
        return Response(status_code=204)
    content = arrow_stream(shape.schema, fetched.batch)
    return Response(content, media_type=ARROW, headers={"Link": f'<{uri}>; rel="next"'})


def _status(operation: Operation) -> Response:
    state = operation.state
    return json_response(OperationStatusBody(status=_STATUS.get(state, state.value)))


def _row_format(request: Request) -> RowFormat:
    text = request.query_params.get("rowFormat", RowFormat.JSON.value)
    try:
        return RowFormat(text.upper())
    except ValueError:
        reason = f"rowFormat must be JSON or PLAIN_TEXT, not {text[:40]}"
        raise error(Code.INVALID_REQUEST, reason=reason) from None


def _seconds(milliseconds: int | None) -> float | None:
    """Return a timeout in seconds; None if there is none."""
    return milliseconds / 1000 if milliseconds is not None and milliseconds > 0 else None


def _bytes_of(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)
