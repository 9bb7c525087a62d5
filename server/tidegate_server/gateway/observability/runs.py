"""Counts refresh runs, and names them in log lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate_server.core.log_context import log_context
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
    """Wrap ``run`` so that outcomes are counted and log lines name the refresh.

    ``new_id`` names a refresh whose request does not; ``ended`` is called with each outcome.
    """

    def observe(request: RefreshRequest) -> RefreshRun:
        named = replace(request, refresh_id=request.refresh_id or new_id())
        with log_context(user=named.requested_by, refresh_id=named.refresh_id):
            outcome = run(named)
        metrics.refresh_ended(outcome)
        ended(outcome)
        return outcome

    return observe
