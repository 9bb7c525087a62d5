"""Removes and adds rows of a Delta table in one commit, by rewriting files with removed rows.

MERGE does the same with more jobs: one to find the files, one to look for rows that match twice.
Here the rows are known to be distinct, and the removed ones to exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import DiffMismatchError
from tidegate_server.engine.storage.content.distribution import redistribute_hashed
from tidegate_server.engine.storage.delta.files import known_bytes, known_files, read_files
from tidegate_server.engine.storage.delta.partitions import check_partitions
from tidegate_server.engine.storage.delta.tables import path_of
from tidegate_server.engine.storage.delta.write import commit, transaction
from tidegate_server.engine.storage.exact import WEIGHT, quote_column, same
from tidegate_server.engine.storage.jvm import items, java, kind
from tidegate_server.engine.storage.row_change import FEW_FILES, SMALL_BYTES, RowChange

_KIND = "_change_type"
_FEED = "delta.enableChangeDataFeed"
_UNSEARCHED = 64 * 2**20
"""Few files of up to this many bytes, which may have removed rows, are rewritten, too."""


def change_rows(
    session: SparkSession, snapshot: Any, change: RowChange, order: RefreshOrder, metadata: str
) -> None:
    """Commit a change of rows; nothing happens if this or a later epoch was committed.

    :param snapshot: the newest one, for which the change was computed.
    :raises DiffMismatchError: if the table lacks rows to remove; nothing is committed.
    """
    jvm = java(session)
    began = time.monotonic()
    with transaction(session, snapshot, order, metadata) as begun:
        if begun is None:
            return
        begun.readWholeTable()
        files = _touched_files(session, begun, snapshot, change)
        size = sum(int(file.size()) for file in files)
        feed = snapshot.metadata().configuration().get(_FEED)
        fed = bool(feed.isDefined()) and str(feed.get()).lower() == "true"
        kept = change.remaining_rows(read_files(session, snapshot, files))
        rows = _with_feed(kept, change) if fed else kept.unionAll(change.inserted_rows())
        stored = F.col(_KIND).isNull() if fed else None
        rows = check_partitions(rows, snapshot, only=stored)
        if (hashed := redistribute_hashed(rows, order.distribution)) is not None:
            rows = hashed
        elif change.few:
            rows = rows.coalesce(change.writing_tasks(size))
        actions = list(items(begun.writeFiles(rows._jdf)))
        written = int(begun.getMetric("numOutputRows").get().value())
        written -= change.added + change.removed if fed else 0
        if not _fits(files, change, written):
            raise DiffMismatchError(f"{order.name} lacks rows to remove")
        added = [action for action in actions if kind(action) == "AddFile"]
        counts = {
            "operationNumSourceRows": change.added + change.removed,
            "numTargetRowsInserted": change.added,
            "numTargetRowsUpdated": 0,
            "numTargetRowsDeleted": change.removed,
            "numTargetRowsCopied": written - change.added,
            "numTargetFilesAdded": len(added),
            "numTargetFilesRemoved": len(files),
            "numTargetBytesAdded": sum(int(file.size()) for file in added),
            "numTargetBytesRemoved": size,
            "executionTimeMs": int(1000 * (time.monotonic() - began)),
        }
        _register_counts(session, begun, counts)
        removals = [file.remove() for file in files]
        commit(jvm, begun, [*actions, *removals], order, _merge_operation(jvm))


def _touched_files(
    session: SparkSession, begun: Any, snapshot: Any, change: RowChange
) -> list[Any]:
    """Return the ``AddFile`` actions of files that may have removed rows."""
    size = known_bytes(snapshot)
    if size is not None and size <= SMALL_BYTES:
        known = known_files(snapshot, most=FEW_FILES)
        if known is not None:
            return known
    jvm = java(session)
    reader = session.read.format("delta").option("versionAsOf", int(snapshot.version()))
    rows = reader.load(path_of(snapshot)).alias("t").where(change.within)
    # Delta compares statistics with literals only.
    folding = jvm.org.apache.spark.sql.catalyst.optimizer.ConstantFolding
    condition = folding.apply(rows._jdf.queryExecution().analyzed()).condition()
    parts = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(_conjuncts(condition)))
    files = list(items(begun.filterFiles(parts, True)))
    if len(files) <= FEW_FILES and sum(int(file.size()) for file in files) <= _UNSEARCHED:
        return files
    held = rows.join(change.removed_rows.alias("s"), same("t", "s", change.fields), "left_semi")
    names = held.select(F.col("_metadata.file_name")).distinct().collect()
    touched = {str(name) for (name,) in names}
    return [file for file in files if str(file.toPath().getName()) in touched]


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _with_feed(kept: DataFrame, change: RowChange) -> DataFrame:
    """Return the rows to write: the table's, and those of the change feed.

    Only rows of the change feed have a change type; an added row is in both.
    """
    kind = f"CASE WHEN {WEIGHT} > 0 THEN 'insert' ELSE 'delete' END"
    coming = f"array_repeat(CAST(NULL AS STRING), CAST(greatest({WEIGHT}, 0) AS INT))"
    kinds = f"concat({coming}, array_repeat({kind}, CAST(abs({WEIGHT}) AS INT)))"
    columns = [quote_column(field.name) for field in change.fields]
    changed = change.rows.selectExpr(*columns, f"explode({kinds}) AS {_KIND}")
    return kept.withColumn(_KIND, F.expr("CAST(NULL AS STRING)")).unionAll(changed)


def _fits(files: Sequence[Any], change: RowChange, written: int) -> bool:
    """Say whether exactly the removed rows are missing; True if a file has no statistics."""
    before = [file.numLogicalRecords() for file in files]
    if not all(rows.isDefined() for rows in before):
        return True
    return sum(int(rows.get()) for rows in before) - change.removed + change.added == written


def _register_counts(session: SparkSession, begun: Any, counts: Mapping[str, int]) -> None:
    """Add counts to the commit's metrics."""
    jvm = java(session)
    context = session._jsparkSession.sparkContext()
    metrics = jvm.java.util.HashMap()
    for name, value in counts.items():
        metric = jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(context, name)
        metric.set(value)
        metrics.put(name, metric)
    begun.registerSQLMetrics(
        session._jsparkSession, jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(metrics)
    )


def _merge_operation(jvm: Any) -> Any:
    """Return the operation that DESCRIBE HISTORY shows for the commit."""
    nothing = jvm.scala.Option.empty()
    none = jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
    operations = jvm.org.apache.spark.sql.delta.DeltaOperations
    return operations.Merge(nothing, nothing, nothing, nothing, none, none, none)
