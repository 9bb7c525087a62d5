"""Where Structured Streaming keeps its notes on a table that takes in a stream.

It is a directory within the table's, which the table itself does not look at: whatever moves or
removes the table takes it along. What was taken in is said by the table's commits alone: each
refresh makes the notes agree with the last one, then goes on from there. Only the list of files
that were found and the first position in a stream are Spark's own to keep.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.engine.storage.jvm import java

logger = logging.getLogger(__name__)

# Delta's VACUUM leaves alone what begins with an underscore.
_DIRECTORY = "_tidegate_stream"
_BEFORE = "0"
"""The batch that stands for all that was committed before."""
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
_PLANNED = 'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{}'


class Checkpoint:
    """The notes of the table at ``location``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = java(spark)
        self._root = self._path(location, _DIRECTORY)
        session: Any = spark._jsparkSession
        self._files = self._root.getFileSystem(session.sessionState().newHadoopConf())

    def prepare(self, epoch: int, offsets: str | None, table: str) -> str:
        """Return the place of the notes, which say that the stream was taken in up to ``offsets``.

        It is another one for each epoch, so that a refresh that outlived its lease finds its own
        gone.

        :raises ServerError: MT_DATA_LOST if there are none although something was taken in.
        """
        place = self._path(self._root.toString(), str(epoch))
        found = sorted(self._epochs())
        if found and found[-1] != epoch:
            self._files.rename(self._path(self._root.toString(), str(found[-1])), place)
        for earlier in found[:-1]:
            self._files.delete(self._path(self._root.toString(), str(earlier)), True)
        if offsets is not None and not self._files.exists(self._path(place.toString(), "sources")):
            raise error(
                Code.MT_DATA_LOST, table=table, reason=f"its notes on the stream are not in {place}"
            )
        for notes in ("offsets", "commits", "metadata"):
            self._files.delete(self._path(place.toString(), notes), True)
        if offsets is not None:
            self._write(_PLANNED.format(offsets), place.toString(), "offsets", _BEFORE)
            self._write(_COMMITTED, place.toString(), "commits", _BEFORE)
        return str(place.toString())

    def offsets(self, place: str, batch: int) -> str:
        """Return up to where a batch takes in the stream.

        :raises py4j.protocol.Py4JJavaError: if the place is another refresh's by now.
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
