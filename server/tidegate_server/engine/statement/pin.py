"""A query in which every table is read at one version, chosen before."""

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
from tidegate_server.engine.statement.survey import read_by
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.delta.retention import is_gone

_KEY = "materialized-table.read.consistency"


def pinned(
    request: Execute, versions: PinnedVersions, child: Child, format: TableFormat
) -> DataFrame:
    """Return the analyzed query; a version that it chooses itself stays chosen.

    :raises ServerError: NOT_SUPPORTED if the statement is not one query, or if it reads such a
        table where no version can be given.
    """
    wanted = dict(versions.sources)
    for table in versions.tables:
        state = format.find(table.name)
        if state is not None:
            wanted[state.table_id] = state.newest if table.version is None else table.version
    tables = Tables(child.spark, format, wanted=wanted)
    try:
        frame = child.spark.sql(tables.pin(request.sql, *child.current()))
    except ParseException as failed:
        raise _refused("a statement that is more than a query") from failed
    except AnalysisException:
        # What is wrong with the statement itself is told of its own text.
        child.spark.sql(request.sql)
        raise
    finally:
        tables.drop_registered()
    for reading in read_by(frame._jdf.queryExecution().analyzed()):
        state = format.find(reading.name) if reading.name and not reading.travelled else None
        if state is not None and state.table_id in wanted:
            raise _refused(f"{reading.name} in another way than by its name")
    return frame


@contextmanager
def readable(versions: PinnedVersions | None) -> Iterator[None]:
    """Say of a query that fails since a version is gone that it is.

    :raises ServerError: MT_SNAPSHOT_UNAVAILABLE.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as failed:
        if versions is None or not is_gone(failed):
            raise
        raise error(
            Code.MT_SNAPSHOT_UNAVAILABLE,
            tables=", ".join(str(table.name) for table in versions.tables),
            reason="files of the newest such versions were removed",
            key=_KEY,
        ) from failed


def _refused(what: str) -> ServerError:
    return error(
        Code.NOT_SUPPORTED,
        what=f"SNAPSHOT for {what}",
        hint=f"SET '{_KEY}' = 'LATEST' to read the newest version of each table.",
    )
