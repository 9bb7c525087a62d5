"""The OpenAPI description of the calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec
from msgspec import Struct

from tidegate_server.gateway.rest.bodies import ErrorsBody, ProblemBody
from tidegate_server.gateway.rest.endpoints import Door, Endpoint, Query
from tidegate_server.gateway.rest.problems import PROBLEM

_REFERENCE: Final = "#/components/schemas/{name}"
_IN_PATH: Final[Mapping[str, str]] = {
    "table": "Id, or schema and name, such as shop.revenue",
    "refresh": "Id of the refresh",
    "session": "The sessionHandle of the call that opened it",
    "operation": "The operationHandle of the call that started it",
    "token": "0 for the first page; the next one is in nextResultUri",
    "identifier": "Name of a materialized table, with its catalog and schema",
}
_PLACEHOLDER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
"""A parameter in a path of Starlette, with its type."""


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    shown = tuple(endpoints)
    kinds = {kind for each in shown for kind in (each.answer, each.body) if kind is not None} | {
        ProblemBody,
        ErrorsBody,
    }
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    paths: dict[str, Any] = {}
    for each in shown:
        paths.setdefault(public_path(each.path), {})[each.method.lower()] = _call(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": version("tidegate"),
            "description": "Materialized tables and their refreshes; sessions for Flink's clients.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{"token": []}, {}],
    }


def public_path(path: str) -> str:
    """Return a path of Starlette without the types of its parameters."""
    return _PLACEHOLDER.sub(r"{\1}", path)


def _call(endpoint: Endpoint) -> dict[str, Any]:
    """Return the description of one method of a path."""
    kind, answer = endpoint.media_type, endpoint.answer
    content = {kind: {}} if answer is None else _content(kind, answer)
    good = {"description": HTTPStatus(endpoint.status).phrase, "content": content}
    flinks = endpoint.door is Door.FLINK
    problem = _content("application/json", ErrorsBody) if flinks else _content(PROBLEM, ProblemBody)
    responses: dict[str, Any] = {str(endpoint.status): good}
    if endpoint.alternative is not None:
        content[endpoint.alternative] = {}
        responses["204"] = {"description": HTTPStatus.NO_CONTENT.phrase}
    if endpoint.otherwise is not None:
        responses[str(endpoint.otherwise)] = good
    responses["default"] = {"description": "A problem", "content": problem}
    call: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": [
            *(_parameter(name) for name in _PLACEHOLDER.findall(endpoint.path)),
            *(_query(each) for each in endpoint.query),
        ],
        "responses": responses,
    }
    if endpoint.body is not None:
        content = _content("application/json", endpoint.body)
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        call["requestBody"] = {"required": required, "content": content}
    match endpoint.door:
        case Door.OPEN:
            call["security"] = [{}]
        case Door.FLINK:
            call["security"] = [{"password": []}, {"token": []}, {}]
    return call


def _content(media_type: str, kind: type[Struct]) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0} if name == "token" else {"type": "string"}
    return {
        "in": "path",
        "name": name,
        "required": True,
        "description": _IN_PATH[name],
        "schema": schema,
    }


def _query(query: Query) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": query.kind}
    if query.values:
        schema["enum"] = list(query.values)
    return {
        "in": "query",
        "name": query.name,
        "required": False,
        "description": query.meaning,
        "schema": schema,
    }
