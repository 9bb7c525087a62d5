"""The calls of a session, over a channel that is replaced when it breaks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from tidegate.errors import OperationalError
from tidegate.network.channel import Channel, ChannelBroken
from tidegate.network.retries import Budget, RetryPolicy
from tidegate.wire.service import ttypes

logger = logging.getLogger(__name__)

STATEMENT_ID: Final = "tidegate.statement.id"
"""The entry in a statement's overlay by which the server recognizes a repeated request."""

_REPEATABLE: Final = frozenset(
    {
        "CancelOperation",
        "CloseOperation",
        "GetCatalogs",
        "GetColumns",
        "GetFunctions",
        "GetInfo",
        "GetOperationStatus",
        "GetPrimaryKeys",
        "GetQueryId",
        "GetResultSetMetadata",
        "GetSchemas",
        "GetTableTypes",
        "GetTables",
        "GetTypeInfo",
        "RenewDelegationToken",
    }
)
# Not worth further attempts: the server also frees results that are no longer used.
_BRIEF: Final = "CloseOperation"
_CLOSED: Final = "it was closed"

Reopen = Callable[[float], Channel]
"""Returns a new channel to the session within so many seconds.

Raises OperationalError if no server can be reached, SessionGoneError if none knows the session.
"""


class SessionGoneError(Exception):
    """A new connection cannot resume the session; the text states the reason."""


def is_repeatable(name: str, request: Any) -> bool:
    """Return whether a call that may have been carried out can be sent again."""
    if name == "FetchResults":
        return bool(request.orientation == ttypes.TFetchOrientation.FETCH_ABSOLUTE)
    if name == "ExecuteStatement":
        return STATEMENT_ID in (request.confOverlay or {})
    return name in _REPEATABLE


class Line:
    """Sends the calls of one session, and resumes it over a new channel if one breaks.

    Threads may share it.
    """

    def __init__(self, channel: Channel, *, reopen: Reopen | None, policy: RetryPolicy) -> None:
        """``reopen`` is None if the server ends sessions with their connections."""
        self._channel = channel
        self._reopen = reopen
        self._policy = policy if reopen is not None else RetryPolicy(0, 0.0)
        self._reopening = threading.Lock()
        self._ended = threading.Event()
        self._lost = False

    @property
    def closed(self) -> bool:
        """Whether it was closed, or the session is lost."""
        return self._lost or self._ended.is_set()

    @property
    def busy(self) -> bool:
        """Whether a call is in progress, or an interrupted one still awaits its reply."""
        return self._channel.busy

    def call(self, name: str, request: Any) -> Any:
        """Send one call and return its reply.

        :raises NotSupportedError: if the server does not know the call.
        :raises OperationalError: if the connection breaks and the call cannot be repeated, or the
            session cannot be resumed; the line is closed then.
        """
        attempts = min(self._policy.attempts, 1 if name == _BRIEF else self._policy.attempts)
        budget = Budget(RetryPolicy(attempts, self._policy.seconds))
        while True:
            if self.closed:
                raise _lost(ChannelBroken(_CLOSED, unsent=True), name)
            channel = self._channel
            try:
                return channel.call(name, request)
            except ChannelBroken as broken:
                self._resume(channel, broken, name, request, budget)
            except BaseException:
                # Interrupted in the middle of a message, or refused for good.
                self._lost = self._lost or channel.closed
                raise

    def close(self) -> None:
        """Close the channel; also frees threads that wait for a reply or for a new channel."""
        self._ended.set()
        self._channel.close()

    def _resume(
        self, channel: Channel, broken: ChannelBroken, name: str, request: Any, budget: Budget
    ) -> None:
        """Replace a broken channel, unless another thread did, for a call to be sent again.

        :raises OperationalError: if there is no new channel, or the call cannot be repeated.
        """
        repeatable = broken.unsent or is_repeatable(name, request)
        if self.closed or not self._policy.attempts or broken.timed_out or not repeatable:
            self._lost = True
            refused = bool(self._policy.attempts) and not repeatable
            raise _lost(broken, name, "; the call is not repeated" if refused else "") from broken
        with self._reopening:
            if self.closed:
                raise _lost(broken, name) from broken
            if self._channel is not channel:
                return
            try:
                self._channel = self._reopened(broken, name, budget)
            except OperationalError:
                # Freeing a result is not worth more attempts; the next call has its own.
                self._lost = name != _BRIEF
                raise
        if self._ended.is_set():
            self._channel.close()

    def _reopened(self, broken: ChannelBroken, name: str, budget: Budget) -> Channel:
        assert self._reopen is not None
        failure: OperationalError | None = None
        while (pause := budget.next_pause()) is not None and not self._ended.wait(pause):
            try:
                channel = self._reopen(max(self._policy.seconds - budget.elapsed, 0.1))
            except SessionGoneError as gone:
                raise _lost(broken, name, f"; {gone}") from broken
            except OperationalError as error:
                logger.info("connection lost, %s: %s", budget, error)
                failure = error
            else:
                logger.warning("connection lost: %s; resumed after %s", broken, budget)
                return channel
        if self._ended.is_set():
            raise _lost(broken, name) from broken
        last = f", the last one: {failure}" if failure else ""
        raise _lost(broken, name, f"; not resumed after {budget}{last}") from (failure or broken)


def _lost(broken: ChannelBroken, name: str, then: str = "") -> OperationalError:
    unknown = name == "ExecuteStatement" and not broken.unsent
    return OperationalError(
        f"connection lost: {broken}{then}",
        sqlstate="08006",
        hint="Connect again; the session is gone."
        + (" The statement may or may not have run." if unknown else ""),
    )
