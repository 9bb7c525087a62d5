"""Commits of refreshes to a Delta table: what they carry and how they are made."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.model.names import quote_identifier
from tidegate_server.refresh.request import CommittedRefresh, RefreshOrder
from tidegate_server.storage.base import Written
from tidegate_server.storage.commits import Commit
from tidegate_server.storage.exact import named, same
from tidegate_server.storage.jvm import acting, java, scala_object

_GONE = "__gone"
_TOKEN = "spark.databricks.delta.write"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"


def token(order: RefreshOrder) -> Mapping[str, str]:
    """Return the options that make Delta skip the same and earlier epochs."""
    return {"txnAppId": application(order), "txnVersion": str(order.epoch)}


def application(order: RefreshOrder) -> str:
    """Return the application id under which a table's epochs count."""
    return f"mt:{order.table_id}"


def user_metadata(
    order: RefreshOrder,
    vector: Mapping[str, int],
    *,
    strategy: str,
    partial: bool = False,
    base: int | None = None,
) -> str:
    """Return what a refresh's commit says of itself, as JSON.

    :param base: the version the commit builds on; None when it replaces everything.
    """
    facts = {
        "mt": order.table_id,
        "refresh_id": order.refresh_id,
        "epoch": order.epoch,
        "definition_version": order.definition_version,
        "sources": dict(vector),
        "trigger": order.trigger.value,
        "logical_time": order.logical_time.isoformat(),
        "strategy": strategy,
        "partial": partial,
        "filled": order.filled or not partial,
    }
    optional = {
        "wave": order.wave_id,
        "base": base,
        "fingerprint": order.fingerprint,
        "rolled_back_to": order.rollback_to,
        "unique": order.unique or None,
        "frozen_at": order.frozen_at and order.frozen_at.isoformat(),
        "backfilled_from": order.backfill_from and str(order.backfill_from),
    }
    return json.dumps(facts | {key: v for key, v in optional.items() if v is not None})


def last_refresh(history: Iterable[Commit], materialized_id: str) -> CommittedRefresh | None:
    """Return a table's last refresh from its commits, newest first.

    A commit of somebody else counts as foreign when it is newer, and also when it came between
    the version a refresh built on and the refresh's own commit.
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
    return None if found is None else _committed(found, foreign)


def _committed(commit: Commit, foreign: int | None) -> CommittedRefresh:
    facts = commit.metadata
    return CommittedRefresh(
        epoch=int(facts["epoch"]),
        version=commit.version,
        definition_version=int(facts["definition_version"]),
        vector={str(k): int(v) for k, v in facts["sources"].items()},
        refresh_id=str(facts["refresh_id"]),
        strategy=str(facts.get("strategy", "FULL")),
        partial=bool(facts.get("partial", False)),
        foreign_version=foreign,
        fingerprint=facts.get("fingerprint"),
        logical_time=datetime.fromisoformat(facts["logical_time"]),
        unique=tuple(facts.get("unique", ())),
        filled=bool(facts.get("filled", True)),
        frozen_at=datetime.fromisoformat(facts["frozen_at"]) if "frozen_at" in facts else None,
    )


def written(commit: Commit) -> Written:
    """Return what a commit counted."""

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


def replace_rows(
    session: SparkSession,
    path: str,
    removed: DataFrame,
    added: DataFrame,
    within: Column,
    order: RefreshOrder,
    metadata: str,
    *,
    few: bool,
) -> None:
    """Take away every row equal to one of ``removed``, add ``added``, in one commit.

    :param within: a condition over the table, aliased ``t``, that all of ``removed`` meet; files
        without such rows are not read.
    :param few: whether the rows can be sent to the table's, which need not be sorted then.
    """
    fields = removed.schema.fields
    source = removed.withColumn(_GONE, F.lit(True)).unionAll(added.withColumn(_GONE, F.lit(False)))
    source = F.broadcast(source) if few else source
    found = F.col(f"s.{_GONE}") & within & same("t", "s", fields)
    values = {f"t.{quote_identifier(f.name)}": named(f.name, "s") for f in fields}
    with _settings(session, order, metadata):
        (
            DeltaTable.forPath(session, path)
            .alias("t")
            .merge(source.alias("s"), found)
            .whenMatchedDelete()
            .whenNotMatchedInsert(~F.col(f"s.{_GONE}"), values)
            .execute()
        )


def advance(session: SparkSession, log: Any, order: RefreshOrder, metadata: str) -> bool:
    """Commit vector and epoch without data; False if this or a later epoch was committed."""
    jvm: Any = java(session)
    nothing = jvm.scala.Option.empty()
    with _settings(session, order, metadata), acting(session):
        transaction = log.startTransaction(nothing, nothing)
        if transaction.txnVersion(application(order)) >= order.epoch:
            return False
        now = jvm.scala.Option.apply(int(time.time() * 1000))
        actions = jvm.java.util.ArrayList()
        actions.add(
            jvm.org.apache.spark.sql.delta.actions.SetTransaction(
                application(order), order.epoch, now
            )
        )
        operation = scala_object(jvm, "org.apache.spark.sql.delta.DeltaOperations", "EmptyCommit")
        sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        transaction.commit(sequence, operation)
    return True


@contextmanager
def _settings(session: SparkSession, order: RefreshOrder, metadata: str) -> Iterator[None]:
    """Let the session's next commit carry epoch and metadata; MERGE takes no options."""
    settings = {
        **{f"{_TOKEN}.{key}": value for key, value in token(order).items()},
        _METADATA: metadata,
        # The source was checkpointed: it reads the same a second time.
        _MATERIALIZE: "none",
    }
    before = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, value)
