"""Errors as HTTP responses: a status and a JSON body with problem details."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.rest.bodies import ErrorsBody, ProblemBody

logger = logging.getLogger(__name__)

PROBLEM = "application/problem+json"

_FLINKS = re.compile(r"/v\d+/(?:info|api_versions|sessions)(?:/|$)")

_BY_CODE = {
    Code.MT_NOT_FOUND.name: HTTPStatus.NOT_FOUND,
    Code.REFRESH_NOT_FOUND.name: HTTPStatus.NOT_FOUND,
    Code.ACCESS_DENIED.name: HTTPStatus.FORBIDDEN,
    Code.AUDIT_UNAVAILABLE.name: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.LOGIN_REFUSED.name: HTTPStatus.UNAUTHORIZED,
    Code.TOO_MANY.name: HTTPStatus.TOO_MANY_REQUESTS,
    Code.STORE_BUSY.name: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.STORE_FULL.name: HTTPStatus.INSUFFICIENT_STORAGE,
    Code.INTERNAL.name: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.INVALID_REQUEST.name: HTTPStatus.BAD_REQUEST,
    Code.INVALID_SESSION_HANDLE.name: HTTPStatus.NOT_FOUND,
    Code.INVALID_OPERATION_HANDLE.name: HTTPStatus.NOT_FOUND,
    Code.LOGIN_UNAVAILABLE.name: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.PROXY_REFUSED.name: HTTPStatus.FORBIDDEN,
}
_BY_CLASS = {
    "08": HTTPStatus.SERVICE_UNAVAILABLE,
    "40": HTTPStatus.CONFLICT,
    "55": HTTPStatus.CONFLICT,
    "57": HTTPStatus.CONFLICT,
    "58": HTTPStatus.INTERNAL_SERVER_ERROR,
    "XX": HTTPStatus.INTERNAL_SERVER_ERROR,
}


def is_flinks(path: str) -> bool:
    """Return whether a path is one of Flink's interface, in any version."""
    return _FLINKS.match(path) is not None


def status_of(problem: ServerError) -> HTTPStatus:
    """Return the HTTP status for an error."""
    by_class = _BY_CLASS.get(problem.sqlstate[:2], HTTPStatus.BAD_REQUEST)
    return _BY_CODE.get(problem.code, by_class)


def problem_response(problem: ServerError) -> Response:
    """Return the response for an error."""
    status = status_of(problem)
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
    return _response(
        ProblemBody(
            type="about:blank",
            title=status.phrase,
            status=status.value,
            detail=problem.headline,
            code=problem.code,
            sqlstate=problem.sqlstate,
            hint=problem.hint,
        ),
        headers,
    )


def errors_response(problem: ServerError) -> Response:
    """Return the response for an error of a call of Flink's interface.

    Flink's clients show its only text, with the hint on a line of its own.
    """
    status = status_of(problem)
    text = f"{problem.headline}\nHint: {problem.hint}" if problem.hint else problem.headline
    challenge = 'Basic realm="Tidegate", charset="UTF-8"'
    headers = {"WWW-Authenticate": challenge} if status is HTTPStatus.UNAUTHORIZED else {}
    return _errors(text, status, headers)


async def answer_server_error(request: Request, problem: Exception) -> Response:
    """Answer with an error that the server raised deliberately."""
    assert isinstance(problem, ServerError)
    logger.info("Rejected: %s", problem)
    return _respond(request, problem)


async def answer_http_error(request: Request, problem: Exception) -> Response:
    """Answer with an error of the router: an unknown path or a wrong method."""
    assert isinstance(problem, HTTPException)
    status = HTTPStatus(problem.status_code)
    detail = f"{request.method} {request.url.path}: {problem.detail}."
    headers = dict(problem.headers or {})
    if is_flinks(request.url.path):
        return _errors(detail, status, headers)
    body = ProblemBody(
        type="about:blank",
        title=status.phrase,
        status=status.value,
        detail=detail,
        code=Code.INVALID_REQUEST.name,
        sqlstate=Code.INVALID_REQUEST.value.sqlstate,
        hint="GET /v1/openapi.json describes every path.",
    )
    return _response(body, headers)


async def answer_failure(request: Request, problem: Exception) -> Response:
    """Answer with an internal error; the traceback goes to the log."""
    logger.error("A call failed inside the server", exc_info=problem)
    reason = f"{type(problem).__name__}: {problem}"
    return _respond(request, error(Code.INTERNAL, reason=reason))


def _respond(request: Request, problem: ServerError) -> Response:
    respond = errors_response if is_flinks(request.url.path) else problem_response
    return respond(problem)


def _response(body: ProblemBody, headers: dict[str, str] | None) -> Response:
    return Response(
        msgspec.json.encode(body), status_code=body.status, headers=headers, media_type=PROBLEM
    )


def _errors(text: str, status: HTTPStatus, headers: dict[str, str]) -> Response:
    return Response(
        msgspec.json.encode(ErrorsBody(errors=(text,))),
        status_code=status.value,
        headers=headers,
        media_type="application/json",
    )
