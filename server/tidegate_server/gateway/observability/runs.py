"""Refresh runs as operators see them: counted, and named in the log lines about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate_server.core.log_context import serving
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.observability.metrics import Metrics

RunRefresh = Callable[[RefreshRequest], RefreshRun]


def observe_refreshes(
    run: RunRefresh,
    metrics: Metrics,
    new_id: Callable[[], str],
    ended: Callable[[RefreshRun], None] = lambda run: None,
) -> RunRefresh:
    """Return ``run`` with its outcomes counted and its log lines naming the refresh.

    ``new_id`` names a refresh whose asker did not; ``ended`` is told of each outcome.
    """

    def carried_out(request: RefreshRequest) -> RefreshRun:
        named = replace(request, refresh_id=request.refresh_id or new_id())
        with serving(user=named.requested_by, refresh_id=named.refresh_id):
            outcome = run(named)
        metrics.refresh_ended(outcome)
        ended(outcome)
        return outcome

    return carried_out
