"""FRESHNESS = DOWNSTREAM: freshness derived from consumers; pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.waves import Consumers, Find, ancestors, readers

NO_CONSUMERS = "FRESHNESS = DOWNSTREAM without consumers: refreshed only by REFRESH"


def needed_freshness(table: MaterializedTable, consumers: Consumers) -> Freshness | None:
    """Return the shortest freshness of all dependent tables; None if there is none.

    Consumers with FRESHNESS = DOWNSTREAM are replaced by their own consumers.
    """
    least: Freshness | None = None
    waiting, seen = [table], {table.id}
    while waiting:
        for reader in readers(waiting.pop(), consumers):
            if reader.id in seen:
                continue
            seen.add(reader.id)
            if reader.definition.downstream:
                waiting.append(reader)
            elif least is None or reader.definition.freshness.seconds < least.seconds:
                least = reader.definition.freshness
    return least


def refreshed_with(table: MaterializedTable, find: Find) -> list[MaterializedTable]:
    """Return the DOWNSTREAM sources that are refreshed before a table.

    Sources come before consumers. Tables above one with its own freshness are excluded, as are
    suspended ones.
    """
    kept: dict[str, MaterializedTable] = {}
    for entry in reversed([*ancestors(table, find), table]):
        if entry.id != table.id and not _belongs(entry, [table, *kept.values()]):
            continue
        kept[entry.id] = entry
    del kept[table.id]
    return list(reversed(kept.values()))


def warnings(table: MaterializedTable, consumers: Consumers, find: Find) -> Iterator[str]:
    """Yield warnings about a table's freshness and its neighbours."""
    if table.definition.downstream and needed_freshness(table, consumers) is None:
        yield f"{table.name} has {NO_CONSUMERS}."
    yield from misfits(table, consumers, find)


def misfits(table: MaterializedTable, consumers: Consumers, find: Find) -> Iterator[str]:
    """Yield mismatches between the freshness of a table and its neighbours."""
    for source in table.definition.sources:
        above = find(source.name)
        if above is not None:
            yield from _between(above, table)
    for reader in readers(table, consumers):
        yield from _between(table, reader)


def _belongs(entry: MaterializedTable, kept: list[MaterializedTable]) -> bool:
    """Say whether a table is refreshed together with one of ``kept``."""
    if not entry.definition.downstream or not entry.state.kept_fresh:
        return False
    names = {entry.name.folded(), entry.storage.folded()}
    return any(source.name.folded() in names for one in kept for source in one.definition.sources)


def _between(source: MaterializedTable, reader: MaterializedTable) -> Iterator[str]:
    if source.definition.downstream or reader.definition.downstream:
        return
    theirs, own = source.definition.freshness, reader.definition.freshness
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
