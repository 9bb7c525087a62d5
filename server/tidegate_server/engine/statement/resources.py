"""Checks that the files of ADD JAR, ADD FILE and ADD ARCHIVE exist; Spark ignores missing ones."""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.engine.query.references import parse_statement
from tidegate_server.engine.storage.jvm import items, java, kind

_ADDS = re.compile(r"\s*ADD\s+(JAR|FILE|ARCHIVE)S?\b", re.IGNORECASE)
_COMMANDS = frozenset({"AddJarsCommand", "AddFilesCommand", "AddArchivesCommand"})
_FETCHED = frozenset({"http", "https", "ftp", "ivy"})
"""Schemes whose files Spark fetches itself; it reports missing ones."""


def check_resources(spark: SparkSession, text: str) -> None:
    """Reject files that do not exist; Spark only logs a missing jar.

    :raises ServerError: RESOURCE_NOT_FOUND.
    """
    adds = _ADDS.match(text)
    if adds is None:
        return
    try:
        plan = parse_statement(spark, text)
    except PySparkException:
        return  # Spark raises the same error when it runs the statement
    if kind(plan) not in _COMMANDS:
        return
    session: Any = spark._jsparkSession
    hadoop = session.sessionState().newHadoopConf()
    paths = java(spark).org.apache.hadoop.fs.Path
    for written in items(plan.paths()):
        place = paths(str(written).partition("#")[0])
        if str(place.toUri().getScheme()) in _FETCHED:
            continue
        try:
            found = bool(place.getFileSystem(hadoop).exists(place))
        except Py4JJavaError:
            continue  # Spark reports why it cannot access the file
        if not found:
            statement = f"ADD {adds[1].upper()}"
            raise error(Code.RESOURCE_NOT_FOUND, statement=statement, path=written)
