"""Maintains the files of materialized tables and checks their content after refreshes."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from queue import SimpleQueue

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.requests import (
    Cancel,
    InspectFiles,
    RemoveFiles,
    RewriteFiles,
    SetTableProperties,
    VerifyTable,
)
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable, Swapping
from tidegate_server.core.refresh.maintenance import (
    ContentCompared,
    FileStatistics,
    MaintenanceRules,
    MaintenanceRun,
    PastMaintenance,
    RowPart,
    comparison_due,
    has_small_files,
    horizon,
    inspection_due,
    longer_retentions,
    read_maintenance_rules,
    removal_due,
    time_to_compact,
)
from tidegate_server.core.refresh.request import Recompute, RefreshRequest
from tidegate_server.core.refresh.waves import readers
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.link.client import ABSENCE, Engine
from tidegate_server.gateway.runs.orders import refresh_order
from tidegate_server.gateway.scheduler.base import DEFINITION_LEASE, Ledger
from tidegate_server.gateway.scheduler.leases import LeaseKeeper
from tidegate_server.gateway.scheduler.workflows import table_option
from tidegate_server.gateway.store.maintenance import MaintenanceRuns

log = logging.getLogger(__name__)

_Step = Callable[[MaintenanceRun], MaintenanceRun]

_PATIENCE = 5.0
_POLL = 1.0
_ABSENT = ABSENCE | {Code.OPERATION_CANCELED.name}
"""Errors after which the next run retries."""


class Maintenance:
    """Maintains one table at a time on its own thread, to leave the engine's cores to refreshes.

    Compaction holds the table's lease, so no refresh of the table runs concurrently; a due one
    waits the few seconds that compaction may take. Removal runs alongside refreshes, since it only
    deletes files they neither read nor write. A crash leaves complete commits and unreferenced
    files. Comparison with the query is read-only; a table that differs is fully refreshed at once.
    After an incremental refresh, a random part of the rows is compared.
    """

    def __init__(
        self,
        *,
        catalog: CatalogReader,
        ledger: Ledger,
        runs: MaintenanceRuns,
        engine: Engine,
        clock: Clock,
        new_id: Callable[[], str],
        server_id: str,
        lease_seconds: float,
        options: Mapping[str, str],
        refresh: Callable[[RefreshRequest], object],
        ended: Callable[[MaintenanceRun], None] = lambda run: None,
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        """``options`` are the server's; ``ended`` is called with each run.

        :param refresh: runs a refresh to its end.
        :param draw: returns a random number below the given one.
        """
        self._catalog = catalog
        self._ledger = ledger
        self._runs = runs
        self._engine = engine
        self._clock = clock
        self._new_id = new_id
        self._server_id = server_id
        self._lease_seconds = lease_seconds
        self._options = options
        self._refresh = refresh
        self._ended = ended
        self._draw = draw
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, datetime]] = {}
        self._began = clock.now()
        self._unchecked: set[str] = set()
        """Tables with a pending comparison."""
        self._waiting: SimpleQueue[tuple[Callable[[str], object], str] | None] = SimpleQueue()
        self._working: str | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="maintenance", daemon=True)

    def open(self) -> None:
        """Start working."""
        self._thread.start()

    def close(self) -> None:
        """Cancel active and pending work."""
        self._closing = True
        self._waiting.put(None)
        if (working := self._working) is not None:
            self._cancel(working)
        self._thread.join(_PATIENCE)

    def refresh_ended(self, run: RefreshRun) -> None:
        """Queue maintenance after several commits, and a check after an incremental one."""
        if run.state is not RunState.SUCCEEDED or run.action in (None, Strategy.NO_DATA):
            return
        now = self._clock.now()
        with self._lock:
            commits, since = self._seen.get(run.table_id, (0, self._began))
            inspected = inspection_due(commits + 1, now - since)
            self._seen[run.table_id] = (0, now) if inspected else (commits + 1, since)
            checked = run.action is Strategy.INCREMENTAL and run.table_id not in self._unchecked
            if checked:
                self._unchecked.add(run.table_id)
        if inspected:
            self._waiting.put((self.maintain, run.table_id))
        if checked:
            self._waiting.put((self.check, run.table_id))

    def maintain(self, table_id: str) -> MaintenanceRun | None:
        """Run a table's due maintenance; None if nothing was due or the table is gone.

        Errors are in the record.
        """
        table = self._catalog.by_id(table_id)
        if table is None:
            with self._lock:
                self._seen.pop(table_id, None)
            return None
        rules = read_maintenance_rules(table_option(table, self._options))
        run = self._carry_out(table, self._due(table, rules, self._clock.now()))
        if not run.did_something:
            return None
        self._runs.record(run)
        self._ended(run)
        return run

    def check(self, table_id: str) -> MaintenanceRun | None:
        """Compare part of a table's rows with the query; None if off or the table is gone.

        Only differences are recorded: a record per refresh would push all others out.
        """
        with self._lock:
            self._unchecked.discard(table_id)
        table = self._catalog.by_id(table_id)
        if table is None:
            return None
        parts = read_maintenance_rules(table_option(table, self._options)).parts
        if not parts:
            return None
        part = RowPart(number=self._draw(parts), of=parts)
        run = self._carry_out(table, self._comparison(table, part))
        if run.compared is not None and not run.compared.equal:
            self._runs.record(run)
        if run.did_something:
            self._ended(run)
        return run

    def _carry_out(self, table: MaterializedTable, steps: Iterable[_Step]) -> MaintenanceRun:
        now = self._clock.now()
        run = MaintenanceRun(
            maintenance_id=self._new_id(),
            table_id=table.id,
            table=table.name,
            server_id=self._server_id,
            started_at=now,
            finished_at=now,
        )
        self._working = run.maintenance_id
        try:
            for step in steps:
                run = self._try_step(step, run)
        finally:
            self._working = None
        return replace(run, finished_at=self._clock.now())

    def _due(
        self, table: MaterializedTable, rules: MaintenanceRules, now: datetime
    ) -> Iterator[_Step]:
        """Yield the due steps; one that fails does not stop the others."""
        past = self._runs.past(table.id)
        if rules.on:
            yield lambda run: self._compact(run, table, rules, past)
        if rules.on and removal_due(rules, past.removed_at or table.created_at, now):
            yield lambda run: self._remove(run, table, rules)
        if comparison_due(rules, past.compared_at or table.created_at, now):
            yield from self._comparison(table)

    def _comparison(self, table: MaterializedTable, part: RowPart | None = None) -> Iterator[_Step]:
        yield lambda run: self._compare(run, table, part)
        yield lambda run: self._repair(run, table)

    def _try_step(self, step: _Step, run: MaintenanceRun) -> MaintenanceRun:
        try:
            return step(run)
        except ServerError as failure:
            if failure.code in _ABSENT:
                log.info("maintenance of %s is postponed: %s", run.table, failure)
                return run
            log.warning("maintenance of %s failed: %s", run.table, failure)
            return replace(run, error_class=failure.code, error_message=failure.message)

    # ---- the steps -------------------------------------------------------------------------

    def _inspect(self, table: MaterializedTable, rules: MaintenanceRules) -> FileStatistics | None:
        needed = tuple(sorted(self._needed_versions(table)))
        request = InspectFiles(
            name=table.storage, table_id=table.id, versions=needed, back=rules.versions
        )
        answer = self._engine.call(request, wait=0)
        return answer.found

    def _compact(
        self,
        run: MaintenanceRun,
        table: MaterializedTable,
        rules: MaintenanceRules,
        past: PastMaintenance,
    ) -> MaintenanceRun:
        found = self._inspect(table, rules)
        if found is None or not has_small_files(found, rules, past.files_left):
            return run
        with self._hold_lease(run, table) as leased:
            if not leased:
                return run
            request = RewriteFiles(
                maintenance_id=run.maintenance_id, name=table.storage, table_id=table.id
            )
            answer = self._engine.call(request, wait=0)
        found = self._inspect(table, rules)
        log.info("%s: %s", table.name, answer.rewritten)
        left = found.files if found is not None else None
        return replace(run, rewritten=answer.rewritten, files_left=left)

    def _keep_longer(
        self, run: MaintenanceRun, table: MaterializedTable, properties: Mapping[str, str]
    ) -> None:
        with self._hold_lease(run, table) as leased:
            if leased:
                request = SetTableProperties(
                    name=table.storage, table_id=table.id, properties=properties
                )
                self._engine.call(request, wait=0)

    def _remove(
        self, run: MaintenanceRun, table: MaterializedTable, rules: MaintenanceRules
    ) -> MaintenanceRun:
        # Read before the files: a refresh that begins after this reads newer versions.
        at_work = self._at_work(table)
        found = self._inspect(table, rules)
        if found is None:
            return run
        if properties := longer_retentions(found, rules):
            # Until Delta has these, it would treat files to keep as unneeded.
            self._keep_longer(run, table, properties)
            return run
        wanted = horizon(found, rules, self._clock.now(), at_work)
        request = RemoveFiles(
            maintenance_id=run.maintenance_id, name=table.storage, table_id=table.id, horizon=wanted
        )
        answer = self._engine.call(request, wait=0)
        log.info("%s: %s before %s", table.name, answer.removed, wanted.before)
        return replace(run, removed=answer.removed, removed_before=wanted.before)

    def _compare(
        self, run: MaintenanceRun, table: MaterializedTable, part: RowPart | None
    ) -> MaintenanceRun:
        order = refresh_order(
            table,
            self._wish(table),
            refresh_id=run.maintenance_id,
            epoch=0,
            asked_at=self._clock.now(),
        )
        answer = self._engine.call(VerifyTable(order=order, part=part), wait=0)
        if not answer.equal:
            log.error("%s differs from its query: %s", table.name, answer)
        found = ContentCompared(
            version=answer.version,
            missing_rows=answer.missing_rows,
            extra_rows=answer.extra_rows,
            part=part,
        )
        return replace(run, compared=found)

    def _repair(self, run: MaintenanceRun, table: MaterializedTable) -> MaintenanceRun:
        if run.compared is not None and not run.compared.equal:
            self._refresh(self._wish(table))
        return run

    def _wish(self, table: MaterializedTable) -> RefreshRequest:
        return RefreshRequest(
            table_id=table.id,
            trigger=Trigger.REPAIR,
            requested_by=table.owner,
            task=Recompute(force=True),
        )

    def _needed_versions(self, table: MaterializedTable) -> set[int]:
        """Return the versions of a table that its readers will diff against."""
        names = {table.name.folded(), table.storage.folded()}
        versions = set()
        for reader in readers(table, self._catalog.consumers):
            ids = [s.table_id for s in reader.definition.sources if s.name.folded() in names]
            last = self._ledger.last_success(reader.id)
            for run in (*self._ledger.commits(reader.id, 1), *([last] if last else [])):
                versions |= {run.sources[key] for key in ids if key in run.sources}
        return versions

    def _at_work(self, table: MaterializedTable) -> datetime | None:
        """Return when the oldest active run of a table or its readers began."""
        concerned = {table.id, *(r.id for r in readers(table, self._catalog.consumers))}
        begun = [r.queued_at for r in self._ledger.unfinished_runs() if r.table_id in concerned]
        return min(begun, default=None)

    @contextmanager
    def _hold_lease(self, run: MaintenanceRun, table: MaterializedTable) -> Iterator[bool]:
        """Hold the table's lease, if free, for at most the time compaction may take."""
        owner = f"{self._server_id}/{DEFINITION_LEASE}{run.maintenance_id}"
        end = self._clock.now() + time_to_compact(table.definition.freshness)
        if not self._claim(table.id, owner):
            yield False
            return
        # The previous holder of the lease may have replaced the table.
        current = self._catalog.by_id(table.id)
        same = (
            current is not None
            and current.storage == table.storage
            and not isinstance(current.pending, Swapping)
        )

        def cancel_if_over(keeper: LeaseKeeper) -> None:
            if keeper.lost or self._clock.now() >= end:
                self._cancel(run.maintenance_id)  # repeated, as the engine may not have begun

        keeper = LeaseKeeper(
            self._ledger,
            self._clock,
            table.id,
            owner,
            self._lease_seconds,
            at_least_every=_POLL,
            after_renewal=cancel_if_over,
        )
        try:
            with keeper:
                yield same
        finally:
            self._ledger.release(table.id, owner)

    def _claim(self, table_id: str, owner: str) -> bool:
        now = self._clock.now()
        return self._ledger.claim(table_id, owner, now, self._lease_seconds) is not None

    def _cancel(self, maintenance_id: str) -> None:
        try:
            self._engine.call(Cancel(operation_id=maintenance_id), wait=0)
        except ServerError as failure:
            log.info("maintenance run %s: %s", maintenance_id, failure)

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None and not self._closing:
            work, table_id = waiting
            try:
                work(table_id)
            except Exception:
                # One table's failure must not end the maintenance of all.
                log.exception("maintenance of %s raised an exception", table_id)
