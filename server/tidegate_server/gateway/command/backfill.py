"""REFRESH PARTITION FROM ... TO ...: one run per partition, on one version of every source."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import msgspec

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.versions import PartitionSpec, SourceKind
from tidegate_server.core.refresh.request import Recompute, RefreshPolicy, RefreshRequest
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.runs.orders import step_id
from tidegate_server.gateway.scheduler.ranges import LONGEST, check_range, dated_range
from tidegate_server.gateway.spark_session import run as run_sql

log = logging.getLogger(__name__)

_HISTORY = LONGEST + 1000
"""Number of runs searched for an interrupted backfill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The partitions of a range, and the requests for those still to refresh."""

    table: MaterializedTable
    partitions: tuple[PartitionSpec, ...]
    requests: tuple[RefreshRequest, ...]

    @property
    def done(self) -> int:
        """Count of partitions an interrupted backfill already refreshed."""
        return len(self.partitions) - len(self.requests)


def plan(
    table: MaterializedTable,
    start: PartitionSpec,
    end: PartitionSpec,
    policy: RefreshPolicy | None,
    context: Context,
) -> Plan:
    """Plan the refresh of a range of partitions, both ends included.

    Repeating an interrupted range resumes it on the same source versions.

    :raises ServerError: MT_PARTITION_RANGE if invalid or empty.
    """
    check_range(start, end)
    partitions = dated_range(table.definition.date_formatters(), start, end)
    if partitions is None:
        partitions = _present(table, start, end, context)
    if not partitions:
        raise error(Code.MT_PARTITION_RANGE, reason="it holds no partition")
    history = context.services.ledger.runs(table.id, limit=_HISTORY)
    mark = _mark(table, start, end)
    wave_id, finished = find_interrupted(history, mark, partitions)
    vector = dict(finished[0].sources) if finished else _newest(table.definition, context)
    refreshed = [spec for run in finished for spec in run.partitions]
    requests = [
        RefreshRequest(
            table_id=table.id,
            trigger=Trigger.BACKFILL,
            requested_by=context.session.user,
            task=Recompute(partitions=(spec,), vector=vector),
            policy=policy,
            wave_id=wave_id or f"{mark}-{context.operation_id}",
        )
        for spec in partitions
        if spec not in refreshed
    ]
    return Plan(table=table, partitions=partitions, requests=_number(requests, context))


def find_interrupted(
    history: Sequence[RefreshRun], mark: str, partitions: Sequence[PartitionSpec]
) -> tuple[str | None, list[RefreshRun]]:
    """Return the wave and finished runs of a range's newest unfinished backfill, if any.

    :param history: the table's runs, newest first.
    """
    ours = [run for run in history if run.wave_id is not None and run.wave_id.startswith(mark)]
    if not ours:
        return None, []
    wave = ours[0].wave_id
    finished = [r for r in ours if r.wave_id == wave and r.state is RunState.SUCCEEDED]
    refreshed = [spec for run in finished for spec in run.partitions]
    if not finished or all(spec in refreshed for spec in partitions):
        return None, []
    return wave, finished


def enqueue(plan: Plan, context: Context) -> RefreshRun:
    """Record the first run, so that it can be seen and canceled; return it."""
    return context.services.waves.queue.enqueue(plan.requests[0])


def run(plan: Plan, context: Context) -> list[RefreshRun]:
    """Refresh the partitions one by one until one fails; return the runs."""
    total, runs = len(plan.partitions), []
    queue = context.services.waves.queue
    if plan.done:
        context.log(f"{plan.done} of {total} partitions were refreshed before; going on")
    for request, following in zip_longest(plan.requests, plan.requests[1:]):
        if following is not None:
            # Before this one ends, so that a cancel always finds a run to stop.
            queue.enqueue(following)
        ended = context.services.run_refresh(request)
        runs.append(ended)
        shown = ", ".join(f"{k} = {v}" for k, v in request.recompute.partitions[0].items())
        number = plan.done + len(runs)
        context.log(f"Partition {number} of {total} ({shown}): {ended.state.value}")
        if ended.state is not RunState.SUCCEEDED:
            if following is not None:
                text = "the partition before it was not refreshed"
                queue.withdraw(
                    following.refresh_id or "", RunState.CANCELLED, Reason.BACKFILL_STOPPED, text
                )
            break
    return runs


def _number(requests: Sequence[RefreshRequest], context: Context) -> tuple[RefreshRequest, ...]:
    """Derive run ids from the operation's, so that canceling it finds every run."""
    ids = [context.operation_id]
    ids += [step_id(context.operation_id, f"p{n}") for n in range(2, len(requests) + 1)]
    return tuple(replace(r, refresh_id=i) for r, i in zip(requests, ids, strict=True))


def _mark(table: MaterializedTable, start: PartitionSpec, end: PartitionSpec) -> str:
    """Return the wave id prefix of all attempts at a backfill of one definition."""
    facts = (table.id, table.definition.version, dict(start), dict(end))
    text = msgspec.json.encode(facts, order="deterministic")
    return f"backfill-{hashlib.sha256(text).hexdigest()[:10]}"


def _newest(definition: Definition, context: Context) -> Mapping[str, int]:
    versioned = [source for source in definition.sources if source.kind is SourceKind.VERSIONED]
    return context.services.waves.versions(versioned)


def _present(
    table: MaterializedTable, start: PartitionSpec, end: PartitionSpec, context: Context
) -> tuple[PartitionSpec, ...]:
    """Return the partitions in the range that the query produces or the table has."""
    result = run_sql(present_sql(table, start, end), context)
    try:
        rows = [row for batch in result.batches(0) for row in batch.to_pylist()]
    finally:
        result.close()
    if len(rows) > LONGEST:
        raise error(Code.MT_PARTITION_RANGE, reason=f"it has more than {LONGEST} partitions")
    return tuple(dict(zip(start, row.values(), strict=True)) for row in rows)


def present_sql(table: MaterializedTable, start: PartitionSpec, end: PartitionSpec) -> str:
    """Return the query for the partitions of a range, with values as literals."""
    keys = ", ".join(quote_identifier(key) for key in start)
    columns = ", ".join(quote_identifier(column) for column in table.definition.schema.names())
    first, last = (", ".join(quote_literal(spec[key]) for key in start) for spec in (start, end))
    inside = f"struct({keys}) BETWEEN struct({first}) AND struct({last})"
    return (
        f"SELECT DISTINCT {keys} FROM ("
        f"SELECT {keys} FROM (\n{table.definition.expanded_query}\n) AS query({columns}) "
        f"UNION ALL SELECT {keys} FROM {table.storage.quoted()}"
        f") WHERE {inside} ORDER BY {keys} LIMIT {LONGEST + 1}"
    )
