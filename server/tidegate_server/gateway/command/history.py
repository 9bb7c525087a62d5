"""The refresh history and the versions of a table, from the ledger alone."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.statements import ShowRefreshHistory, ShowVersions
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import history, resolve
from tidegate_server.gateway.runs.columns import HISTORY, VERSIONS, RunColumn, text_column

_LIMIT = 1000  # rows without a LIMIT
_SEARCHED = 10_000  # runs searched for failures
_FAILURES = frozenset({RunState.FAILED, RunState.ABANDONED, RunState.UPSTREAM_FAILED})


def show_history(statement: ShowRefreshHistory, context: Context) -> Result:
    """List refresh runs, newest first."""
    table_id = None
    if statement.name is not None:
        table_id = resolve.materialized_table(statement.name, context).id
    limit = _LIMIT if statement.limit is None else statement.limit
    searched = max(limit, _SEARCHED) if statement.errors else limit
    runs = context.services.ledger.runs(table_id, limit=searched)
    if statement.errors:
        runs = tuple(run for run in runs if run.state in _FAILURES)[:limit]
    return _rows(HISTORY, runs)


def show_versions(statement: ShowVersions, context: Context) -> Result:
    """List the versions of a table's data made by refreshes, or of its definition.

    Newest first.
    """
    table = resolve.materialized_table(statement.name, context)
    if statement.definition:
        return history.show(table, context.services.catalog)
    known = history.versions(table, context.services.catalog)
    queries = {entry.definition_version: entry.original_query for entry in known}
    query = text_column("query", lambda run: queries.get(run.definition_version))
    return _rows(
        (*VERSIONS, query), context.services.ledger.commits(table.id, history.DATA_VERSIONS)
    )


def _rows(columns: Sequence[RunColumn], runs: Sequence[RefreshRun]) -> Result:
    schema = Schema(tuple(Column(name=c.name, type=c.type) for c in columns))
    rows = [tuple(column.read(run) for column in columns) for run in runs]
    return RowsResult(schema, rows, types=tuple(column.arrow for column in columns))
