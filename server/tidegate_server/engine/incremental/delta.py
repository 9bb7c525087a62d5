"""Computes the change of a query's rows from the changes of its sources.

Every operator yields the exact signed change of its rows. Linear ones are applied to the change of
their inputs. The others recompute all rows with an affected key, which is a key of a changed input
row: rows with other keys have the same input before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.refresh.eligibility import Rule
from tidegate_server.engine.incremental.analysis.functional_dependencies import PASSING
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.changes import WEIGHT
from tidegate_server.engine.incremental.keys import Keys, collect_keys, guard_expressions, restrict
from tidegate_server.engine.incremental.preconditions import Precondition, check_query, require
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.storage.jvm import items


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
    :param preconditions: satisfied by the rows before the change; required after it, too.
    """

    catalyst: Catalyst
    changed: Mapping[str, ChangedSource]
    key_limit: int
    check: Callable[[], None]
    accept: Callable[[int], None]
    preconditions: Sequence[Precondition] = ()
    replaced: Replaced | None = None
    affected: int = 0
    """The largest number of affected keys of one operator."""
    known: dict[int, Keys] = field(default_factory=dict)
    """Affected keys that are already known, by ``id()`` of the node."""
    pending: list[DataFrame] = field(default_factory=list)
    """Queries of :func:`~.preconditions.check_query` that have not run yet."""
    _before: dict[int, Any] = field(default_factory=dict)

    def delta_of(self, node: Node) -> Weighted | None:
        """Return the change of a node's rows; None if there is none.

        It is correct only if the checks in ``pending`` succeed.
        """
        if not node.operator.changes(frozenset(self.changed)):
            return None
        if node.operator.source is not None:
            return self._leaf(node, self.changed[node.operator.source])
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
                named = [*items(node.plan.projectList()), change.weight]
                projected = self._as_weighted(catalyst.project(named, change.plan))
                return replace(projected, few=change.few)
            case "Expand":
                return self._as_weighted(catalyst.expand(node.plan, change.weight, change.plan))
            case _:  # Filter, Generate: the weight is passed through
                plan = catalyst.with_children(node.plan, [change.plan])
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
        parts = []
        if (change := self.delta_of(left)) is not None:
            parts.append(self._join(node, change, self._broadcast_few(change), right.plan))
        if (change := self.delta_of(right)) is not None:
            parts.append(self._join(node, change, self.before(left), self._broadcast_few(change)))
        return parts

    def _one_sided(self, node: Node) -> Weighted | None:
        """Return the change of a join that is linear in one side and keyed by the other."""
        (looked_up,) = node.operator.keyed_by
        kept = 1 - looked_up
        parts = []
        if (change := self.delta_of(node.children[kept])) is not None:
            sides = [child.plan for child in node.children]
            sides[kept] = change.plan
            parts.append(self._join(node, change, *sides))
        if (change := self.delta_of(node.children[looked_up])) is not None:
            self._add_check(node)
            keys = self._collect_keys([(node.keys[looked_up], change)])
            same = self._restrict(node, kept, keys, before=True)
            after = self._restrict(node, looked_up, keys, before=False)
            before = self._restrict(node, looked_up, keys, before=True)
            for other, sign in ((after, 1), (before, -1)):
                sides = [same, other] if kept == 0 else [other, same]
                parts.append(
                    self._with_weight(node, self.catalyst.with_children(node.plan, sides), sign)
                )
        return self._sum(node, parts)

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
        self.affected = max(self.affected, keys.count)
        self.accept(self.affected)
        return keys

    def _add_check(self, node: Node, keys: Keys | None = None) -> None:
        """Add checks of an operator's preconditions, for affected keys only if they are known."""
        own = [each for each in self.preconditions if each.node is node]
        if not own:
            return
        rows = None
        if keys is not None:
            rows = [self._restrict(node, 0, keys, before=False)] * len(own)
        self.pending.append(check_query(own, self.catalyst, rows))

    def check_pending(self) -> None:
        """Run all pending checks; one Spark action each.

        :raises NotFollowingError: if a precondition is not satisfied.
        """
        for frame in self.pending:
            row = frame.first()
            self.check()
            require(None if row is None else row["broken"])
        self.pending.clear()

    def _recompute(self, node: Node, keys: Keys, *, before: bool) -> Any:
        sides = [
            self._restrict(node, index, keys, before=before) for index in range(len(node.children))
        ]
        return self.catalyst.with_children(node.plan, sides)

    def _restrict(self, node: Node, index: int, keys: Keys, *, before: bool) -> Any:
        child = node.children[index]
        plan = self.before(child) if before else child.plan
        return restrict(self.catalyst, plan, node.keys[index], keys)

    # ---- the sources before ----------------------------------------------------------------

    def before(self, node: Node) -> Any:
        """Return a node's plan over its sources' rows before the change."""
        if not node.operator.changes(frozenset(self.changed)):
            return node.plan
        if id(node) not in self._before:
            self._before[id(node)] = self._rebuild(node)
        return self._before[id(node)]

    def _rebuild(self, node: Node) -> Any:
        source = node.operator.source
        if source is None:
            children = [self.before(child) for child in node.children]
            return self.catalyst.with_children(node.plan, children)
        plan = self.catalyst.analyzed_plan(self.changed[source].before())
        columns = {str(a.name()): a for a in items(plan.output())}
        named = [
            self.catalyst.alias(columns[str(a.name())], str(a.name()), a)
            for a in items(node.plan.output())
        ]
        return self.catalyst.project(named, plan)

    # ---- weights ---------------------------------------------------------------------------

    def _join(self, node: Node, change: Weighted, left: Any, right: Any) -> Weighted:
        plan = self.catalyst.with_children(node.plan, [left, right])
        return self._reorder(node, Weighted(plan, change.weight))

    def _with_weight(self, node: Node, plan: Any, weight: int) -> Weighted:
        named = self.catalyst.alias(self.catalyst.long(weight), WEIGHT)
        return self._as_weighted(self.catalyst.project([*items(node.plan.output()), named], plan))

    def _reorder(self, node: Node, change: Weighted) -> Weighted:
        """Put the output into the order of the node's attributes, followed by the weight."""
        named = [*items(node.plan.output()), change.weight]
        return replace(change, plan=self.catalyst.project(named, change.plan))

    def _sum(self, node: Node, parts: Sequence[Weighted]) -> Weighted | None:
        if not parts:
            return None
        return self._as_weighted(self.catalyst.union([part.plan for part in parts]))

    def _as_weighted(self, plan: Any) -> Weighted:
        output = plan.output()
        return Weighted(plan, output.apply(output.size() - 1))
