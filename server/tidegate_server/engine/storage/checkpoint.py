"""The checkpoint of Structured Streaming for a table that ingests a stream.

It is a subdirectory of the table's, which the table itself ignores: it is moved and deleted
together with the table. The offsets in the table's commits are authoritative: each refresh makes
the checkpoint agree with the last commit, then continues from there. Only the list of files seen
and the first position in a stream are kept in the checkpoint alone.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.engine.storage.jvm import java

logger = logging.getLogger(__name__)

# Delta's VACUUM spares names that begin with an underscore.
_DIRECTORY = "_tidegate_stream"
_BEFORE = "0"
"""The batch for everything committed before."""
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
_PLANNED = 'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{}'


class Checkpoint:
    """The checkpoint of the table at ``location``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = java(spark)
        self._root = self._path(location, _DIRECTORY)
        session: Any = spark._jsparkSession
        self._files = self._root.getFileSystem(session.sessionState().newHadoopConf())

    def prepare(self, epoch: int, offsets: str | None, table: str) -> str:
        """Return the path of a checkpoint that continues the stream from ``offsets``.

        The path differs for each epoch, so that a refresh that outlived its lease fails instead of
        writing to the checkpoint of its successor.

        :raises ServerError: MT_DATA_LOST if the checkpoint is missing although rows were ingested.
        """
        place = self._path(self._root.toString(), str(epoch))
        found = sorted(self._epochs())
        if found and found[-1] != epoch:
            self._files.rename(self._path(self._root.toString(), str(found[-1])), place)
        for earlier in found[:-1]:
            self._files.delete(self._path(self._root.toString(), str(earlier)), True)
        if offsets is not None and not self._files.exists(self._path(place.toString(), "sources")):
            raise error(
                Code.MT_DATA_LOST,
                table=table,
                reason=f"its checkpoint is not in {place}",
            )
        for name in ("offsets", "commits", "metadata"):
            self._files.delete(self._path(place.toString(), name), True)
        if offsets is not None:
            self._write(_PLANNED.format(offsets), place.toString(), "offsets", _BEFORE)
            self._write(_COMMITTED, place.toString(), "commits", _BEFORE)
        return str(place.toString())

    def delete(self) -> None:
        """Delete it, with the table."""
        self._files.delete(self._root, True)

    def offsets(self, place: str, batch: int) -> str:
        """Return the end offsets of a batch.

        :raises py4j.protocol.Py4JJavaError: if another refresh has moved the checkpoint.
        """
        stream = self._files.open(self._path(place, "offsets", str(batch)))
        try:
            text = str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        return text.splitlines()[-1]

    def _write(self, text: str, *parts: str) -> None:
        stream = self._files.create(self._path(*parts))
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _epochs(self) -> list[int]:
        if not self._files.exists(self._root):
            return []
        names = (str(status.getPath().getName()) for status in self._files.listStatus(self._root))
        return [int(name) for name in names if name.isdigit()]

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join(parts))
