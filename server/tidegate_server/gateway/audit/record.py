"""What the audit log says about one piece of work: collected while it is judged, then encoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.log_context import current_log_context
from tidegate_server.core.model.access import Access, ObjectKind
from tidegate_server.core.sql.redact import redact_start, without

MAX_TEXT = 8192
"""Maximum length of a statement's text; the rest is cut off."""
SUCCESS = "SUCCESS"
ADMINISTRATOR = "administrator"
"""The reason why an administrator, whose privileges are not checked, was allowed."""

_DENIALS = frozenset(
    code.name
    for code in (
        Code.ACCESS_DENIED,
        Code.AUDIT_UNAVAILABLE,
        Code.LOGIN_REFUSED,
        Code.PROXY_REFUSED,
    )
)


class Event(StrEnum):
    """The kind of work that a line describes."""

    LOGIN = "login"
    """The opening of a session, or a rejected login."""
    STATEMENT = "statement"
    REFRESH = "refresh"
    """A run that changes the rows of a materialized table, whatever started it."""
    REST = "rest"
    """A call of the REST interface."""


class AuditedObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """One act on one object."""

    act: str
    kind: str
    name: str
    via: str = ""
    """The view or function in whose query it is; empty for the statement itself."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One piece of work; whoever judges or runs it fills in what it finds."""

    event: Event = Event.STATEMENT
    user: str = ""
    """With whose privileges it runs."""
    real_user: str = ""
    """Who logged in, or requested the refresh."""
    address: str = ""
    """The client's address."""
    session_id: str = ""
    operation_id: str = ""
    """The id of the statement, or of the refresh."""
    statement_kind: str = ""
    text: str = ""
    reason: str = ""
    """Why it was allowed or denied; empty if privileges allowed it."""
    failure: ServerError | None = None
    objects: dict[AuditedObject, None] = field(default_factory=dict)
    """In the order in which they were judged."""
    is_written: bool = False

    def add(self, act: str, kind: str, name: object) -> None:
        """Add an act on an object, which is about to be judged."""
        self.objects[AuditedObject(act=act, kind=kind, name=_encodable(str(name)))] = None

    def add_accesses(self, accesses: Iterable[Access]) -> None:
        """Add what plans access."""
        for access in accesses:
            on = AuditedObject(
                act=access.act.value,
                kind=access.kind.value,
                name=_name(access),
                via=access.via,
            )
            self.objects[on] = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log, and one row of ``information_schema.audit_log``."""

    time: datetime
    """When the work ended."""
    server_id: str
    event: str
    user: str | None
    real_user: str | None
    address: str | None
    session_id: str | None
    operation_id: str | None
    statement_kind: str | None
    text: str | None
    objects: msgspec.Raw
    """A list of :class:`AuditedObject`."""
    allowed: bool
    reason: str | None
    outcome: str
    """``SUCCESS``, or the code of the error."""
    duration_ms: float | None


def line_of(record: Record, *, server_id: str, now: datetime, seconds: float | None) -> Line:
    """Return a record as a line, without the secrets of the statement that is being run."""
    failure, secrets = record.failure, current_log_context().secrets
    denied = failure is not None and (record.event is Event.LOGIN or failure.code in _DENIALS)
    reason = failure.message if failure is not None and denied else record.reason
    return Line(
        time=now,
        server_id=server_id,
        event=record.event.value,
        user=record.user or None,
        real_user=record.real_user or None,
        address=record.address or None,
        session_id=record.session_id or None,
        operation_id=record.operation_id or None,
        statement_kind=record.statement_kind or None,
        text=_shorten(redact_start(record.text)) or None,
        objects=msgspec.Raw(msgspec.json.encode(tuple(record.objects))),
        allowed=not denied,
        reason=_encodable(without(secrets, reason)) or None,
        outcome=SUCCESS if failure is None else failure.code,
        duration_ms=None if seconds is None else round(seconds * 1000, 3),
    )


def _shorten(text: str) -> str:
    return _encodable(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…")


def _encodable(text: str) -> str:
    """Escape halves of characters, which clients can send and UTF-8 cannot represent."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _name(access: Access) -> str:
    """Return the full name of an object; for a feature, also what uses it."""
    if access.kind is ObjectKind.FEATURE:
        return f"{access.catalog}: {access.schema}"
    return ".".join(part for part in (access.catalog, access.schema, access.name) if part)
