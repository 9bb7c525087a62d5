"""Fingerprints of unversioned tables of files, computed without a Spark job."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.catalogs.base import HIVE
from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.base import is_foreign, is_path
from tidegate_server.engine.storage.foreign import ForeignRows, foreign_rows
from tidegate_server.engine.storage.jvm import FILES, is_instance, items, java, kind, scala_object

logger = logging.getLogger(__name__)

MOST_FILES = 10_000
"""Tables with more files, including hidden ones and directories, get no fingerprint."""

_FILE_SOURCES = (
    "org.apache.spark.sql.execution.datasources.FileFormat",
    "org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2",
)
# Hive formats that keep rows in files below the table's location; others may refer elsewhere.
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
# Separates the files of a listing, since no path has two slashes in a row.
_BETWEEN = "//"
# Properties in which Hive records when a table was last altered.
_TOUCHED = ("(transient_lastDdlTime,", "(last_modified_")
_STATUS = re.compile(r"SerializableFileStatus\((.*),(\d+),(true|false),(\d+)\)", re.DOTALL)
# Milliseconds within which a file can be rewritten with the same modification time, on file systems
# that record milliseconds and whole seconds.
_TICK, _WHOLE_SECOND = 20, 1000

_providers: dict[str, bool] = {}
"""Whether data sources read files, by name; cached because a lookup is slow."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A listed file."""

    path: str
    size: int
    """Bytes."""
    modified: int
    """Milliseconds since 1970."""


def fingerprint(
    spark: SparkSession, name: TableName, entry: Any, *, settled: bool = False
) -> int | None:
    """Return a number of 53 bits that changes when the files of a table change.

    It is a hash of the path, size and modification time of each file that Spark reads, and of the
    catalog's metadata on the table and its partitions.

    :param entry: the session catalog's entry of the table; None for one named by its path.
    :param settled: wait briefly if a file is so new that it could be rewritten without a change of
        its modification time.
    Tables of catalogs have that of what identifies their rows (:func:`foreign_rows`).

    :return: None if the table is not known to consist of files or has too many, and if the listing
        fails or files keep changing.
    """
    try:
        if is_foreign(name):
            found = foreign_rows(spark, name)
            if found is None:
                return None
            if not found.files:
                return _number(found.facts)
            table = _of_catalog(spark, found)
        else:
            table = _describe(spark, name, entry)
        if table is None:
            return None
        files = (
            _list_when_settled(lambda: _list_files(spark, table))
            if settled
            else _list_files(spark, table)
        )
    except (PySparkException, Py4JJavaError) as error:
        logger.debug("the files of %s cannot be listed: %s", name, error)
        return None
    if files is None:
        return None
    listed = sorted({f"{file.path}\0{file.size}\0{file.modified}" for file in files})
    return _number((*table.facts, *listed))


def _number(facts: Iterable[str]) -> int:
    digest = hashlib.sha256("\n".join(facts).encode()).digest()
    return int.from_bytes(digest[:8]) >> 11


def forget_cached(spark: SparkSession, name: TableName, entry: Any) -> None:
    """Invalidate what CACHE TABLE cached of a table of files."""
    session: Any = spark._jsparkSession
    if session.sharedState().cacheManager().isEmpty():
        return
    table = _describe(spark, name, entry)
    for root in () if table is None else table.roots:
        session.catalog().refreshByPath(root)


def reads_plain_files(spark: SparkSession, leaf: Any) -> bool:
    """Say whether a leaf of an analyzed plan reads unversioned files."""
    if kind(leaf) != "LogicalRelation" or not is_instance(java(spark), leaf.relation(), FILES):
        return False
    return kind(leaf.relation().location()) in {"InMemoryFileIndex", "CatalogFileIndex"}


def list_files(spark: SparkSession, analyzed: Any) -> None:
    """Make Spark list the unversioned files of an analyzed plan now rather than when it runs."""
    for plan in (analyzed, *items(analyzed.subqueriesAll())):
        for leaf in items(plan.collectLeaves()):
            if reads_plain_files(spark, leaf):
                leaf.relation().location().inputFiles()


