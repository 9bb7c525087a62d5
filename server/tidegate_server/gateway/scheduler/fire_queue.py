"""Fires in the store: each waits, is claimed by one server, and is tried again or done with."""

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
    """One moment of a table's schedule that is to be refreshed for."""

    table_id: str
    schedule_time: datetime
    attempt: int = 1
    due_at: datetime
    owner: str | None = None
    """The server that runs it, as long as its claim lasts."""


class Backlog:
    """One row per fire that is not done with; every call is one transaction.

    A claim lasts for a lease. What its server did not finish can be claimed again afterwards.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self,
        workflow: Workflow,
        following: datetime | None,
        fires: Sequence[Fire],
        *,
        supersede: bool,
    ) -> bool:
        """Move a due workflow on to its following fire and keep ``fires`` until they are done.

        Without a following fire the workflow rests. ``supersede`` drops the fires of the table that
        still wait. False if another server was quicker.
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
                connection.execute(delete(f).where(_of(workflow.table_id), f.c.owner.is_(None)))
            for fire in fires:
                _insert(connection, fire)
            return True

    def ready(self, now: datetime) -> tuple[Fire, ...]:
        """Return the fires that may be claimed now, the oldest first."""
        free = or_(f.c.owner.is_(None), f.c.expires_at <= now)
        waiting = select(f).where(f.c.due_at <= now, free).order_by(f.c.schedule_time)
        with self._database.read() as connection:
            return tuple(_fire(row) for row in connection.execute(waiting))

    def claim(self, fire: Fire, attempt: int, owner: str, now: datetime, seconds: float) -> bool:
        """Take a fire that :meth:`ready` named; False if another server was quicker."""
        free = f.c.owner.is_(None) if fire.owner is None else f.c.expires_at <= now
        values = {
            "owner": owner,
            "attempt": attempt,
            "expires_at": now + timedelta(seconds=seconds),
        }
        with self._database.begin() as connection:
            found = connection.execute(update(f).where(_is(fire), free).values(**values))
            return found.rowcount == 1

    def extend(self, owner: str, now: datetime, seconds: float) -> None:
        """Prolong all claims of a server."""
        expiry = now + timedelta(seconds=seconds)
        with self._database.begin() as connection:
            connection.execute(update(f).where(f.c.owner == owner).values(expires_at=expiry))

    def again(self, fire: Fire, due_at: datetime) -> None:
        """Have a claimed fire tried once more, later."""
        values = {"owner": None, "attempt": fire.attempt + 1, "due_at": due_at}
        with self._database.begin() as connection:
            connection.execute(update(f).where(_is(fire)).values(**values))

    def done(self, fire: Fire) -> None:
        """Forget a fire; one that is gone already is harmless."""
        with self._database.begin() as connection:
            connection.execute(delete(f).where(_is(fire)))

    def waiting(self, table_id: str) -> int:
        """Count the fires of a table that are not done with."""
        with self._database.read() as connection:
            return len(connection.execute(select(f).where(_of(table_id))).all())

    def drop(self, table_id: str) -> None:
        """Forget the fires of a table that nobody runs."""
        with self._database.begin() as connection:
            connection.execute(delete(f).where(_of(table_id), f.c.owner.is_(None)))

    def count_failure(self, table_id: str) -> int:
        """Count one more failure in a row of a table's workflow and return how many there are."""
        more = update(w).where(w.c.table_id == table_id).values(failures=w.c.failures + 1)
        with self._database.begin() as connection:
            connection.execute(more)
            counted = select(w.c.failures).where(w.c.table_id == table_id)
            return connection.execute(counted).scalar_one_or_none() or 0

    def clear_failures(self, table_id: str) -> None:
        """Begin to count anew."""
        none = update(w).where(w.c.table_id == table_id, w.c.failures > 0).values(failures=0)
        with self._database.begin() as connection:
            connection.execute(none)


def _insert(connection: Connection, fire: Fire) -> None:
    known = select(f.c.table_id).where(_is(fire))
    if connection.execute(known).first() is None:
        values = {
            "table_id": fire.table_id,
            "schedule_time": fire.schedule_time,
            "attempt": fire.attempt,
            "due_at": fire.due_at,
        }
        connection.execute(insert(f).values(**values))


def _of(table_id: str) -> ColumnElement[bool]:
    return f.c.table_id == table_id


def _is(fire: Fire) -> ColumnElement[bool]:
    return and_(_of(fire.table_id), f.c.schedule_time == fire.schedule_time)


def _fire(row: Row[Any]) -> Fire:
    return Fire(
        table_id=row.table_id,
        schedule_time=row.schedule_time,
        attempt=row.attempt,
        due_at=row.due_at,
        owner=row.owner,
    )
