"""Runs a stream against the real engine and compares every table with its query."""

from __future__ import annotations

import logging
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import VariantVal

from tests.engine.oracle.streams import Step, Stream
from tests.engine.oracle.tables import VIEWS
from tests.engine.oracle.tally import Tally
from tests.engine.oracle.windows import CHANCE
from tests.support.fixtures.spark import Lake
from tests.support.materialized import new_order
from tests.support.spark_settings import SMALL
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.versions import Source
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOutcome,
    RefreshPolicy,
)
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.session.operations import Operation

logger = logging.getLogger(__name__)

_HELD = "held_"
"""How the names of views of what is held in memory begin."""
_BROKEN = frozenset({"INCREMENTAL_FAILED", "TABLE_DIFFERS"})
"""Reasons of a full refresh in place of an incremental one that went wrong, which nothing else
would show."""
_STORED = "mt"
"""How the names of materialized tables begin."""
_VACUUM = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
"""For VACUUM of everything old; for refreshes too, since views keep what is set."""
_COMPILED = {"spark.sql.shuffle.partitions": "2"}
_LAZY = 6
"""Every so manieth table is refreshed in every other step only."""
_AUTO = 8
_REFUSED = frozenset({Code.MT_SOURCE_CHANGED.name, Code.MT_SOURCE_NOT_FOUND.name})
"""What a refresh may say although the query still runs: its columns would have other types."""
_REFUSALS = (PySparkException, Py4JJavaError)
"""What Spark refuses a statement by; errors of Delta's Java come as they are."""
_OVERFLOWS = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE")
"""A sum may overflow in one order of the rows and not in another, or be left out as not used."""
_UNREAD = "plan cannot be read"
_NAME = re.compile(r"\{(\w+)\}")

Rows = Mapping[tuple[object, ...], int]


@dataclass
class Subject:
    """One materialized table under test."""

    name: TableName
    table_id: str
    policy: RefreshPolicy
    query: str
    wanted: str
    """The query of what is held in memory."""
    expanded: str
    columns: tuple[str, ...]
    sources: tuple[Source, ...]
    epoch: int = 0
    reasons: list[str] = field(default_factory=list)
    """How each refresh was made, and why so."""
    rows: int = 0
    lazy: bool = False
    """Whether it is refreshed in every other step only."""


