"""The history of maintenance runs in the store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, insert, or_, select

from tidegate_server.core.errors import Code
from tidegate_server.core.model.names import TableName
from tidegate_server.core.refresh.maintenance import MaintenanceRun, PastMaintenance
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import maintenance_runs as m

_KEPT = 1000
"""Number of runs that are kept per table."""
_COMPARED = or_(m.c.compared.is_not(None), m.c.error_class == Code.MT_VERIFY_IMPOSSIBLE.name)
"""Comparisons that need not be repeated before the next one is due."""


class MaintenanceRuns:
    """The newest runs of each table; every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, run: MaintenanceRun) -> None:
        """Add a run."""
        values = {
            "upkeep_id": run.maintenance_id,
            "table_id": run.table_id,
            "catalog_name": run.table.catalog,
            "schema_name": run.table.schema,
            "table_name": run.table.table,
            "server_id": run.server_id,
            "started_at": run.started_at,
            "finished_at": run.finished_at,
            "rewritten": run.rewritten,
            "files_left": run.files_left,
            "removed": run.removed,
            "removed_before": run.removed_before,
            "compared": run.compared,
            "error_class": run.error_class,
            "error_message": run.error_message,
        }
        own = select(m.c.sequence).where(m.c.table_id == run.table_id)
        with self._database.begin() as connection:
            connection.execute(insert(m).values(**values))
            oldest = own.order_by(m.c.sequence.desc()).offset(_KEPT).limit(1)
            last = connection.execute(oldest).scalar_one_or_none()
            if last is not None:
                old = delete(m).where(m.c.table_id == run.table_id, m.c.sequence <= last)
                connection.execute(old)

    def past(self, table_id: str) -> PastMaintenance:
        """Return when a table was last maintained, and the files left over."""
        own = select(m).where(m.c.table_id == table_id).order_by(m.c.sequence.desc()).limit(1)
        with self._database.read() as connection:
            compacted = connection.execute(own.where(m.c.files_left.is_not(None))).one_or_none()
            removed = connection.execute(own.where(m.c.removed_before.is_not(None))).one_or_none()
            compared = connection.execute(own.where(_COMPARED)).one_or_none()
        return PastMaintenance(
            files_left=0 if compacted is None else compacted.files_left,
            removed_at=None if removed is None else removed.started_at,
            compared_at=None if compared is None else compared.started_at,
        )

    def runs(self, limit: int) -> tuple[MaintenanceRun, ...]:
        """Return the runs of all tables, newest first."""
        newest = select(m).order_by(m.c.sequence.desc()).limit(limit)
        with self._database.read() as connection:
            return tuple(map(_run, connection.execute(newest)))


def _run(row: Row[Any]) -> MaintenanceRun:
    return MaintenanceRun(
        maintenance_id=row.upkeep_id,
        table_id=row.table_id,
        table=TableName(row.catalog_name, row.schema_name, row.table_name),
        server_id=row.server_id,
        started_at=row.started_at,
        finished_at=row.finished_at,
        rewritten=row.rewritten,
        files_left=row.files_left,
        removed=row.removed,
        removed_before=row.removed_before,
        compared=row.compared,
        error_class=row.error_class,
        error_message=row.error_message,
    )
