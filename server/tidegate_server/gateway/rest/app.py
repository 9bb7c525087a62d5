"""The ASGI application of the HTTP control port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.log_context import log_context
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.audit.record import Event, Record
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.observability.metrics import CONTENT_TYPE, Metrics
from tidegate_server.gateway.rest import bodies
from tidegate_server.gateway.rest.access import Guard
from tidegate_server.gateway.rest.api import LONGEST_BODY, SESSION, Api, health_live, health_ready
from tidegate_server.gateway.rest.endpoints import AsyncCall, Call, Door, Endpoint, Query
from tidegate_server.gateway.rest.flink.api import FlinkApi
from tidegate_server.gateway.rest.flink.endpoints import flink_endpoints
from tidegate_server.gateway.rest.flink.sessions import FlinkSessions
from tidegate_server.gateway.rest.openapi import document
from tidegate_server.gateway.rest.problems import (
    answer_failure,
    answer_http_error,
    answer_server_error,
)
from tidegate_server.gateway.rest.refreshes import Refreshes
from tidegate_server.gateway.rest.requests import client_address
from tidegate_server.gateway.rest.status import Health
from tidegate_server.gateway.session.manager import SessionManager


def build(
    services: Services,
    refreshes: Refreshes,
    health: Callable[[], Health],
    sessions: SessionManager,
    access: Access,
) -> ASGIApp:
    """Return the application; ``health`` returns what keeps the gateway from being ready."""
    config = services.config
    flink = FlinkApi(services, sessions, FlinkSessions(config, sessions, access))
    endpoints: list[Endpoint] = [
        *_endpoints(Api(services, refreshes), services.metrics, health),
        *flink_endpoints(flink),
    ]
    description = Endpoint(
        method="GET",
        path="/v1/openapi.json",
        summary="This description",
        call=lambda _: JSONResponse(document(endpoints)),
    )
    endpoints.append(description)

    def rejected(address: str, problem: ServerError) -> None:
        services.metrics.authentication_failed("http")
        services.audit.write(Record(event=Event.LOGIN, address=address, failure=problem))

    application = Starlette(
        routes=_routes(endpoints, services),
        exception_handlers={
            ServerError: answer_server_error,
            HTTPException: answer_http_error,
            Exception: answer_failure,
        },
    )
    return Guard(application, config, access, on_rejected=rejected)


def _endpoints(api: Api, metrics: Metrics, health: Callable[[], Health]) -> Iterator[Endpoint]:
    """Yield Tidegate's own calls."""
    tables = "/v1/materialized-tables"
    table, refresh = f"{tables}/{{table}}", "/v1/refreshes/{refresh}"
    yield Endpoint(
        method="GET",
        path="/health/live",
        summary="The process is running",
        call=health_live,
        door=Door.OPEN,
        answer=bodies.StatusBody,
    )
    yield Endpoint(
        method="GET",
        path="/health/ready",
        summary="Every statement can be answered",
        call=health_ready(health),
        door=Door.OPEN,
        answer=bodies.StatusBody,
        otherwise=503,
    )
    yield Endpoint(
        method="GET",
        path="/metrics",
        summary="Metrics in Prometheus format",
        call=_metrics(metrics),
        media_type="text/plain",
    )
    yield Endpoint(
        method="GET",
        path=tables,
        summary="Materialized tables",
        call=api.list_tables,
        answer=bodies.TableListBody,
        query=(Query(name="schema", meaning="Only tables of this schema"),),
        recorded=True,
    )
    yield Endpoint(
        method="GET",
        path=table,
        summary="One table",
        call=api.show_table,
        answer=bodies.TableDetailBody,
        recorded=True,
    )
    yield Endpoint(
        method="POST",
        path=f"{table}/refresh",
        summary="Start a refresh",
        call=api.refresh,
        answer=bodies.StartedBody,
        body=bodies.RefreshCommandBody,
        status=202,
        recorded=True,
    )
    limit = Query(name="limit", meaning="Greatest number of runs, 1 to 1000", kind="integer")
    yield Endpoint(
        method="GET",
        path=f"{table}/refreshes",
        summary="The table's runs",
        call=api.list_refreshes,
        answer=bodies.RefreshListBody,
        query=(limit,),
        recorded=True,
    )
    yield Endpoint(
        method="POST",
        path=f"{table}/suspend",
        summary="Suspend the refreshes of a table",
        call=api.suspend,
        answer=bodies.TableBody,
        recorded=True,
    )
    yield Endpoint(
        method="POST",
        path=f"{table}/resume",
        summary="Resume the refreshes of a table",
        call=api.resume,
        answer=bodies.TableBody,
        recorded=True,
    )
    yield Endpoint(
        method="GET",
        path=refresh,
        summary="One run",
        call=api.show_refresh,
        answer=bodies.RefreshBody,
        recorded=True,
    )
    yield Endpoint(
        method="POST",
        path=f"{refresh}/cancel",
        summary="Cancel a run",
        call=api.cancel,
        answer=bodies.RefreshBody,
        status=202,
        recorded=True,
    )


def _routes(endpoints: Iterable[Endpoint], services: Services) -> list[Route]:
    """Return one route for each path, so that all of its methods are in the header ``Allow``."""
    paths: dict[str, dict[str, AsyncCall]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method] = _endpoint(each, services)
    return [Route(path, _by_method(calls), methods=list(calls)) for path, calls in paths.items()]


def _by_method(calls: Mapping[str, AsyncCall]) -> AsyncCall:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await calls[method](request)

    return endpoint


def _endpoint(endpoint: Endpoint, services: Services) -> AsyncCall:
    """Return the function that Starlette calls."""
    user = services.config.server.http_user
    if endpoint.door is Door.FLINK:
        limit = services.config.server.max_request_bytes
        return _on_loop(cast(AsyncCall, endpoint.call), limit)
    call = cast(Call, endpoint.call)
    return _on_thread(_recorded(call, user, services.audit) if endpoint.recorded else call, user)


def _recorded(call: Call, user: str, audit: AuditLog) -> Call:
    """Return a call that is written to the audit log, with what it adds to the request's record."""

    def record_and_call(request: Request) -> Response:
        record = Record(
            event=Event.REST,
            user=user,
            real_user=user,
            address=client_address(request.client),
            text=f"{request.method} {request.url.path}",
        )
        request.state.record = record
        with audit.recording(record):
            return call(request)

    return record_and_call


def _on_thread(call: Call, user: str) -> AsyncCall:
    """Read a call's body on the event loop, and run the call on a thread, logged as ``user``."""

    async def endpoint(request: Request) -> Response:
        request.state.body = await _body(request, LONGEST_BODY)
        with log_context(user=user, session_id=SESSION):
            return await run_in_threadpool(call, request)

    return endpoint


def _on_loop(call: AsyncCall, limit: int) -> AsyncCall:
    """Read a call's body, and run the call, on the event loop."""

    async def endpoint(request: Request) -> Response:
        with log_context():
            request.state.body = await _body(request, limit)
            return await call(request)

    return endpoint


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise error(Code.INVALID_REQUEST, reason=f"its body is longer than {limit} bytes")
    return bytes(body)


def _metrics(metrics: Metrics) -> Call:
    return lambda _: Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})
