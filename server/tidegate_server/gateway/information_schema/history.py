"""The refresh history as an Arrow table, updated by reading only what changed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RUN_MOVES
from tidegate_server.gateway.runs.columns import RunColumn, table_of
from tidegate_server.gateway.scheduler.base import Ledger

_PAGE = 64  # runs read first; usually enough for everything since the last read
_RELOAD_EVERY = 500  # reads, after which runs that the ledger has deleted disappear here too


class HistoryCopy:
    """Holds the newest runs. A finished run never changes and is converted only once."""

    def __init__(self, ledger: Ledger, columns: Sequence[RunColumn], limit: int) -> None:
        """Take the ledger and the columns of the table; ``limit`` bounds its rows."""
        self._ledger = ledger
        self._columns = columns
        self._limit = limit
        self._reads = 0
        self._open: dict[str, RefreshRun] = {}
        self._ended_ids: set[str] = set()
        self._ended = table_of(columns, ())
        self._content = self._ended

    def table(self) -> pa.Table:
        """Return the newest runs, newest first; the same object while nothing changes."""
        if self._reads % _RELOAD_EVERY == 0:
            self._open, self._ended_ids = {}, set()
            self._content = self._ended = table_of(self._columns, ())
        self._reads += 1
        new = self._unknown()
        known = {run_id: self._ledger.find(run_id) for run_id in self._open}
        if new or any(run != self._open[run_id] for run_id, run in known.items()):
            self._take([*new, *(run for run in known.values() if run is not None)])
        return self._content

    def _unknown(self) -> list[RefreshRun]:
        """Return runs that are not held yet, newest first; reads on only while all are new."""
        size = min(_PAGE, self._limit)
        while True:
            page = self._ledger.runs(limit=size)
            new = [run for run in page if not self._holds(run.refresh_id)]
            if len(new) < size or size == self._limit:
                return new
            size = min(8 * size, self._limit)

    def _holds(self, refresh_id: str) -> bool:
        return refresh_id in self._ended_ids or refresh_id in self._open

    def _take(self, runs: Sequence[RefreshRun]) -> None:
        ended = [run for run in runs if not RUN_MOVES[run.state]]
        self._open = {run.refresh_id: run for run in runs if RUN_MOVES[run.state]}
        self._ended_ids.update(run.refresh_id for run in ended)
        if ended:
            joined = pa.concat_tables([table_of(self._columns, ended), self._ended])
            self._ended = joined.slice(0, self._limit).combine_chunks()
        unfinished = table_of(self._columns, list(self._open.values()))
        self._content = pa.concat_tables([unfinished, self._ended])
