"""A materialized table that a test refreshes as the engine does, without a gateway."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame

from tests.support.fixtures.spark import Lake
from tidegate_server.core.messages.answers import Verified
from tidegate_server.core.model.clauses import Assertion, EnforcedKey, Expectation
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.versions import Source
from tidegate_server.core.refresh.maintenance import RowPart
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPolicy,
)
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.refresh.backfill import backfill
from tidegate_server.engine.refresh.publish import publish
from tidegate_server.engine.refresh.rollback import roll_back
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.refresh.verify import verify
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.base import Written
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh

_OF_THE_TASK = {field.name for field in fields(Recompute)}


def new_order(
    table_id: str,
    name: TableName,
    query: str,
    columns: Sequence[str],
    sources: Sequence[Source],
    epoch: int,
    /,
    **given: object,
) -> RefreshOrder:
    """Return an order for a run of its own; ``given`` are other fields of it or of its task."""
    order = RefreshOrder(
        refresh_id=str(uuid.uuid4()),
        table_id=table_id,
        name=name,
        definition_version=1,
        expanded_query=query,
        columns=tuple(columns),
        partition_keys=(),
        sources=tuple(sources),
        epoch=epoch,
        trigger=Trigger.MANUAL,
        logical_time=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return changed_order(order, given)


def task_of(changed: Mapping[str, object]) -> Recompute:
    """Return the task with those of the given values that belong to it."""
    values = {k: v for k, v in changed.items() if k in _OF_THE_TASK}
    return Recompute(**values)  # type: ignore[arg-type]


def changed_order(order: RefreshOrder, changed: Mapping[str, object]) -> RefreshOrder:
    """Return the order with those of the given values that belong to it."""
    values = {k: v for k, v in changed.items() if k not in _OF_THE_TASK}
    return replace(order, **values)  # type: ignore[arg-type]


def record_for(order: RefreshOrder) -> CommitRecord:
    """Return what the commit of an order records at least."""
    return CommitRecord(
        vector={"s": order.epoch},
        definition_version=order.definition_version,
        logical_time=order.logical_time,
        filled=False,
    )


class Stored:
    """The stored table ``mt`` with its orders; the query gives its first rows."""

    def __init__(
        self,
        lake: Lake,
        query: str,
        *keys: str,
        table: str = "mt",
        expectations: Iterable[Expectation] = (),
        assertions: Iterable[Assertion] = (),
        key: EnforcedKey | None = None,
        immutable: str | None = None,
    ) -> None:
        self.lake = lake
        self.id = str(uuid.uuid4())
        self.name = lake.stored(table)
        self.query = query
        self.keys = keys
        self.expectations = tuple(expectations)
        self.assertions = tuple(assertions)
        self.key = key
        self.immutable = immutable
        schema = result_schema(lake.session.sql(query))
        self.columns = schema.names()
        properties = {"tidegate.id": self.id}
        lake.format.create(self.name, schema, keys, None, properties)
        self.epoch = 0

    def order(self, **changed: object) -> RefreshOrder:
        """Return an order with the next epoch."""
        self.epoch += 1
        given = {
            "partition_keys": self.keys,
            "expectations": self.expectations,
            "assertions": self.assertions,
            "key": self.key,
            "immutable": self.immutable,
            **changed,
        }
        return new_order(self.id, self.name, self.query, self.columns, (), self.epoch, **given)

    def fill(self, query: str | None = None, **changed: object) -> Written:
        """Write a query's rows, the table's own by default, as a full refresh does."""
        return self.write(self.lake.session.sql(query or self.query), **changed)

    def write(self, frame: DataFrame, **changed: object) -> Written:
        """Replace everything by a frame."""
        order = self.order(**changed)
        return self.lake.format.write(frame, order, record_for(order), partial=False)

    def last(self) -> RecordedRefresh:
        """Return the last refresh commit."""
        commit = self.lake.format.last_commit(self.name, self.id)
        assert commit is not None
        return commit

    def content(self) -> Mapping[str, int]:
        """Return how often each row is stored; values are compared to the bit."""
        return row_counts(self.lake.rows(f"SELECT * FROM {self.name.quoted()}"))


def row_counts(rows: Iterable[tuple[object, ...]]) -> Mapping[str, int]:
    """Return how often each row occurs; values are compared to the bit."""
    return Counter(map(repr, rows))


class Materialized(Stored):
    """The table ``mt`` with its definition query, refreshed as the engine refreshes it."""

    def __init__(self, lake: Lake, query: str, *keys: str, **given: object) -> None:
        super().__init__(lake, query, *keys, **given)  # type: ignore[arg-type]
        tables = Tables(lake.session, lake.format)
        tables.pin(query, "spark_catalog", lake.schema)
        self.sources = tuple(tables.sources.values())
        self.qualified = query
        for source in self.sources:
            short = source.name.table
            self.qualified = re.sub(rf"\b{short}\b", f"{lake.schema}.{short}", self.qualified)

    def order(self, **changed: object) -> RefreshOrder:
        """Return an order for an incremental refresh wherever that is exact."""
        defined = {
            "sources": self.sources,
            "expanded_query": self.qualified,
            "policy": RefreshPolicy.INCREMENTAL,
        }
        return super().order(**{**defined, **changed})

    def refresh(self, **changed: object) -> RefreshOutcome:
        """Bring the table up to date."""
        order = self.order(**changed)
        operation = Operation(order.refresh_id)
        return refresh(order, task_of(changed), self.lake.root, self.lake.format, operation)

    def verify(
        self, version: int | None = None, *, part: RowPart | None = None, **changed: object
    ) -> Verified:
        """Compare a version with the query, or a part of its rows."""
        order = self.order(**changed)
        operation = Operation(order.refresh_id)
        return verify(order, version, self.lake.root, self.lake.format, operation, part=part)

    def backfill(self, source: str) -> RefreshOutcome:
        """Copy the immutable rows of another table."""
        order, name = self.order(), self.lake.stored(source)
        return backfill(order, name, self.lake.root, self.lake.format, Operation(order.refresh_id))

    def publish(self, made_by: str, **changed: object) -> RefreshOutcome:
        """Publish the version that a refresh left held."""
        order = self.order(**changed)
        operation = Operation(order.refresh_id)
        return publish(order, made_by, self.lake.root, self.lake.format, operation)

    def roll_back(self, version: int, **changed: object) -> RefreshOutcome:
        """Restore the rows of a version."""
        order = self.order(**changed)
        operation = Operation(order.refresh_id)
        return roll_back(order, version, self.lake.root, self.lake.format, operation)


class OverCatalog(Materialized):
    """A materialized table over tables of another catalog, which its query names in full."""

    def __init__(self, lake: Lake, query: str, **given: object) -> None:
        super().__init__(lake, query, **given)
        self.qualified = query
        self.sources = tuple(map(self._with_columns, self.sources))
        self.refresh()

    def _with_columns(self, source: Source) -> Source:
        """Return a source as a definition has it."""
        rows = self.lake.session.sql(f"SELECT * FROM {source.name.quoted()}")
        return replace(source, columns=result_schema(rows))

    def follow(self, **changed: object) -> RefreshOutcome:
        """Refresh, and require that the table equals its query."""
        outcome = self.refresh(**changed)
        assert self.content() == row_counts(self.lake.rows(self.query))
        return outcome
