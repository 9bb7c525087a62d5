"""SHOW TABLE EXTENDED with the owners of materialized tables."""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from typing import Final

from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.sql.query import shows_tables_extended
from tidegate_server.gateway.catalog.base import CatalogReader

_OWNER: Final = re.compile(r"^Owner: .*$", re.MULTILINE)


def with_owners(sql: str, result: Result, catalog: CatalogReader) -> Result:
    """Return the result of SHOW TABLE EXTENDED in which materialized tables have their owners.

    In the metastore they belong to the user of the server's process, who makes them. The result of
    any other statement is returned as it is.
    """
    if not shows_tables_extended(sql):
        return result
    owners = {(t.name.schema.lower(), t.name.table.lower()): t.owner for t in catalog.tables()}
    batches = list(result.batches(0))
    if not owners or not batches:
        return result
    with closing(result):
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    shown = []
    for schema, table, is_temporary, information in rows:
        owner = None if is_temporary else owners.get((schema.lower(), table.lower()))
        if owner is not None:
            information = _OWNER.sub(partial(_line, owner), information, count=1)
        shown.append((schema, table, is_temporary, information))
    return RowsResult(result.schema, shown, types=tuple(batches[0].schema.types))


def _line(owner: str, _: re.Match[str]) -> str:
    return f"Owner: {owner}"
