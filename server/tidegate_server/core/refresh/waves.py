"""A wave: refreshes of connected tables on one version of every source; pure.

Source versions are chosen once. A table that reads another table of the wave reads the version
just committed by that table's refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.versions import PartitionSpec, Source, SourceKind

Partitions = tuple[PartitionSpec, ...]
"""Partitions a step replaces; empty for the whole table."""

Consumers = Callable[[TableName], tuple[MaterializedTable, ...]]
Find = Callable[[TableName], MaterializedTable | None]


def readers(table: MaterializedTable, consumers: Consumers) -> tuple[MaterializedTable, ...]:
    """Return the materialized tables that read a table or its storage table."""
    found = {reader.id: reader for reader in consumers(table.name)}
    if table.storage_table is not None:
        found.update({reader.id: reader for reader in consumers(table.storage_table)})
    return tuple(found.values())


def descendants(table: MaterializedTable, consumers: Consumers) -> list[MaterializedTable]:
    """Return every materialized table that depends on this one, sources before consumers."""
    return _walk(table, lambda entry: readers(entry, consumers))[::-1]


def ancestors(table: MaterializedTable, find: Find) -> list[MaterializedTable]:
    """Return every materialized table this one depends on, sources before consumers."""
    return _walk(table, lambda entry: _read_by(entry, find))


def needs(table: MaterializedTable, wave: Sequence[MaterializedTable]) -> tuple[str, ...]:
    """Return the ids of those tables of a wave that ``table`` reads."""
    read = {name for source in table.definition.sources for name in (source.name, *source.via)}
    folded = {name.folded() for name in read}
    return tuple(
        other.id for other in wave if other.id != table.id and not folded.isdisjoint(_names(other))
    )


def spread(
    wave: Sequence[MaterializedTable], given: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Return the partitions each step of a wave replaces, by table id.

    :param wave: the tables, sources before consumers.
    :param given: the same for the wave's first tables.
    """
    found: dict[str, Partitions] = {}
    for table in wave:
        read = [other for other in wave if other.id in needs(table, wave)]
        if table.id in given or not read:
            found[table.id] = given.get(table.id, ())
            continue
        passed = [travelling(found[other.id], other, table.definition) for other in read]
        found[table.id] = _distinct(passed) if all(passed) else ()
    return found


def travelling(
    partitions: Partitions, source: MaterializedTable, definition: Definition
) -> Partitions:
    """Return the consumer's partitions affected by its source's; empty if unknown.

    Values of a partition column carry over if the consumer has a partition column of that name and
    passes it through unchanged.
    """
    keys = {
        key.lower(): key for key in definition.partition_keys if _passes(key, source, definition)
    }
    passed = []
    for spec in partitions:
        part = {keys[name.lower()]: value for name, value in spec.items() if name.lower() in keys}
        if not part:
            return ()
        passed.append(part)
    return _distinct([passed])


def outside(wave: Iterable[MaterializedTable]) -> tuple[Source, ...]:
    """Return the versioned sources that a wave does not refresh."""
    tables = list(wave)
    inside = {name for table in tables for name in _names(table)}
    found = {
        source.table_id: source
        for table in tables
        for source in table.definition.sources
        if source.kind is SourceKind.VERSIONED and source.name.folded() not in inside
    }
    return tuple(found.values())


def step_vector(
    definition: Definition, chosen: Mapping[str, int], committed: Mapping[TableName, int]
) -> dict[str, int]:
    """Return the versions a step reads, by table id.

    :param chosen: the versions of the sources outside the wave.
    :param committed: the version each finished step committed, by its folded storage name.
    """
    inside = {
        source.table_id: committed[source.name.folded()]
        for source in definition.sources
        if source.name.folded() in committed
    }
    return {**chosen, **inside}


def forward(vector: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    """Return the versions to read, none of them older than at the last refresh.

    :param last: the vector of the table's last refresh.
    """
    return {name: max(version, last.get(name, 0)) for name, version in vector.items()}


def _names(table: MaterializedTable) -> tuple[TableName, ...]:
    return table.name.folded(), table.storage.folded()


def _read_by(table: MaterializedTable, find: Find) -> tuple[MaterializedTable, ...]:
    names = (name for source in table.definition.sources for name in (source.name, *source.via))
    found = (find(name) for name in names)
    return tuple(entry for entry in found if entry is not None and entry.id != table.id)


def _passes(key: str, source: MaterializedTable, definition: Definition) -> bool:
    return any(
        origin.unchanged
        and origin.column.lower() == key.lower()
        and origin.source_column.lower() == key.lower()
        and origin.source.folded() in _names(source)
        for origin in definition.lineage
    )


def _walk(
    table: MaterializedTable,
    following: Callable[[MaterializedTable], tuple[MaterializedTable, ...]],
) -> list[MaterializedTable]:
    """Walk a graph in post-order from one table, which is left out."""
    finished: dict[str, MaterializedTable] = {}
    waiting = [(table, iter(following(table)))]
    while waiting:
        current, rest = waiting[-1]
        entry = next((e for e in rest if e.id not in finished), None)
        if entry is None:
            finished.setdefault(current.id, current)
            waiting.pop()
        elif entry.id not in {visited.id for visited, _ in waiting}:
            waiting.append((entry, iter(following(entry))))
    return [entry for entry in finished.values() if entry.id != table.id]


def _distinct(parts: Iterable[Iterable[PartitionSpec]]) -> Partitions:
    specs = (spec for part in parts for spec in part)
    return tuple({tuple(sorted(spec.items())): spec for spec in specs}.values())
