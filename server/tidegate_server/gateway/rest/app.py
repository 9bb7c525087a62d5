"""The ASGI application of the HTTP control port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.observability.metrics import CONTENT_TYPE, Metrics
from tidegate_server.gateway.rest.access import Guard, client_address
from tidegate_server.gateway.rest.api import LONGEST_BODY, SESSION, Api, health_live, health_ready
from tidegate_server.gateway.rest.openapi import document
from tidegate_server.gateway.rest.problems import (
    answer_failure,
    answer_http_error,
    answer_server_error,
)
from tidegate_server.gateway.rest.refreshes import Refreshes
from tidegate_server.gateway.rest.status import Health

Call = Callable[[Request], Response]


def build(services: Services, refreshes: Refreshes, health: Callable[[], Health]) -> ASGIApp:
    """Return the application; ``health`` returns what keeps the gateway from being ready."""
    api = Api(services, refreshes)
    user = services.config.server.http_user

    def recorded(call: Call) -> Call:
        return _recorded(call, user, services.audit)

    def rejected(address: str, problem: ServerError) -> None:
        services.metrics.authentication_failed("http")
        services.audit.write(Record(event=Event.LOGIN, address=address, failure=problem))

    table, refresh = "/v1/materialized-tables/{table}", "/v1/refreshes/{refresh}"
    routes = (
        ("GET", "/health/live", health_live),
        ("GET", "/health/ready", health_ready(health)),
        ("GET", "/metrics", _metrics(services.metrics)),
        ("GET", "/v1/openapi.json", lambda _: JSONResponse(document())),
        ("GET", "/v1/materialized-tables", recorded(api.list_tables)),
        ("GET", table, recorded(api.show_table)),
        ("POST", f"{table}/refresh", recorded(api.refresh)),
        ("GET", f"{table}/refreshes", recorded(api.list_refreshes)),
        ("POST", f"{table}/suspend", recorded(api.suspend)),
        ("POST", f"{table}/resume", recorded(api.resume)),
        ("GET", refresh, recorded(api.show_refresh)),
        ("POST", f"{refresh}/cancel", recorded(api.cancel)),
    )
    application = Starlette(
        routes=[
            Route(path, _on_thread(call, user), methods=[method]) for method, path, call in routes
        ],
        exception_handlers={
            ServerError: answer_server_error,
            HTTPException: answer_http_error,
            Exception: answer_failure,
        },
    )
    return Guard(application, services.config, on_rejected=rejected)


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


def _on_thread(call: Call, user: str) -> Callable[[Request], Awaitable[Response]]:
    """Read a call's body on the event loop, and run the call on a thread, logged as ``user``."""

    async def endpoint(request: Request) -> Response:
        request.state.body = await _body(request)
        with log_context(user=user, session_id=SESSION):
            return await run_in_threadpool(call, request)

    return endpoint


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            reason = f"its body is longer than {LONGEST_BODY} bytes"
            raise error(Code.INVALID_REQUEST, reason=reason)
    return bytes(body)


def _metrics(metrics: Metrics) -> Call:
    return lambda _: Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})
