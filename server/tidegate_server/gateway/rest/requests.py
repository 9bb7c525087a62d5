"""What the calls read from a request, and how they answer."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.base import Identity, Peer

T = TypeVar("T", bound=Struct)


def decode_body(request: Request, kind: type[T]) -> T:
    """Decode a call's body, which the application has attached to the request; empty is ``{}``.

    :raises ServerError: INVALID_REQUEST.
    """
    try:
        return msgspec.json.decode(request.state.body or b"{}", type=kind)
    except msgspec.MsgspecError as problem:
        raise error(Code.INVALID_REQUEST, reason=f"its body: {problem}") from problem


def json_response(body: Struct, status: int = 200) -> Response:
    """Return a response with a JSON body."""
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


def identity_of(request: Request) -> Identity:
    """Return who makes a call of Flink's interface; the guard found it out."""
    identity: Identity = request.state.identity
    return identity


def peer_of(request: Request) -> Peer:
    """Return where a call comes from."""
    return Peer(
        address=client_address(request.client), encrypted=request.url.scheme.lower() == "https"
    )


def client_address(client: tuple[str, int] | None) -> str:
    """Return the address of a client as ASGI names it; empty if it is unknown."""
    return "" if client is None else client[0]
