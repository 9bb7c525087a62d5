"""Reads and builds Catalyst's trees through py4j."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.storage.jvm import (
    compiled_instance,
    frame_of,
    items,
    java,
    java_source,
    scala_object,
)

# More than any table has columns, so that Catalyst does not truncate a text.
_FIELDS = 1 << 20
# The partitions of a table of another metastore, which are rows of the query, not its text.
_LISTED = re.compile(r", Pruned Partitions: \[.*$", re.MULTILINE)
# Ids of expressions and recursive queries, and the numbered names of common expressions.
_ID = re.compile(r"(?:#|_common_expr_|(?<=UnionLoop )|(?<=UnionLoopRef ))\d+")


def descend(tree: Any) -> Iterator[Any]:
    """Yield a tree's nodes, the root first; subqueries inside expressions are not entered."""
    yield tree
    for child in items(tree.children()):
        yield from descend(child)


def expression_id(named: Any) -> int:
    """Return the id of a named expression, unique within one plan."""
    return int(named.exprId().id())


@dataclass(frozen=True, slots=True)
class Described:
    """An expression, as far as ``Expressions.java`` describes it."""

    id: int | None
    """That of a named expression."""
    passed: int | None
    """The id of the attribute that it is, or passes on under another name."""
    references: frozenset[int]
    """The ids of the attributes in it."""
    name: str = ""
    """Of an attribute, as are the following."""
    type: str = ""
    """As ``catalogString`` writes it."""
    type_name: str = ""


