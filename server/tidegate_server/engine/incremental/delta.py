"""Computes the change of a query's rows from the changes of its sources.

Every operator yields the exact signed change of its rows. Linear ones are applied to the change of
their inputs. Others recompute all rows with an affected key, which is a key of a changed input
row: rows with other keys have the same input before and after. Where there are no keys, all rows
before and after are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.refresh.eligibility import Rule
from tidegate_server.engine.incremental.analysis.functional_dependencies import PASSING
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.changes import WEIGHT
from tidegate_server.engine.incremental.keys import Keys, collect_keys, guard_expressions, restrict
from tidegate_server.engine.incremental.preconditions import (
    Check,
    Precondition,
    check_of,
    require,
)
from tidegate_server.engine.incremental.subquery_values import Replacements, replace_subqueries
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.storage.exact import sum_weights
from tidegate_server.engine.storage.jvm import items, kind

# Up to this many changed rows are broadcast.
_FEW = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSource:
    """A source whose rows changed: its weighted change and its rows before."""

    change: DataFrame
    before: Callable[[], DataFrame]
    """Called only if needed, since it looks up an old version."""
    few: bool = False
    """Whether the change is small enough to be broadcast."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plan whose output is an operator's attributes, followed by the weight."""

    plan: Any
    weight: Any
    few: bool = False
    """Whether the rows are known to be few enough to be broadcast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Keys of table rows to remove, since all their rows are recomputed."""

    keys: Keys
    columns: tuple[int, ...]


