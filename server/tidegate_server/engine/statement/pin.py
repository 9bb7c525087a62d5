"""Runs a query with its tables pinned to given versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Execute, PinnedVersions
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.statement.survey import readings_of
from tidegate_server.engine.storage.base import VersionGoneError
from tidegate_server.engine.storage.formats import TableFormats
from tidegate_server.engine.storage.retention import is_gone

_KEY = "materialized-table.read.consistency"


def pin_versions(
    request: Execute, versions: PinnedVersions, child: Child, formats: TableFormats
) -> DataFrame:
    """Return the analyzed query; time travel in the query itself takes precedence.

    :raises ServerError: NOT_SUPPORTED if the statement is not a single query, or if it reads a
        table in a way that cannot be pinned.
    """
    wanted = dict(versions.sources)
    for table in versions.tables:
        state = formats.of(table.name).find(table.name)
        if state is not None:
            wanted[state.table_id] = state.newest if table.version is None else table.version
    tables = Tables(child.spark, formats.own, wanted=wanted)
    try:
        frame = child.spark.sql(tables.pin(request.sql, *child.current()))
    except ParseException as caught:
        raise _not_supported("a statement that is not a single query") from caught
    except AnalysisException:
        # An error in the statement itself is reported for its original text.
        child.spark.sql(request.sql)
        raise
    finally:
        tables.drop_registered()
    for reading in readings_of(frame._jdf.queryExecution().analyzed()):
        if reading.name is None or reading.travelled:
            continue
        state = formats.sources.find(reading.name)
        if state is not None and state.table_id in wanted:
            raise _not_supported(f"{reading.name}, which is not read by its name,")
    return frame


@contextmanager
def report_missing_versions(versions: PinnedVersions | None) -> Iterator[None]:
    """Convert the error of a query that fails because a pinned version was removed.

    :raises ServerError: MT_SNAPSHOT_UNAVAILABLE.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError, VersionGoneError) as caught:
        if versions is None or not is_gone(caught):
            raise
        raise error(
            Code.MT_SNAPSHOT_UNAVAILABLE,
            tables=", ".join(str(table.name) for table in versions.tables),
            reason="files of the newest such versions were removed",
            key=_KEY,
        ) from caught


def _not_supported(what: str) -> ServerError:
    return error(
        Code.NOT_SUPPORTED,
        what=f"SNAPSHOT for {what}",
        hint=f"SET '{_KEY}' = 'LATEST' to read the newest version of each table.",
    )
