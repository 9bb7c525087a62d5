"""A query over materialized tables' own queries instead of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import ParseException

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Execute
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.engine.query.resolution import Place, Tables, View
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.storage.base import TableFormat


@contextmanager
def inlined(request: Execute, child: Child, format: TableFormat) -> Iterator[str]:
    """Give the text of a statement in which tables are replaced; valid until the block ends.

    Every table is read at one version, the newest, wherever the queries mention it.

    :raises ServerError: NOT_SUPPORTED if the statement is not one query, or if it reads such a
        table where that cannot be replaced.
    """
    if not request.inlined:
        yield request.sql
        return
    place = Place(DEFAULT_CATALOG, DEFAULT_SCHEMA)
    queries = {
        table.name: View(
            text=table.query,
            place=place,
            produced=table.columns,
            columns=table.columns,
            settings=table.settings,
        )
        for table in request.inlined
    }
    tables = Tables(child.spark, format, queries=queries)
    try:
        yield _replaced(request, child, tables)
    finally:
        tables.drop_registered()


def _replaced(request: Execute, child: Child, tables: Tables) -> str:
    try:
        text = tables.pin(request.sql, *child.current())
    except ParseException as failed:
        raise _refused("a statement that is more than a query") from failed
    if tables.temporary:
        raise _refused(f"the temporary {min(tables.temporary)}")
    for table in request.inlined:
        if table.mentioned and table.name not in tables.replaced:
            raise _refused(f"{table.name} in another way than by its name")
    return text


def _refused(what: str) -> ServerError:
    return error(
        Code.NOT_SUPPORTED,
        what=f"INLINE for {what}",
        hint="Use REFRESH, SERVE or FAIL in materialized-table.read.max-staleness.",
    )
