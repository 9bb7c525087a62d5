"""The ids that the current thread or task adds to its log lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """The ids of the current work; None where one does not apply.

    An operation's id is what clients get from GetQueryId.
    """

    user: str | None = None
    session_id: str | None = None
    operation_id: str | None = None
    refresh_id: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no log line may contain, such as the passwords of the current statement."""

    def fields(self) -> Mapping[str, str]:
        """Return the known ids by their names in a log line."""
        known = {
            "user": self.user,
            "session_id": self.session_id,
            "operation_id": self.operation_id,
            "query_id": self.operation_id,
            "refresh_id": self.refresh_id,
        }
        return {name: value for name, value in known.items() if value is not None}


_EMPTY = LogContext()
_current: ContextVar[LogContext] = ContextVar("tidegate_log_context", default=_EMPTY)


def current_log_context() -> LogContext:
    """Return the ids of this thread or task."""
    return _current.get()


@contextmanager
def log_context(
    *,
    user: str | None = None,
    session_id: str | None = None,
    operation_id: str | None = None,
    refresh_id: str | None = None,
    secrets: tuple[str, ...] = (),
) -> Iterator[None]:
    """Add ids to the log lines written until the block ends, and remove ``secrets`` from them."""
    given = {
        "user": user,
        "session_id": session_id,
        "operation_id": operation_id,
        "refresh_id": refresh_id,
    }
    known = {name: value for name, value in given.items() if value is not None}
    before = _current.get()
    token = _current.set(replace(before, **known, secrets=(*before.secrets, *secrets)))
    try:
        yield
    finally:
        _current.reset(token)


def bind_log_context(*, user: str, session_id: str, operation_id: str | None = None) -> None:
    """Add ids to the log lines of the rest of the current task, which must not be shared."""
    _current.set(
        replace(_current.get(), user=user, session_id=session_id, operation_id=operation_id)
    )
