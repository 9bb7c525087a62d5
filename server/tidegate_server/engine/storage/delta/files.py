"""Reads the files of a Delta snapshot by its checksum, without a Spark job to list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.storage.jvm import active_session, items, java


def known_files(snapshot: Any, *, most: int | None = None) -> list[Any] | None:
    """Return all ``AddFile`` actions if the checksum has them, as for small tables.

    :param most: None is returned if there are more files.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().allFiles() if checksum.isDefined() else checksum
    if not known.isDefined():
        return None
    files = known.get()
    return None if most is not None and files.size() > most else list(items(files))


def known_bytes(snapshot: Any) -> int | None:
    """Return the total size of the files, if the snapshot has a checksum."""
    checksum = snapshot.checksumOpt()
    return int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None


def read_files(session: SparkSession, snapshot: Any, files: Sequence[Any]) -> DataFrame:
    """Return the rows of some files of a snapshot."""
    jvm = java(session)
    found = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(files))
    with active_session(session):
        rows = snapshot.deltaLog().createDataFrame(snapshot, found, False, jvm.scala.Option.empty())
    return DataFrame(rows, session)
