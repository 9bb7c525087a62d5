"""The gateway's client of the engine: Arrow Flight over a Unix socket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Failure, Progress
from tidegate_server.core.messages.encoding import (
    answer_type,
    decode_answer,
    encode_request,
    encode_ticket,
)
from tidegate_server.core.messages.requests import A, ChunkTicket, Request

logger = logging.getLogger(__name__)

_CONNECTION_ENDED = (
    flight.FlightUnavailableError,
    flight.FlightCancelledError,
    flight.FlightTimedOutError,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine start: its gRPC location and its generation."""

    location: str
    generation: int


class Endpoints(Protocol):
    """Provides the running engine's endpoint."""

    def wait(self, seconds: float | None) -> Endpoint:
        """Return the running engine, waiting for one that is starting.

        :raises ServerError: ENGINE_UNAVAILABLE if none came up in time.
        """
        ...

    def lost(self, endpoint: Endpoint) -> bool:
        """Whether that engine start has ended, or ends within a moment."""
        ...

    @property
    def generation(self) -> int:
        """The number of the engine start that is up or awaited."""
        ...

    @property
    def ready(self) -> bool:
        """Whether an engine is up."""
        ...


class FlightEngine:
    """Implements :class:`~.client.Engine`; safe for use by many threads."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._lock = threading.Lock()
        self._client: tuple[Endpoint, flight.FlightClient] | None = None
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """The number of running calls and reads, including those waiting for an engine."""
        return self._in_flight

    @property
    def generation(self) -> int:
        return self._endpoints.generation

    @property
    def ready(self) -> bool:
        return self._endpoints.ready

    def call(
        self,
        request: Request[A],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> A:
        with self._under_way():
            endpoint = self._endpoints.wait(wait)
            try:
                return self._ask(endpoint, request, on_progress)
            except ServerError as problem:
                # The engine ended before it got the request. The next one can have it, unless it
                # belongs to a session, which that one does not know.
                unsent = problem.code == Code.ENGINE_UNAVAILABLE.name and wait != 0
                if not unsent or hasattr(request, "session_id"):
                    raise
                logger.info("%s is sent to the next engine", type(request).__name__)
            return self._ask(self._endpoints.wait(wait), request, on_progress)

    def _ask(
        self,
        endpoint: Endpoint,
        request: Request[A],
        on_progress: Callable[[Progress], None] | None,
    ) -> A:
        with self._transport(endpoint):
            return ask(self._client_of(endpoint), request, on_progress)

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        # A result exists in one engine process only, so waiting for the next one is pointless.
        with self._under_way():
            yield from self._read(ticket, self._endpoints.wait(0))

    def _read(self, ticket: ChunkTicket, endpoint: Endpoint) -> Iterator[pa.RecordBatch]:
        with self._transport(endpoint):
            reader = self._client_of(endpoint).do_get(flight.Ticket(encode_ticket(ticket)))
            ended = False
            try:
                for chunk in reader:
                    yield chunk.data
                ended = True
            finally:
                if not ended:
                    reader.cancel()

    def close(self) -> None:
        """Close the connection; the engine keeps running."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client[1].close()

    def _client_of(self, endpoint: Endpoint) -> flight.FlightClient:
        with self._lock:
            if self._client is not None and self._client[0] == endpoint:
                return self._client[1]
            client = flight.FlightClient(endpoint.location)
            # A client of an earlier start is not closed: other threads may still be using it.
            self._client = (endpoint, client)
            return client

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    @contextmanager
    def _transport(self, endpoint: Endpoint) -> Iterator[None]:
        try:
            yield
        except flight.FlightError as problem:
            raise _from_flight(problem, lost=self._endpoints.lost(endpoint)) from problem
        except pa.ArrowException as problem:
            if self._endpoints.lost(endpoint):
                logger.warning("The engine was lost: %s", problem)
                raise error(Code.ENGINE_LOST) from problem
            raise error(Code.INTERNAL, reason=first_line(problem)) from problem


def ask(
    client: flight.FlightClient,
    request: Request[A],
    on_progress: Callable[[Progress], None] | None = None,
    timeout: float | None = None,
) -> A:
    """Send one request and return its answer; ``timeout`` is in seconds.

    :raises ServerError: the engine's Failure, or INTERNAL if the answer does not have the type that
        the request declares.
    :raises pyarrow.flight.FlightError: if the transport failed.
    """
    expected: type[A] = answer_type(type(request))
    name, body = encode_request(request)
    options = flight.FlightCallOptions(timeout=timeout)
    for part in client.do_action(flight.Action(name, body), options):
        match decode_answer(part.body.to_pybytes()):
            case Progress() as progress:
                if on_progress is not None:
                    on_progress(progress)
            case Failure() as failed:
                raise failed.to_error()
            case answer if isinstance(answer, expected):
                return answer
            case answer:
                reason = f"the engine answered {name} with {type(answer).__name__}"
                raise error(Code.INTERNAL, reason=reason)
    raise error(Code.INTERNAL, reason=f"the engine did not answer {name}")


def first_line(problem: Exception) -> str:
    """Return an error's text without the traces that Flight and gRPC append."""
    text = str(problem).partition(". gRPC client debug context")[0].partition(". Detail: ")[0]
    return text.strip().partition("\n")[0] or type(problem).__name__


def _from_flight(problem: flight.FlightError, *, lost: bool) -> ServerError:
    if problem.extra_info and (known := _decode_failure(problem.extra_info)) is not None:
        return known
    if lost or isinstance(problem, _CONNECTION_ENDED):
        if "failed to connect" in str(problem):
            return error(Code.ENGINE_UNAVAILABLE, reason="it stopped a moment ago")
        logger.warning("The engine was lost: %s", problem)
        return error(Code.ENGINE_LOST)
    logger.error("The engine answered with a transport error: %s", problem)
    return error(Code.INTERNAL, reason=first_line(problem))


def _decode_failure(extra_info: bytes) -> ServerError | None:
    """Return the Failure attached to the error of a DoGet, if any."""
    try:
        answer = decode_answer(bytes(extra_info))
    except (KeyError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
    return answer.to_error() if isinstance(answer, Failure) else None
