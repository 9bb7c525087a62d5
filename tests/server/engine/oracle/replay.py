"""Runs a stream against the real engine and compares every table with its query."""

from __future__ import annotations

import logging
import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from tests.fix_spark import Lake
from tests.server.engine.oracle.streams import Step, Stream
from tests.server.engine.oracle.tally import Tally
from tests.small import SMALL
from tidegate_server.engine.operations import Operation
from tidegate_server.engine.projection import result_schema
from tidegate_server.engine.run import refresh
from tidegate_server.engine.sources import Tables
from tidegate_server.errors import ServerError
from tidegate_server.model.names import TableName
from tidegate_server.model.runs import Trigger
from tidegate_server.model.versions import Source
from tidegate_server.refresh.request import RefreshOrder, RefreshOutcome, RefreshPolicy

logger = logging.getLogger(__name__)

_SIDE = "__side"
_BROKEN = frozenset({"INCREMENTAL_FAILED", "TABLE_DIFFERS"})
"""Reasons of a full refresh in place of an incremental one that went wrong, which nothing else
would show."""
_NAME = re.compile(r"\{(\w+)\}")

Rows = Mapping[tuple[object, ...], int]


@dataclass
class Subject:
    """One materialized table under test."""

    name: TableName
    table_id: str
    query: str
    text: str
    columns: tuple[str, ...]
    sources: tuple[Source, ...]
    epoch: int = 0
    reasons: list[str] = field(default_factory=list)
    """How each refresh was made, and why so."""
    rows: int = 0


class Replay:
    """Carries one stream out in a fresh schema."""

    def __init__(self, lake: Lake, tally: Tally) -> None:
        self._lake = lake
        self._tally = tally
        self._session: SparkSession = lake.session
        self._subjects: list[Subject] = []
        self.subjects: dict[int, Subject] = {}
        """All tables that were created, by the number of their query."""
        for key, value in SMALL.items():
            self._session.conf.set(key, value)

    def run(self, stream: Stream) -> list[str]:
        """Create everything, then change and compare step by step; return the mismatches.

        A table that differs from its query is left out of the steps that follow.
        """
        found: list[str] = []
        for table, layout in stream.layouts.items():
            self._session.sql(self._filled(layout.create(table)))
        for number, query in enumerate(stream.queries):
            self._create(number, query)
        done: list[Step] = []
        for step in (stream.start, *stream.steps):
            done.append(step)
            for statement in step:
                self._change(statement)
            for subject in list(self._subjects):
                report = self._refresh_and_compare(subject)
                if report is not None:
                    found.append(f"{report}\n{_history(subject, stream, done)}")
                    self._subjects.remove(subject)
        self._tally.finished(found)
        return found

    def _change(self, statement: str) -> None:
        try:
            self._session.sql(self._filled(statement))
        except PySparkException as refused:
            self._tally.left_out(refused)

    def _filled(self, text: str) -> str:
        """Put the names of tables in place of ``{fact}``, ``{mt0}`` and so on."""
        return _NAME.sub(lambda found: self._lake.name(found[1]).quoted(), text)

    def _create(self, number: int, query: str) -> None:
        """Create a query's table; queries that Spark refuses are left out."""
        text = self._filled(query)
        tables = Tables(self._session, self._lake.format)
        try:
            schema = result_schema(self._session.sql(text))
            tables.pinned(text, "spark_catalog", self._lake.schema)
        except (PySparkException, ServerError) as refused:
            self._tally.left_out(refused)
            return
        name = self._lake.name(f"mt{number}")
        table_id = str(uuid.uuid4())
        feed = str(number % 2 == 0).lower()
        properties = {"tidegate.id": table_id, "delta.enableChangeDataFeed": feed}
        self._lake.format.create(name, schema, (), None, properties)
        self.subjects[number] = Subject(
            name=name,
            table_id=table_id,
            query=query,
            text=text,
            columns=schema.names(),
            sources=tuple(tables.sources.values()),
        )
        self._subjects.append(self.subjects[number])

    def _refresh_and_compare(self, subject: Subject) -> str | None:
        """Return how the table differs from its query, if it does."""
        try:
            outcome = self._refresh(subject)
        except (PySparkException, ServerError) as failed:
            return self._check_failure(subject, failed)
        self._tally.compared(outcome.plan)
        plan = outcome.plan
        logger.info("%s %s: %s", plan.strategy.value, plan.reason_code, subject.query)
        subject.reasons.append(f"{plan.strategy.value} {plan.reason_code}")
        if plan.reason_code in _BROKEN:
            return f"BROKEN REFRESH of {subject.name.table}: {plan.reason_code} {plan.reason_text}"
        wanted, found = self._both(subject)
        subject.rows = sum(found.values())
        if wanted == found:
            return None
        missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        report = (
            f"MISMATCH of {subject.name.table} after {plan.strategy.value}"
            f" {plan.reason_code} ({plan.reason_text})\n"
            f"  missing {dict(missing)}\n  extra {dict(extra)}"
        )
        logger.error("%s", report)
        return report

    def _check_failure(self, subject: Subject, failed: Exception) -> str | None:
        """A refresh may fail only where the query itself does."""
        try:
            self._session.sql(subject.text).collect()
        except PySparkException as own:
            self._tally.left_out(own)
            return None
        return f"FAILED REFRESH of {subject.name.table}: {failed}"

    def _refresh(self, subject: Subject) -> RefreshOutcome:
        subject.epoch += 1
        order = RefreshOrder(
            refresh_id=str(uuid.uuid4()),
            table_id=subject.table_id,
            name=subject.name,
            definition_version=1,
            expanded_query=subject.text,
            columns=subject.columns,
            partition_keys=(),
            sources=subject.sources,
            epoch=subject.epoch,
            trigger=Trigger.MANUAL,
            logical_time=datetime(2026, 1, 1, tzinfo=UTC),
            settings=SMALL,
            policy=RefreshPolicy.INCREMENTAL,
        )
        return refresh(order, self._lake.root, self._lake.format, Operation(order.refresh_id))

    def _both(self, subject: Subject) -> tuple[Rows, Rows]:
        """Return the rows of the query and those of the table, read in one job."""
        wanted = (
            self._session.sql(subject.text)
            .toDF(*subject.columns)
            .selectExpr("true AS " + _SIDE, "*")
        )
        table = self._session.sql(f"SELECT false AS {_SIDE}, * FROM {subject.name.quoted()}")
        rows = wanted.unionAll(table).collect()
        return _bag(rows, wanted=True), _bag(rows, wanted=False)


def _bag(rows: Sequence[Row], *, wanted: bool) -> Rows:
    return Counter(tuple(_plain(v) for v in row[1:]) for row in rows if row[0] is wanted)


def _plain(value: object) -> object:
    """Make equal what is equal for SQL: zeros of either sign, NaN and itself."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, list):
        return tuple(_plain(element) for element in value)
    return value


def _history(subject: Subject, stream: Stream, done: Sequence[Step]) -> str:
    """Return the statements that lead to a mismatch."""
    create = [layout.create(table) for table, layout in stream.layouts.items()]
    return "\n".join(
        [
            f"  -- the table: {subject.query}",
            *(
                f"  -- {{mt{n}}}: {query}"
                for n, query in enumerate(stream.queries)
                if f"{{mt{n}}}" in subject.query
            ),
            *(f"  {statement};" for statement in create),
            *(
                f"  {statement}{'' if statement.startswith('--') else ';'}"
                for number, step in enumerate(done)
                for statement in (f"-- step {number}", *step)
            ),
        ]
    )
