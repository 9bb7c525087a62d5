"""FRESHNESS = DOWNSTREAM: a table as fresh as those that read it need; pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.waves import Consumers, Find, ancestors, readers

NO_CONSUMERS = "FRESHNESS = DOWNSTREAM without consumers: refreshed only by REFRESH"


def needed_freshness(table: MaterializedTable, consumers: Consumers) -> Freshness | None:
    """Return the least freshness of all that depend on a table; None when nobody needs it.

    A consumer that is itself as fresh as its consumers need says nothing of its own.
    """
    least: Freshness | None = None
    waiting, seen = [table], {table.id}
    while waiting:
        for reader in readers(waiting.pop(), consumers):
            if reader.id in seen:
                continue
            seen.add(reader.id)
            if reader.downstream:
                waiting.append(reader)
            elif least is None or reader.freshness.seconds < least.seconds:
                least = reader.freshness
    return least


def refreshed_with(table: MaterializedTable, find: Find) -> list[MaterializedTable]:
    """Return the tables that are refreshed before a table since they have no pace of their own.

    Sources come before consumers. Those behind a table that has its own pace are not among them,
    and suspended ones are left as they are.
    """
    kept: dict[str, MaterializedTable] = {}
    for entry in reversed([*ancestors(table, find), table]):
        if entry.id != table.id and not _belongs(entry, [table, *kept.values()]):
            continue
        kept[entry.id] = entry
    del kept[table.id]
    return list(reversed(kept.values()))


def warnings(table: MaterializedTable, consumers: Consumers, find: Find) -> Iterator[str]:
    """Yield what is odd about a table's freshness beside that of its neighbours."""
    if table.downstream and needed_freshness(table, consumers) is None:
        yield f"{table.name} has {NO_CONSUMERS}."
    yield from misfits(table, consumers, find)


def misfits(table: MaterializedTable, consumers: Consumers, find: Find) -> Iterator[str]:
    """Yield which freshnesses of a table and its neighbours do not fit each other."""
    for source in table.sources:
        above = find(source.name)
        if above is not None:
            yield from _between(above, table)
    for reader in readers(table, consumers):
        yield from _between(table, reader)


def _belongs(entry: MaterializedTable, kept: list[MaterializedTable]) -> bool:
    """Say whether a table is refreshed as a part of one of those that are kept."""
    if not entry.downstream or not entry.kept_fresh:
        return False
    names = {entry.name.folded(), entry.storage.folded()}
    return any(source.name.folded() in names for one in kept for source in one.sources)


def _between(source: MaterializedTable, reader: MaterializedTable) -> Iterator[str]:
    if source.downstream or reader.downstream:
        return
    theirs, own = source.freshness, reader.freshness
    said = f"{reader.name} ({own.value} {own.unit.name}) reads {source.name}"
    if own.seconds < theirs.seconds:
        yield (
            f"{said}, which is refreshed for {theirs.value} {theirs.unit.name} only: "
            "it cannot be fresher than that."
        )
    elif own.seconds % theirs.seconds:
        yield (
            f"{said} ({theirs.value} {theirs.unit.name}), of which its freshness is no multiple."
        )
