"""Reads the files of a Delta snapshot by what is known of it already, without a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.storage.jvm import active_session, items, java


def known_files(snapshot: Any) -> list[Any] | None:
    """Return Delta's descriptions of all files, if the checksum of a small table has them."""
    checksum = snapshot.checksumOpt()
    known = checksum.get().allFiles() if checksum.isDefined() else checksum
    return list(items(known.get())) if known.isDefined() else None


def known_bytes(snapshot: Any) -> int | None:
    """Return the size of all files, if the snapshot has a checksum."""
    checksum = snapshot.checksumOpt()
    return int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None


def read_files(session: SparkSession, snapshot: Any, files: Sequence[Any]) -> DataFrame:
    """Return the rows of some of a snapshot's files."""
    jvm = java(session)
    found = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(files))
    with active_session(session):
        rows = snapshot.deltaLog().createDataFrame(snapshot, found, False, jvm.scala.Option.empty())
    return DataFrame(rows, session)
