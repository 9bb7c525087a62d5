"""Leaves out the columns of sources that a query does not use, as a projection above each source.

Refreshes build plans attribute by attribute, each with several calls to the JVM, and compare and
keep the changed rows: with all of hundreds of columns, both would take longer than the query.
"""

from __future__ import annotations

from typing import Any

from tidegate_server.engine.incremental.analysis.simplify import map_subqueries
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.storage.jvm import items, kind

_PASSING = frozenset({"Filter", "Join", "Window", "Sort", "GlobalLimit", "LocalLimit", "Offset"})
"""Operators that name the columns they use, and pass through those of their input."""
_TAG = "tidegate.used_columns"


def leave_out_unused(catalyst: Catalyst, plan: Any) -> Any:
    """Return a plan whose sources are read below projections of the columns that it uses."""
    return _narrow(catalyst, plan, plan.outputSet())


def is_used_columns(plan: Any, catalyst: Catalyst) -> bool:
    """Say whether an operator is a projection of a source that :func:`leave_out_unused` added."""
    return kind(plan) == "Project" and bool(plan.getTagValue(catalyst.tag(_TAG)).isDefined())


def _narrow(catalyst: Catalyst, plan: Any, used: Any) -> Any:
    """Return an operator without columns that are not used.

    :param used: the AttributeSet of what is used of its columns, possibly among others.
    """
    if plan.children().isEmpty():
        return _narrow_source(catalyst, plan, used)
    name = kind(plan)
    if name == "Project":
        plan = _narrow_projection(catalyst, plan, used)
    children = list(items(plan.children()))
    if name in {"Project", "Aggregate"}:
        below = [plan.references()]
    elif name in _PASSING or (name == "Generate" and plan.unrequiredChildIndex().isEmpty()):
        below = [getattr(used, "$plus$plus")(plan.references())] * len(children)
    else:  # columns may be used by their position
        below = [child.outputSet() for child in children]
    narrowed = [_narrow(catalyst, *each) for each in zip(children, below, strict=True)]
    if any(after is not before for before, after in zip(children, narrowed, strict=True)):
        plan = catalyst.with_children(plan, narrowed)
    if plan.subqueries().isEmpty():
        return plan
    return map_subqueries(
        catalyst, plan, lambda each: each.withNewPlan(leave_out_unused(catalyst, each.plan()))
    )


def _narrow_projection(catalyst: Catalyst, plan: Any, used: Any) -> Any:
    kept = plan.outputSet().intersect(used)
    if int(kept.size()) == int(plan.output().size()):
        return plan
    named = catalyst.select(plan.projectList(), {*catalyst.ids(kept.toSeq())})
    return catalyst.project(named or [plan.projectList().head()], plan.child())


def _narrow_source(catalyst: Catalyst, leaf: Any, used: Any) -> Any:
    output = leaf.output()
    kept = leaf.outputSet().intersect(used).toSeq()
    if int(kept.size()) == int(output.size()):
        return leaf
    # A projection needs a column, for example to count rows.
    projection = catalyst.project(items(output.take(1) if kept.isEmpty() else kept), leaf)
    projection.setTagValue(catalyst.tag(_TAG), True)
    return projection
