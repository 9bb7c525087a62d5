"""From a request's bytes to its reply's bytes, for every transport."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidegate.wire.service import (
    CALLS,
    TApplicationException,
    TMessageType,
    args_class,
    decode_struct,
    encode_message,
    result_class,
)
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.protocol.handler import (
    CachedStatusReply,
    Caller,
    Encoded,
    Handler,
    failure,
)
from tidegate_server.gateway.protocol.reply_cache import Repeated
from tidegate_server.gateway.protocol.scan import CALL, Message

logger = logging.getLogger(__name__)

_SUCCESS_FIELD: Final = struct.pack(">bh", 12, 0)
_STOP: Final = b"\x00"
_STATUS: Final = "GetOperationStatus"
_SEQUENCE_AT: Final = 8 + len(_STATUS)
"""Where the sequence number of such a message stands."""


class Answerer:
    """Decodes requests, has the handler carry them out and encodes the replies."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def at_once(self, message: Message, caller: Caller) -> bytes | None:
        """Return the reply that needs no waiting and so no task; None for all others.

        Hive's JDBC driver asks for the status of a finished operation once per row it reads.
        """
        if message.kind != CALL or message.name != _STATUS:
            return None
        said = caller.said
        if said is not None and said.body == message.body:
            if self._handler.still_holds(said, caller):
                sequence = struct.pack(">i", message.sequence)
                return sequence.join((said.reply[:_SEQUENCE_AT], said.reply[_SEQUENCE_AT + 4 :]))
            caller.said = None
        try:
            found = self._handler.ended_status(_request(message), caller)
        except Exception as problem:
            logger.debug("%s takes the long way: %s", message.name, problem)
            return None
        if found is None:
            return None
        reply = _reply(message, found[1])
        caller.said = CachedStatusReply(message.body, found[0], reply)
        return reply

    def repeated(self, caller: Caller, header: Callable[[int], bytes | None]) -> Repeated | None:
        """Return what was answered at once last, if the wire shows it the same each time.

        ``header`` gives what stands before a message of so many bytes, None if it never is twice
        the same.
        """
        said = caller.said
        if said is None:
            return None
        asked = _message_header(_STATUS, CALL, 0) + said.body
        before, before_reply = header(len(asked)), header(len(said.reply))
        if before is None or before_reply is None:
            return None
        return Repeated(
            before + asked,
            before_reply + said.reply,
            len(before) + _SEQUENCE_AT,
            partial(self._handler.still_holds, said, caller),
        )

    async def answer(self, message: Message, caller: Caller) -> bytes:
        """Return the reply to a message; whatever it holds, the connection stays in step."""
        if message.kind != CALL:
            return _exception(message, TApplicationException.INVALID_MESSAGE_TYPE, "not a call")
        if message.name not in CALLS:
            text = f"Invalid method name: '{message.name}'"
            return _exception(message, TApplicationException.UNKNOWN_METHOD, text)
        try:
            request = _request(message)
        except Exception as problem:
            text = f"{message.name} cannot be read: {problem}"
            logger.info("%s", text)
            return _exception(message, TApplicationException.PROTOCOL_ERROR, text)
        response = await self._handler.call(message.name, request, caller)
        return _reply(message, response)


def refusal(message: Message, problem: ServerError) -> bytes:
    """Return the reply that says why a request is not even looked at."""
    if message.kind == CALL and message.name in CALLS:
        return _reply(message, failure(message.name, problem))
    return _exception(message, TApplicationException.INTERNAL_ERROR, str(problem))


def _request(message: Message) -> Any:
    arguments = decode_struct(args_class(message.name), message.body)
    arguments.req.validate()
    return arguments.req


def _reply(message: Message, response: Any) -> bytes:
    if isinstance(response, ServerError):
        return _exception(message, TApplicationException.INTERNAL_ERROR, str(response))
    if isinstance(response, Encoded):
        head = _message_header(message.name, TMessageType.REPLY, message.sequence)
        return b"".join((head, _SUCCESS_FIELD, response.data, _STOP))
    result = result_class(message.name)(success=response)
    return encode_message(message.name, TMessageType.REPLY, message.sequence, result)


def _exception(message: Message, kind: int, text: str) -> bytes:
    problem = TApplicationException(kind, text)
    return encode_message(message.name, TMessageType.EXCEPTION, message.sequence, problem)


def _message_header(name: str, kind: int, sequence: int) -> bytes:
    encoded = name.encode()
    return struct.pack(f">HBBi{len(encoded)}si", 0x8001, 0, kind, len(encoded), encoded, sequence)
