"""A materialized table that is refreshed incrementally and compared with its own query."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.engine.conftest import Session
from tests.support.materialized import changed_order, new_order, task_of
from tidegate_server.core.messages.answers import Analysis, Planned, Refreshed, TableCreated
from tidegate_server.core.messages.requests import Analyze, CreateTable, ExplainRefresh, Refresh
from tidegate_server.core.model.names import TableName
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
    RefreshPolicy,
)


class Maintained:
    """Created, filled, and from then on refreshed under one policy."""

    def __init__(
        self,
        session: Session,
        schema: str,
        query: str,
        *,
        policy: RefreshPolicy = RefreshPolicy.INCREMENTAL,
        **fixed: object,
    ) -> None:
        self.session = session
        self.query = query
        self.id = str(uuid.uuid4())
        self.name = TableName("spark_catalog", schema, f"mt_{self.id[:8]}")
        analysis = session.client.call(Analyze(session_id=session.id, sql=query))
        assert isinstance(analysis, Analysis)
        query, columns = analysis.expanded_query, analysis.schema.names()
        self.order = new_order(
            self.id, self.name, query, columns, analysis.sources, 0, policy=policy, **fixed
        )
        created = session.client.call(
            CreateTable(
                name=self.name,
                schema=analysis.schema,
                partition_keys=(),
                comment=None,
                properties={"tidegate.id": self.id},
            )
        )
        assert isinstance(created, TableCreated)
        self.created = created
        self.refresh()

    def refresh(self, **changed: object) -> RefreshOutcome:
        answer = self.session.client.call(
            Refresh(order=self._next(**changed), task=task_of(changed))
        )
        assert isinstance(answer, Refreshed)
        return answer.outcome

    def explain(self, **changed: object) -> RefreshPlan:
        answer = self.session.client.call(
            ExplainRefresh(order=self._next(**changed), task=task_of(changed))
        )
        assert isinstance(answer, Planned)
        return answer.plan

    def rows(self) -> list[tuple[object, ...]]:
        return sorted(self.session.rows(f"SELECT * FROM {self.name.quoted()}"), key=repr)

    def differences(self) -> list[tuple[str, str]]:
        """Return the rows by which the table and its query differ, as bags."""
        # Not by EXCEPT ALL, in which Spark 4.1 fails on a correlated scalar subquery.
        stored = Counter(map(repr, self.session.rows(f"SELECT * FROM {self.name.quoted()}")))
        wanted = Counter(map(repr, self.session.rows(self.query)))
        extra = [("extra", row) for row in (stored - wanted).elements()]
        return extra + [("missing", row) for row in (wanted - stored).elements()]

    def actions(self) -> set[str]:
        """Return the kinds of file actions in the last commit."""
        return {line.split('"')[1] for line in self.log().splitlines()}

    def log(self) -> str:
        """Return the text of the last commit in Delta's log."""
        rows = self.session.rows(f"DESCRIBE DETAIL {self.name.quoted()}")
        path = str(rows[0][4]).removeprefix("file:")
        version = self.session.rows(f"DESCRIBE HISTORY {self.name.quoted()} LIMIT 1")[0][0]
        return Path(f"{path}/_delta_log/{version:020d}.json").read_text("utf-8")

    def _next(self, **changed: object) -> RefreshOrder:
        self.order = replace(self.order, epoch=self.order.epoch + 1, refresh_id=str(uuid.uuid4()))
        return changed_order(self.order, changed)
