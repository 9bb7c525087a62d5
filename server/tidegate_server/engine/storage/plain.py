"""Fingerprints of tables that are files without versions, taken without a Spark job."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.base import is_path
from tidegate_server.engine.storage.jvm import FILES, is_instance, items, java, kind, scala_object

logger = logging.getLogger(__name__)

MOST_FILES = 10_000
"""Of a table of more files, hidden ones and directories included, no fingerprint is made."""

_FILE_SOURCES = (
    "org.apache.spark.sql.execution.datasources.FileFormat",
    "org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2",
)
# Hive's formats whose rows are in the files below a table's place; others may point elsewhere.
_HIVE_INPUTS = frozenset(
    {
        "org.apache.hadoop.mapred.TextInputFormat",
        "org.apache.hadoop.mapred.SequenceFileInputFormat",
        "org.apache.hadoop.hive.ql.io.RCFileInputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    }
)
_PARTITION_BEGIN = "CatalogPartition("
_PARTITION = re.compile(r"^\t(?:Partition Values|Location): .*$", re.MULTILINE)
_PARTITION_PLACE = re.compile(r"^\tLocation: (.*)$", re.MULTILINE)
# No path has two slashes in a row, so that they tell one file of a listing from the next.
_BETWEEN = "//"
# Hive notes there when somebody last changed anything about a table.
_TOUCHED = ("(transient_lastDdlTime,", "(last_modified_")
_STATUS = re.compile(r"SerializableFileStatus\((.*),(\d+),(true|false),(\d+)\)", re.DOTALL)
# So long, in milliseconds, may a file be written again without another time of modification.
_TICK, _WHOLE_SECOND = 20, 1000

_providers: dict[str, bool] = {}
"""Whether data sources are of files, by their names; to look one up takes long."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a listing."""

    path: str
    size: int
    """Bytes."""
    modified: int
    """Milliseconds since 1970."""


def fingerprint(
    spark: SparkSession, name: TableName, entry: Any, *, settled: bool = False
) -> int | None:
    """Return a number of 53 bits that is another one when the files of a table are others.

    It is made of the path, size and time of modification of each file, and of what the catalog
    says of the table and its partitions; those that Spark leaves out do not count.

    :param entry: the session catalog's entry of the table; None for one named by its path.
    :param settled: wait a moment where a file was written so lately that it could still be written
        again without being told from what it is now.
    :return: None for what is not known to be files, for too many of them, and where the listing
        fails or does not settle.
    """
    try:
        table = _describe(spark, name, entry)
        if table is None:
            return None
        files = (
            _list_when_settled(lambda: _list_files(spark, table))
            if settled
            else _list_files(spark, table)
        )
    except (PySparkException, Py4JJavaError) as failed:
        logger.debug("the files of %s cannot be listed: %s", name, failed)
        return None
    if files is None:
        return None
    listed = sorted({f"{file.path}\0{file.size}\0{file.modified}" for file in files})
    digest = hashlib.sha256("\n".join([*table.facts, *listed]).encode()).digest()
    return int.from_bytes(digest[:8]) >> 11


def forget_cached(spark: SparkSession, name: TableName, entry: Any) -> None:
    """Have what CACHE TABLE keeps of a table of files listed and read anew."""
    session: Any = spark._jsparkSession
    if session.sharedState().cacheManager().isEmpty():
        return
    table = _describe(spark, name, entry)
    for root in () if table is None else table.roots:
        session.catalog().refreshByPath(root)


def reads_plain_files(spark: SparkSession, leaf: Any) -> bool:
    """Say whether a leaf of an analyzed plan reads files that have no versions."""
    if kind(leaf) != "LogicalRelation" or not is_instance(java(spark), leaf.relation(), FILES):
        return False
    return kind(leaf.relation().location()) in {"InMemoryFileIndex", "CatalogFileIndex"}


def list_files(spark: SparkSession, analyzed: Any) -> None:
    """List what an analyzed plan reads of such files, as far as Spark puts that off."""
    for plan in (analyzed, *items(analyzed.subqueriesAll())):
        for leaf in items(plan.collectLeaves()):
            if reads_plain_files(spark, leaf):
                leaf.relation().location().inputFiles()


@dataclass(frozen=True, slots=True)
class _FileTable:
    configuration: Any
    """Hadoop's, which takes long to make."""
    roots: tuple[str, ...]
    facts: tuple[str, ...]
    """What else says which rows are read, and how."""


