"""The tables that are known to lag too much, so that each breach is reported once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import lag_breaches as b


class Breaches:
    """One row per open breach, shared by all servers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open_tables(self) -> frozenset[str]:
        """Return the ids of the tables with an open breach."""
        with self._database.read() as connection:
            return frozenset(connection.execute(select(b.c.table_id)).scalars())

    def begin(self, table_id: str, now: datetime) -> bool:
        """Record a breach; False if another server was faster."""
        try:
            with self._database.begin() as connection:
                connection.execute(insert(b).values(table_id=table_id, since=now))
        except IntegrityError:
            return False
        return True

    def end(self, table_id: str) -> bool:
        """Delete a breach that is over; False if another server was faster."""
        with self._database.begin() as connection:
            return connection.execute(delete(b).where(b.c.table_id == table_id)).rowcount == 1
