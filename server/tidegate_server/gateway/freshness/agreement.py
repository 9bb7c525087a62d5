"""Chooses mutually consistent versions of materialized tables; pure.

A table version is computed from one version of each source. Versions of several tables agree
if all read each direct or indirect source, materialized or not, at the same version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import SourceKind

Seen = tuple[int, str]
"""A version that was read. A non-empty mark makes it unequal to all other reads."""

Identities = Mapping[str, str]
"""Ids of materialized tables by the source ids of their storage."""


class DisagreementError(Exception):
    """No versions agree; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A materialized table that is read directly, or as an ancestor."""

    table: MaterializedTable
    runs: Sequence[RefreshRun]
    """Runs that created a version, in any order."""
    read: bool
    """Whether the statement reads its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The versions to read."""

    tables: Mapping[str, int]
    """Versions of materialized tables, by their ids."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Versions of other tables, by their source ids."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A table version with the versions of its own rows and of each source."""

    version: int
    seen: Mapping[str, Seen]


def newest_agreement(members: Sequence[Member], others: Collection[str] = ()) -> Agreement:
    """Return the newest versions of materialized tables that agree.

    Later versions never read older sources, so going back wherever a table is ahead finds the
    newest agreement. After a rollback an older one may be found, but never a wrong one.

    :param members: the tables and all their ancestors.
    :param others: ids of other sources that are read with them.
    :raises DisagreementError: if no versions agree.
    """
    identities = _identities(members)
    contents = {member.table.id: _contents(member.runs) for member in members}
    moments = {
        member.table.id: _moments(member, identities, contents, others) for member in members
    }
    names = {member.table.id: str(member.table.name) for member in members}
    for table_id, found in moments.items():
        if not found:
            raise DisagreementError(
                f"of {names[table_id]} no version is known that a refresh of all its rows made"
            )
    chosen = _descend(moments, {**_source_names(members), **names})
    sources = {
        key: version
        for moment in chosen.values()
        for key, (version, mark) in moment.seen.items()
        if key not in moments and not mark
    }
    versions = {member.table.id: chosen[member.table.id].version for member in members}
    return Agreement(tables=versions, sources=sources)


def _descend(
    moments: Mapping[str, Sequence[_Moment]], names: Mapping[str, str]
) -> Mapping[str, _Moment]:
    """Go back from the newest moments until each source has a single version."""
    left = {table_id: list(reversed(found)) for table_id, found in moments.items()}
    while True:
        now = {table_id: found[-1] for table_id, found in left.items()}
        least: dict[str, Seen] = {}
        for moment in now.values():
            for key, seen in moment.seen.items():
                least[key] = min(seen, least.get(key, seen))
        ahead = [
            (table_id, key)
            for table_id, moment in now.items()
            for key, seen in moment.seen.items()
            if seen > least[key]
        ]
        if not ahead:
            return now
        for table_id, key in ahead:
            found = left[table_id]
            while found and found[-1].seen.get(key, least[key]) > least[key]:
                found.pop()
            if not found:
                raise DisagreementError(
                    f"they were made of different versions of {names.get(key, key)}, and no "
                    f"earlier version of {names[table_id]} agrees with the others"
                )


def _identities(members: Sequence[Member]) -> Identities:
    by_name = {
        name.folded(): member.table.id
        for member in members
        for name in (member.table.name, member.table.storage)
    }
    return {
        source.table_id: by_name[source.name.folded()]
        for member in members
        for source in member.table.definition.sources
        if source.name.folded() in by_name
    }


def _source_names(members: Sequence[Member]) -> Mapping[str, str]:
    return {
        source.table_id: str(source.name)
        for member in members
        for source in member.table.definition.sources
    }


def _contents(runs: Sequence[RefreshRun]) -> Mapping[int, int]:
    """Map each version to the one that wrote its rows: some commits only record a vector."""
    contents: dict[int, int] = {}
    rows = None
    for version, run in sorted(_by_version(runs).items()):
        rows = version if rows is None or not _keeps_rows(run) else rows
        contents[version] = rows
    return contents


def _by_version(runs: Sequence[RefreshRun]) -> Mapping[int, RefreshRun]:
    return {run.to_version: run for run in runs if run.to_version is not None}


def _keeps_rows(run: RefreshRun) -> bool:
    nothing = (run.metrics.files_written, run.metrics.rows_deleted) == (0, 0)
    return run.action is Strategy.INCREMENTAL and nothing


def _moments(
    member: Member,
    identities: Identities,
    contents: Mapping[str, Mapping[int, int]],
    others: Collection[str],
) -> Sequence[_Moment]:
    table, found = member.table, []
    sources = {s.table_id for s in table.definition.sources if s.kind is SourceKind.VERSIONED}
    files = {s.table_id for s in table.definition.sources if s.kind is SourceKind.PLAIN}
    own = contents[table.id]
    newest = max(own.values(), default=None)
    for at, run in sorted(_by_version(member.runs).items(), reverse=True):
        partial = run.action is Strategy.PARTITION
        missing = sources - run.sources.keys()
        # A table that was dropped and created again has a different identity.
        if len(run.sources.keys() - files) < len(sources) or (
            missing and (partial or missing & identities.keys())
        ):
            continue  # it read different tables than the current query
        rows = own[at]
        if member.read and run.definition_version != table.definition.version and rows != newest:
            continue  # its columns may differ
        mark = f"{table.id}@{at}"
        seen: dict[str, Seen] = {table.id: (rows, "")}
        for key, version in run.sources.items():
            known = identities.get(key, key)
            version = contents.get(known, {}).get(version, version)
            seen[known] = (version, mark if partial else "")
        began = run.started_at or run.queued_at
        for source in table.definition.sources:
            if source.kind is not SourceKind.VERSIONED:
                seen[source.table_id] = (int(began.timestamp() * 1_000_000), mark)
        if not any(seen[key][1] for key in others if key in seen):
            found.append(_Moment(at, seen))
    return found
