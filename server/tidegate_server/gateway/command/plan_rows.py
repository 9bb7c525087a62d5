"""The plan of a refresh as rows: the strategy, its steps and the rejected alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.refresh.request import RefreshPlan
from tidegate_server.core.refresh.steps import describe
from tidegate_server.gateway.runs.columns import contributions

CHOSEN = "CHOSEN"
REJECTED = "REJECTED"
STEP = "STEP"
LATER = "LATER"
CHECK = "CHECK"
HELD = "HELD"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A strategy, step or check for one table, and the reason for it."""

    table: str
    decision: str
    strategy: str = ""
    reason_code: str
    reason_text: str
    predicted_seconds: float | None = None
    affected_keys: int | None = None
    sources: str | None = None

    def values(self) -> tuple[Any, ...]:
        """Return the cells in column order."""
        return tuple(getattr(self, column.name) for column in _COLUMNS)


_COLUMNS = Schema(
    (
        Column(name="table", type="string"),
        Column(name="decision", type="string"),
        Column(name="strategy", type="string"),
        Column(name="reason_code", type="string"),
        Column(name="reason_text", type="string"),
        Column(name="predicted_seconds", type="double"),
        Column(name="affected_keys", type="bigint"),
        Column(name="sources", type="string"),
    )
)
_ARROW = {"string": pa.string(), "double": pa.float64(), "bigint": pa.int64()}


def plan_rows(table: str, plan: RefreshPlan) -> list[PlanRow]:
    """Return the chosen strategy, the rejected ones, then the steps."""
    chosen = PlanRow(
        table=table,
        decision=CHOSEN,
        strategy=plan.strategy.value,
        reason_code=plan.reason_code,
        reason_text=plan.reason_text,
        predicted_seconds=plan.predicted_seconds,
        affected_keys=plan.affected_keys,
        sources=contributions(plan.changes, plan.vector),
    )
    rejected = [
        PlanRow(
            table=table,
            decision=REJECTED,
            strategy=rejection.strategy,
            reason_code=rejection.reason_code,
            reason_text=rejection.reason_text,
            predicted_seconds=rejection.cost,
        )
        for rejection in plan.rejected
    ]
    steps = [
        PlanRow(table=table, decision=STEP, reason_code=step.name, reason_text=describe(step))
        for step in plan.steps
    ]
    return [chosen, *rejected, *steps]


def check_rows(table: MaterializedTable) -> list[PlanRow]:
    """Return a row per check before a commit, and one for the immutable region."""
    definition = table.definition
    checks = [
        ("EXPECTATION", f"{each.name} EXPECT ({each.condition})", each.violation)
        for each in definition.expectations
    ]
    if key := table.enforced_key:
        columns = ", ".join(map(quote_identifier, key.columns))
        checks.append(("PRIMARY_KEY", f"{key.name} PRIMARY KEY ({columns})", key.violation))
    checks += [
        ("ASSERTION", f"{each.name} ASSERT ({each.condition})", each.violation)
        for each in definition.assertions
    ]
    told = [(kind, f"{text} ON VIOLATION {violation.value}") for kind, text, violation in checks]
    if definition.immutable is not None:
        told.append(("IMMUTABLE", f"IMMUTABLE WHERE ({definition.immutable})"))
    return [
        PlanRow(table=str(table.name), decision=CHECK, reason_code=kind, reason_text=text)
        for kind, text in told
    ]


def held_rows(table: MaterializedTable) -> list[PlanRow]:
    """Return a row for the held version, if there is one."""
    if table.state.held is None:
        return []
    text = f"{table.state.held.reason} What this refresh makes takes its place."
    return [
        PlanRow(
            table=str(table.name), decision=HELD, reason_code=Reason.VERSION_HELD, reason_text=text
        )
    ]


def plan_result(rows: list[PlanRow]) -> Result:
    """Return the rows as a statement's result."""
    types = tuple(_ARROW[column.type] for column in _COLUMNS)
    return RowsResult(_COLUMNS, [row.values() for row in rows], types=types)
