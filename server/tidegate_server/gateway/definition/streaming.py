"""Clauses and statements not supported for tables that ingest a stream."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import StartKind
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import is_streaming
from tidegate_server.core.sql.statements import AlterRefresh, CreateMaterializedTable, RefreshKind

_DOWNSTREAM = "Declare it for a materialized table that reads this one."
_ANEW = (
    "A stream may not have those rows any more: REFRESH takes in what has arrived. "
    "To start over, drop the table and create it again."
)
_START = (
    "Tell the stream where to begin: STREAM read_kafka(..., startingOffsets => 'latest') or "
    "STREAM read_files(..., modifiedAfter => '2026-01-01T00:00:00')."
)
_BEGINNINGS = (StartKind.FROM_BEGINNING, StartKind.RESUME_OR_FROM_BEGINNING)


def check_ingest(table: MaterializedTable) -> None:
    """Reject clauses that need more rows than the newly arrived ones.

    :raises ServerError: MT_STREAM_UNSUPPORTED.
    """
    if is_streaming(table.definition.sources):
        for what, hint in _unsupported_clauses(table):
            raise _unsupported_error(table, what, hint)


def check_created(statement: CreateMaterializedTable, table: MaterializedTable) -> None:
    """Reject BACKFILL FROM, as :func:`check_ingest` does."""
    if is_streaming(table.definition.sources) and statement.backfill_from is not None:
        raise _unsupported_error(
            table, "BACKFILL FROM", "INSERT the rows into a table of their own."
        )


def check_refresh(statement: AlterRefresh, table: MaterializedTable) -> None:
    """Reject recomputing rows that the stream may no longer have.

    :raises ServerError: MT_STREAM_UNSUPPORTED.
    """
    if not is_streaming(table.definition.sources):
        return
    if statement.kind is RefreshKind.FULL:
        raise _unsupported_error(table, "REFRESH FULL", _ANEW)
    if statement.partition or statement.range is not None:
        raise _unsupported_error(table, "REFRESH PARTITION", _ANEW)
    if statement.predicate is not None:
        raise _unsupported_error(table, "REFRESH WHERE", _ANEW)


def check_same_stream(before: MaterializedTable, wanted: MaterializedTable) -> ServerError | None:
    """Return the error if a table would switch streams, or between stream and tables."""
    if not (is_streaming(before.definition.sources) or is_streaming(wanted.definition.sources)):
        return None
    names = [", ".join(str(s.name.table) for s in t.definition.sources) for t in (before, wanted)]
    if names[0] == names[1]:
        return None
    found, other = (name or "no table" for name in names)
    return error(Code.MT_STREAM_CHANGED, table=before.name, found=found, wanted=other)


def _unsupported_clauses(table: MaterializedTable) -> Iterator[tuple[str, str]]:
    definition = table.definition
    if definition.assertions:
        yield "ASSERT", _DOWNSTREAM
    if table.enforced_key is not None:
        yield "An enforced primary key", _DOWNSTREAM
    if definition.immutable is not None:
        yield "IMMUTABLE WHERE", "Rows that were taken in are never changed."
    if definition.on_update is not None:
        yield "REFRESH_TRIGGER = ON UPDATE", "A stream is looked at as often as FRESHNESS says."
    if definition.date_formatters():
        yield "A date-formatter", "Refreshes add what has arrived, whatever its partition."
    if definition.start_mode is not None and definition.start_mode.kind not in _BEGINNINGS:
        yield f"START_MODE = {definition.start_mode.kind.value}", _START


def _unsupported_error(table: MaterializedTable, what: str, hint: str) -> ServerError:
    return error(Code.MT_STREAM_UNSUPPORTED, what=what, table=table.name, hint=hint)
