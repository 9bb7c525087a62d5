"""The records between gateway and engine as MessagePack, told apart by their class names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec

from tidegate_server.core.messages.answers import Answer
from tidegate_server.core.messages.requests import ChunkTicket, Request

REQUESTS: Mapping[str, type[Request]] = {kind.__name__: kind for kind in get_args(Request)}
_ANSWERS: Mapping[str, type[Answer]] = {kind.__name__: kind for kind in get_args(Answer)}


def encode_request(request: Request) -> tuple[str, bytes]:
    """Return the action name and body of a request."""
    return type(request).__name__, msgspec.msgpack.encode(request)


def decode_request(action: str, body: bytes) -> Request:
    """Read a request back.

    :raises KeyError: for an unknown action.
    :raises msgspec.ValidationError: if the body is not that request's.
    """
    return msgspec.msgpack.decode(body, type=REQUESTS[action])


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
