"""The records between gateway and engine as MessagePack, distinguished by their class names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from tidegate_server.core.messages import requests
from tidegate_server.core.messages.answers import Answer
from tidegate_server.core.messages.decoding import prepare_decoding
from tidegate_server.core.messages.requests import ChunkTicket, Request


def _requests() -> Mapping[str, type[Request[Any]]]:
    kinds = (kind for kind in vars(requests).values() if isinstance(kind, type))
    return {
        kind.__name__: kind for kind in kinds if issubclass(kind, Request) and kind is not Request
    }


REQUESTS = _requests()
"""Every request by its name."""
_ANSWERS: Mapping[str, type[Answer]] = {kind.__name__: kind for kind in get_args(Answer)}

prepare_decoding(*REQUESTS.values(), *_ANSWERS.values(), ChunkTicket)


def answer_type(request: type[Request[Any]]) -> type[Any]:
    """Return the type that a request declares for its answer."""
    (base,) = request.__orig_bases__  # type: ignore[attr-defined]
    found: tuple[type[Any]] = get_args(base)
    return found[0]


def encode_request(request: Request[Any]) -> tuple[str, bytes]:
    """Return the action name and body of a request."""
    return type(request).__name__, msgspec.msgpack.encode(request)


def decode_request(action: str, body: bytes) -> Request[Any]:
    """Read a request back.

    :raises KeyError: for an unknown action.
    :raises msgspec.ValidationError: if the body is not that request's.
    """
    request: Request[Any] = msgspec.msgpack.decode(body, type=REQUESTS[action])
    return request


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as ``Name\\n`` and its MessagePack."""
    return type(answer).__name__.encode() + b"\n" + msgspec.msgpack.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """Read an answer back; raises as :func:`decode_request`."""
    name, _, body = data.partition(b"\n")
    return msgspec.msgpack.decode(body, type=_ANSWERS[name.decode()])


def encode_ticket(ticket: ChunkTicket) -> bytes:
    """Return a DoGet ticket."""
    return msgspec.msgpack.encode(ticket)


def decode_ticket(data: bytes) -> ChunkTicket:
    """Read a DoGet ticket back; raises as :func:`decode_request`."""
    return msgspec.msgpack.decode(data, type=ChunkTicket)
