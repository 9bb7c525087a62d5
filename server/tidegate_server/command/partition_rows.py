"""When each partition of a table was last refreshed, from the history alone; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from tidegate_server.model.runs import RefreshRun, Strategy
from tidegate_server.model.states import RunState
from tidegate_server.model.versions import PartitionSpec

_TIME = pa.timestamp("us", tz="UTC")
COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("partition", pa.string()),
    ("refresh_id", pa.string()),
    ("trigger", pa.string()),
    ("action", pa.string()),
    ("version", pa.int64()),
    ("definition_version", pa.int64()),
    ("data_timestamp", _TIME),
    ("refreshed_at", _TIME),
)
"""What is told of a partition."""


def partition_rows(runs: Iterable[RefreshRun]) -> list[dict[str, Any]]:
    """Return a row per partition that was refreshed on its own, then one for all others.

    :param runs: those of one table, newest first. A refresh of the whole table counts for every
        partition, a rollback for none.
    """
    newest: dict[str, RefreshRun] = {}
    whole: RefreshRun | None = None
    for run in runs:
        if run.state is not RunState.SUCCEEDED or run.action is Strategy.ROLLBACK:
            continue
        if run.partitions:
            for spec in run.partitions:
                newest.setdefault(_shown(spec), whole or run)
        elif run.action is not Strategy.PARTITION:
            whole = whole or run
    rows = [_row(partition, run) for partition, run in sorted(newest.items())]
    return rows if whole is None else [*rows, _row(None, whole)]


def _row(partition: str | None, run: RefreshRun) -> dict[str, Any]:
    return {
        "partition": partition,
        "refresh_id": run.refresh_id,
        "trigger": run.trigger.value,
        "action": run.action.value if run.action else None,
        "version": run.to_version,
        "definition_version": run.definition_version,
        "data_timestamp": run.data_timestamp,
        "refreshed_at": run.finished_at,
    }


def _shown(spec: PartitionSpec) -> str:
    return msgspec.json.encode(dict(spec), order="sorted").decode()
