"""Removes and adds rows of an Iceberg table by rewriting the files with removed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import DiffMismatchError, Written, check_epoch
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.content.distribution import redistribute_hashed
from tidegate_server.engine.storage.exact import column_named, same
from tidegate_server.engine.storage.iceberg.commits import IcebergWriter, last_commit_of
from tidegate_server.engine.storage.iceberg.tables import LoadedTable
from tidegate_server.engine.storage.row_change import FEW_FILES, SMALL_BYTES, RowChange

_FILE_NAME: Final = "_file"
"""The metadata column with the location of a row's file."""


def change_rows(
    session: SparkSession,
    writer: IcebergWriter,
    found: LoadedTable,
    change: RowChange,
    order: RefreshOrder,
    record: CommitRecord,
    metadata: str,
) -> Written:
    """Commit a change of rows.

    :param found: the table that the change was computed for.
    :raises DiffMismatchError: if the table lacks rows to remove; nothing is committed.
    :raises ServerError: as :meth:`IcebergWriter.commit`.
    """
    check_epoch(order, last_commit_of(found, order.table_id))

    def affected(rows: DataFrame) -> DataFrame:
        removed, equal = change.removed_rows.alias("s"), same("t", "s", change.fields)
        return rows.alias("t").where(change.within).join(removed, equal, "left_semi")

    files = _files_with(affected, session, writer, found, order)
    size = int(files.size())
    with writer.reading(session, files, found) as stored:
        rows = change.remaining_rows(stored).unionAll(change.inserted_rows())
        if (hashed := redistribute_hashed(rows, order.distribution)) is not None:
            rows = hashed
        elif change.few:
            rows = rows.coalesce(change.writing_tasks(size))
        added = writer.stage(rows, found)
    before, written = int(files.rows()), int(added.rows())
    if before >= 0 and before - change.removed + change.added != written:
        added.delete()
        raise DiffMismatchError(f"{order.name} lacks rows to remove")
    done = writer.commit(order, record, metadata, found, added, removed=files)
    return replace(
        done,
        rows=change.added,
        rows_inserted=change.added,
        rows_deleted=change.removed,
        rows_copied=written - change.added,
    )


def replace_rows(
    writer: IcebergWriter,
    found: LoadedTable,
    rows: DataFrame,
    condition: str | None,
    order: RefreshOrder,
    record: CommitRecord,
    metadata: str,
) -> Written:
    """Commit new rows in place of all that satisfy a condition, or of all.

    :raises ServerError: as :meth:`IcebergWriter.commit`.
    """
    check_epoch(order, last_commit_of(found, order.table_id))
    if condition is None:
        added = writer.stage_for(order, rows, found)
        return writer.commit(order, record, metadata, found, added, removed=None)
    session, names = rows.sparkSession, rows.columns
    replaced = F.coalesce(F.expr(condition), F.lit(False))
    files = _files_with(lambda stored: stored.where(replaced), session, writer, found, order)
    with writer.reading(session, files, found) as stored:
        others = stored.where(~replaced).select(*map(column_named, names))
        added = writer.stage_for(order, rows.unionAll(others), found)
    return writer.commit(order, record, metadata, found, added, removed=files)


def _files_with(
    affected: Callable[[DataFrame], DataFrame],
    session: SparkSession,
    writer: IcebergWriter,
    found: LoadedTable,
    order: RefreshOrder,
) -> Any:
    """Return the files that have affected rows, or all if they are few and small.

    :param affected: returns those of the table's rows that are affected.
    """
    files = writer.present(found)
    small = int(files.count()) <= FEW_FILES and int(files.size()) <= SMALL_BYTES
    if found.current is None or small:
        return files
    newest = f"{order.name.quoted()} VERSION AS OF {found.current.id}"
    rows = affected(session.sql(f"SELECT *, {_FILE_NAME} FROM {newest}"))
    return files.at([str(name) for (name,) in rows.select(_FILE_NAME).distinct().collect()])
