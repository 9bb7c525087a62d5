"""Consistent versions for a query on several tables: materialized-table.read.consistency."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Reading, Surveyed
from tidegate_server.core.messages.requests import InlinedTable, PinnedVersions, TableVersion
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.waves import ancestors
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.freshness.agreement import DisagreementError, Member, newest_agreement
from tidegate_server.gateway.options import READ_CONSISTENCY_KEY, SNAPSHOT, check_option
from tidegate_server.gateway.reading import staleness
from tidegate_server.gateway.reading.materialized import materialized

_COMMITS = 200


def choose_snapshot(
    surveyed: Callable[[], Surveyed], inlined: tuple[InlinedTable, ...], context: Context
) -> PinnedVersions | None:
    """Choose the versions that a statement for Spark reads, so that its tables are consistent.

    :param surveyed: has the engine analyze what the statement reads.
    :param inlined: the tables whose queries are read instead, at the newest versions.
    :return: None if there is nothing to choose.
    :raises ServerError: MT_SNAPSHOT_UNAVAILABLE if no versions agree, MT_TOO_STALE if they are
        older than the session allows, NOT_SUPPORTED if it cannot be determined what the statement
        reads.
    """
    value = context.setting(READ_CONSISTENCY_KEY)
    if value is None:
        return None
    check_option(READ_CONSISTENCY_KEY, value)
    if value.strip().upper() != SNAPSHOT:
        return None
    found = surveyed()
    if found.opaque:
        hint = f"Run the statements in it one by one, or RESET {READ_CONSISTENCY_KEY}."
        raise _unsupported_error("a statement that cannot be judged before it runs", hint)
    readings = [reading for reading in found.readings if not reading.travelled]
    read = list(materialized(readings, context.services.catalog))
    above = _above(read, context)
    beside = _beside(readings, [*read, *above])
    if sum(_is_concerned(each, read, beside) for each in readings) < 2 or not read:
        return None
    if inlined:
        hint = "Use REFRESH, SERVE or FAIL in materialized-table.read.max-staleness."
        raise _unsupported_error("tables whose queries are read by INLINE", hint)
    if len(read) == 1 and not beside:
        # One table is always consistent, as long as every mention reads the same version.
        return PinnedVersions(tables=(TableVersion(name=read[0].storage),))
    return _choose_versions(read, above, set(beside.values()), context)


def _above(read: Iterable[MaterializedTable], context: Context) -> list[MaterializedTable]:
    """Return the materialized tables upstream of ``read``, without those in ``read``."""
    ids = {table.id for table in read}
    found = {t.id: t for table in read for t in ancestors(table, context.services.catalog.find)}
    return [table for table in found.values() if table.id not in ids]


def _beside(
    readings: Iterable[Reading], tables: Collection[MaterializedTable]
) -> Mapping[TableName, str]:
    """Return the ids, by name, of the tables' sources that the statement also reads itself."""
    names = {reading.name.folded() for reading in readings if reading.name is not None}
    names -= {name.folded() for table in tables for name in table.names}
    return {
        source.name.folded(): source.table_id
        for table in tables
        for source in table.definition.sources
        if source.name.folded() in names
    }


def _is_concerned(
    reading: Reading, read: Iterable[MaterializedTable], beside: Mapping[TableName, str]
) -> bool:
    if reading.name is not None and reading.name.folded() in beside:
        return True
    return any(table.is_at(reading.name, reading.location) for table in read)


def _choose_versions(
    read: list[MaterializedTable],
    above: list[MaterializedTable],
    beside: set[str],
    context: Context,
) -> PinnedVersions:
    members = [
        Member(table=table, runs=_commits(table, context), read=position < len(read))
        for position, table in enumerate([*read, *above])
    ]
    try:
        found = newest_agreement(members, beside)
    except DisagreementError as failed:
        raise error(
            Code.MT_SNAPSHOT_UNAVAILABLE,
            tables=", ".join(sorted(str(table.name) for table in read)),
            reason=str(failed),
            key=READ_CONSISTENCY_KEY,
        ) from failed
    versions = {table.id: found.tables[table.id] for table in read}
    staleness.enforce_max_staleness_at(read, versions, context)
    shown = ", ".join(f"version {versions[table.id]} of {table.name}" for table in read)
    context.log(f"Reading {shown}")
    return PinnedVersions(
        tables=tuple(
            TableVersion(name=table.storage, version=versions[table.id]) for table in read
        ),
        sources=found.sources,
    )


def _commits(table: MaterializedTable, context: Context) -> tuple[RefreshRun, ...]:
    """Return the runs that record a table's versions and their sources, newest first."""
    ledger = context.services.ledger
    found = ledger.commits(table.id, _COMMITS)
    last = ledger.last_success(table.id)
    if last is None or last.to_version in {run.to_version for run in found}:
        return found
    # After the loss of the store, only a refresh with nothing to do records the last version.
    return (last, *found)


def _unsupported_error(what: str, hint: str) -> ServerError:
    return error(Code.NOT_SUPPORTED, what=f"SNAPSHOT for {what}", hint=hint)
