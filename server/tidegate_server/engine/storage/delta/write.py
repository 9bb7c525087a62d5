"""Commits of refreshes to a Delta table, and their metadata."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import Written
from tidegate_server.engine.storage.commit_record import (
    CommitRecord,
    RecordedRefresh,
    read_incremental,
    read_preconditions,
    stored_incremental,
)
from tidegate_server.engine.storage.delta.commits import Commit
from tidegate_server.engine.storage.delta.partitions import check_partitions
from tidegate_server.engine.storage.jvm import active_session, items, java, scala_object

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def epoch_options(order: RefreshOrder) -> Mapping[str, str]:
    """Return the writer options by which Delta skips an epoch that is not higher than the last."""
    return {"txnAppId": application_id(order), "txnVersion": str(order.epoch)}


def application_id(order: RefreshOrder) -> str:
    """Return the id under which Delta records a table's epochs."""
    return f"mt:{order.table_id}"


def user_metadata(
    order: RefreshOrder,
    record: CommitRecord,
    *,
    strategy: str,
    partial: bool = False,
    base: int | None = None,
    breaks: str | None = None,
) -> str:
    """Return the metadata of a refresh's commit as JSON.

    :param base: the version the commit is based on; None if it replaces everything.
    :param breaks: the failed assertion of a held version.
    """
    facts = {
        "mt": order.table_id,
        "refresh_id": order.refresh_id,
        "epoch": order.epoch,
        "definition_version": record.definition_version,
        "sources": dict(record.vector),
        "trigger": order.trigger.value,
        "logical_time": record.logical_time.isoformat(),
        "strategy": strategy,
        "partial": partial,
        "filled": record.filled or not partial,
    }
    optional = {
        "wave": order.wave_id,
        "base": base,
        "fingerprint": record.fingerprint,
        "commits": dict(record.source_commits) or None,
        "rolled_back_to": record.rolled_back_to,
        "offsets": record.offsets,
        "totals": stored_incremental(record.incremental),
        "provisos": record.preconditions and record.preconditions.value,
        "unique": record.unique or None,
        "frozen_at": record.frozen_at and record.frozen_at.isoformat(),
        "breaks": breaks,
        "backfilled_from": record.backfilled_from,
    }
    return json.dumps(facts | {key: v for key, v in optional.items() if v is not None})


def last_refresh(history: Iterable[Commit], materialized_id: str) -> RecordedRefresh | None:
    """Return a table's last refresh from its commits, newest first.

    A commit by another writer is foreign if it is newer than the refresh, or lies between the
    refresh's base version and its commit.
    """
    found: Commit | None = None
    foreign: int | None = None
    for commit in history:
        if found is not None and commit.version <= int(found.metadata.get("base", found.version)):
            break
        if found is None and commit.metadata.get("mt") == materialized_id:
            found = commit
        elif not commit.keeps_rows and foreign is None:
            foreign = commit.version
    return None if found is None else _as_recorded_refresh(found, foreign)


def _as_recorded_refresh(commit: Commit, foreign: int | None) -> RecordedRefresh:
    facts = commit.metadata
    record = CommitRecord(
        vector={str(k): int(v) for k, v in facts["sources"].items()},
        definition_version=int(facts["definition_version"]),
        logical_time=datetime.fromisoformat(facts["logical_time"]),
        fingerprint=facts.get("fingerprint"),
        source_commits={str(k): str(v) for k, v in facts.get("commits", {}).items()},
        offsets=facts.get("offsets"),
        incremental=read_incremental(facts.get("totals")),
        preconditions=read_preconditions(facts.get("provisos")),
        unique=tuple(facts.get("unique", ())),
        filled=bool(facts.get("filled", True)),
        frozen_at=datetime.fromisoformat(facts["frozen_at"]) if "frozen_at" in facts else None,
    )
    return RecordedRefresh(
        epoch=int(facts["epoch"]),
        version=commit.version,
        refresh_id=str(facts["refresh_id"]),
        record=record,
        strategy=str(facts.get("strategy", "FULL")),
        partial=bool(facts.get("partial", False)),
        foreign_version=foreign,
        breaks=facts.get("breaks"),
    )


