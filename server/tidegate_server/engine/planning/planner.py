"""Chooses a refresh's strategy and source versions, and gives the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import (
    ChangeMethod,
    Rejection,
    SourceChange,
    Strategy,
    Work,
)
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.model.wording import number_of
from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.core.refresh.request import (
    PastRun,
    Recompute,
    RefreshOrder,
    RefreshPlan,
    RefreshPolicy,
)
from tidegate_server.engine.planning.cost import (
    HYSTERESIS,
    MEASURED_CORES,
    Way,
    predict,
    worth_a_trial,
    worth_recording,
)
from tidegate_server.engine.planning.region import ImmutableRegion
from tidegate_server.engine.storage.commit_record import RecordedRefresh

_LARGEST_CHANGE = 0.25
_FEW = 50_000
_MOST_KEYS = 0.10
_LONGEST_WAIT = 7
"""The most full refreshes before an incremental one is tried again after others failed."""
_FAILURES = frozenset({Reason.INCREMENTAL_FAILED, Reason.TABLE_DIFFERS})
# How often rows that are computed at both versions and compared count, beside once as those of the
# sources. The prices are fitted to rows counted so.
_REREAD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Findings on which the choice of an incremental refresh is based."""

    changes: tuple[SourceChange, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    appends: bool = False
    """Whether rows are only added, without reading the existing ones."""
    keyed: bool = False
    """Whether rows are found by affected keys."""
    rereading: bool = False
    """Whether parts of the query are computed at both versions, for lack of keys."""
    algebraic: bool = False
    """Whether the rows of affected keys follow from the change alone."""
    recorded: bool = False
    """Whether that uses the aggregates that the last refresh recorded, not the stored groups."""
    leading: bool = False
    """Whether the change is merged with a table of first rows only."""
    conditional: bool = False
    """Whether the query has preconditions on the rows it reads."""
    whole: Work = Work(rows_read=0, rows_written=0)
    """That of a full refresh, without the rows written."""
    lookups: int = 0
    """The operators whose rows are looked up by affected keys or compared."""
    rows_in_changed: int = 0
    """Rows of the sources that changed."""
    rows_guessed: int = 0
    """Changed rows of sources whose commits do not count them, such as INSERT OVERWRITE: estimated
    from file sizes, or all rows of the source."""
    rows_reread: int = 0
    """Rows of the sources of these parts."""
    rows_in_table: int = 0
    affected_keys: int | None = None
    """None before they are counted."""
    spent: float = 0.0
    """Seconds that the incremental refresh has taken so far."""
    cores: int = MEASURED_CORES
    """Those of the cluster."""

    @property
    def rows_in_sources(self) -> int:
        """Their estimated number."""
        return self.whole.rows_read

    @property
    def rows_changed(self) -> int:
        """Changed source rows, as far as known or estimated."""
        return sum(change.rows or 0 for change in self.changes) + self.rows_guessed

    @property
    def few(self) -> bool:
        """Whether the sources' changes are known to be small."""
        return all(change.rows is not None for change in self.changes) and (
            self.rows_changed <= _FEW
        )


def plan_refresh(
    order: RefreshOrder,
    task: Recompute,
    current: Mapping[str, int],
    last: RecordedRefresh | None,
    *,
    fingerprint: str | None = None,
    stable: bool = True,
    others: Sequence[str] = (),
    snapshots: Mapping[str, str] | None = None,
) -> RefreshPlan:
    """Choose a plan for ``order`` without considering incremental refresh.

    :func:`plan_incremental` may improve a plan with reason SOURCES_CHANGED.

    :param current: by table id, the newest version of every versioned source, and the fingerprint
        of every other one, if known.
    :param last: the record of the table's last refresh commit; None before the first one.
    :param fingerprint: the query's current one; None if it is not known.
    :param stable: whether the query always gives the same rows from the same versions; queries
        that read the current time or random numbers do not.
    :param others: sources in which the version read last is now another commit, each with the
        difference.
    :param snapshots: by table id, the ids of snapshots that versions stand for.
    """
    if task.is_partial:
        return replace(
            _partial_plan(task, current), changes=_contents(order, current, last, snapshots or {})
        )
    code, text = _reason(order, task, current, last, fingerprint, others)
    if not stable and code in {Reason.SOURCES_UNCHANGED, Reason.SOURCES_CHANGED}:
        code, text = _plainly(Reason.UNSTABLE_QUERY)
    return RefreshPlan(
        strategy=Strategy.NO_DATA if code is Reason.SOURCES_UNCHANGED else Strategy.FULL,
        reason_code=code,
        reason_text=text,
        vector=dict(current),
        changes=_contents(order, current, last, snapshots or {}),
    )


def _contents(
    order: RefreshOrder,
    current: Mapping[str, int],
    last: RecordedRefresh | None,
    snapshots: Mapping[str, str],
) -> tuple[SourceChange, ...]:
    """Return how each source's change is detected; none if the vector says it all."""
    if not snapshots and all(s.kind is SourceKind.VERSIONED for s in order.sources):
        return ()
    found = []
    for source in order.sources:
        before = last.record.vector.get(source.table_id) if last is not None else None
        after = current.get(source.table_id)
        if source.kind is SourceKind.PLAIN:
            method = ChangeMethod.ASSUMED if after is None else ChangeMethod.FINGERPRINT
        else:
            method = ChangeMethod.UNCHANGED if before == after else ChangeMethod.WHOLE
        found.append(
            SourceChange(
                source=str(source.name),
                before=before,
                after=after,
                method=method,
                snapshot=snapshots.get(source.table_id),
            )
        )
    return tuple(found)


def without_fingerprints(plan: RefreshPlan, moved: Mapping[str, str]) -> RefreshPlan:
    """Return the plan for sources whose files changed during listing, without fingerprints.

    Incremental plans assume these sources unchanged, so they become full ones.

    :param moved: the names of the sources without versions that changed, by table id.
    """
    names = set(moved.values())
    plan = replace(
        plan,
        vector={key: version for key, version in plan.vector.items() if key not in moved},
        changes=tuple(
            replace(change, after=None, method=ChangeMethod.ASSUMED)
            if change.source in names
            else change
            for change in plan.changes
        ),
    )
    if plan.strategy is not Strategy.INCREMENTAL:
        return plan
    return replace(
        plan,
        strategy=Strategy.FULL,
        reason_code=Reason.SOURCE_WITHOUT_VERSIONS,
        reason_text=f"files of {', '.join(sorted(names))} changed when the refresh began",
        rejected=(),
        affected_keys=None,
    )


def plan_incremental(order: RefreshOrder, full: RefreshPlan, evidence: Evidence) -> RefreshPlan:
    """Choose between an incremental refresh and the planned full one.

    :param full: a plan with reason SOURCES_CHANGED.
    """
    files = tuple(change for change in full.changes if change.method == ChangeMethod.FINGERPRINT)
    snapshots = {change.source: change.snapshot for change in full.changes}
    read = (replace(c, snapshot=snapshots.get(c.source)) for c in evidence.changes)
    changes = (*read, *files)
    plan = replace(full, changes=changes, affected_keys=evidence.affected_keys)
    if order.policy is RefreshPolicy.FULL:
        code, text = _plainly(Reason.POLICY_FULL)
        return replace(plan, reason_code=code, reason_text=text)
    if evidence.obstacles:
        return _reject(plan, evidence.obstacles)
    incremental, whole = _seconds(order, evidence)
    plan = replace(plan, predicted_seconds=incremental, full_seconds=whole)
    code, text = _reason_for_incremental(evidence)
    if order.policy is RefreshPolicy.AUTO:
        reason = _not_worth(order, evidence, incremental, whole)
        if reason is not None and not _is_trial(order, evidence, reason, incremental, whole):
            return replace(_reject(plan, (reason,), incremental), predicted_seconds=whole)
        if reason is not None:
            text += "; tried to learn how long it takes"
    cheaper = Rejection(
        strategy=Strategy.FULL.value,
        reason_code=Reason.INCREMENTAL_CHOSEN,
        reason_text=f"a full refresh was expected to take {whole:.1f} s",
        cost=whole,
    )
    return replace(
        plan,
        strategy=Strategy.INCREMENTAL,
        reason_code=code,
        reason_text=text,
        rejected=(cheaper,),
    )


def records_totals(order: RefreshOrder, whole: Work, *, in_vain: bool = False) -> bool:
    """Say whether a full refresh records totals for incremental ones.

    :param whole: its work.
    :param in_vain: whether this refresh would be full with recorded totals, too.
    """
    if order.policy is RefreshPolicy.AUTO:
        return not in_vain and worth_recording(whole, order.history)
    return order.policy is not RefreshPolicy.FULL


def would_be_full(order: RefreshOrder, evidence: Evidence) -> bool:
    """Say whether a refresh would be full, because of its cost, even if nothing ruled it out."""
    return _not_worth(order, evidence, *_seconds(order, evidence)) is not None


def with_region(plan: RefreshPlan, order: RefreshOrder, region: ImmutableRegion) -> RefreshPlan:
    """Return the plan with the immutable rows named in its reason."""
    if region.frozen_at is None or plan.strategy is Strategy.NO_DATA:
        return plan
    text = f"{plan.reason_text}; rows where {order.immutable} stay as they are"
    return replace(plan, reason_text=text)


def _partial_plan(task: Recompute, current: Mapping[str, int]) -> RefreshPlan:
    if task.predicate is not None:
        code, text = Reason.ROWS_REQUESTED, f"replaces the rows where {task.predicate}"
    else:
        code = Reason.PARTITIONS_REQUESTED
        text = f"replaces {number_of(len(task.partitions), 'requested partition')}"
    return RefreshPlan(
        strategy=Strategy.PARTITION,
        reason_code=code,
        reason_text=text,
        vector=dict(current),
        partitions=task.partitions,
    )


def _reason(
    order: RefreshOrder,
    task: Recompute,
    current: Mapping[str, int],
    last: RecordedRefresh | None,
    fingerprint: str | None,
    others: Sequence[str],
) -> tuple[Reason, str]:
    """Return why the whole table is computed, or SOURCES_UNCHANGED if there is nothing to do."""
    if last is None:
        return _plainly(Reason.FIRST_REFRESH)
    if task.force:
        return _plainly(Reason.FORCED)
    if last.foreign_version is not None:
        text = f"version {last.foreign_version} was not written by a refresh"
        return Reason.FOREIGN_COMMIT, text
    if last.partial:
        return _plainly(Reason.PARTIAL_BEFORE)
    if last.record.definition_version != order.definition_version:
        return _plainly(Reason.DEFINITION_CHANGED)
    if others:  # more exact than what the fingerprint shows
        return Reason.SOURCES_REPLACED, "; ".join(others)
    if fingerprint is not None and fingerprint != last.record.fingerprint:
        return _plainly(Reason.DEFINITION_CHANGED)  # also of a view or function of the query
    if last.epoch <= order.checkpoint_floor:
        return _plainly(Reason.FROM_BEGINNING)
    plain = _plain_reason(order, current, last)
    if plain is not None:
        return Reason.SOURCE_WITHOUT_VERSIONS, plain
    if dict(last.record.vector) != dict(current):
        return _plainly(Reason.SOURCES_CHANGED)
    return _plainly(Reason.SOURCES_UNCHANGED)


def _plainly(reason: Reason) -> tuple[Reason, str]:
    """Return a reason with its standard text."""
    return reason, reason.meaning


def _plain_reason(
    order: RefreshOrder, current: Mapping[str, int], last: RecordedRefresh
) -> str | None:
    """Return why sources without versions have changed, or may have; None if they have not."""
    plain = [source for source in order.sources if source.kind is SourceKind.PLAIN]
    assumed = [str(s.name) for s in plain if s.table_id not in current]
    if assumed:
        return f"changes of {', '.join(assumed)} cannot be known and are assumed"
    unknown = [str(s.name) for s in plain if s.table_id not in last.record.vector]
    if unknown:
        return f"the last refresh recorded no fingerprint of {', '.join(unknown)}"
    moved = [str(s.name) for s in plain if current[s.table_id] != last.record.vector[s.table_id]]
    return f"files of {', '.join(moved)} changed" if moved else None


def _reject(
    plan: RefreshPlan, reasons: tuple[Obstacle, ...], cost: float | None = None
) -> RefreshPlan:
    rejections = tuple(
        Rejection(
            strategy=Strategy.INCREMENTAL.value,
            reason_code=reason.code,
            reason_text=reason.text,
            cost=cost,
        )
        for reason in reasons
    )
    return replace(
        plan,
        reason_code=reasons[0].code,
        reason_text=reasons[0].text,
        rejected=rejections,
    )


def incremental_work(evidence: Evidence) -> tuple[Way, Work]:
    """Return an incremental refresh's way and the rows it processes."""
    way, read = _way(evidence), evidence.rows_changed
    match way:
        case Way.RECOMPUTE | Way.REREAD:
            read += evidence.rows_in_sources
        case Way.REWRITE:
            # Joins read unchanged sources as a whole, changed ones only by their change.
            read += max(evidence.rows_in_sources - evidence.rows_in_changed, 0)
    read += _REREAD * evidence.rows_reread
    counted = evidence.keyed or evidence.rereading
    written = evidence.affected_keys if counted else evidence.rows_changed
    return way, replace(
        evidence.whole,
        rows_read=read,
        rows_written=written or 0,
        rows_changed=evidence.rows_changed,
        rows_grouped=0,
        lookups=evidence.lookups,
        rows_in_table=0 if way is Way.APPEND else evidence.rows_in_table,
    )


def _way(evidence: Evidence) -> Way:
    if evidence.appends:
        return Way.APPEND
    if evidence.rereading:
        return Way.REREAD
    return Way.RECOMPUTE if evidence.keyed and not evidence.algebraic else Way.REWRITE


def _seconds(order: RefreshOrder, evidence: Evidence) -> tuple[float, float]:
    """Return the predicted seconds of the incremental and the full refresh."""
    way, work = incremental_work(evidence)
    whole = replace(evidence.whole, rows_written=evidence.rows_in_table)
    known = order.history, evidence.cores, order.elsewhere
    return predict(way, work, *known), predict(Way.OVERWRITE, whole, *known)


def _not_worth(
    order: RefreshOrder, evidence: Evidence, incremental: float, full: float
) -> Obstacle | None:
    failed = _failed_before(order.history)
    if failed is not None:
        return failed
    changed, known = evidence.rows_changed, evidence.rows_in_changed
    if not evidence.appends and changed > _LARGEST_CHANGE * known:
        share = 100 * changed / max(known, 1)
        text = f"{number_of(changed, 'row')} changed, about {share:.0f} % of the sources"
        return Obstacle(code=Reason.CHANGE_TOO_LARGE, text=text)
    keys = evidence.affected_keys or 0
    computed = not (evidence.algebraic or evidence.leading)
    if computed and keys > _MOST_KEYS * evidence.rows_in_table:
        rows = number_of(evidence.rows_in_table, "row")
        text = f"{number_of(keys, 'key')} affected, of about {rows}"
        return Obstacle(code=Reason.TOO_MANY_KEYS, text=text)
    before = order.history[0].strategy if order.history else None
    margin = HYSTERESIS if before is Strategy.FULL else 1.0
    if margin * incremental - evidence.spent > full:
        text = f"an incremental refresh was expected to take {incremental:.1f} s, not {full:.1f} s"
        return Obstacle(code=Reason.FULL_IS_CHEAPER, text=text)
    return None


def _failed_before(history: Sequence[PastRun]) -> Obstacle | None:
    """Return an obstacle while an incremental refresh is not tried again after it failed.

    What failed once often fails each time, such as a plan that becomes too large. The wait doubles
    with each failure.
    """
    recent = takewhile(lambda run: not _is_restart(run), history)
    failed = [number for number, run in enumerate(recent) if run.reason_code in _FAILURES]
    if not failed:
        return None
    full = failed[0]
    before = failed[1] - failed[0] - 1 if len(failed) > 1 else 0
    waiting = min(2 * before + 1, _LONGEST_WAIT) - full
    if waiting <= 0:
        return None
    text = f"the last one failed; full refreshes until the next is tried: {waiting}"
    return Obstacle(code=Reason.FAILED_BEFORE, text=text)


def _is_restart(run: PastRun) -> bool:
    """Say whether failures before a run say nothing about the next refresh."""
    return run.strategy is Strategy.INCREMENTAL or run.reason_code == Reason.DEFINITION_CHANGED


def _is_trial(
    order: RefreshOrder, evidence: Evidence, reason: Obstacle, incremental: float, full: float
) -> bool:
    """Say whether to run the dearer incremental refresh, to learn what it takes."""
    way, _ = incremental_work(evidence)
    cheaper = reason.code is Reason.FULL_IS_CHEAPER
    return cheaper and worth_a_trial(way, incremental, full, order.history)


def _reason_for_incremental(evidence: Evidence) -> tuple[Reason, str]:
    moved = [
        f"{change.source}: {change.rows if change.rows is not None else 'some'} rows "
        f"({change.method})"
        for change in evidence.changes
        if change.method != ChangeMethod.UNCHANGED
    ]
    shown = ", ".join(moved) or "no source rows changed"
    if evidence.appends:
        return Reason.ROWS_APPENDED, f"adds rows for {shown}"
    if evidence.rereading:
        text = f"computes parts of the query before and after the change of {shown}"
        return Reason.SOURCES_REREAD, text
    if evidence.algebraic:
        return Reason.GROUPS_COMBINED, f"adds up the stored groups and {shown}"
    merged = ", merged with the first rows" if evidence.leading else ""
    if evidence.keyed:
        return Reason.KEYS_AFFECTED, f"recomputes affected keys for {shown}{merged}"
    return Reason.ROWS_CHANGED, f"applies the query to {shown}{merged}"