@dataclass(frozen=True, slots=True)
class _FileTable:
    configuration: Any
    """Hadoop's configuration; kept because it is slow to create."""
    roots: tuple[str, ...]
    facts: tuple[str, ...]
    """Further metadata that determines which rows are read, and how."""


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
    # Partitions at their default location are below the table's; only others are worth a JVM call.
    usual = f"{place.get().toString()}/"
    places = (match.group(1) for match in _PARTITION_PLACE.finditer(partitions))
    elsewhere = [e for e in places if not e.startswith(usual) or _in_hidden(e.removeprefix(usual))]
    outside = [qualify(jvm.java.net.URI.create(each)) for each in elsewhere]
    properties = (str(pair.toString()) for pair in items(entry.properties().toSeq()))
    facts = (
        *(provider, root, str(entry.schema().json())),
        *sorted(str(pair.toString()) for pair in items(storage.properties().toSeq())),
        *sorted(p for p in properties if not p.startswith(_TOUCHED)),
        *sorted("".join(_PARTITION.findall(each)) for each in partitions.split(_PARTITION_BEGIN)),
    )
    return _FileTable(configuration, (root, *dict.fromkeys(outside)), facts)


def _of_catalog(spark: SparkSession, found: ForeignRows) -> _FileTable | None:
    """Return the files of a table of a catalog; None if its data source reads none."""
    if found.format != HIVE and not _is_file_source(spark, found.format):
        return None
    configuration = _configuration(spark)
    path = java(spark).org.apache.hadoop.fs.Path
    first, *others = found.files
    # Partitions are below the directory of their table, or have directories of their own.
    below = f"{first.rstrip('/')}/"
    outside = [
        each for each in others if not each.startswith(below) or _in_hidden(each[len(below) :])
    ]
    roots = (_qualify(configuration, path(each)) for each in (first, *outside))
    return _FileTable(configuration, tuple(dict.fromkeys(roots)), found.facts)


def _at_path(spark: SparkSession, name: TableName) -> _FileTable:
    """Return the files of a table named by its path, with wildcards expanded."""
    jvm: Any = java(spark)
    configuration, path = _configuration(spark), jvm.org.apache.hadoop.fs.Path(name.table)
    found = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().globPathIfNecessary(
        path.getFileSystem(configuration), path
    )
    roots = tuple(_qualify(configuration, root) for root in items(found))
    return _FileTable(configuration, roots, (name.schema.lower(), *roots))


def _is_file_source(spark: SparkSession, provider: str) -> bool:
    """Say whether a data source reads files, through either version of Spark's API."""
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
    """Return the catalog's description of a table's partitions; None if they are too many."""
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
    """Return a path as it appears in listings."""
    return str(path.getFileSystem(configuration).makeQualified(path).toString())


def _list_files(spark: SparkSession, table: _FileTable) -> list[StoredFile] | None:
    """Return the files of a table that Spark reads; None if they are too many.

    The listing is fetched as one string: a JVM call per file would take longer than the listing.
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
            raise AssertionError(f"unexpected entry in a listing: {entry!r}")
        path, size, directory, modified = status.groups()
        above = (root for root in roots if path.startswith(f"{root}/"))
        below = "" if path in roots else path.removeprefix(max(above, key=len, default=""))
        if directory == "false" and not _in_hidden(below):
            yield StoredFile(path, int(size), int(modified))


def _in_hidden(path: str) -> bool:
    return any(map(_is_hidden, path.split("/")))


def _is_hidden(name: str) -> bool:
    """Say whether Spark ignores files and directories of this name."""
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    marked = name.startswith("_") and "=" not in name
    return marked or name.startswith(".") or name.endswith("._COPYING_")


def _list_when_settled(
    list_files: Callable[[], list[StoredFile] | None],
) -> list[StoredFile] | None:
    """List again, once, if a file is so new that a rewrite could keep its modification time."""
    for wait in (True, False):
        now = int(time.time() * 1000)
        files = list_files()
        if files is None:
            return None
        new = [left for file in files if (left := milliseconds_unsettled(file, now)) > 0]
        if not new:
            return files
        if wait:
            time.sleep(max(new) / 1000)
    return None


def milliseconds_unsettled(file: StoredFile, now: int) -> int:
    """Return for how many milliseconds a file may still be rewritten with the same time."""
    if file.modified > now + _TICK:
        return 0  # from another clock, or set explicitly
    tick = _TICK if file.modified % _WHOLE_SECOND else _WHOLE_SECOND + _TICK
    return file.modified + tick - now


def _configuration(spark: SparkSession) -> Any:
    session: Any = spark._jsparkSession
    return session.sessionState().newHadoopConf()
