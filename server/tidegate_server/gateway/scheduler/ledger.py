"""Leases, epochs and the history of runs, in the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RUN_MOVES, RunState
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import cancel_requests as c
from tidegate_server.gateway.store.tables import leases
from tidegate_server.gateway.store.tables import refresh_runs as r

logger = logging.getLogger(__name__)

_UNFINISHED = (RunState.QUEUED.value, RunState.RUNNING.value)
_WHOLE_TABLE = tuple(kind.value for kind in Strategy if kind is not Strategy.PARTITION)


class SqlLedger:
    """Every call is one transaction; times come from the caller, never from the database.

    A table's lease row outlives its lease: it stores the epoch, so that no epoch is used twice.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, table_id: str, owner: str, now: datetime, seconds: float) -> int | None:
        expiry = now + timedelta(seconds=seconds)
        free = or_(leases.c.owner.is_(None), leases.c.owner == owner, leases.c.expires_at <= now)
        take = (
            update(leases)
            .where(leases.c.table_id == table_id, free)
            .values(owner=owner, expires_at=expiry, epoch=leases.c.epoch + 1)
        )
        with self._database.begin() as connection:
            if connection.execute(take).rowcount == 1:
                return _current_epoch(connection, table_id)
            first = {"table_id": table_id, "owner": owner, "expires_at": expiry, "epoch": 1}
            return 1 if _insert_lease(connection, first) else None

    def extend(self, table_id: str, owner: str, now: datetime, seconds: float) -> bool:
        prolong = (
            update(leases)
            .where(leases.c.table_id == table_id, leases.c.owner == owner)
            .values(expires_at=now + timedelta(seconds=seconds))
        )
        with self._database.begin() as connection:
            return connection.execute(prolong).rowcount == 1

    def release(self, table_id: str, owner: str) -> None:
        give_back = (
            update(leases)
            .where(leases.c.table_id == table_id, leases.c.owner == owner)
            .values(owner=None, expires_at=None)
        )
        with self._database.begin() as connection:
            connection.execute(give_back)

    def holder(self, table_id: str, now: datetime) -> str | None:
        held = select(leases.c.owner).where(
            leases.c.table_id == table_id, leases.c.expires_at > now
        )
        with self._database.read() as connection:
            return connection.execute(held).scalar_one_or_none()

    def raise_epoch(self, table_id: str, epoch: int) -> None:
        lift = (
            update(leases)
            .where(leases.c.table_id == table_id, leases.c.epoch < epoch)
            .values(epoch=epoch)
        )
        with self._database.begin() as connection:
            if connection.execute(lift).rowcount == 0:
                _insert_lease(connection, {"table_id": table_id, "epoch": epoch})

    def record(self, run: RefreshRun) -> None:
        before = {run.state, *(s for s, ends in RUN_MOVES.items() if run.state in ends)}
        values = _row_values(run)
        move = update(r).where(
            r.c.refresh_id == run.refresh_id, r.c.state.in_([state.value for state in before])
        )
        with self._database.begin() as connection:
            if connection.execute(move.values(**values)).rowcount == 1:
                return
            known = select(exists().where(r.c.refresh_id == run.refresh_id))
            if not connection.execute(known).scalar_one():
                connection.execute(insert(r).values(**values))
                return
        logger.warning(
            "run %s has ended already; %s is not recorded", run.refresh_id, run.state.value
        )

    def request_cancel(self, refresh_id: str) -> None:
        with self._database.begin() as connection:
            connection.execute(delete(c).where(c.c.refresh_id == refresh_id))
            connection.execute(insert(c).values(refresh_id=refresh_id))

    def is_cancel_requested(self, refresh_id: str) -> bool:
        asked = select(exists().where(c.c.refresh_id == refresh_id))
        with self._database.read() as connection:
            return bool(connection.execute(asked).scalar_one())

    def find(self, refresh_id: str) -> RefreshRun | None:
        with self._database.read() as connection:
            row = connection.execute(select(r).where(r.c.refresh_id == refresh_id)).one_or_none()
        return None if row is None else _to_run(row)

    def last_success(self, table_id: str) -> RefreshRun | None:
        newest = (
            select(r)
            .where(
                r.c.table_id == table_id,
                r.c.state == RunState.SUCCEEDED.value,
                r.c.action.in_(_WHOLE_TABLE),
            )
            .order_by(r.c.sequence.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(newest).one_or_none()
        return None if row is None else _to_run(row)

    def runs(self, table_id: str | None = None, limit: int = 1000) -> tuple[RefreshRun, ...]:
        newest = select(r).order_by(r.c.sequence.desc()).limit(limit)
        if table_id is not None:
            newest = newest.where(r.c.table_id == table_id)
        with self._database.read() as connection:
            return tuple(_to_run(row) for row in connection.execute(newest))

    def commits(self, table_id: str | None, limit: int) -> tuple[RefreshRun, ...]:
        newest = (
            select(r)
            .where(
                true() if table_id is None else r.c.table_id == table_id,
                r.c.state == RunState.SUCCEEDED.value,
                r.c.action != Strategy.NO_DATA.value,
                r.c.to_version.is_not(None),
            )
            .order_by(r.c.sequence.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            return tuple(_to_run(row) for row in connection.execute(newest))

    def unfinished_runs(self) -> tuple[RefreshRun, ...]:
        open_runs = select(r).where(r.c.state.in_(_UNFINISHED)).order_by(r.c.sequence)
        with self._database.read() as connection:
            return tuple(_to_run(row) for row in connection.execute(open_runs))

    def forget(self, before: datetime) -> int:
        vectors = (
            select(func.max(r.c.sequence))
            .where(r.c.state == RunState.SUCCEEDED.value, r.c.action.in_(_WHOLE_TABLE))
            .group_by(r.c.table_id)
        )
        with self._database.begin() as connection:
            kept = connection.execute(vectors).scalars().all()
            unfinished = select(r.c.refresh_id).where(r.c.state.in_(_UNFINISHED))
            connection.execute(delete(c).where(c.c.refresh_id.not_in(unfinished)))
            old = delete(r).where(r.c.finished_at < before, r.c.sequence.not_in(kept))
            return connection.execute(old).rowcount


def _current_epoch(connection: Connection, table_id: str) -> int:
    held = select(leases.c.epoch).where(leases.c.table_id == table_id)
    epoch: int = connection.execute(held).scalar_one()
    return epoch


def _insert_lease(connection: Connection, values: Mapping[str, object]) -> bool:
    """Insert a table's first lease row; False if it has one, held by another owner."""
    try:
        with connection.begin_nested():
            connection.execute(insert(leases).values(**values))
    except IntegrityError:
        return False
    return True


def _row_values(run: RefreshRun) -> Mapping[str, Any]:
    return {
        "refresh_id": run.refresh_id,
        "table_id": run.table_id,
        "catalog_name": run.table.catalog,
        "schema_name": run.table.schema,
        "table_name": run.table.table,
        "definition_version": run.definition_version,
        "trigger_kind": run.trigger.value,
        "state": run.state.value,
        "queued_at": run.queued_at,
        "requested_by": run.requested_by,
        "server_id": run.server_id,
        "epoch": run.epoch,
        "schedule_time": run.schedule_time,
        "partitions": run.partitions,
        "action": None if run.action is None else run.action.value,
        "reason_code": run.reason_code,
        "reason_text": run.reason_text,
        "from_version": run.from_version,
        "to_version": run.to_version,
        "sources": run.sources,
        "changes": run.changes,
        "rejected": run.rejected,
        "metrics": run.metrics,
        "wave_id": run.wave_id,
        "requested_action": run.requested_action,
        "data_timestamp": run.data_timestamp,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "error_class": run.error_class,
        "sqlstate": run.sqlstate,
        "error_message": run.error_message,
        "attempt": run.attempt,
        "execution_target": run.execution_target,
    }


def _to_run(row: Row[Any]) -> RefreshRun:
    return RefreshRun(
        refresh_id=row.refresh_id,
        table_id=row.table_id,
        table=TableName(row.catalog_name, row.schema_name, row.table_name),
        definition_version=row.definition_version,
        trigger=Trigger(row.trigger_kind),
        state=RunState(row.state),
        queued_at=row.queued_at,
        requested_by=row.requested_by,
        server_id=row.server_id,
        epoch=row.epoch,
        schedule_time=row.schedule_time,
        partitions=row.partitions,
        action=None if row.action is None else Strategy(row.action),
        reason_code=row.reason_code,
        reason_text=row.reason_text,
        from_version=row.from_version,
        to_version=row.to_version,
        sources=row.sources,
        changes=row.changes,
        rejected=row.rejected,
        metrics=row.metrics,
        wave_id=row.wave_id,
        requested_action=row.requested_action,
        data_timestamp=row.data_timestamp,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error_class=row.error_class,
        sqlstate=row.sqlstate,
        error_message=row.error_message,
        attempt=row.attempt,
        execution_target=row.execution_target,
    )
