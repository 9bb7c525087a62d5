"""The shape of a definition query: Catalyst's plan, annotated for incremental refresh."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.refresh.eligibility import Obstacle, Operator, Rule
from tidegate_server.engine.incremental.analysis.classify import (
    aggregates,
    averages_whole,
    choice_obstacle,
    find_refusals,
    is_key,
    is_key_type,
    is_sortable,
    rounding_obstacle,
    shared_groups,
)
from tidegate_server.engine.incremental.analysis.columns import is_used_columns
from tidegate_server.engine.incremental.analysis.functional_dependencies import (
    PASSING,
    ROW_WISE,
    equated_pairs,
    is_fixed_by,
    null_aware_pair,
)
from tidegate_server.engine.incremental.analysis.windows import (
    window_functions,
    window_refusals,
    window_ties,
)
from tidegate_server.engine.query.catalyst import Catalyst, Described, descend, expression_id
from tidegate_server.engine.query.plans import SQL_KEYWORDS
from tidegate_server.engine.statement.survey import readings_of
from tidegate_server.engine.storage.base import ReadVersion, SourceFormat
from tidegate_server.engine.storage.jvm import field_names, items, kind
from tidegate_server.engine.storage.plain import reads_plain_files

_LEAVES = frozenset({"LocalRelation", "OneRowRelation", "Range"})
_LINEAR = frozenset({"Project", "Filter", "Generate", "Expand", "Union"}) | PASSING
_INNER = frozenset({"Inner", "Cross"})
_SEMI = frozenset({"LeftSemi", "LeftAnti", "ExistenceJoin"})
_OUTER_KEYED: Mapping[str, tuple[int, ...]] = {
    "LeftOuter": (1,),
    "RightOuter": (0,),
    "FullOuter": (0, 1),
}
_WEIGHT = "__weight"
_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
_CORRUPT_OPTION = "columnnameofcorruptrecord"

_CUTS: Mapping[str, str] = {"GlobalLimit": "LIMIT", "Offset": "OFFSET"}
_SUBQUERIES = frozenset({"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"})
_REPLACEABLE = frozenset({"Project", "Filter", "Aggregate", "Join"})

Trace = Mapping[int, int]
"""Maps the id of an attribute to the table's column that it becomes unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operator of the plan, and the keys by which its rows can be recomputed."""

    operator: Operator
    plan: Any
    relation: Any = None
    """What a leaf reads; its plan may be a projection of that."""
    children: tuple[Node, ...] = ()
    keys: tuple[tuple[Any, ...], ...] = ()
    """For each child the key expressions over its attributes; those of two children correspond."""
    null_aware: bool = False
    """Whether NULL matches every key, as in ``a = b OR (a = b) IS NULL`` of NOT IN."""
    columns: tuple[int, ...] = ()
    """The table's column of each key, if the operator's rows are replaced by key."""
    subqueries: tuple[Subquery, ...] = ()
    """Those in the operator's expressions."""

    @property
    def kind(self) -> str:
        """The operator's class."""
        return kind(self.plan if self.relation is None else self.relation)

    def nodes(self) -> Iterator[Node]:
        """Yield this node and all below."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def all_nodes(self) -> Iterator[Node]:
        """Yield this node, all below, and those of subqueries."""
        yield self
        for below in (*self.children, *(subquery.node for subquery in self.subqueries)):
            yield from below.all_nodes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery:
    """A subquery in an operator's expression."""

    expression: Any
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The rows that LIMIT or OFFSET selects by their place in an order."""

    sort: Node
    """The ORDER BY."""
    passed: tuple[Node, ...]
    """The projections between the ORDER BY and the cut, from the cut down."""
    place: int
    """The number of rows before the cut."""


def cut_of(node: Node) -> Cut | None:
    """Return where a LIMIT or OFFSET cuts; None if its input has no order."""
    limit = node.plan.limitExpr() if node.kind == "GlobalLimit" else node.plan.offsetExpr()
    counts, passed = [limit], []
    (below,) = node.children
    while below.kind in {"Project", "Offset"}:
        if below.kind == "Project":
            passed.append(below)
        else:
            counts.append(below.plan.offsetExpr())
        (below,) = below.children
    if below.kind != "Sort" or not getattr(below.plan, "global")():
        return None
    if any(kind(count) != "Literal" for count in counts):
        return None
    place = sum(int(count.value()) for count in counts)
    return Cut(sort=below, passed=tuple(passed), place=place)


def read_shape(
    plan: Any,
    table_types: Sequence[str],
    versions: Mapping[str, int],
    catalyst: Catalyst,
    sources: SourceFormat,
    *,
    files: Collection[TableName] = (),
) -> Node:
    """Return the shape of a simplified plan.

    :param table_types: the types of the table's columns.
    :param versions: the version at which each versioned source is to be read, by table id.
    :param files: tables of files that are known to be unchanged.
    """
    trace = root_trace(plan, table_types, catalyst, lambda each: is_key_type(each.type_name))
    return _Reader(versions, catalyst, sources, files).read(plan, trace)


def incomparable_columns(shape: Node, catalyst: Catalyst) -> tuple[Obstacle, ...]:
    """Return the obstacles to removing rows of a query from a table by their values."""
    return tuple(_type_obstacles(catalyst.describe(shape.plan.output())))


def root_trace(
    plan: Any, table_types: Sequence[str], catalyst: Catalyst, fit: Callable[[Described], bool]
) -> Trace:
    """Return the table's column for each attribute of a query's result that it stores unchanged.

    :param fit: says whether an attribute is useful.
    """
    trace: dict[int, int] = {}
    for index, attribute in enumerate(catalyst.describe(plan.output())):
        stored = table_types[index] if index < len(table_types) else None
        if attribute.type == stored and attribute.id is not None and fit(attribute):
            trace.setdefault(attribute.id, index)
    return trace


class _Reader:
    """Reads plans from the root down; ``trace`` is None where rows are not those of the table."""

    def __init__(
        self,
        versions: Mapping[str, int],
        catalyst: Catalyst,
        sources: SourceFormat,
        files: Collection[TableName],
    ) -> None:
        self._sources = sources
        self._versions = versions
        self._files = files
        self._catalyst = catalyst

    def read(self, plan: Any, trace: Trace | None) -> Node:
        name = kind(plan)
        if plan.children().isEmpty():
            return self._leaf(plan, plan)
        if is_used_columns(plan, self._catalyst):
            return self._leaf(plan, plan.child())
        if name in _LINEAR:
            return self._linear(plan, trace)
        match name:
            case "Join":
                return self._join(plan)
            case "Aggregate":
                return self._aggregate(plan, trace)
            case "Window":
                return self._window(plan, trace)
            case "Distinct":
                return self._distinct(plan, trace)
            case "Intersect" | "Except":
                return self._set_operation(plan)
            case "GlobalLimit" if kind(plan.child()) == "LocalLimit":
                return self._cut(plan, plan.child().child())
            case "Offset":
                return self._cut(plan, plan.child())
        return self._unknown(plan)

    # ---- leaves ----------------------------------------------------------------------------

    def _leaf(self, plan: Any, relation: Any) -> Node:
        name = kind(relation)
        if name in _LEAVES:
            return Node(operator=Operator(name=name), plan=plan, relation=relation)
        source = self._source(relation)
        if source is None and not self._is_fixed(relation):
            return replace(self._unknown(relation), plan=plan, relation=relation)
        refused = []
        if source is None:
            known = frozenset(field_names(relation.relation().schema()))
        else:
            known = source.columns
        output = self._catalyst.describe(plan.output())
        for attribute in output:
            if attribute.name not in known or attribute.name == _WEIGHT:
                text = f"column {attribute.name} of a source is not part of its rows"
                refused.append(Obstacle(code=Reason.OPERATOR_NOT_INCREMENTALIZABLE, text=text))
        refused += _type_obstacles(output)
        operator = Operator(
            name=name,
            source=None if source is None else source.table_id,
            obstacles=tuple(refused),
        )
        return Node(operator=operator, plan=plan, relation=relation)

    def _source(self, plan: Any) -> ReadVersion | None:
        """Return the table that is read at the expected version, else None."""
        found = self._sources.read_version(plan)
        if found is None or self._versions.get(found.table_id) != found.version:
            return None
        return found

    def _is_fixed(self, plan: Any) -> bool:
        """Say whether a leaf reads unchanged files, and the same rows for any set of columns.

        Readers of text detect a malformed line only by the columns that they read.
        """
        if not self._files or not reads_plain_files(self._catalyst.spark, plan):
            return False
        if any(reading.name not in self._files for reading in readings_of(plan)):
            return False
        options = {
            str(pair._1()).lower(): str(pair._2())
            for pair in items(plan.relation().options().toSeq())
        }
        fields = {name.lower() for name in field_names(plan.relation().schema())}
        corrupt = str(self._catalyst.spark.conf.get(_CORRUPT)).lower()
        keeps = options.get("mode", "").upper() != "DROPMALFORMED"
        return keeps and _CORRUPT_OPTION not in options and corrupt not in fields

    # ---- operators -------------------------------------------------------------------------

    def _linear(self, plan: Any, trace: Trace | None) -> Node:
        name = kind(plan)
        below = None
        if name in ROW_WISE and trace is not None:
            below = trace_through(plan, trace, self._catalyst)
        children = tuple(self.read(child, below) for child in items(plan.children()))
        rule = Rule.GROUPING_SETS if name == "Expand" else Rule.LINEAR
        return self._node(plan, rule, children)

    def _join(self, plan: Any) -> Node:
        join = kind(plan.joinType())
        children = tuple(self.read(child, None) for child in items(plan.children()))
        if join in _INNER:
            return self._node(plan, Rule.JOIN, children)
        keyed_by: tuple[int, ...] = (1,)
        if join in _SEMI:
            rule = Rule.SEMI_JOIN
        elif join in _OUTER_KEYED:
            rule, keyed_by = Rule.OUTER_JOIN, _OUTER_KEYED[join]
        else:
            return self._unknown(plan)
        left, right = (child.plan for child in children)
        pairs, null_aware = list(equated_pairs(plan.condition(), left, right)), False
        if not pairs and (pair := null_aware_pair(plan.condition(), left, right)) is not None:
            null_aware = any(bool(expression.nullable()) for expression in pair)
            if not null_aware or len(keyed_by) == 1:
                pairs = [pair]
        keys = (tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
        keyless = None
        if len(keyed_by) > 1:  # else affected rows are found by the condition
            text = f"a {join} join has no equality of columns to find affected rows by"
            keyless = Obstacle(code=Reason.JOIN_WITHOUT_EQUALITY, text=text)
        return self._node(
            plan,
            rule,
            children,
            keyed_by=keyed_by,
            keys=keys,
            keyless=keyless,
            whole=True,
            null_aware=null_aware,
        )

    def _aggregate(self, plan: Any, trace: Trace | None) -> Node:
        children = (self.read(plan.child(), None),)
        grouping = shared_groups(plan)
        traced = _traced_groups(plan, grouping, trace or {})
        functions = list(aggregates(items(plan.aggregateExpressions())))
        keyless = Obstacle(
            code=Reason.AGGREGATE_WITHOUT_KEYS,
            text="an aggregate has no GROUP BY column to find affected groups by",
        )
        return self._keyed_node(
            plan,
            Rule.AGGREGATE,
            children,
            grouping,
            traced,
            keyless,
            functions,
            [],
            choice_obstacle(functions),
            whole=bool(plan.groupingExpressions().isEmpty()),
            checked=trace is None,
        )

    def _window(self, plan: Any, trace: Trace | None) -> Node:
        children = (self.read(plan.child(), None),)
        partition = list(items(plan.partitionSpec()))
        traced = _traced_keys(partition, trace or {})
        keyless = Obstacle(
            code=Reason.WINDOW_WITHOUT_PARTITION_BY,
            text="a window function has no PARTITION BY column to find affected partitions by",
        )
        return self._keyed_node(
            plan,
            Rule.WINDOW,
            children,
            partition,
            traced,
            keyless,
            list(window_functions(plan)),
            list(window_refusals(plan)),
            window_ties(plan, self._catalyst),
            whole=not partition,
            # Above an aggregate, it may be computed from recorded totals, without a check.
            checked=trace is None or all(n.kind != "Aggregate" for n in children[0].nodes()),
        )

    def _distinct(self, plan: Any, trace: Trace | None) -> Node:
        children = (self.read(plan.child(), None),)
        columns = list(items(plan.output()))
        traced = _traced_keys(columns, trace or {})
        keyless = Obstacle(
            code=Reason.TYPE_NOT_COMPARABLE,
            text="DISTINCT has no column of a type that can be a key",
        )
        return self._keyed_node(plan, Rule.DISTINCT, children, columns, traced, keyless, [], [])

    def _set_operation(self, plan: Any) -> Node:
        children = tuple(self.read(child, None) for child in items(plan.children()))
        left, right = (list(items(child.plan.output())) for child in children)
        pairs = [(a, b) for a, b in zip(left, right, strict=True) if is_key(a) and is_key(b)]
        keyless = Obstacle(
            code=Reason.TYPE_NOT_COMPARABLE,
            text=f"{kind(plan).upper()} has no column of a type that can be a key",
        )
        keys = (tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
        return self._node(
            plan, Rule.SET_OPERATION, children, keyed_by=(0, 1), keys=keys, keyless=keyless
        )

    def _cut(self, plan: Any, below: Any) -> Node:
        """Read a LIMIT or OFFSET, which is incremental only after ORDER BY."""
        word = _CUTS[kind(plan)]
        children = (self.read(below, None),)
        node = self._node(plan, Rule.LIMIT, children)
        refused = Obstacle(
            code=Reason.OPERATOR_NOT_INCREMENTALIZABLE,
            text=f"{word} is only incremental after ORDER BY",
        )
        cut = cut_of(node)
        if cut is None:
            return replace(node, operator=replace(node.operator, inexact=refused))
        order = (each.child() for each in items(cut.sort.plan.order()))
        known = [each for each in order if kind(each) == "AttributeReference"]
        ambiguous = None
        if cut.place and not is_fixed_by(cut.sort.plan.child(), known, self._catalyst):
            text = f"rows tie where {word} cuts, so that any may be left"
            ambiguous = Obstacle(code=Reason.ORDER_NOT_UNIQUE, text=text)
        return self._node(
            plan,
            Rule.LIMIT,
            children,
            keyed_by=(0,),
            keys=((),),
            keyless=refused,
            whole=True,
            ambiguous=ambiguous,
        )

    def _unknown(self, plan: Any) -> Node:
        children = tuple(self.read(child, None) for child in items(plan.children()))
        shown = kind(plan)
        if shown == "Join":
            shown = f"{kind(plan.joinType())} join"
        text = f"no incremental rule is known for {SQL_KEYWORDS.get(shown, shown)}"
        obstacle = Obstacle(code=Reason.OPERATOR_NOT_INCREMENTALIZABLE, text=text)
        operator = Operator(
            name=shown,
            children=tuple(child.operator for child in children),
            obstacles=(obstacle,),
        )
        return Node(operator=operator, plan=plan, children=children)

    # ---- nodes -----------------------------------------------------------------------------

    def _keyed_node(
        self,
        plan: Any,
        rule: Rule,
        children: tuple[Node, ...],
        keys: Sequence[Any],
        traced: Sequence[tuple[Any, int]],
        keyless: Obstacle,
        functions: Sequence[Any],
        refused: Sequence[Obstacle],
        ambiguous: Obstacle | None = None,
        *,
        whole: bool = False,
        checked: bool = False,
    ) -> Node:
        """Return a node whose rows are recomputed by some of its keys.

        Any subset of the keys is correct. Keys that are columns of the table are best; but fields
        of a struct, such as the start of a time window, are far more selective, and are used if
        recomputed rows are exact.

        :param checked: whether the size of averaged numbers is checked if there are no keys.
        """
        inexact = rounding_obstacle(functions)
        others = (each for each in functions if not averages_whole(each))
        usable = [key for key in keys if is_key(key)]
        inner = [field for key in keys for field in self._fields(key)]
        if inner and inexact is None:
            traced = ()
        chosen = [key for key, _ in traced] if traced else [*usable, *inner]
        return self._node(
            plan,
            rule,
            children,
            keyed_by=(0,),
            keys=(tuple(chosen),),
            keyless=keyless,
            inexact=inexact,
            bounded=bool(inexact and (chosen or (whole and checked)))
            and rounding_obstacle(others) is None,
            columns=tuple(column for _, column in traced),
            refused=refused,
            ambiguous=ambiguous,
            whole=whole,
        )

    def _fields(self, key: Any) -> Iterator[Any]:
        """Yield the fields of a struct that can be keys; those of a NULL struct are NULL."""
        if str(key.dataType().typeName()) == "struct":
            fields = (self._catalyst.field(key, i) for i in range(int(key.dataType().size())))
            yield from (field for field in fields if is_key(field))

    def _node(
        self,
        plan: Any,
        rule: Rule,
        children: tuple[Node, ...],
        *,
        keyed_by: tuple[int, ...] = (),
        keys: tuple[tuple[Any, ...], ...] = (),
        keyless: Obstacle | None = None,
        whole: bool = False,
        inexact: Obstacle | None = None,
        bounded: bool = False,
        columns: tuple[int, ...] = (),
        refused: Sequence[Obstacle] = (),
        ambiguous: Obstacle | None = None,
        null_aware: bool = False,
    ) -> Node:
        found = [*refused, *_collation_obstacles(plan)]
        if ambiguous is not None:
            read = self._catalyst.describe(plan.child().output())
            if not all(is_sortable(each.type) for each in read):
                found.append(ambiguous)
                ambiguous = None
        expressions = plan.expressions()
        for index, each in enumerate(self._catalyst.describe(expressions)):
            if each.passed is None:
                found += find_refusals(expressions.apply(index))
        subqueries = tuple(self._subqueries(plan))
        operator = Operator(
            name=kind(plan),
            rule=rule,
            children=tuple(child.operator for child in children),
            keyed_by=keyed_by,
            keyless=keyless if keys and not keys[0] else None,
            whole=whole and self._is_comparable(plan),
            replaced=bool(columns),
            inexact=inexact,
            bounded=bounded,
            ambiguous=ambiguous,
            obstacles=tuple(found),
            subqueries=tuple(subquery.node.operator for subquery in subqueries),
            replaceable=kind(plan) in _REPLACEABLE and all(map(self._is_value, subqueries)),
        )
        return Node(
            operator=operator,
            plan=plan,
            children=children,
            keys=keys,
            null_aware=null_aware,
            columns=columns,
            subqueries=subqueries,
        )

    def _subqueries(self, plan: Any) -> Iterator[Subquery]:
        if plan.subqueries().isEmpty():
            return
        for expression in items(plan.expressions()):
            for part in descend(expression):
                if kind(part) in _SUBQUERIES:
                    yield Subquery(expression=part, node=self.read(part.plan(), None))

    def _is_value(self, subquery: Subquery) -> bool:
        """Say whether a subquery is one value for all rows, which can be compared."""
        expression = subquery.expression
        single = kind(expression) == "ScalarSubquery" and not expression.isCorrelated()
        return single and self._is_comparable(subquery.node.plan)

    def _is_comparable(self, plan: Any) -> bool:
        """Say whether the rows of a plan can be compared."""
        return not any(_type_obstacles(self._catalyst.describe(plan.output())))


def trace_through(plan: Any, trace: Trace, catalyst: Catalyst) -> Trace:
    """Trace the table's columns through an operator to its input."""
    if kind(plan) != "Project":
        return trace
    found: dict[int, int] = {}
    for named in catalyst.describe(plan.projectList()):
        if named.id is not None and named.passed is not None and named.id in trace:
            found.setdefault(named.passed, trace[named.id])
    return found


