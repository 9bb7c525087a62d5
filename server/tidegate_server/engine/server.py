"""The Flight server: sends answers as action results, and chunks by DoGet."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec
import pyarrow.flight as flight

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.log_context import log_context
from tidegate_server.core.messages.answers import Answer, failure
from tidegate_server.core.messages.encoding import decode_request, decode_ticket, encode_answer
from tidegate_server.core.sql.redact import redact, secrets_in
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.service import Service

logger = logging.getLogger(__name__)


class EngineServer(flight.FlightServerBase):  # type: ignore[misc]
    """Decodes requests, passes them to the service and encodes its answers.

    Every exception becomes a Failure.
    """

    def __init__(self, socket: str, service: Service) -> None:
        super().__init__(f"grpc+unix://{socket}")
        self._service = service

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        for answer in self._answers(action):
            yield flight.Result(encode_answer(answer))

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        try:
            wanted = decode_ticket(ticket.ticket)
            schema, batches = self._service.results.read(wanted.result_id, wanted.chunk)
        except Exception as caught:
            converted = to_server_error(caught)
            encoded = encode_answer(failure(converted))
            raise flight.FlightServerError(str(converted), extra_info=encoded) from caught
        return flight.GeneratorStream(schema, batches)

    def _answers(self, action: flight.Action) -> Iterator[Answer]:
        try:
            body = action.body.to_pybytes()
            request = decode_request(action.type, body)
        except (KeyError, msgspec.MsgspecError) as caught:
            reason = f"{action.type} cannot be decoded: {caught}"
            yield failure(error(Code.INVALID_REQUEST, reason=reason))
            return
        try:
            yield from self._service.answers(request)
        except Exception as caught:
            converted = to_server_error(caught)
            with log_context(secrets=secrets_in(getattr(request, "sql", ""))):
                _log_failure(action.type, caught, converted)
            yield failure(converted)


def _log_failure(request: str, caught: Exception, converted: ServerError) -> None:
    if converted.code == Code.OPERATION_CANCELED.name:
        logger.info("%s was canceled", request)
        return
    # Only errors of Spark or the JVM, which have a cause, need their stack trace.
    trace = caught if caught.__cause__ is not None else None
    logger.warning("%s failed: %s", request, redact(str(converted)), exc_info=trace)
