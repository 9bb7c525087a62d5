"""Counts rejected logins, and records them in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.audit.record import Event, Record
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import Identity, Peer
from tidegate_server.gateway.auth.logins import MAX_NAME
from tidegate_server.gateway.observability.metrics import Metrics

if TYPE_CHECKING:
    from tidegate_server.gateway.auth.kerberos import KerberosExchange


@dataclass(frozen=True, kw_only=True)
class WatchedAccess(Access):
    """An access that counts and records every rejected login and impersonation."""

    metrics: Metrics
    audit: AuditLog
    port: str
    """The port that the metric names: ``thrift`` or ``http``."""

    async def with_password(self, user: str, password: str, peer: Peer) -> Identity:
        with self._watch(peer, user):
            return await super().with_password(user, password, peer)

    async def with_bearer(self, token: str, peer: Peer) -> Identity:
        with self._watch(peer):
            return await super().with_bearer(token, peer)

    async def with_ticket(self, exchange: KerberosExchange, token: bytes, peer: Peer) -> bytes:
        with self._watch(peer):
            return await super().with_ticket(exchange, token, peer)

    async def with_token(
        self, name: str, proves: Callable[[str], bool], peer: Peer
    ) -> tuple[Identity, str]:
        with self._watch(peer):
            return await super().with_token(name, proves, peer)

    def effective_user(self, identity: Identity, other: str, peer: Peer) -> str:
        with self._watch(peer, other, identity.user):
            return super().effective_user(identity, other, peer)

    @contextmanager
    def _watch(self, peer: Peer, user: str = "", real_user: str = "") -> Iterator[None]:
        """Count and record the rejection of a user, whose name may be unknown."""
        try:
            yield
        except ServerError as problem:
            if problem.code == Code.LOGIN_REFUSED.name:
                self.metrics.authentication_failed(self.port)
            record = Record(
                event=Event.LOGIN,
                user=user[:MAX_NAME],
                real_user=(real_user or user)[:MAX_NAME],
                address=peer.address,
                failure=problem,
            )
            self.audit.write(record)
            raise


def watch_rejections(
    access: Access, metrics: Metrics, audit: AuditLog, port: str = "thrift"
) -> Access:
    """Return an access like this one that counts and records rejected logins at a port."""
    parts = {part.name: getattr(access, part.name) for part in fields(access)}
    return WatchedAccess(**parts, metrics=metrics, audit=audit, port=port)
