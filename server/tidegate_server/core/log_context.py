"""Whom the present thread or task works for, so that every log line can say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """The ids of the work at hand; None where there is no such thing.

    An operation's id is what clients get from GetQueryId.
    """

    user: str | None = None
    session_id: str | None = None
    operation_id: str | None = None
    refresh_id: str | None = None

    def fields(self) -> Mapping[str, str]:
        """Return what is known, under the names that stand in a log line."""
        known = {
            "user": self.user,
            "session_id": self.session_id,
            "operation_id": self.operation_id,
            "query_id": self.operation_id,
            "refresh_id": self.refresh_id,
        }
        return {name: value for name, value in known.items() if value is not None}


_NOBODY = LogContext()
_served: ContextVar[LogContext] = ContextVar("tidegate_served", default=_NOBODY)


def served() -> LogContext:
    """Return whom this thread or task works for."""
    return _served.get()


@contextmanager
def serving(
    *,
    user: str | None = None,
    session_id: str | None = None,
    operation_id: str | None = None,
    refresh_id: str | None = None,
) -> Iterator[None]:
    """Add ids to the log lines written until the block ends."""
    given = {
        "user": user,
        "session_id": session_id,
        "operation_id": operation_id,
        "refresh_id": refresh_id,
    }
    known = {name: value for name, value in given.items() if value is not None}
    token = _served.set(replace(_served.get(), **known))
    try:
        yield
    finally:
        _served.reset(token)


def note(*, user: str, session_id: str, operation_id: str | None = None) -> None:
    """Add ids to the log lines of the rest of the present task, which nothing else shares."""
    _served.set(replace(_served.get(), user=user, session_id=session_id, operation_id=operation_id))
