"""Fetches results that executors on other machines have written, through shared storage."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import java

_MEASURED_SECONDS = 5.0
"""Listing a directory of an object store takes long: its size is measured that rarely."""


class Staging:
    """A directory that executors write and this process reads; it belongs to this engine alone."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        """Empty the directory, where an earlier process may have left files.

        :param uri: a directory of a Hadoop file system.
        """
        self._jvm: Any = java(spark)
        self._root = self._jvm.org.apache.hadoop.fs.Path(uri)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._root.getFileSystem(configuration)
        self._files.delete(self._root, True)
        self._measured_at = 0.0
        self._bytes = 0

    def place(self, result_id: str) -> str:
        """Return the URI of the directory of a result, which does not exist yet."""
        return str(self._path(result_id).toString())

    def fetch(self, result_id: str, directory: Path, check: Callable[[], None]) -> None:
        """Copy the files of a result into a new local directory, and delete them.

        :param check: called before each file; raises if the result is no longer wanted.
        """
        directory.mkdir()
        for status in self._files.listStatus(self._path(result_id)):
            if status.isFile():
                check()
                target = self._jvm.org.apache.hadoop.fs.Path(
                    f"file:{directory / status.getPath().getName()}"
                )
                self._files.copyToLocalFile(False, status.getPath(), target, True)
        self.delete(result_id)

    def delete(self, result_id: str) -> None:
        """Delete the files of a result; repeating this is harmless."""
        self._files.delete(self._path(result_id), True)

    def bytes(self) -> int:
        """Return the size of all files, as of a few seconds ago."""
        now = time.monotonic()
        if now - self._measured_at >= _MEASURED_SECONDS:
            exists = self._files.exists(self._root)
            self._bytes = self._files.getContentSummary(self._root).getLength() if exists else 0
            self._measured_at = now
        return self._bytes

    def _path(self, result_id: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, result_id)
