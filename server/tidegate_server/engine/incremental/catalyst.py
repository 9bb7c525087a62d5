"""Catalyst's trees read and built through py4j."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.storage.jvm import items, java, kind, scala_object

# Far beyond the columns a table has, so that no text is cut off.
_FIELDS = 1 << 20
# Those of expressions and of recursive queries.
_ID = re.compile(r"(?:#|(?<=UnionLoop )|(?<=UnionLoopRef ))\d+")
_SUBQUERIES = frozenset({"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"})


def descend(tree: Any) -> Iterator[Any]:
    """Yield a tree's nodes, the root first; subqueries inside expressions are not entered."""
    yield tree
    for child in items(tree.children()):
        yield from descend(child)


def expression_id(named: Any) -> int:
    """Return the id by which attributes are told apart within one plan."""
    return int(named.exprId().id())


class Catalyst:
    """Makes plans and expressions; every attribute keeps its id unless said otherwise."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm: Any = java(spark)
        self._jvm = jvm
        base = jvm.org.apache.spark.sql.catalyst
        self._plans = base.plans
        self._logical = base.plans.logical
        self._expressions = base.expressions
        self._analysis = base.analysis
        self._optimizer = base.optimizer

    # ---- plans and frames ------------------------------------------------------------------

    def analyzed(self, frame: DataFrame) -> Any:
        """Return the analyzed plan of a frame."""
        jdf: Any = frame._jdf
        return jdf.queryExecution().analyzed()

    def frame(self, plan: Any) -> DataFrame:
        """Return the frame of a plan, which Spark analyzes once more.

        :raises pyspark.errors.AnalysisException: if the plan is not sound.
        """
        session: Any = self.spark._jsparkSession
        return DataFrame(
            self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), self.spark
        )

    def simplified(self, plan: Any) -> Any:
        """Return an analyzed plan without names, views and hints, its correlated subqueries as
        joins, and without a LIMIT that keeps all rows, as after an aggregate over everything.

        These are steps of Spark's own optimizer, none of which looks at data.
        """
        plan = self._plain(self._optimizer.InlineCTE(True, False).apply(plan))
        return self._plain(self._joined(plan)) if self._has_subqueries(plan) else plan

    def _plain(self, plan: Any) -> Any:
        """Return a plan without what only names, wraps or advises, and without idle LIMITs; its
        subqueries keep theirs."""
        rules = (
            # A function in SQL is told by what it does, since its text hides that.
            self._optimizer.EliminateSQLFunctionNode,
            self._analysis.EliminateSubqueryAliases,
            self._analysis.EliminateView,
            self._expressions.EliminatePipeOperators,
            self._optimizer.EliminateResolvedHint,
            self._optimizer.EliminateLimits,
        )
        return _taken(rules, plan)

    def _joined(self, plan: Any) -> Any:
        """Return a plan with its correlated subqueries as joins.

        The rules see the outermost subqueries only, and expect those within them to be joins
        already. Their order is that of Spark's optimizer.
        """
        if not self._has_subqueries(plan):
            return plan
        optimizer = self._optimizer
        pulls = (optimizer.OptimizeOneRowRelationSubquery, optimizer.PullupCorrelatedPredicates)
        joins = (
            optimizer.RewriteLateralSubquery,
            optimizer.RewriteCorrelatedScalarSubquery,
            optimizer.RewritePredicateSubquery,
        )
        return _taken(joins, self._inner_joined(_taken(pulls, plan)))

    def _inner_joined(self, plan: Any) -> Any:
        """Return a plan with joins in its subqueries; Spark has them in these operators only."""
        if not self._has_subqueries(plan):
            return plan
        plan = self.with_children(plan, [self._inner_joined(c) for c in items(plan.children())])
        match kind(plan):
            case "Filter":
                return self.filter(self._with_joins(plan.condition()), plan.child())
            case "Project":
                return self.project(map(self._with_joins, items(plan.projectList())), plan.child())
            case "Aggregate":
                groups = self.seq(map(self._with_joins, items(plan.groupingExpressions())))
                results = self.seq(map(self._with_joins, items(plan.aggregateExpressions())))
                return self._logical.Aggregate(groups, results, plan.child(), plan.hint())
            case "LateralJoin":
                right = self._with_joins(plan.right())
                left, join = plan.left(), plan.joinType()
                return self._logical.LateralJoin(left, right, join, plan.condition())
        return plan

    def _with_joins(self, expression: Any) -> Any:
        """Return an expression whose subqueries hold joins in the place of their own ones."""
        if not self._has_subqueries(expression):
            return expression
        if kind(expression) in _SUBQUERIES:
            return expression.withNewPlan(self._plain(self._joined(expression.plan())))
        children = [self._with_joins(child) for child in items(expression.children())]
        return self.with_children(expression, children)

    def _has_subqueries(self, tree: Any) -> bool:
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        return bool(tree.containsPattern(patterns.PLAN_EXPRESSION()))

    def text(self, plan: Any) -> str:
        """Return a plan as text that is the same whenever the plan is: ids are counted anew.

        Catalyst's own canonical form is not: it sorts by hashes, which those of subqueries differ
        in from one analysis to the next.
        """
        numbers: dict[str, str] = {}
        text = str(plan.treeString(False, False, _FIELDS, False, False))
        return _ID.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text)

    # ---- plans -----------------------------------------------------------------------------

    def seq(self, values: Iterable[Any]) -> Any:
        """Return a Scala Seq."""
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(values))

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        """Return the operator over other inputs of the same attributes."""
        return node.withNewChildren(self.seq(children))

    def project(self, expressions: Iterable[Any], child: Any) -> Any:
        """Return a projection."""
        return self._logical.Project(self.seq(expressions), child)

    def filter(self, condition: Any, child: Any) -> Any:
        """Return a filter."""
        return self._logical.Filter(condition, child)

    def limit(self, child: Any, count: int) -> Any:
        """Return the first rows."""
        session: Any = self.spark._jsparkSession
        number = session.sessionState().sqlParser().parseExpression(str(count))
        return self._logical.GlobalLimit(number, self._logical.LocalLimit(number, child))

    def distinct(self, child: Any) -> Any:
        """Return a duplicate elimination."""
        return self._logical.Distinct(child)

    def union(self, plans: Sequence[Any]) -> Any:
        """Return the bag union by position; the first plan's attributes are the result's."""
        if len(plans) == 1:
            return plans[0]
        return self._logical.Union(self.seq(plans), False, False)

    def expand(self, node: Any, carried: Any, child: Any) -> Any:
        """Return an Expand that hands one more attribute through."""
        rows = [self.seq([*items(row), carried]) for row in items(node.projections())]
        return self._logical.Expand(
            self.seq(rows), self.seq([*items(node.output()), carried]), child
        )

    def broadcast(self, plan: Any) -> Any:
        """Return a plan whose rows a join is to send to every process."""
        hints = self._logical
        strategy = scala_object(self._jvm, "org.apache.spark.sql.catalyst.plans.logical.BROADCAST")
        return hints.ResolvedHint(plan, hints.HintInfo(self._jvm.scala.Option.apply(strategy)))

    def semi_join(self, left: Any, right: Any, condition: Any) -> Any:
        """Return the rows of ``left`` that have a partner."""
        hint = self._logical.JoinHint.NONE()
        option = self._jvm.scala.Option
        return self._logical.Join(
            left, right, self._join_type("LeftSemi"), option.apply(condition), hint
        )

    def rows(self, attributes: Sequence[Any], rows: Any) -> Any:
        """Return a relation of Catalyst rows held in memory."""
        sequence = self._jvm.scala.Predef.genericWrapArray(rows).toSeq()
        return self._logical.LocalRelation(
            self.seq(attributes), sequence, False, self._jvm.scala.Option.empty()
        )

    def _join_type(self, name: str) -> Any:
        return self._plans.JoinType.apply(name)

    # ---- expressions -----------------------------------------------------------------------

    def attribute(self, name: str, data_type: Any) -> Any:
        """Return a new attribute."""
        metadata = self._jvm.org.apache.spark.sql.types.Metadata.empty()
        return self._expressions.AttributeReference(
            name, data_type, True, metadata, self._new_id(), self.seq([])
        )

    def alias(self, expression: Any, name: str, like: Any | None = None) -> Any:
        """Return a named expression; with ``like`` under the id of that attribute."""
        return self._expressions.Alias(
            expression,
            name,
            self._new_id() if like is None else like.exprId(),
            self.seq([]),
            self._jvm.scala.Option.empty(),
            self.seq([]),
        )

    def relabel(self, attribute: Any, like: Any) -> Any:
        """Return ``attribute`` under the id of ``like``."""
        if expression_id(attribute) == expression_id(like):
            return attribute
        return self.alias(attribute, str(like.name()), like)

    def long(self, value: int) -> Any:
        """Return a BIGINT literal."""
        session: Any = self.spark._jsparkSession
        return session.sessionState().sqlParser().parseExpression(f"{value}L")

    def field(self, struct: Any, index: int) -> Any:
        """Return a field of a struct, NULL if that is."""
        return self._expressions.GetStructField(struct, index, self._jvm.scala.Option.empty())

    def contained(self, expression: Any, values: Any) -> Any:
        """Return ``expression IN (values)`` for an array of Catalyst values."""
        found = self._jvm.scala.Predef.genericWrapArray(values).toSet()
        return self._expressions.InSet(expression, found)

    def is_null(self, expression: Any) -> Any:
        """Return ``expression IS NULL``."""
        return self._expressions.IsNull(expression)

    def is_not_null(self, expression: Any) -> Any:
        """Return ``expression IS NOT NULL``."""
        return self._expressions.IsNotNull(expression)

    def sort_order(self, expression: Any, *, descending: bool) -> Any:
        """Return an order by an expression."""
        base = "org.apache.spark.sql.catalyst.expressions"
        direction = scala_object(self._jvm, f"{base}.{'Descending' if descending else 'Ascending'}")
        return self._expressions.SortOrder(
            expression, direction, direction.defaultNullOrdering(), self.seq([])
        )

    def same(self, left: Any, right: Any) -> Any:
        """Return ``left <=> right``."""
        return self._expressions.EqualNullSafe(left, right)

    def all(self, conditions: Sequence[Any]) -> Any:
        """Return the conjunction."""
        return reduce(self._expressions.And, conditions)

    def any(self, conditions: Sequence[Any]) -> Any:
        """Return the disjunction."""
        return reduce(self._expressions.Or, conditions)

    def _new_id(self) -> Any:
        return self._expressions.NamedExpression.newExprId()


def _taken(steps: Sequence[Any], plan: Any) -> Any:
    return reduce(lambda tree, step: step.apply(tree), steps, plan)
