"""The description of a call, from which both its route and its OpenAPI entry are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

Call = Callable[[Request], Response]
"""Runs on a worker thread and may block."""
AsyncCall = Callable[[Request], Awaitable[Response]]
"""Runs on the event loop and must not block."""


class Door(Enum):
    """Whose clients a call is for, which decides how they log in and how errors are written."""

    OPEN = auto()
    """Anyone's: load balancers and probes."""
    TIDEGATE = auto()
    FLINK = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parameter of the query string."""

    name: str
    meaning: str
    kind: str = "string"
    values: tuple[str, ...] = ()
    """The accepted values; empty for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    summary: str
    call: Call | AsyncCall
    door: Door = Door.TIDEGATE
    answer: type[Struct] | None = None
    """The JSON body of the response; None for another media type."""
    media_type: str = "application/json"
    alternative: str | None = None
    """The media type of the response for clients that accept only it; 204 if it is empty."""
    body: type[Struct] | None = None
    """The JSON body of the request; None if it has none."""
    query: tuple[Query, ...] = ()
    status: int = 200
    otherwise: int | None = None
    """Another status with the same body."""
    recorded: bool = False
    """Whether the call itself is written to the audit log."""