class Replay:
    """Carries one stream out in a fresh schema."""

    def __init__(self, lake: Lake, tally: Tally, *, auto: bool = True) -> None:
        """``auto`` refreshes some tables with the policy AUTO."""
        self._auto = auto
        self._lake = lake
        self._tally = tally
        self._session: SparkSession = lake.session
        self._subjects: list[Subject] = []
        self.subjects: dict[int, Subject] = {}
        """All tables that were created, by the number of their query."""
        self._settings: Mapping[str, str] = {}

    def run(self, stream: Stream) -> list[str]:
        """Create everything, then change and compare step by step; return the mismatches.

        A table that differs from its query is left out of the steps that follow.
        """
        found: list[str] = []
        self._settings = {**(_COMPILED if stream.compiled else SMALL), **_VACUUM}
        for key, value in self._settings.items():
            self._session.conf.set(key, value)
        for table, layout in stream.layouts.items():
            self._lake.sql(self._with_table_names(layout.create(table)))
        for name, text in _views(stream).items():
            self._lake.sql(self._with_table_names(f"CREATE VIEW {{{name}}} AS {text}"))
        for number, query in enumerate(stream.queries):
            self._create(number, query, _of_held(stream, query))
        done: list[Step] = []
        for count, step in enumerate((stream.start, *stream.steps)):
            done.append(step)
            for statement in step:
                self._change(statement)
            with self._keep_in_memory(stream):
                for subject in list(self._subjects):
                    if subject.lazy and count % 2:
                        continue
                    report = self._refresh_and_compare(subject)
                    if report is not None:
                        found.append(f"{report}\n{_history(subject, stream, done)}")
                        self._subjects.remove(subject)
        self._tally.count_stream(found)
        return found

    @contextmanager
    def _keep_in_memory(self, stream: Stream) -> Iterator[None]:
        """Keep the present rows of the tables in memory, under separate names.

        What is wanted is then computed from nothing that a refresh reads, and a third faster: Delta
        runs a query for the files of each table in a query.
        """
        with ExitStack() as frames:
            for table in stream.layouts:
                rows = self._lake.frame(self._lake.name(table))
                # Without the condition refreshes might be answered from memory too.
                held = rows.where("'held' = 'held'").cache()
                frames.callback(held.unpersist)
                held.createOrReplaceTempView(_HELD + table)
            for name, text in _views(stream).items():
                view = f"CREATE OR REPLACE TEMP VIEW {_HELD}{name} AS {_of_held(stream, text)}"
                self._session.sql(self._with_table_names(view))
            yield

    def _change(self, statement: str) -> None:
        try:
            self._lake.sql(self._with_table_names(statement))
        except _REFUSALS as refused:
            self._tally.left_out(refused)

    def _with_table_names(self, text: str) -> str:
        """Replace placeholders by the names of tables: ``{fact}``, ``{mt0}`` and so on."""
        return _NAME.sub(lambda found: self._full_name(found[1]).quoted(), text)

    def _full_name(self, table: str) -> TableName:
        stored = table.startswith(_STORED)
        return self._lake.stored(table) if stored else self._lake.name(table)

    def _create(self, number: int, query: str, held: str) -> None:
        """Create a query's table; queries that Spark or Delta refuses are left out."""
        text = self._with_table_names(query)
        try:
            found = self._lake.analyze(text)
            name, table_id = self._full_name(f"{_STORED}{number}"), str(uuid.uuid4())
            feed = str(number % 2 == 0).lower()
            properties = {"tidegate.id": table_id, "delta.enableChangeDataFeed": feed}
            self._lake.format.create(name, found.schema, (), None, properties)
        except (*_REFUSALS, ServerError) as refused:
            self._tally.left_out(refused)
            return
        auto = self._auto and number % _AUTO == _AUTO - 1
        self.subjects[number] = Subject(
            name=name,
            table_id=table_id,
            policy=RefreshPolicy.AUTO if auto else RefreshPolicy.INCREMENTAL,
            query=query,
            wanted=self._with_table_names(held),
            expanded=found.expanded_query,
            columns=found.schema.names(),
            sources=found.sources,
            lazy=number % _LAZY == _LAZY - 1,
        )
        self._subjects.append(self.subjects[number])

    def _refresh_and_compare(self, subject: Subject) -> str | None:
        """Return how the table differs from its query, if it does."""
        try:
            outcome = self._refresh(subject)
        except (*_REFUSALS, ServerError) as failed:
            return self._check_failure(subject, failed)
        plan = outcome.plan
        logger.info("%s %s: %s", plan.strategy.value, plan.reason_code, subject.query)
        subject.reasons.append(f"{plan.strategy.value} {plan.reason_code}")
        unread = any(_UNREAD in rejected.reason_text for rejected in plan.rejected)
        broken = plan.reason_code in _BROKEN and not _overflows(plan.reason_text)
        if broken or unread:
            return f"BROKEN REFRESH of {subject.name.table}: {plan.reason_code} {plan.reason_text}"
        if CHANCE in subject.query and plan.strategy is not Strategy.INCREMENTAL:
            return None  # an incremental one is a promise that no rows tie that differ
        try:
            wanted, found = self._both(subject)
        except _REFUSALS as failed:
            self._tally.left_out(failed)
            return None if _overflows(str(failed)) else f"UNREADABLE {subject.query}: {failed}"
        self._tally.count_comparison(plan)
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
        if isinstance(failed, ServerError) and failed.code in _REFUSED:
            self._tally.left_out(failed)
            return None
        try:
            self._lake.query(subject.wanted).collect()
        except _REFUSALS as own:
            self._tally.left_out(own)
            return None
        if _overflows(str(failed)):
            self._tally.left_out(failed)
            return None
        return f"FAILED REFRESH of {subject.name.table}: {failed}"

    def _refresh(self, subject: Subject) -> RefreshOutcome:
        subject.epoch += 1
        order = new_order(
            subject.table_id,
            subject.name,
            subject.expanded,
            subject.columns,
            subject.sources,
            subject.epoch,
            settings=self._settings,
            policy=subject.policy,
        )
        operation = Operation(order.refresh_id)
        return refresh(order, Recompute(), self._lake.root, self._lake.format, operation)

    def _both(self, subject: Subject) -> tuple[Rows, Rows]:
        """Return the rows of the query and those of the table."""
        wanted = self._lake.query(subject.wanted).toDF(*subject.columns).collect()
        found = self._lake.frame(subject.name).collect()
        return bag(wanted), bag(found)


def _overflows(text: str) -> bool:
    return any(condition in text for condition in _OVERFLOWS)


def _views(stream: Stream) -> Mapping[str, str]:
    """Return the views of a stream, each with its text: all, since they read each other."""
    used = any(f"{{{name}}}" in query for query in stream.queries for name in VIEWS)
    return {name: text for name, (text, _) in VIEWS.items()} if used else {}


def _of_held(stream: Stream, text: str) -> str:
    """Put the names of what is held in memory into a query."""
    held = {*stream.layouts, *_views(stream)}
    return _NAME.sub(lambda found: _HELD + found[1] if found[1] in held else found[0], text)


def bag(rows: Sequence[Row]) -> Rows:
    """Return how often each row occurs; rows that SQL finds equal are one."""
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: object) -> object:
    """Make equal what is equal for SQL: zeros of either sign, NaN and itself; of a number that is
    not exact the last digits depend on the order in which rows come."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value:.12g}") + 0.0
    if isinstance(value, Row):
        return ("row", *map(_plain, value))
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return frozenset((_plain(key), _plain(each)) for key, each in value.items())
    if isinstance(value, VariantVal):
        return value.toJson()
    return bytes(value) if isinstance(value, bytearray) else value


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
