"""Runs a stream against the real engine and compares every table with its query."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.fix_spark import Lake
from tests.server.engine.oracle.streams import Step, Stream
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

# One small task per job, no code to compile: the oracle's tables have a handful of rows.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}


@dataclass
class Tally:
    """What the oracle has done so far."""

    comparisons: int = 0
    strategies: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the numbers for people."""
        return [
            f"{self.comparisons} comparisons, {len(self.mismatches)} mismatches",
            *(
                f"{name}: {', '.join(f'{k} {n}' for k, n in counter.most_common())}"
                for name, counter in (
                    ("strategies", self.strategies),
                    ("reasons", self.reasons),
                    ("rejections", self.rejections),
                    ("changes read by", self.changes),
                    ("queries left out", self.invalid),
                )
                if counter
            ),
            *self.mismatches,
        ]


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


class Replay:
    """Carries one stream out in a fresh schema."""

    def __init__(self, lake: Lake, tally: Tally) -> None:
        self._lake = lake
        self._tally = tally
        self._session: SparkSession = lake.session
        for key, value in SETTINGS.items():
            self._session.conf.set(key, value)

    def run(self, stream: Stream) -> list[str]:
        """Create everything, then change and compare step by step; return the mismatches.

        A table that differs from its query is left out of the steps that follow.
        """
        found: list[str] = []
        for table, layout in stream.layouts.items():
            self._execute(layout.create(table))
        subjects = [s for s in map(self._subject, stream.queries) if s is not None]
        done: list[Step] = []
        for step in (stream.start, *stream.steps):
            done.append(step)
            for statement in step:
                self._execute(statement)
            for subject in list(subjects):
                report = self._refresh_and_compare(subject, stream, done)
                if report is not None:
                    found.append(report)
                    subjects.remove(subject)
        self._tally.mismatches += found
        return found

    def _execute(self, statement: str) -> None:
        self._session.sql(self._filled(statement))

    def _filled(self, text: str) -> str:
        for table in ("fact", "other", "small"):
            text = text.replace(f"{{{table}}}", self._lake.name(table).quoted())
        return text

    def _subject(self, query: str) -> Subject | None:
        """Create a query's table; queries that Spark refuses are left out."""
        text = self._filled(query)
        tables = Tables(self._session, self._lake.format)
        try:
            schema = result_schema(self._session.sql(text))
            tables.pinned(text, "spark_catalog", self._lake.schema)
        except (PySparkException, ServerError) as refused:
            self._tally.invalid[str(refused)[:60]] += 1
            return None
        name = self._lake.name(f"mt_{uuid.uuid4().hex[:8]}")
        table_id = str(uuid.uuid4())
        self._lake.format.create(name, schema, (), None, {"tidegate.id": table_id})
        return Subject(
            name=name,
            table_id=table_id,
            query=query,
            text=text,
            columns=schema.names(),
            sources=tuple(tables.sources.values()),
        )

    def _refresh_and_compare(
        self, subject: Subject, stream: Stream, done: Sequence[Step]
    ) -> str | None:
        try:
            wanted = self._rows(subject.text)
        except PySparkException as failed:
            self._tally.invalid[str(failed)[:60]] += 1
            return None
        outcome = self._refresh(subject)
        self._count(outcome)
        found = self._rows(f"SELECT * FROM {subject.name.quoted()}")
        plan = outcome.plan
        logger.info("%s %s: %s", plan.strategy.value, plan.reason_code, subject.query)
        if found == wanted:
            return None
        report = _report(subject, stream, done, outcome, wanted, found)
        logger.error("%s", report)
        return report

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
            settings=SETTINGS,
            policy=RefreshPolicy.INCREMENTAL,
        )
        return refresh(order, self._lake.root, self._lake.format, Operation(order.refresh_id))

    def _count(self, outcome: RefreshOutcome) -> None:
        plan = outcome.plan
        self._tally.comparisons += 1
        self._tally.strategies[plan.strategy.value] += 1
        self._tally.reasons[plan.reason_code] += 1
        self._tally.rejections.update(rejected.reason_code for rejected in plan.rejected)
        self._tally.changes.update(change.method for change in plan.changes)

    def _rows(self, text: str) -> Mapping[tuple[object, ...], int]:
        rows = self._session.sql(text).collect()
        return Counter(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: object) -> object:
    """Make equal what is equal for SQL: zeros of either sign, NaN and itself."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def _report(
    subject: Subject,
    stream: Stream,
    done: Sequence[Step],
    outcome: RefreshOutcome,
    wanted: Mapping[tuple[object, ...], int],
    found: Mapping[tuple[object, ...], int],
) -> str:
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    create = [layout.create(table) for table, layout in stream.layouts.items()]
    return "\n".join(
        [
            f"MISMATCH after {outcome.plan.strategy.value} ({outcome.plan.reason_text})",
            *(f"  {statement};" for statement in create),
            f"  -- table: {subject.query}",
            *(
                f"  {statement};" if statement else ""
                for number, step in enumerate(done)
                for statement in (f"-- step {number}", *step)
            ),
            f"  missing {dict(missing)}",
            f"  extra {dict(extra)}",
        ]
    )
