"""The stored queue of fires: each waits, is acquired by one server, and is retried or removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, or_, select, update

from tidegate_server.gateway.scheduler.base import Workflow
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import fires as f
from tidegate_server.gateway.store.tables import workflows as w


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One due time of a table's schedule."""

    table_id: str
    schedule_time: datetime
    attempt: int = 1
    due_at: datetime
    owner: str | None = None
    """The server that runs it, as long as its claim is valid."""


class FireQueue:
    """One row per pending fire; every call is one transaction.

    A claim expires like a lease. A fire that its server did not finish can then be acquired again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def advance(
        self,
        workflow: Workflow,
        following: datetime | None,
        fires: Sequence[Fire],
        *,
        supersede: bool,
    ) -> bool:
        """Advance a due workflow to its following fire and enqueue ``fires``.

        Without a following fire the workflow does not fire again. ``supersede`` drops the table's
        waiting fires. False if another server was faster.
        """
        move = (
            update(w)
            .where(
                w.c.table_id == workflow.table_id,
                w.c.next_fire == workflow.next_fire,
                w.c.active,
            )
            .values(next_fire=following)
        )
        with self._database.begin() as connection:
            if connection.execute(move).rowcount != 1:
                return False
            if supersede:
                connection.execute(
                    delete(f).where(_belongs_to(workflow.table_id), f.c.owner.is_(None))
                )
            for fire in fires:
                _insert(connection, fire)
            return True

    def ready(self, now: datetime) -> tuple[Fire, ...]:
        """Return the fires that can be acquired now, oldest first."""
        free = or_(f.c.owner.is_(None), f.c.expires_at <= now)
        waiting = select(f).where(f.c.due_at <= now, free).order_by(f.c.schedule_time)
        with self._database.read() as connection:
            return tuple(_to_fire(row) for row in connection.execute(waiting))

    def acquire(self, fire: Fire, attempt: int, owner: str, now: datetime, seconds: float) -> bool:
        """Acquire a fire that :meth:`ready` returned; False if another server was faster."""
        free = f.c.owner.is_(None) if fire.owner is None else f.c.expires_at <= now
        values = {
            "owner": owner,
            "attempt": attempt,
            "expires_at": now + timedelta(seconds=seconds),
        }
        with self._database.begin() as connection:
            found = connection.execute(update(f).where(_is_fire(fire), free).values(**values))
            return found.rowcount == 1

    def extend(self, owner: str, now: datetime, seconds: float) -> None:
        """Renew all claims of a server."""
        expiry = now + timedelta(seconds=seconds)
        with self._database.begin() as connection:
            connection.execute(update(f).where(f.c.owner == owner).values(expires_at=expiry))

    def retry(self, fire: Fire, due_at: datetime) -> None:
        """Release an acquired fire so that it is retried at ``due_at``."""
        values = {"owner": None, "attempt": fire.attempt + 1, "due_at": due_at}
        with self._database.begin() as connection:
            connection.execute(update(f).where(_is_fire(fire)).values(**values))

    def remove(self, fire: Fire) -> None:
        """Remove a fire; a missing one is ignored."""
        with self._database.begin() as connection:
            connection.execute(delete(f).where(_is_fire(fire)))

    def count(self, table_id: str) -> int:
        """Count the pending fires of a table."""
        with self._database.read() as connection:
            return len(connection.execute(select(f).where(_belongs_to(table_id))).all())

    def drop_unclaimed(self, table_id: str) -> None:
        """Remove the fires of a table that no server has acquired."""
        with self._database.begin() as connection:
            connection.execute(delete(f).where(_belongs_to(table_id), f.c.owner.is_(None)))

    def count_failure(self, table_id: str) -> int:
        """Increment the number of failures in a row of a table's workflow and return it."""
        more = update(w).where(w.c.table_id == table_id).values(failures=w.c.failures + 1)
        with self._database.begin() as connection:
            connection.execute(more)
            counted = select(w.c.failures).where(w.c.table_id == table_id)
            return connection.execute(counted).scalar_one_or_none() or 0

    def clear_failures(self, table_id: str) -> None:
        """Reset the number of failures in a row."""
        none = update(w).where(w.c.table_id == table_id, w.c.failures > 0).values(failures=0)
        with self._database.begin() as connection:
            connection.execute(none)


def _insert(connection: Connection, fire: Fire) -> None:
    known = select(f.c.table_id).where(_is_fire(fire))
    if connection.execute(known).first() is None:
        values = {
            "table_id": fire.table_id,
            "schedule_time": fire.schedule_time,
            "attempt": fire.attempt,
            "due_at": fire.due_at,
        }
        connection.execute(insert(f).values(**values))


def _belongs_to(table_id: str) -> ColumnElement[bool]:
    return f.c.table_id == table_id


def _is_fire(fire: Fire) -> ColumnElement[bool]:
    return and_(_belongs_to(fire.table_id), f.c.schedule_time == fire.schedule_time)


def _to_fire(row: Row[Any]) -> Fire:
    return Fire(
        table_id=row.table_id,
        schedule_time=row.schedule_time,
        attempt=row.attempt,
        due_at=row.due_at,
        owner=row.owner,
    )
