"""Runs a query with materialized tables replaced by their own queries."""

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
def inline_tables(request: Execute, child: Child, format: TableFormat) -> Iterator[str]:
    """Yield the text of a statement with its tables replaced; valid until the block ends.

    Every other table is pinned to its newest version, the same wherever the queries mention it.

    :raises ServerError: NOT_SUPPORTED if the statement is not a single query, or if it reads a
        table in a way that cannot be replaced.
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
        yield _inline(request, child, tables)
    finally:
        tables.drop_registered()


def _inline(request: Execute, child: Child, tables: Tables) -> str:
    try:
        text = tables.pin(request.sql, *child.current())
    except ParseException as caught:
        raise _not_supported("a statement that is not a single query") from caught
    if tables.temporary:
        raise _not_supported(f"the temporary {min(tables.temporary)}")
    for table in request.inlined:
        if table.mentioned and table.name not in tables.replaced:
            raise _not_supported(f"{table.name}, which is not read by its name,")
    return text


def _not_supported(what: str) -> ServerError:
    return error(
        Code.NOT_SUPPORTED,
        what=f"INLINE for {what}",
        hint="Use REFRESH, SERVE or FAIL in materialized-table.read.max-staleness.",
    )