@dataclass(slots=True)
class DeltaBuilder:
    """Builds the signed change of a query.

    :param check: called between steps; raises if the refresh was canceled.
    :param accept: called with the number of affected keys; raises if there are too many.
    :param resources: resources to release after the commit.
    :param rows_in_table: their estimated number.
    :param preconditions: satisfied by the rows before the change; required after it, too.
    """

    catalyst: Catalyst
    changed: Mapping[str, ChangedSource]
    key_limit: int
    check: Callable[[], None]
    accept: Callable[[int], None]
    resources: ExitStack
    rows_in_table: int = 0
    preconditions: Sequence[Precondition] = ()
    replaced: Replaced | None = None
    affected: int = 0
    """The largest number of affected keys, or of changed rows without keys, of one operator."""
    known: dict[int, Keys] = field(default_factory=dict)
    """Affected keys that are already known, by ``id()`` of the node."""
    pending: list[Check] = field(default_factory=list)
    _before: dict[int, Any] = field(default_factory=dict)
    _after: dict[int, Any] = field(default_factory=dict)
    """Plans of rows that are already computed."""
    _compared: dict[int, Weighted | None] = field(default_factory=dict)
    _checked: set[int] = field(default_factory=set)
    _replaced_subqueries: dict[int, Replacements | None] = field(default_factory=dict)

    def delta_of(self, node: Node) -> Weighted | None:
        """Return the change of a node's rows; None if there is none.

        It is correct only if the checks in ``pending`` succeed.
        """
        if not self._changes(node):
            return None
        if node.operator.source is not None:
            return self._leaf(node, self.changed[node.operator.source])
        if node.operator.is_compared(frozenset(self.changed)):
            return self._compare(node, everywhere=node.kind == "Aggregate")
        replacements = self._replacements(node)
        if replacements is not None and not replacements.same:
            self._accept(self.rows_in_table)
            return self._compare(node, everywhere=False)
        match node.operator.rule:
            case Rule.LINEAR | Rule.GROUPING_SETS:
                return self._linear(node)
            case Rule.JOIN:
                return self._sum(node, [*self._products(node)])
            case Rule.OUTER_JOIN | Rule.SEMI_JOIN if node.operator.keyed_by != (0, 1):
                return self._one_sided(node)
            case _:
                return self._keyed_delta(node)

    # ---- linear ----------------------------------------------------------------------------

    def _leaf(self, node: Node, source: ChangedSource) -> Weighted:
        plan = self.catalyst.analyzed_plan(source.change)
        columns = {str(a.name()): a for a in items(plan.output())}
        weight = self.catalyst.alias(columns[WEIGHT], WEIGHT)
        like = list(items(node.plan.output()))
        named = [self.catalyst.alias(columns[str(a.name())], str(a.name()), a) for a in like]
        change = self._as_weighted(self.catalyst.project([*named, weight], plan))
        return replace(change, few=source.few)

    def _linear(self, node: Node) -> Weighted | None:
        if node.kind == "Union":
            return self._union(node)
        (child,) = node.children
        change = self.delta_of(child)
        if change is None or node.kind in PASSING:
            return change
        catalyst = self.catalyst
        match node.kind:
            case "Project":
                named = self._operator(node).projectList()
                plan = catalyst.project_with(named, change.weight, change.plan)
                return replace(self._as_weighted(plan), few=change.few)
            case "Expand":
                return self._as_weighted(catalyst.expand(node.plan, change.weight, change.plan))
            case _:  # Filter, Generate: the weight is passed through
                plan = catalyst.with_children(self._operator(node), [change.plan])
                few = change.few and node.kind == "Filter"
                return self._reorder(node, Weighted(plan, change.weight, few))

    def _union(self, node: Node) -> Weighted | None:
        like = list(items(node.plan.output()))
        parts = []
        for child in node.children:
            change = self.delta_of(child)
            if change is None:
                continue
            own = list(items(child.plan.output()))
            named = [self.catalyst.relabel(a, b) for a, b in zip(own, like, strict=True)]
            plan = self.catalyst.project([*named, change.weight], change.plan)
            parts.append(Weighted(plan, change.weight))
        return self._sum(node, parts)

    def _products(self, node: Node) -> Sequence[Weighted]:
        """d(L x R) = dL x R after + L before x dR."""
        left, right = node.children
        # Both first: afterwards, the rows of an operator below may already be known.
        of_left, of_right = self.delta_of(left), self.delta_of(right)
        parts = []
        if of_left is not None:
            few = self._broadcast_few(of_left)
            parts.append(self._join(node, of_left, few, self.after(right)))
        if of_right is not None:
            few = self._broadcast_few(of_right)
            parts.append(self._join(node, of_right, self.before(left), few))
        return parts

    def _one_sided(self, node: Node) -> Weighted | None:
        """Return the change of a join that is linear in one side and keyed by the other."""
        (looked_up,) = node.operator.keyed_by
        kept = 1 - looked_up
        of_kept = self.delta_of(node.children[kept])
        of_looked_up = self.delta_of(node.children[looked_up])
        parts = []
        if of_kept is not None:
            sides = [self.after(child) for child in node.children]
            sides[kept] = of_kept.plan
            parts.append(self._join(node, of_kept, *sides))
        if of_looked_up is not None:
            same, after, before = self._affected_sides(node, of_looked_up)
            for other, sign in ((after, 1), (before, -1)):
                sides = [same, other] if kept == 0 else [other, same]
                plan = self.catalyst.with_children(self._operator(node), sides)
                parts.append(self._with_weight(node, plan, sign))
        return self._sum(node, parts)

    def _affected_sides(self, node: Node, change: Weighted) -> tuple[Any, Any, Any]:
        """Return the previous rows that a one-sided join keeps, restricted to those that a change
        of the looked-up rows affects, and the looked-up rows after and before it."""
        (looked_up,) = node.operator.keyed_by
        kept, other = node.children[1 - looked_up], node.children[looked_up]
        if node.keys[looked_up]:
            keys = self._collect_keys([(node.keys[looked_up], change)])
            if node.null_aware:
                same = self._null_aware_rows(node, 1 - looked_up, keys)
                return same, self.after(other), self.before(other)
            return (
                self._restrict(node, 1 - looked_up, keys, before=True),
                self._restrict(node, looked_up, keys, before=False),
                self._restrict(node, looked_up, keys, before=True),
            )
        # A row that matches no changed row has the same matches before and after.
        on = self._operator(node).condition()
        condition = on.get() if on.isDefined() else None
        few = self._broadcast_few(change)
        same = self.catalyst.semi_join(self.before(kept), few, condition)
        return same, self.after(other), self.before(other)

    def _null_aware_rows(self, node: Node, kept: int, keys: Keys) -> Any:
        """Return the previous rows on one side whose key is affected or NULL.

        They are all rows if NULL is affected, since it matches every key.
        """
        if not keys.columns or keys.columns[0].has_null:
            self._accept(self.rows_in_table)
            return self.before(node.children[kept])
        (values,) = keys.columns
        with_null = replace(keys, columns=(replace(values, has_null=True),))
        return self._restrict(node, kept, with_null, before=True)

    def _broadcast_few(self, change: Weighted) -> Any:
        """Return a change as a side of a join; Spark would overestimate its size."""
        return self.catalyst.broadcast(change.plan) if change.few else change.plan

    # ---- keyed -----------------------------------------------------------------------------

    def _keyed_delta(self, node: Node) -> Weighted | None:
        keys = self.known.get(id(node)) or self._affected_keys(node)
        if keys is None:
            return None
        self._add_check(node, keys)
        after = self._recompute(node, keys, before=False)
        if node.operator.replaced:
            self.replaced = Replaced(keys=keys, columns=node.columns)
            return self._with_weight(node, after, 1)
        before = self._recompute(node, keys, before=True)
        return self._sum(
            node, [self._with_weight(node, after, 1), self._with_weight(node, before, -1)]
        )

    def _affected_keys(self, node: Node) -> Keys | None:
        changes = [self.delta_of(child) for child in node.children]
        sides = [
            (exprs, change)
            for exprs, change in zip(node.keys, changes, strict=True)
            if change is not None
        ]
        return self._collect_keys(sides) if sides else None

    def _collect_keys(self, sides: Sequence[tuple[Sequence[Any], Weighted]]) -> Keys:
        """Collect the keys of changed rows of any weight."""
        plans = []
        for expressions, change in sides:
            safe = guard_expressions(self.catalyst, change.plan, expressions)
            named = [self.catalyst.alias(e, f"k{i}") for i, e in enumerate(safe)]
            plans.append(self.catalyst.project(named, change.plan))
        self.check()
        keys = collect_keys(self.catalyst, self.catalyst.union(plans), self.key_limit)
        self._accept(keys.count)
        return keys

    def _accept(self, affected: int) -> None:
        self.affected = max(self.affected, affected)
        self.accept(self.affected)

    def _add_check(self, node: Node, keys: Keys | None = None) -> None:
        """Add checks of an operator's preconditions, for affected keys only if they are known."""
        own = [each for each in self.preconditions if each.node is node]
        if not own:
            return
        rows = None
        if keys is not None:
            rows = [self._restrict(node, 0, keys, before=False)] * len(own)
        self.pending.append(check_of(own, self.catalyst, rows))

    def check_pending(self) -> None:
        """Run all pending checks.

        :raises NotFollowingError: if a precondition is not satisfied.
        """
        for check in self.pending:
            found = check.run()
            self.check()
            require(found)
        self.pending.clear()

    def _recompute(self, node: Node, keys: Keys, *, before: bool) -> Any:
        sides = [
            self._restrict(node, index, keys, before=before) for index in range(len(node.children))
        ]
        return self._over(self._operator(node), sides)

    def _restrict(self, node: Node, index: int, keys: Keys, *, before: bool) -> Any:
        child = node.children[index]
        plan = self.before(child) if before else self.after(child)
        return restrict(self.catalyst, plan, node.keys[index], keys)

    # ---- without keys ----------------------------------------------------------------------

    def _compare(self, node: Node, *, everywhere: bool) -> Weighted | None:
        """Compare all rows of an operator before and after; one Spark action.

        :param everywhere: whether it has a single row, which may affect all rows of the table.
        """
        if id(node) not in self._compared:
            self._compared[id(node)] = self._compare_now(node, everywhere=everywhere)
        return self._compared[id(node)]

    def _compare_now(self, node: Node, *, everywhere: bool) -> Weighted | None:
        self._add_checks(node)
        catalyst, like = self.catalyst, list(items(node.plan.output()))
        names = [f"c{number}" for number in range(len(like))]
        parts = [
            self._with_weight(node, plan, weight).plan
            for plan, weight in ((self.after(node), 1), (self.before(node), -1))
        ]
        both = catalyst.frame(catalyst.union(parts)).toDF(*names, WEIGHT)
        if everywhere:
            both = self._persist(both)
            for known, weight in ((self._after, 1), (self._before, -1)):
                rows = catalyst.analyzed_plan(both.where(f"{WEIGHT} = {weight}").drop(WEIGHT))
                known[id(node)] = catalyst.project(self._relabel(rows, like), rows)
        change = self._persist(sum_weights(both))
        self.check()
        count = change.count()
        if count == 0:
            return None
        self._accept(self.rows_in_table if everywhere else count)
        plan = catalyst.analyzed_plan(change)
        weight = catalyst.alias(list(items(plan.output()))[-1], WEIGHT)
        named = [*self._relabel(plan, like), weight]
        return replace(self._as_weighted(catalyst.project(named, plan)), few=count <= _FEW)

    def _add_checks(self, node: Node) -> None:
        """Add checks of the preconditions of all changed operators below a node on all rows."""
        for each in node.all_nodes():
            if self._changes(each) and id(each) not in self._checked:
                self._checked.add(id(each))
                self._add_check(each)

    def _persist(self, frame: DataFrame) -> DataFrame:
        frame = frame.persist()
        self.resources.callback(frame.unpersist)
        return frame

    def _relabel(self, plan: Any, like: Sequence[Any]) -> list[Any]:
        """Return the first attributes of a plan under the ids of others."""
        own = list(items(plan.output()))[: len(like)]
        return [self.catalyst.relabel(a, b) for a, b in zip(own, like, strict=True)]

    def _replacements(self, node: Node) -> Replacements | None:
        """Return an operator with the values of its subqueries; None if their sources are
        unchanged."""
        subqueries = [each for each in node.subqueries if self._changes(each.node)]
        if not subqueries:
            return None
        if id(node) not in self._replaced_subqueries:
            for each in subqueries:
                self._add_checks(each.node)
            self.check()
            plans = [(each, self.after(each.node), self.before(each.node)) for each in subqueries]
            found = replace_subqueries(self.catalyst, node, plans)
            self._replaced_subqueries[id(node)] = found
        return self._replaced_subqueries[id(node)]

    def _operator(self, node: Node, *, before: bool = False) -> Any:
        """Return an operator's plan; only its own expressions are those of the version."""
        found = self._replacements(node)
        if found is None:
            return node.plan
        return found.before if before else found.after

    def _over(self, plan: Any, children: Sequence[Any]) -> Any:
        """Return an operator over other inputs."""
        if kind(plan) == "GlobalLimit":
            children = [self.catalyst.with_children(plan.child(), children)]
        return self.catalyst.with_children(plan, children)

    def _changes(self, node: Node) -> bool:
        return node.operator.changes(frozenset(self.changed))

    # ---- the rows after and before ---------------------------------------------------------

    def after(self, node: Node) -> Any:
        """Return a node's plan over its sources' rows after the change."""
        if not self._changes(node) or node.operator.source is not None:
            return node.plan
        if id(node) in self._after:
            return self._after[id(node)]
        plan, children = self._operator(node), [self.after(child) for child in node.children]
        unknown = all(a is b.plan for a, b in zip(children, node.children, strict=True))
        return node.plan if unknown and plan is node.plan else self._over(plan, children)

    def before(self, node: Node) -> Any:
        """Return a node's plan over its sources' rows before the change."""
        if not self._changes(node):
            return node.plan
        if id(node) not in self._before:
            self._before[id(node)] = self._rebuild(node)
        return self._before[id(node)]

    def _rebuild(self, node: Node) -> Any:
        source = node.operator.source
        if source is None:
            children = [self.before(child) for child in node.children]
            return self._over(self._operator(node, before=True), children)
        plan = self.catalyst.analyzed_plan(self.changed[source].before())
        columns = {str(a.name()): a for a in items(plan.output())}
        named = [
            self.catalyst.alias(columns[str(a.name())], str(a.name()), a)
            for a in items(node.plan.output())
        ]
        return self.catalyst.project(named, plan)

    # ---- weights ---------------------------------------------------------------------------

    def _join(self, node: Node, change: Weighted, left: Any, right: Any) -> Weighted:
        plan = self.catalyst.with_children(self._operator(node), [left, right])
        return self._reorder(node, Weighted(plan, change.weight))

    def _with_weight(self, node: Node, plan: Any, weight: int) -> Weighted:
        named = self.catalyst.alias(self.catalyst.long(weight), WEIGHT)
        return self._as_weighted(self.catalyst.project_with(node.plan.output(), named, plan))

    def _reorder(self, node: Node, change: Weighted) -> Weighted:
        """Put the output into the order of the node's attributes, followed by the weight."""
        plan = self.catalyst.project_with(node.plan.output(), change.weight, change.plan)
        return replace(change, plan=plan)

    def _sum(self, node: Node, parts: Sequence[Weighted]) -> Weighted | None:
        if not parts:
            return None
        return self._as_weighted(self.catalyst.union([part.plan for part in parts]))

    def _as_weighted(self, plan: Any) -> Weighted:
        output = plan.output()
        return Weighted(plan, output.apply(output.size() - 1))
