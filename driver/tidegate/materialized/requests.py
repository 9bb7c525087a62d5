"""A statement with the way to read its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tidegate.materialized import records, statements
from tidegate.materialized.statements import Cascade, RefreshKind

T = TypeVar("T")
E = TypeVar("E")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One thing to ask the server."""

    statement: str
    read: Callable[[Rows], T]


def list_tables(
    schema: str | None, like: str | None
) -> Request[tuple[records.MaterializedTableSummary, ...]]:
    return _many(statements.show_tables(schema, like), records.MaterializedTableSummary)


def get(name: str) -> Request[records.MaterializedTable]:
    statement = statements.describe(name, as_json=True)
    return Request(statement, lambda rows: records.read_description(rows[0]))


def refresh(
    name: str,
    *,
    kind: RefreshKind | None,
    partition: Mapping[str, str] | None,
    where: str | None,
    cascade: Cascade | None,
    wait: bool,
) -> Request[tuple[records.Refreshed, ...]]:
    statement = statements.refresh(
        name, kind=kind, partition=partition, where=where, cascade=cascade, wait=wait
    )
    return Request(statement, partial(_each, records.read_refreshed))


def cancel_refresh(name: str) -> Request[tuple[records.CanceledRefresh, ...]]:
    return Request(statements.cancel_refresh(name), partial(_each, records.read_canceled))


def suspend(name: str, *, cascade: bool) -> Request[None]:
    return _done(statements.suspend(name, cascade=cascade))


def resume(name: str, *, cascade: bool) -> Request[None]:
    return _done(statements.resume(name, cascade=cascade))


def drop(name: str, *, if_exists: bool) -> Request[None]:
    return _done(statements.drop(name, if_exists=if_exists))


def history(
    name: str | None, *, limit: int | None, errors: bool
) -> Request[tuple[records.Refresh, ...]]:
    return _many(statements.show_history(name, limit=limit, errors=errors), records.Refresh)


def lineage(name: str) -> Request[tuple[records.LineageEdge, ...]]:
    return _many(statements.show_lineage(name), records.LineageEdge)


def column_lineage(name: str) -> Request[tuple[records.ColumnLineageEdge, ...]]:
    return _many(statements.show_lineage(name, columns=True), records.ColumnLineageEdge)


def verify(name: str, *, version: int | None) -> Request[records.Verification]:
    statement = statements.verify(name, version=version)
    return Request(statement, lambda rows: records.record(records.Verification, rows[0]))


def lag() -> Request[tuple[records.Lag, ...]]:
    return _many(statements.show_lag(), records.Lag)


def definition(name: str) -> Request[str]:
    return Request(statements.show_create(name), lambda rows: str(rows[0]["createtab_stmt"]))


def _many(statement: str, kind: type[E]) -> Request[tuple[E, ...]]:
    return Request(statement, partial(_each, partial(records.record, kind)))


def _each(read: Callable[[Mapping[str, Any]], E], rows: Rows) -> tuple[E, ...]:
    return tuple(map(read, rows))


def _done(statement: str) -> Request[None]:
    return Request(statement, lambda rows: None)
