"""The one decision of a refresh: which strategy, on which source versions, and why."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate_server.model.runs import Strategy
from tidegate_server.model.versions import SourceKind
from tidegate_server.refresh.request import CommittedRefresh, RefreshOrder, RefreshPlan


def plan_refresh(
    order: RefreshOrder,
    current: Mapping[str, int],
    last: CommittedRefresh | None,
    *,
    stable: bool = True,
) -> RefreshPlan:
    """Choose what to do for ``order``.

    :param current: the newest version of every versioned source, by table id.
    :param last: what the table's own last refresh commit recorded; None before the first one.
    :param stable: whether the query gives the same rows from the same versions at any time; a
        query of the current time or of random numbers does not.
    """
    if order.partitions:
        return RefreshPlan(
            strategy=Strategy.PARTITION,
            reason_code="PARTITIONS_REQUESTED",
            reason_text=f"replaces {len(order.partitions)} requested partition(s)",
            vector=dict(current),
            partitions=order.partitions,
        )
    code, text = _reason_for_full(order, current, last)
    if not code and not stable:
        code, text = "UNSTABLE_QUERY", "the query reads the time or random values"
    return RefreshPlan(
        strategy=Strategy.FULL if code else Strategy.NO_DATA,
        reason_code=code or "SOURCES_UNCHANGED",
        reason_text=text or "no source has a newer version than the last refresh read",
        vector=dict(current),
    )


def _reason_for_full(
    order: RefreshOrder, current: Mapping[str, int], last: CommittedRefresh | None
) -> tuple[str, str]:
    """Return why the whole table is computed, or two empty strings when nothing is to be done."""
    if last is None:
        return "FIRST_REFRESH", "the table has not been refreshed before"
    if order.force:
        return "FORCED", "a full refresh was asked for"
    if last.foreign_version is not None:
        return "FOREIGN_COMMIT", f"version {last.foreign_version} was not written by a refresh"
    if last.definition_version != order.definition_version:
        return "DEFINITION_CHANGED", "the definition query changed since the last refresh"
    if last.partial:
        return "PARTIAL_BEFORE", "the last refresh replaced only some partitions"
    plain = [str(source.name) for source in order.sources if source.kind is SourceKind.PLAIN]
    if plain:
        return "SOURCE_WITHOUT_VERSIONS", f"changes of {', '.join(plain)} cannot be known"
    if dict(last.vector) != dict(current):
        return "SOURCES_CHANGED", "sources have newer versions than the last refresh read"
    return "", ""
