"""Prepares an analyzed plan for incremental refresh by rules of Spark's optimizer, in its order.

A rule may rely on those that Spark runs before it. The rule that rewrites predicate subqueries as
joins is the most demanding: it treats IN as false where it is NULL, which is correct only after NOT
was pushed down to IN, and predicates to where Spark evaluates them. No rule here reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.engine.incremental.analysis.null_logic import shows_null
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.storage.jvm import items, kind

UNCERTAIN = Obstacle(
    code=Reason.SUBQUERY_PREDICATE_NOT_INCREMENTALIZABLE,
    text="where IN is NULL, the result depends on how Spark rewrites the expression around it; "
    "compare values that cannot be NULL, or use IN as a separate condition",
)
_SUBQUERIES = frozenset({"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"})
# The maximum number of times that Spark itself repeats a batch of rules.
_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplified:
    """A plan without names, views, hints, and correlated subqueries."""

    plan: Any
    obstacles: tuple[Obstacle, ...] = ()
    """Why rows computed from the plan may differ from those of the query."""


def simplify(catalyst: Catalyst, plan: Any) -> Simplified:
    """Simplify an analyzed plan.

    Removes names, views, hints and LIMITs that keep all rows, such as after an aggregate without
    GROUP BY; rewrites correlated subqueries as joins.
    """
    steps = _Steps(catalyst)
    plan = steps.strip_wrappers(catalyst.optimizer.InlineCTE(True, False).apply(plan))
    if catalyst.has_subqueries(plan):
        plan = steps.strip_wrappers(steps.join_subqueries(plan))
    return Simplified(plan=plan, obstacles=tuple(steps.obstacles))


def push_down_filters(catalyst: Catalyst, plan: Any) -> Any:
    """Return a plan with filters where Spark evaluates them.

    Expressions may fail for rows that a filter removes, so affected keys, too, must be computed
    after the filter.
    """
    return _repeat_rules((catalyst.optimizer.PushDownPredicates,), plan)


@dataclass(frozen=True, slots=True)
class _Steps:
    catalyst: Catalyst
    obstacles: list[Obstacle] = field(default_factory=list)

    def strip_wrappers(self, plan: Any) -> Any:
        """Return a plan without aliases, views, hints and LIMITs that keep all rows.

        Subqueries are not changed.
        """
        optimizer, analysis = self.catalyst.optimizer, self.catalyst.analysis
        rules = (
            # Replaces the call of a SQL function by its body, so that this is checked.
            optimizer.EliminateSQLFunctionNode,
            analysis.EliminateSubqueryAliases,
            analysis.EliminateView,
            self.catalyst.expressions.EliminatePipeOperators,
            optimizer.EliminateResolvedHint,
            optimizer.EliminateLimits,
        )
        return _apply_rules(rules, plan)

    def join_subqueries(self, plan: Any, *, inner: bool = False) -> Any:
        """Return a plan with its correlated subqueries rewritten as joins.

        The rules see the outermost subqueries only, and expect nested ones to be joins already.

        :param inner: whether it is the plan of a subquery.
        """
        if not self.catalyst.has_subqueries(plan):
            return plan
        optimizer = self.catalyst.optimizer
        operators = list(descend(plan))
        if any(map(_mixes_exists, operators)):
            plan = optimizer.RewriteNonCorrelatedExists.apply(plan)
        if any(map(self._groups_by_subquery, operators)):
            plan = optimizer.PullOutGroupingExpressions.apply(plan)
        pulls = (optimizer.OptimizeOneRowRelationSubquery, optimizer.PullupCorrelatedPredicates)
        plan = _apply_rules(pulls, self._map_subqueries(plan, self._with_replacements))
        plan = self._map_subqueries(plan, self._with_joins)
        simplifications = (
            optimizer.PushDownPredicates,
            optimizer.BooleanSimplification,
            optimizer.SimplifyBinaryComparison,
        )
        plan = _repeat_rules(simplifications, plan)
        if shows_null(self.catalyst, plan, inner=inner):
            self.obstacles.append(UNCERTAIN)
        joins = (
            optimizer.RewriteLateralSubquery,
            optimizer.RewriteCorrelatedScalarSubquery,
            optimizer.RewritePredicateSubquery,
        )
        return _apply_rules(joins, plan)

    def _groups_by_subquery(self, plan: Any) -> bool:
        if kind(plan) != "Aggregate":
            return False
        return any(map(self.catalyst.has_subqueries, items(plan.groupingExpressions())))

    def _with_replacements(self, subquery: Any) -> Any:
        """Return a correlated subquery with functions such as ``count_if`` replaced.

        Spark derives the subquery's result for no rows from its aggregates, and does not know that
        ``count_if`` is a count unless it is replaced first.
        """
        if not bool(subquery.isCorrelated()):
            return subquery
        optimizer = self.catalyst.optimizer
        rules = (optimizer.ReplaceExpressions, optimizer.RewriteWithExpression)
        return subquery.withNewPlan(_apply_rules(rules, subquery.plan()))

    def _with_joins(self, subquery: Any) -> Any:
        return subquery.withNewPlan(
            self.strip_wrappers(self.join_subqueries(subquery.plan(), inner=True))
        )

    def _map_subqueries(self, plan: Any, change: Callable[[Any], Any]) -> Any:
        """Return a plan with ``change`` applied to its outermost subqueries.

        Handles only the operators in which Spark allows correlated subqueries.
        """
        catalyst = self.catalyst
        if not catalyst.has_subqueries(plan):
            return plan
        plan = catalyst.with_children(
            plan, [self._map_subqueries(c, change) for c in items(plan.children())]
        )
        return map_subqueries(catalyst, plan, change)


def map_subqueries(catalyst: Catalyst, plan: Any, change: Callable[[Any], Any]) -> Any:
    """Return an operator with ``change`` applied to the outermost subqueries in its expressions.

    Handles only the operators in which Spark allows correlated subqueries.
    """

    def change_expression(expression: Any) -> Any:
        if not catalyst.has_subqueries(expression):
            return expression
        if kind(expression) in _SUBQUERIES:
            return change(expression)
        return catalyst.with_children(
            expression, list(map(change_expression, items(expression.children())))
        )

    match kind(plan):
        case "Filter":
            return catalyst.filter(change_expression(plan.condition()), plan.child())
        case "Project":
            return catalyst.project(map(change_expression, items(plan.projectList())), plan.child())
        case "Aggregate":
            return catalyst.aggregate(
                plan,
                map(change_expression, items(plan.groupingExpressions())),
                map(change_expression, items(plan.aggregateExpressions())),
            )
        case "LateralJoin":
            return catalyst.lateral_join(plan, change_expression(plan.right()))
        case "Join" if plan.condition().isDefined():
            return catalyst.join_on(plan, change_expression(plan.condition().get()))
    return plan


def _mixes_exists(plan: Any) -> bool:
    """Say whether an operator has an uncorrelated EXISTS beside another predicate subquery.

    The rule that rewrites predicate subqueries would treat both as correlated.
    """
    found = {
        f"{kind(part)} {bool(part.isCorrelated())}"
        for expression in items(plan.expressions())
        for part in descend(expression)
        if kind(part) in {"Exists", "ListQuery"}
    }
    return "Exists False" in found and len(found) > 1


def _apply_rules(rules: Sequence[Any], plan: Any) -> Any:
    for rule in rules:
        plan = rule.apply(plan)
    return plan


def _repeat_rules(rules: Sequence[Any], plan: Any) -> Any:
    for _ in range(_ROUNDS):
        after = _apply_rules(rules, plan)
        if bool(after.fastEquals(plan)):
            break
        plan = after
    return plan
