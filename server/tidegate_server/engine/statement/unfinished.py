"""Deletes the files that a failed CREATE TABLE leaves behind."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName, qualify
from tidegate_server.engine.query.resolution import Place, current_place
from tidegate_server.engine.session.operations import count_running_tasks
from tidegate_server.engine.statement.targets import (
    CopyTarget,
    NewTarget,
    PathTarget,
    TableTarget,
    Target,
    is_path,
)
from tidegate_server.engine.storage.entries import entry_of
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.table_locations import TableLocations

logger = logging.getLogger(__name__)

_CREATING: Final = ("CREATE TABLE", "CREATE OR REPLACE TABLE")
_CLOCK_STEP_MS: Final = 2_000
"""By how much the timestamps of a file system may lag behind, or be rounded down."""
_TASKS_SECONDS: Final = 10.0
_TASKS_TICK: Final = 0.05


@dataclass(slots=True, eq=False)
class _Claim:
    """A path at which a running statement may create a table."""

    path: Any
    name: TableName | None
    """The table that will be there; None if the statement gives only the path."""
    since: int
    """When the statement began, in milliseconds since 1970."""
    shared: bool = False
    """Whether a concurrent statement may create a table there."""
    was_free: bool = False
    """Whether neither a table nor a directory existed when the statement began."""


_lock = threading.Lock()
_claims: dict[str, list[_Claim]] = {}


@contextmanager
def reclaim_storage(
    spark: SparkSession, targets: Iterable[Target], operation_id: str
) -> Iterator[None]:
    """Delete the files of a table if the statement that creates it fails.

    Delta writes files before it checks everything, and the leftovers would block the table's name.
    A directory is deleted only if it did not exist when the statement began, no concurrent
    statement could have created it, no table of that name exists, and everything in it is newer
    than the statement.

    :param targets: what the statement changes.
    :param operation_id: the operation whose Spark tasks to wait for, since they may still write.
    """
    claims = _claim_places(spark, targets)
    try:
        yield
    except BaseException:
        for claim in claims:
            if claim.was_free:
                _reclaim(spark, claim, operation_id)
        raise
    finally:
        _release(claims)


def _claim_places(spark: SparkSession, targets: Iterable[Target]) -> list[_Claim]:
    since = time.time_ns() // 1_000_000 - _CLOCK_STEP_MS
    claims = [
        _Claim(path=path, name=name, since=since) for name, path in _target_paths(spark, targets)
    ]
    for claim in claims:
        with _lock:
            others = _claims.setdefault(_key(claim), [])
            others.append(claim)
            for each in others:
                each.shared = each.shared or len(others) > 1
    # Checked after claiming: of two concurrent statements, at least the later one sees a share.
    for claim in claims:
        claim.was_free = not _exists(spark, claim) and not _has_table(spark, claim)
    return claims


def _release(claims: Sequence[_Claim]) -> None:
    with _lock:
        for claim in claims:
            left = [each for each in _claims[_key(claim)] if each is not claim]
            if left:
                _claims[_key(claim)] = left
            else:
                del _claims[_key(claim)]


def _target_paths(
    spark: SparkSession, targets: Iterable[Target]
) -> Iterator[tuple[TableName | None, Any]]:
    """Yield the paths at which a statement may create tables, with the tables' names if known."""
    jvm: Any = java(spark)
    here = current_place(spark)
    configuration = _session(spark).sessionState().newHadoopConf()
    for target in targets:
        match target:
            case PathTarget(action=action, path=path) if action in _CREATING:
                place = jvm.org.apache.hadoop.fs.Path(path)
                # A relative path is below the schema's directory, which is not resolved here.
                if place.isAbsolute():
                    yield None, place.getFileSystem(configuration).makeQualified(place)
            case NewTarget(name=parts) | CopyTarget(name=parts):
                yield from _usual_path(spark, parts, here)
            case TableTarget(action=action, name=parts) if action in _CREATING:
                yield from _usual_path(spark, parts, here)


def _usual_path(
    spark: SparkSession, parts: tuple[str, ...], here: Place
) -> Iterator[tuple[TableName, Any]]:
    if is_path(parts) or len(parts) > 3:
        return
    name = qualify(parts, here.catalog, here.schema)
    catalog = _session(spark).sharedState().externalCatalog()
    if name.catalog.lower() == DEFAULT_CATALOG and catalog.databaseExists(name.schema.lower()):
        place = java(spark).org.apache.hadoop.fs.Path(TableLocations(spark).default_location(name))
        system = place.getFileSystem(_session(spark).sessionState().newHadoopConf())
        yield name, system.makeQualified(place)


def _reclaim(spark: SparkSession, claim: _Claim, operation_id: str) -> None:
    """Delete the files at a claimed path; only log errors, since one is being raised already."""
    try:
        _wait_for_tasks(spark, operation_id)
        if claim.shared or not _exists(spark, claim) or _has_table(spark, claim):
            return
        if not _is_young(spark, claim):
            logger.warning("kept %s: it has files older than the failed statement", claim.path)
            return
        _file_system(spark, claim).delete(claim.path, True)
        # Delta has cached the log, which no longer exists.
        log: Any = java(spark).org.apache.spark.sql.delta.DeltaLog
        log.invalidateCache(_session(spark), claim.path)
        logger.info("deleted %s of a failed CREATE TABLE", claim.path)
    except (PySparkException, Py4JError):
        logger.warning("cannot delete %s of a failed CREATE TABLE", claim.path, exc_info=True)


def _is_young(spark: SparkSession, claim: _Claim) -> bool:
    """Say whether everything below a path was written since the statement began."""
    system = _file_system(spark, claim)
    left = [system.getFileStatus(claim.path)]
    while left:
        status = left.pop()
        if status.getModificationTime() < claim.since:
            return False
        if status.isDirectory():
            left += list(system.listStatus(status.getPath()))
    return True


def _exists(spark: SparkSession, claim: _Claim) -> bool:
    return bool(_file_system(spark, claim).exists(claim.path))


def _has_table(spark: SparkSession, claim: _Claim) -> bool:
    return claim.name is not None and entry_of(spark, claim.name) is not None


def _file_system(spark: SparkSession, claim: _Claim) -> Any:
    return claim.path.getFileSystem(_session(spark).sessionState().newHadoopConf())


def _wait_for_tasks(spark: SparkSession, operation_id: str) -> None:
    """Wait until the tasks of a failed operation have ended, at most for some seconds."""
    deadline = time.monotonic() + _TASKS_SECONDS
    while count_running_tasks(spark, operation_id):
        if time.monotonic() > deadline:
            logger.warning("tasks of %s are still running after its failure", operation_id)
            return
        time.sleep(_TASKS_TICK)


def _key(claim: _Claim) -> str:
    return str(claim.path.toString())


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession
