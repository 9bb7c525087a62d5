"""Copies Delta tables of this machine to storage that the executors of a cluster reach."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import java

_LOG = "_delta_log"
_CHECKPOINT = f"{_LOG}/_last_checkpoint"
"""The only file of a Delta table that is replaced."""


def mirror(spark: SparkSession, source: Path, location: str) -> None:
    """Make a directory equal to a Delta table of this machine.

    Readers see complete versions: a commit is copied after the files that it adds, and each file
    gets its name when it is complete.

    :param location: a directory of a Hadoop file system that nothing else writes.
    """
    jvm: Any = java(spark)
    root = jvm.org.apache.hadoop.fs.Path(location)
    files = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    root = files.makeQualified(root)
    local, there = _files_of(source), _files_there(files, root)
    missing = [name for name in local if name not in there or name == _CHECKPOINT]
    for name in sorted(
        missing, key=lambda name: (name.startswith(_LOG), name == _CHECKPOINT, name)
    ):
        target = jvm.org.apache.hadoop.fs.Path(root, name)
        files.mkdirs(target.getParent())
        arriving = jvm.org.apache.hadoop.fs.Path(target.getParent(), f".{uuid.uuid4()}")
        files.copyFromLocalFile(
            False, True, jvm.org.apache.hadoop.fs.Path(f"file:{source / name}"), arriving
        )
        files.delete(target, False)
        files.rename(arriving, target)
    for name in there - local:
        files.delete(jvm.org.apache.hadoop.fs.Path(root, name), False)


def _rank(name: str) -> tuple[bool, bool, str]:
    return name.startswith(_LOG), name == _CHECKPOINT, name


def _files_of(source: Path) -> set[str]:
    """Return the files of a local directory, relative to it."""
    return {
        os.path.relpath(os.path.join(folder, name), source)
        for folder, _, names in os.walk(source)
        for name in names
    }


def _files_there(files: Any, root: Any) -> set[str]:
    if not files.exists(root):
        return set()
    found, listed = set(), files.listFiles(root, True)
    while listed.hasNext():
        path = str(listed.next().getPath().toString())
        found.add(path.removeprefix(str(root.toString())).lstrip("/"))
    return found