class Catalyst:
    """Builds plans and expressions; attributes keep their ids unless a method says otherwise."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm: Any = java(spark)
        self._jvm = jvm
        base = jvm.org.apache.spark.sql.catalyst
        self._plans = base.plans
        self._logical = base.plans.logical
        self._trees = base.trees
        self._patterns = base.trees.TreePattern
        self.expressions = base.expressions
        self.analysis = base.analysis
        self.optimizer = base.optimizer

    # ---- reading ---------------------------------------------------------------------------

    def describe(self, expressions: Any) -> list[Described]:
        """Return what the expressions of a Scala Seq are, in one call to the JVM."""
        name, source = "tidegate.Expressions", java_source(__package__, "Expressions")
        found = compiled_instance(self.spark, name, source).describe(expressions)
        return [
            Described(id_, passed, frozenset(references), *attribute)
            for id_, passed, references, *attribute in json.loads(str(found))
        ]

    def ids(self, attributes: Any) -> list[int]:
        """Return the ids of the named expressions of a Scala Seq."""
        return [each.id for each in self.describe(attributes) if each.id is not None]

    def select(self, named: Any, ids: Container[int]) -> list[Any]:
        """Return the named expressions of a Scala Seq that have these ids."""
        described = enumerate(self.describe(named))
        return [named.apply(place) for place, each in described if each.id in ids]

    def references(self, expressions: Any) -> frozenset[int]:
        """Return the ids of the attributes that the expressions of a Scala Seq contain."""
        return frozenset[int]().union(*(each.references for each in self.describe(expressions)))

    # ---- plans and frames ------------------------------------------------------------------

    def analyzed_plan(self, frame: DataFrame) -> Any:
        """Return the analyzed plan of a frame."""
        jdf: Any = frame._jdf
        return jdf.queryExecution().analyzed()

    def frame(self, plan: Any) -> DataFrame:
        """Return the frame of a plan, which Spark analyzes again.

        :raises pyspark.errors.AnalysisException: if the plan is invalid.
        """
        return frame_of(self.spark, plan)

    def has_subqueries(self, tree: Any) -> bool:
        """Say whether a plan or an expression has a subquery within an expression."""
        return bool(tree.containsPattern(self._patterns.PLAN_EXPRESSION()))

    def has_in_subqueries(self, tree: Any) -> bool:
        """Say whether a plan or an expression has IN with a subquery."""
        return bool(tree.containsPattern(self._patterns.IN_SUBQUERY()))

    def text(self, plan: Any) -> str:
        """Return a plan as text with renumbered ids, so that equal plans have equal texts.

        Catalyst's own canonical form does not guarantee that: it sorts by hashes, and those of
        subqueries differ from one analysis to the next.
        """
        numbers: dict[str, str] = {}
        text = _LISTED.sub("", str(plan.treeString(False, False, _FIELDS, False, False)))
        return _ID.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text)

    def tag(self, name: str) -> Any:
        """Return a tag, under which a value can be attached to an operator."""
        return self._trees.TreeNodeTag(name)

    # ---- plans -----------------------------------------------------------------------------

    def seq(self, values: Iterable[Any]) -> Any:
        """Return a Scala Seq."""
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(values))

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        """Return the operator over other inputs with the same attributes."""
        return node.withNewChildren(self.seq(children))

    def project(self, expressions: Iterable[Any], child: Any) -> Any:
        """Return a projection."""
        return self._logical.Project(self.seq(expressions), child)

    def project_with(self, expressions: Any, further: Any, child: Any) -> Any:
        """Return a projection of a Scala Seq of expressions and a further one."""
        return self._logical.Project(expressions.appended(further), child)

    def filter(self, condition: Any, child: Any) -> Any:
        """Return a filter."""
        return self._logical.Filter(condition, child)

    def aggregate(self, node: Any, groups: Iterable[Any], results: Iterable[Any]) -> Any:
        """Return an aggregate of other expressions over the same rows."""
        return self._logical.Aggregate(
            self.seq(groups), self.seq(results), node.child(), node.hint()
        )

    def join_on(self, node: Any, condition: Any) -> Any:
        """Return a join on another condition."""
        option = self._jvm.scala.Option.apply(condition)
        return self._logical.Join(node.left(), node.right(), node.joinType(), option, node.hint())

    def lateral_join(self, node: Any, right: Any) -> Any:
        """Return a lateral join with another subquery."""
        return self._logical.LateralJoin(node.left(), right, node.joinType(), node.condition())

    def limit(self, child: Any, count: int) -> Any:
        """Return a limit."""
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
        """Return an Expand that passes one more attribute through."""
        rows = [self.seq([*items(row), carried]) for row in items(node.projections())]
        return self._logical.Expand(
            self.seq(rows), self.seq([*items(node.output()), carried]), child
        )

    def broadcast(self, plan: Any) -> Any:
        """Return a plan with a broadcast hint."""
        hints = self._logical
        strategy = scala_object(self._jvm, "org.apache.spark.sql.catalyst.plans.logical.BROADCAST")
        return hints.ResolvedHint(plan, hints.HintInfo(self._jvm.scala.Option.apply(strategy)))

    def semi_join(self, left: Any, right: Any, condition: Any | None) -> Any:
        """Return a left semi join; without a condition every row on the right matches."""
        hint = self._logical.JoinHint.NONE()
        option = self._jvm.scala.Option
        return self._logical.Join(
            left, right, self._join_type("LeftSemi"), option.apply(condition), hint
        )

    def rows(self, attributes: Sequence[Any], rows: Any) -> Any:
        """Return a relation of Catalyst rows in memory."""
        sequence = self._jvm.scala.Predef.genericWrapArray(rows).toSeq()
        return self._logical.LocalRelation(
            self.seq(attributes), sequence, False, self._jvm.scala.Option.empty()
        )

    def one_row(self) -> Any:
        """Return a relation of one row without columns."""
        return self._logical.OneRowRelation()

    def _join_type(self, name: str) -> Any:
        return self._plans.JoinType.apply(name)

    # ---- expressions -----------------------------------------------------------------------

    def attribute(self, name: str, data_type: Any) -> Any:
        """Return a new attribute."""
        metadata = self._jvm.org.apache.spark.sql.types.Metadata.empty()
        return self.expressions.AttributeReference(
            name, data_type, True, metadata, self._new_id(), self.seq([])
        )

    def alias(self, expression: Any, name: str, like: Any | None = None) -> Any:
        """Return a named expression; with ``like`` under the id of that attribute."""
        return self.expressions.Alias(
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
        """Return a field of a struct; NULL if the struct is NULL."""
        return self.expressions.GetStructField(struct, index, self._jvm.scala.Option.empty())

    def scalar_subquery(self, plan: Any) -> Any:
        """Return the only column of the only row of a plan; NULL if it has no row."""
        none = self._jvm.scala.Option.empty()
        return self.expressions.ScalarSubquery(
            plan, self.seq([]), self._new_id(), self.seq([]), none, none, none
        )

    def in_set(self, expression: Any, values: Any) -> Any:
        """Return ``expression IN (values)`` for an array of Catalyst values."""
        found = self._jvm.scala.Predef.genericWrapArray(values).toSet()
        return self.expressions.InSet(expression, found)

    def is_null(self, expression: Any) -> Any:
        """Return ``expression IS NULL``."""
        return self.expressions.IsNull(expression)

    def is_not_null(self, expression: Any) -> Any:
        """Return ``expression IS NOT NULL``."""
        return self.expressions.IsNotNull(expression)

    def sort_order(self, expression: Any, *, descending: bool) -> Any:
        """Return a sort order with the default position of NULLs."""
        base = "org.apache.spark.sql.catalyst.expressions"
        direction = scala_object(self._jvm, f"{base}.{'Descending' if descending else 'Ascending'}")
        return self.expressions.SortOrder(
            expression, direction, direction.defaultNullOrdering(), self.seq([])
        )

    def try_eval(self, expression: Any) -> Any:
        """Return an expression that yields NULL where the given one fails."""
        return self.expressions.TryEval(expression)

    def widens(self, cast: Any) -> bool:
        """Say whether a cast is to a type that can represent all values of the source type."""
        return bool(self.expressions.Cast.canUpCast(cast.child().dataType(), cast.dataType()))

    def same(self, left: Any, right: Any) -> Any:
        """Return ``left <=> right``."""
        return self.expressions.EqualNullSafe(left, right)

    def all(self, conditions: Sequence[Any]) -> Any:
        """Return the conjunction."""
        return reduce(self.expressions.And, conditions)

    def any(self, conditions: Sequence[Any]) -> Any:
        """Return the disjunction."""
        return reduce(self.expressions.Or, conditions)

    def _new_id(self) -> Any:
        return self.expressions.NamedExpression.newExprId()