def write_result(commit: Commit) -> Written:
    """Return the counts in a commit's metrics."""

    def count(*names: str) -> int | None:
        return next((int(commit.metrics[n]) for n in names if n in commit.metrics), None)

    if commit.without_files:
        return Written(
            version=commit.version, rows=0, rows_inserted=0, rows_deleted=0, files_written=0
        )
    merged = commit.operation == "MERGE"
    inserted = count("numTargetRowsInserted") if merged else commit.rows
    return Written(
        version=commit.version,
        rows=inserted,
        rows_inserted=inserted,
        rows_deleted=count("numTargetRowsDeleted", "numDeletedRows"),
        rows_copied=count("numTargetRowsCopied", "numCopiedRows"),
        files_written=count("numTargetFilesAdded", "numFiles"),
        bytes_written=count("numTargetBytesAdded", "numOutputBytes"),
    )


def advance(session: SparkSession, snapshot: Any, order: RefreshOrder, metadata: str) -> None:
    """Commit vector and epoch without data, unless this or a later epoch was committed.

    :param snapshot: the newest one.
    """
    with transaction(session, snapshot, order, metadata) as begun:
        if begun is not None:
            jvm = java(session)
            empty = scala_object(jvm, "org.apache.spark.sql.delta.DeltaOperations", "EmptyCommit")
            commit(jvm, begun, [], order, empty)


def append_rows(frame: DataFrame, snapshot: Any, order: RefreshOrder, metadata: str) -> None:
    """Commit further rows, unless this or a later epoch was committed; ``frame`` is fitted."""
    session = frame.sparkSession
    with transaction(session, snapshot, order, metadata) as begun:
        if begun is not None:
            jvm = java(session)
            actions = items(begun.writeFiles(check_partitions(frame, snapshot)._jdf))
            commit(jvm, begun, actions, order, _write_operation(jvm, "Append"))


def replace_rows(
    frame: DataFrame, snapshot: Any, files: Iterable[Any], order: RefreshOrder, metadata: str
) -> None:
    """Replace all rows in one commit, unless this or a later epoch was committed.

    Spark's own writer does the same, but takes half a second longer to start.

    :param frame: fitted.
    :param files: the ``AddFile`` actions of all files of the snapshot.
    """
    session = frame.sparkSession
    with transaction(session, snapshot, order, metadata) as begun:
        if begun is not None:
            jvm = java(session)
            begun.readWholeTable()
            added = items(begun.writeFiles(check_partitions(frame, snapshot)._jdf))
            actions = [*added, *(file.remove() for file in files)]
            commit(jvm, begun, actions, order, _write_operation(jvm, "Overwrite"))


def _write_operation(jvm: Any, mode: str) -> Any:
    """Return the operation that DESCRIBE HISTORY shows for the commit."""
    operations = jvm.org.apache.spark.sql.delta.DeltaOperations
    return operations.Write(jvm.org.apache.spark.sql.SaveMode.valueOf(mode), *[_nothing(jvm)] * 8)


@contextmanager
def transaction(
    session: SparkSession, snapshot: Any, order: RefreshOrder, metadata: str
) -> Iterator[Any]:
    """Begin a transaction on a snapshot; None if the order's epoch or a later one was committed.

    The transaction fails if an epoch is committed after the snapshot and before its end.
    """
    jvm = java(session)
    before = session.conf.get(_METADATA, None)
    session.conf.set(_METADATA, metadata)
    try:
        with active_session(session):
            some = jvm.scala.Option.apply(snapshot)
            begun = snapshot.deltaLog().startTransaction(_nothing(jvm), some)
            yield None if _newest_epoch(begun, snapshot, order) >= order.epoch else begun
    finally:
        if before is None:
            session.conf.unset(_METADATA)
        else:
            session.conf.set(_METADATA, before)


def _newest_epoch(begun: Any, snapshot: Any, order: RefreshOrder) -> int:
    """Return a snapshot's last epoch, or -1, and make the transaction conflict with later ones.

    Delta itself would compute the epochs in a Spark job, so read the checksum if it has them.
    """
    name = application_id(order)
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not known.isDefined():
        return int(begun.txnVersion(name))
    begun.readTxn().addOne(name)
    epochs = (int(each.version()) for each in items(known.get()) if each.appId() == name)
    return max(epochs, default=-1)


def commit(
    jvm: Any, begun: Any, actions: Iterable[Any], order: RefreshOrder, operation: Any
) -> None:
    """Commit Delta's actions together with the order's epoch."""
    now = jvm.scala.Option.apply(int(time.time() * 1000))
    kinds = jvm.org.apache.spark.sql.delta.actions
    epoch = kinds.SetTransaction(application_id(order), order.epoch, now)
    together = jvm.org.apache.spark.api.python.PythonUtils.toSeq([*actions, epoch])
    begun.commit(together, operation)


def _nothing(jvm: Any) -> Any:
    return jvm.scala.Option.empty()