def _describe(spark: SparkSession, name: TableName, entry: Any) -> _FileTable | None:
    if is_path(name):
        return _at_path(spark, name) if _is_file_source(spark, name.schema) else None
    if entry is None or entry.tableType().name() == "VIEW" or not entry.provider().isDefined():
        return None
    provider, storage = str(entry.provider().get()), entry.storage()
    if provider.lower() == "hive":
        inputs = storage.inputFormat()
        if not inputs.isDefined() or str(inputs.get()) not in _HIVE_INPUTS:
            return None
    elif not _is_file_source(spark, provider):
        return None
    place = storage.locationUri()
    if not place.isDefined():
        return None
    jvm: Any = java(spark)
    configuration = _configuration(spark)

    def qualify(place: Any) -> str:
        return _qualify(configuration, jvm.org.apache.hadoop.fs.Path(place))

    root = qualify(place.get())
    partitions = _partitions(spark, entry)
    if partitions is None:
        return None
    # A partition at its usual place is below the table's; asking the JVM of each takes long.
    usual = f"{place.get().toString()}/"
    told = (match.group(1) for match in _PARTITION_PLACE.finditer(partitions))
    elsewhere = [e for e in told if not e.startswith(usual) or _in_hidden(e.removeprefix(usual))]
    outside = [qualify(jvm.java.net.URI.create(each)) for each in elsewhere]
    properties = (str(pair.toString()) for pair in items(entry.properties().toSeq()))
    facts = (
        *(provider, root, str(entry.schema().json())),
        *sorted(str(pair.toString()) for pair in items(storage.properties().toSeq())),
        *sorted(p for p in properties if not p.startswith(_TOUCHED)),
        *sorted("".join(_PARTITION.findall(each)) for each in partitions.split(_PARTITION_BEGIN)),
    )
    return _FileTable(configuration, (root, *dict.fromkeys(outside)), facts)


def _at_path(spark: SparkSession, name: TableName) -> _FileTable:
    """Return what a table named by its path reads; wildcards in it are looked up."""
    jvm: Any = java(spark)
    configuration, path = _configuration(spark), jvm.org.apache.hadoop.fs.Path(name.table)
    found = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().globPathIfNecessary(
        path.getFileSystem(configuration), path
    )
    roots = tuple(_qualify(configuration, root) for root in items(found))
    return _FileTable(configuration, roots, (name.schema.lower(), *roots))


def _is_file_source(spark: SparkSession, provider: str) -> bool:
    """Say whether a data source is one of files, old or new generation."""
    known = _providers.get(provider.lower())
    if known is not None:
        return known
    jvm: Any = java(spark)
    session: Any = spark._jsparkSession
    found = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(
        provider, session.sessionState().conf()
    )
    kinds = map(jvm.java.lang.Class.forName, _FILE_SOURCES)
    return _providers.setdefault(
        provider.lower(), any(each.isAssignableFrom(found) for each in kinds)
    )


def _partitions(spark: SparkSession, entry: Any) -> str | None:
    """Return what the catalog says of a table's partitions; None if they are too many."""
    if not entry.partitionColumnNames().nonEmpty():
        return ""
    session: Any = spark._jsparkSession
    found = (
        session.sharedState()
        .externalCatalog()
        .listPartitions(
            entry.identifier().database().get(),
            entry.identifier().table(),
            java(spark).scala.Option.empty(),
        )
    )
    return None if found.size() > MOST_FILES else str(found.mkString("\n"))


def _qualify(configuration: Any, path: Any) -> str:
    """Return a path as listings of its files begin."""
    return str(path.getFileSystem(configuration).makeQualified(path).toString())


def _list_files(spark: SparkSession, table: _FileTable) -> list[StoredFile] | None:
    """Return the files of a table that Spark reads; None if they are too many.

    The listing comes in one piece, since asking the JVM of each file takes longer than listing.
    """
    jvm: Any = java(spark)
    places = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(table.roots))
    nothing = scala_object(jvm, "scala.collection.immutable.Map").empty().withDefaultValue(False)
    operations = scala_object(jvm, "org.apache.spark.sql.delta.util.DeltaFileOperations")
    found = operations.localListDirs(table.configuration, places, True, nothing, nothing)
    entries = str(found.take(MOST_FILES + 1).mkString(_BETWEEN)).split(_BETWEEN)
    if len(entries) > MOST_FILES:
        return None
    return list(_files(entries, table.roots))


def _files(entries: list[str], roots: tuple[str, ...]) -> Iterator[StoredFile]:
    for entry in filter(None, entries):
        status = _STATUS.fullmatch(entry)
        if status is None:
            raise AssertionError(f"a listing has no entries such as {entry!r}")
        path, size, directory, modified = status.groups()
        above = (root for root in roots if path.startswith(f"{root}/"))
        below = "" if path in roots else path.removeprefix(max(above, key=len, default=""))
        if directory == "false" and not _in_hidden(below):
            yield StoredFile(path, int(size), int(modified))


def _in_hidden(path: str) -> bool:
    return any(map(_is_hidden, path.split("/")))


def _is_hidden(name: str) -> bool:
    """Say whether Spark leaves a file or directory of this name out."""
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    marked = name.startswith("_") and "=" not in name
    return marked or name.startswith(".") or name.endswith("._COPYING_")


def _list_when_settled(listed: Callable[[], list[StoredFile] | None]) -> list[StoredFile] | None:
    """List until no file is so new that another write could leave its time as it is."""
    for wait in (True, False):
        now = int(time.time() * 1000)
        files = listed()
        if files is None:
            return None
        new = [left for file in files if (left := unsettled_for(file, now)) > 0]
        if not new:
            return files
        if wait:
            time.sleep(max(new) / 1000)
    return None


def unsettled_for(file: StoredFile, now: int) -> int:
    """Return for how many milliseconds after ``now`` a file's time may stay when it is written."""
    if file.modified > now + _TICK:
        return 0  # by another clock, or set by hand
    tick = _TICK if file.modified % _WHOLE_SECOND else _WHOLE_SECOND + _TICK
    return file.modified + tick - now


def _configuration(spark: SparkSession) -> Any:
    session: Any = spark._jsparkSession
    return session.sessionState().newHadoopConf()
