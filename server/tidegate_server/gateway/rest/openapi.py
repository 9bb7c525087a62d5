"""The OpenAPI description of the REST interface."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import msgspec

from tidegate_server.gateway.rest.bodies import (
    Body,
    ProblemBody,
    RefreshBody,
    RefreshCommandBody,
    RefreshListBody,
    StartedBody,
    StatusBody,
    TableBody,
    TableDetailBody,
    TableListBody,
)
from tidegate_server.gateway.rest.problems import PROBLEM

_TABLE = "/v1/materialized-tables/{table}"
_REFRESH = "/v1/refreshes/{refresh}"
_REFERENCE = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    kinds = [
        *(TableListBody, TableDetailBody, TableBody, RefreshBody, RefreshListBody),
        *(RefreshCommandBody, StartedBody, StatusBody, ProblemBody),
    ]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": version("tidegate"),
            "description": "Materialized tables and their refreshes.",
        },
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _paths() -> dict[str, Any]:
    table = _parameter("path", "table", "Id, or schema and name, such as shop.revenue")
    refresh = _parameter("path", "refresh", "Id of the refresh")
    limit = _parameter("query", "limit", "Greatest number of runs, 1 to 1000", "integer")
    schema = _parameter("query", "schema", "Only tables of this schema")
    text = {"200": {"description": "Text", "content": {"text/plain": {}}}}
    description = {"200": {"description": "This document", "content": {"application/json": {}}}}
    return {
        "/health/live": {"get": _call("The process is running", StatusBody)},
        "/health/ready": {
            "get": _call("Every statement can be answered", StatusBody, otherwise="503")
        },
        "/metrics": {"get": {"summary": "Metrics in Prometheus format", "responses": text}},
        "/v1/openapi.json": {"get": {"summary": "This description", "responses": description}},
        "/v1/materialized-tables": {
            "get": _call("Materialized tables", TableListBody, parameters=[schema])
        },
        _TABLE: {"get": _call("One table", TableDetailBody, parameters=[table])},
        f"{_TABLE}/refresh": {
            "post": _call(
                "Start a refresh",
                StartedBody,
                parameters=[table],
                body=RefreshCommandBody,
                status="202",
            )
        },
        f"{_TABLE}/refreshes": {
            "get": _call("The table's runs", RefreshListBody, parameters=[table, limit])
        },
        f"{_TABLE}/suspend": {
            "post": _call("Stop keeping it fresh", TableBody, parameters=[table])
        },
        f"{_TABLE}/resume": {"post": _call("Keep it fresh again", TableBody, parameters=[table])},
        _REFRESH: {"get": _call("One run", RefreshBody, parameters=[refresh])},
        f"{_REFRESH}/cancel": {
            "post": _call("Cancel a run", RefreshBody, parameters=[refresh], status="202")
        },
    }


def _call(
    summary: str,
    answer: type[Body],
    *,
    parameters: list[dict[str, Any]] | None = None,
    body: type[Body] | None = None,
    status: str = "200",
    otherwise: str | None = None,
) -> dict[str, Any]:
    good = {"description": summary, "content": _content("application/json", answer)}
    problem = {"description": "A problem", "content": _content(PROBLEM, ProblemBody)}
    call: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters or [],
        "responses": {status: good, "default": problem},
    }
    if otherwise is not None:
        call["responses"][otherwise] = good
    if body is not None:
        call["requestBody"] = {"required": False, "content": _content("application/json", body)}
    return call


def _content(media_type: str, kind: type[Body]) -> Mapping[str, Any]:
    return {media_type: {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}


def _parameter(place: str, name: str, meaning: str, kind: str = "string") -> dict[str, Any]:
    return {
        "in": place,
        "name": name,
        "required": place == "path",
        "description": meaning,
        "schema": {"type": kind},
    }