def _traced_groups(plan: Any, grouping: Sequence[Any], trace: Trace) -> list[tuple[Any, int]]:
    traced: dict[int, tuple[Any, int]] = {}
    for named in items(plan.aggregateExpressions()):
        column = trace.get(expression_id(named))
        if column is None:
            continue
        inner = named.child() if kind(named) == "Alias" else named
        for index, group in enumerate(grouping):
            if bool(group.semanticEquals(inner)):
                traced.setdefault(index, (group, column))
    return [traced[index] for index in sorted(traced)]


def _traced_keys(keys: Sequence[Any], trace: Trace) -> list[tuple[Any, int]]:
    """Return the keys that are columns of the table, with their columns."""
    attributes = (key for key in keys if kind(key) == "AttributeReference")
    return [(key, trace[i]) for key in attributes if (i := expression_id(key)) in trace]


def _collation_obstacles(plan: Any) -> Iterator[Obstacle]:
    """Yield an obstacle for collations: a change could confuse rows they consider equal."""
    if "collate" in str(plan.schema().catalogString()):
        yield Obstacle(
            code=Reason.TYPE_NOT_COMPARABLE,
            text="rows with a column that has a collation cannot be compared exactly",
        )


def _type_obstacles(attributes: Iterable[Described]) -> Iterator[Obstacle]:
    for each in attributes:
        if "variant" in each.type or "collate" in each.type:
            yield Obstacle(
                code=Reason.TYPE_NOT_COMPARABLE,
                text=f"rows with column {each.name} of type {each.type} cannot be compared exactly",
            )
