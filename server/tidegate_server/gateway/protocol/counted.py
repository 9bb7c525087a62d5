"""Counts rejected logins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import Identity, Peer
from tidegate_server.gateway.observability.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class CountedAccess(Access):
    """An access that counts every rejected login in the metrics."""

    metrics: Metrics

    async def with_password(self, user: str, password: str, peer: Peer) -> Identity:
        with self._count_rejections():
            return await super().with_password(user, password, peer)

    async def with_bearer(self, token: str, peer: Peer) -> Identity:
        with self._count_rejections():
            return await super().with_bearer(token, peer)

    @contextmanager
    def _count_rejections(self) -> Iterator[None]:
        try:
            yield
        except ServerError as error:
            if error.code == Code.LOGIN_REFUSED.name:
                self.metrics.authentication_failed("thrift")
            raise


def count_rejected_logins(access: Access, metrics: Metrics) -> Access:
    """Return an access like this one that counts rejected logins."""
    parts = {part.name: getattr(access, part.name) for part in fields(access)}
    return CountedAccess(**parts, metrics=metrics)
