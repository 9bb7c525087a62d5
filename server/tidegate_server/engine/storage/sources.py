"""The versioned tables that queries read: those of the session catalog, and of other catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.base import (
    FoundChange,
    ReadVersion,
    SourceFormat,
    TableState,
    is_foreign,
)
from tidegate_server.engine.storage.delta.tables import updating_once
from tidegate_server.engine.storage.entries import cache_entries
from tidegate_server.engine.storage.iceberg.sources import IcebergSources
from tidegate_server.engine.storage.iceberg.tables import loading_once
from tidegate_server.engine.storage.python_sources import PythonSources

_states: ContextVar[dict[TableName, TableState | None] | None] = ContextVar("states", default=None)


class Sources:
    """Chooses the format of a table by its catalog."""

    def __init__(self, spark: SparkSession, own: SourceFormat) -> None:
        """``own`` has the tables of the session catalog."""
        self._own = own
        self._iceberg = IcebergSources(spark)
        self._python = PythonSources(spark)

    def find(self, name: TableName) -> TableState | None:
        known = _states.get()
        if known is None:
            return self._of(name).find(name)
        if name not in known:
            known[name] = self._of(name).find(name)
        return known[name]

    def commit_id(self, name: TableName, version: int) -> str | None:
        return self._of(name).commit_id(name, version)

    def snapshot_id(self, name: TableName, commit: str) -> str | None:
        return self._of(name).snapshot_id(name, commit)

    def difference(self, name: TableName, read: str, now: str) -> str:
        return self._of(name).difference(name, read, now)

    def location(self, name: TableName) -> str:
        return self._of(name).location(name)

    def version_sql(self, name: TableName, version: int) -> str:
        return self._of(name).version_sql(name, version)

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        return self._of(name).rows(session, name, version)

    def read_version(self, leaf: Any) -> ReadVersion | None:
        return (
            self._own.read_version(leaf)
            or self._iceberg.read_version(leaf)
            or self._python.read_version(leaf)
        )

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        return self._of(name).change(session, name, table_id, before, after)

    def _of(self, name: TableName) -> SourceFormat:
        if not is_foreign(name):
            return self._own
        return self._python if self._python.has_catalog(name) else self._iceberg


@contextmanager
def looked_up_once(spark: SparkSession, names: Iterable[TableName]) -> Iterator[None]:
    """Look up each table once in this thread until the block ends.

    Everything in the block then reads the same version. Nothing may be written based on what it
    looks up; see :func:`cache_entries`.
    """
    with cache_entries(spark, names), loading_once(), updating_once():
        token = _states.set({})
        try:
            yield
        finally:
            _states.reset(token)
