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
    failure_response,
)
from tidegate_server.gateway.protocol.reply_cache import RepeatedCall
from tidegate_server.gateway.protocol.scan import CALL, Message

logger = logging.getLogger(__name__)

_SUCCESS_FIELD: Final = struct.pack(">bh", 12, 0)
_STOP: Final = b"\x00"
_STATUS_CALL: Final = "GetOperationStatus"
_SEQUENCE_AT: Final = 8 + len(_STATUS_CALL)
"""Offset of the sequence number in such a message."""


class Answerer:
    """Decodes requests, passes them to the handler and encodes the replies."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def immediate_reply(self, message: Message, caller: Caller) -> bytes | None:
        """Return a reply that is available without waiting, and so without a task; None otherwise.

        Hive's JDBC driver requests the status of a finished operation once per row it reads.
        """
        if message.kind != CALL or message.name != _STATUS_CALL:
            return None
        cached = caller.cached_status
        if cached is not None and cached.body == message.body:
            if self._handler.is_current(cached, caller):
                sequence = struct.pack(">i", message.sequence)
                return sequence.join(
                    (cached.reply[:_SEQUENCE_AT], cached.reply[_SEQUENCE_AT + 4 :])
                )
            caller.cached_status = None
        try:
            found = self._handler.ended_status(_request(message), caller)
        except Exception as error:
            logger.debug("%s has no immediate reply: %s", message.name, error)
            return None
        if found is None:
            return None
        reply = _reply(message, found[1])
        caller.cached_status = CachedStatusReply(message.body, found[0], reply)
        return reply

    def repeated_call(
        self, caller: Caller, header: Callable[[int], bytes | None]
    ) -> RepeatedCall | None:
        """Return the last call with an immediate reply, if its bytes are the same each time.

        ``header`` returns the bytes before a message of a length; None if they vary.
        """
        cached = caller.cached_status
        if cached is None:
            return None
        asked = _message_header(_STATUS_CALL, CALL, 0) + cached.body
        before, before_reply = header(len(asked)), header(len(cached.reply))
        if before is None or before_reply is None:
            return None
        return RepeatedCall(
            before + asked,
            before_reply + cached.reply,
            len(before) + _SEQUENCE_AT,
            partial(self._handler.is_current, cached, caller),
        )

    async def answer(self, message: Message, caller: Caller) -> bytes:
        """Return the reply to a message; even invalid content leaves the connection usable."""
        if message.kind != CALL:
            return _exception(message, TApplicationException.INVALID_MESSAGE_TYPE, "not a call")
        if message.name not in CALLS:
            text = f"Invalid method name: '{message.name}'"
            return _exception(message, TApplicationException.UNKNOWN_METHOD, text)
        try:
            request = _request(message)
        except Exception as error:
            text = f"{message.name} cannot be read: {error}"
            logger.info("%s", text)
            return _exception(message, TApplicationException.PROTOCOL_ERROR, text)
        response = await self._handler.call(message.name, request, caller)
        return _reply(message, response)


def refusal(message: Message, error: ServerError) -> bytes:
    """Return the reply to a request that is rejected unread."""
    if message.kind == CALL and message.name in CALLS:
        return _reply(message, failure_response(message.name, error))
    return _exception(message, TApplicationException.INTERNAL_ERROR, str(error))


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
    error = TApplicationException(kind, text)
    return encode_message(message.name, TMessageType.EXCEPTION, message.sequence, error)


def _message_header(name: str, kind: int, sequence: int) -> bytes:
    encoded = name.encode()
    return struct.pack(f">HBBi{len(encoded)}si", 0x8001, 0, kind, len(encoded), encoded, sequence)
