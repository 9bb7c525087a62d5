"""Column lineage: the source columns from which each column of a query is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.engine.query.plans import Node, expression_id

_RELATIONS = frozenset({"LogicalRelation", "HiveTableRelation", "DataSourceV2Relation"})
_LEFT_ONLY = frozenset({"LeftSemi", "LeftAnti"})
_MAY_LACK_LEFT = frozenset({"RightOuter", "FullOuter"})
_MAY_LACK_RIGHT = frozenset({"LeftOuter", "LeftSingle", "FullOuter"})

_GROUPING_ID = "spark_grouping_id"

_Origin = tuple[TableName, str]


@dataclass(frozen=True, slots=True)
class Trace:
    """The origins of a value."""

    origins: frozenset[_Origin] = frozenset()
    passed: bool = False
    """Whether it always equals the value of one of the origins."""


Output = list[tuple[int, Trace]]
"""An operator's columns in order: expression id and trace."""


def column_origins(plan: Node, names: Sequence[str]) -> tuple[ColumnOrigin, ...]:
    """Return the lineage of an analyzed query's columns, which have these names."""
    output = _Tracer().output(plan)
    return tuple(
        ColumnOrigin(column=name, source=source, source_column=column, unchanged=trace.passed)
        for name, (_, trace) in zip(names, output, strict=False)
        for source, column in sorted(trace.origins)
    )


def source_columns(plan: Node) -> Mapping[TableName, Schema]:
    """Return the columns of the tables in an analyzed query."""
    found: dict[TableName, Schema] = {}
    for name, relation in _relations(plan):
        found.setdefault(name, _schema(_columns(relation)))
    return found


def used_columns(plan: Node) -> Mapping[TableName, frozenset[str]]:
    """Return the columns of each table that an analyzed query mentions, in lower case."""
    used: set[int] = set()
    stack = [plan]
    while stack:
        node = stack.pop()
        if node.kind == "AttributeReference":
            used.add(expression_id(node))
        stack += node.children
        if node.kind not in _RELATIONS:
            stack += node.parts()
    found: dict[TableName, frozenset[str]] = {}
    for name, relation in _relations(plan):
        mentioned = {
            str(c.fields["name"]).lower() for c in _columns(relation) if expression_id(c) in used
        }
        found[name] = found.get(name, frozenset()) | mentioned
    return found


def _relations(plan: Node) -> Iterable[tuple[TableName, Node]]:
    stack: list[tuple[Node, TableName | None]] = [(plan, None)]
    while stack:
        node, alias = stack.pop()
        if node.kind in _RELATIONS or _is_computed(node, alias):
            name = alias or _catalog_name(node)
            if name is not None:
                yield name, node
            continue
        below = _alias_name(node) if node.kind == "SubqueryAlias" else None
        stack += [(child, below) for child in node.children]
        stack += [(part, None) for part in node.parts()]


@dataclass(slots=True)
class _Tracer:
    """Traces columns by their ids, from the tables upwards."""

    ctes: dict[Any, Output] = field(default_factory=dict)
    outer: dict[int, Trace] = field(default_factory=dict)
    """Columns of the outer query that correlated subqueries can refer to."""

    def output(self, node: Node) -> Output:
        """Return the columns of an operator."""
        match node.kind:
            case "SubqueryAlias" if _is_table(node.children[0], _alias_name(node)):
                return _relation_output(node.children[0], _alias_name(node))
            case kind if kind in _RELATIONS:
                return _relation_output(node, _catalog_name(node))
            case "Project":
                return self._named_output(node.many("projectList"), self.output(node.children[0]))
            case "Aggregate":
                return self._named_output(
                    node.many("aggregateExpressions"), self.output(node.children[0])
                )
            case "Window":
                below = self.output(node.children[0])
                return below + self._named_output(node.many("windowExpressions"), below)
            case "Join":
                left, right = (self.output(child) for child in node.children)
                return _join_output(_join_type(node), left, right)
            case "LateralJoin":
                left = self.output(node.children[0])
                self.outer.update(left)
                subquery = node.one("right")
                plan = subquery.one("plan") if subquery is not None else None
                return _join_output(_join_type(node), left, self.output(plan) if plan else [])
            case "Union":
                return _union_output([self.output(child) for child in node.children])
            case "Intersect" | "Except":
                return self.output(node.children[0])
            case "Expand":
                return self._expand_output(node)
            case "WithCTE":
                return [self.output(child) for child in node.children][-1]
            case "CTERelationDef":
                found = self.ctes[node.fields["id"]] = self.output(node.children[0])
                return found
            case "CTERelationRef":
                return self._cte_reference_output(node)
            case _:
                return self._other_output(node)

    def _named_output(self, expressions: Sequence[Node], below: Output) -> Output:
        known = dict(below)
        return [(expression_id(e), self.trace(e, known)) for e in expressions]

    def _expand_output(self, node: Node) -> Output:
        below = self.output(node.children[0])
        known = dict(below)
        if node.fields["projections"] is None:
            return _opaque_expand_output(node.many("output"), below)
        rows = [
            [self.trace(e, known) for e in row if isinstance(e, Node)]
            for row in node.fields["projections"]
        ]
        return [
            (expression_id(column), _merge_traces(traces))
            for column, *traces in zip(node.many("output"), *rows, strict=True)
        ]

    def _cte_reference_output(self, node: Node) -> Output:
        defined = self.ctes.get(node.fields["cteId"], [])
        columns = node.many("output")
        traces = [trace for _, trace in defined] or [Trace()] * len(columns)
        return [
            (expression_id(column), trace) for column, trace in zip(columns, traces, strict=False)
        ]

    def _other_output(self, node: Node) -> Output:
        """Return the output of any other operator: its inputs' columns, and its own new ones.

        New columns depend on everything that the operator mentions, or on all of its inputs if it
        mentions nothing.
        """
        below = [column for child in node.children for column in self.output(child)]
        known = dict(below)
        own = [*node.many("generatorOutput"), *node.many("output")]
        new = [column for column in own if expression_id(column) not in known]
        if not new:
            return below
        mentioned = [self.trace(part, known).origins for part in node.parts() if part not in own]
        everything = frozenset().union(*mentioned) or _origins(known.values())
        made = [(expression_id(column), Trace(everything)) for column in new]
        return below + made if node.kind == "Generate" else made

    def trace(self, expression: Node, known: Mapping[int, Trace]) -> Trace:
        """Return the trace of an expression over columns with known traces."""
        match expression.kind:
            case "AttributeReference":
                return self._lookup(expression, known)
            case "Alias":
                return self.trace(expression.children[0], known)
            case "Cast" if _same_type(expression):
                return self.trace(expression.children[0], known)
            case _:
                return Trace(frozenset().union(*self._origins_in(expression, known)))

    def _origins_in(
        self, expression: Node, known: Mapping[int, Trace]
    ) -> Iterable[frozenset[_Origin]]:
        """Yield the origins that an expression reads; for a subquery, those of its columns."""
        stack = [expression]
        yield frozenset()
        while stack:
            node = stack.pop()
            if node.kind == "AttributeReference":
                yield self._lookup(node, known).origins
            plan = node.one("plan")
            if plan is None:
                stack += [*node.children, *node.parts()]
                continue
            self.outer.update(known)
            yield _origins(trace for _, trace in self.output(plan))

    def _lookup(self, column: Node, known: Mapping[int, Trace]) -> Trace:
        number = expression_id(column)
        return known.get(number) or self.outer.get(number) or Trace()


def _is_table(node: Node, alias: TableName | None) -> bool:
    return node.kind in _RELATIONS or _is_computed(node, alias)


def _is_computed(node: Node, alias: TableName | None) -> bool:
    """Say whether an operator computes the columns of the table that it reads.

    Only those of tables of catalogs do (``CatalogFiles.java``): Spark names no other projection
    after the table below it.
    """
    if node.kind != "Project" or alias is None:
        return False
    while node.kind == "Project":
        node = node.children[0]
    return node.kind in _RELATIONS and _catalog_name(node) == alias


def _columns(relation: Node) -> Sequence[Node]:
    """Return the columns of a table, which have a name, an id and a type."""
    return (
        relation.many("output")
        or relation.many("projectList")
        or (*relation.many("dataCols"), *relation.many("partitionCols"))
    )


def _relation_output(relation: Node, name: TableName | None) -> Output:
    columns = _columns(relation)
    if name is None:
        return [(expression_id(column), Trace()) for column in columns]
    return [
        (expression_id(c), Trace(frozenset({(name, str(c.fields["name"]))}), True)) for c in columns
    ]


def _join_output(kind: str, left: Output, right: Output) -> Output:
    """Return the output of a join; a side that may be missing is not passed on unchanged."""
    if kind in _LEFT_ONLY:
        return left
    if kind in _MAY_LACK_LEFT:
        left = _mark_changed(left)
    if kind in _MAY_LACK_RIGHT:
        right = _mark_changed(right)
    return left + right


def _opaque_expand_output(columns: Sequence[Node], below: Output) -> Output:
    """Return the columns of an Expand whose projections Spark leaves out of its JSON, as it does
    over a UNION.

    For grouping sets, these are the columns of the input in order, which may be NULL, then the ids
    of the sets.
    """
    if not any(column.fields["name"] == _GROUPING_ID for column in columns):
        everything = Trace(_origins(trace for _, trace in below))
        return [(expression_id(column), everything) for column in columns]
    found = []
    extra = [(-1, Trace())] * (len(columns) - len(below))
    for column, (number, trace) in zip(columns, [*below, *extra], strict=True):
        own = expression_id(column)
        found.append((own, trace if own == number else Trace(trace.origins)))
    return found


def _mark_changed(output: Output) -> Output:
    return [(number, Trace(trace.origins)) for number, trace in output]


def _union_output(outputs: Sequence[Output]) -> Output:
    return [
        (columns[0][0], _merge_traces([trace for _, trace in columns]))
        for columns in zip(*outputs, strict=True)
    ]


def _merge_traces(traces: Sequence[Trace]) -> Trace:
    return Trace(_origins(traces), all(trace.passed for trace in traces))


def _origins(traces: Iterable[Trace]) -> frozenset[_Origin]:
    return frozenset().union(*(trace.origins for trace in traces))


def _same_type(cast: Node) -> bool:
    child = cast.children[0]
    return "dataType" in child.fields and child.fields["dataType"] == cast.fields.get("dataType")


def _join_type(node: Node) -> str:
    found = node.fields.get("joinType")
    text = str(found.get("object") or found.get("product-class")) if found else ""
    return text.rstrip("$").rsplit(".", 1)[-1]


def _alias_name(node: Node) -> TableName | None:
    """Return the table that Spark names by this alias; None for an alias in the query."""
    identifier = node.fields["identifier"]
    qualifier = identifier.get("qualifier")
    parts = str(qualifier)[1:-1].split(", ") if isinstance(qualifier, str) else []
    if len(parts) != 2:
        return None
    return _table_name(parts[0], parts[1], str(identifier["name"]))


def _catalog_name(node: Node) -> TableName | None:
    entry = node.fields.get("catalogTable") or node.fields.get("tableMeta")
    if not isinstance(entry, Mapping):
        return None
    identifier = entry["identifier"]
    catalog = identifier.get("catalog") or DEFAULT_CATALOG
    return _table_name(str(catalog), str(identifier["database"]), str(identifier["table"]))


def _table_name(catalog: str, schema: str, table: str) -> TableName:
    name = TableName(catalog, schema, table)
    return name if "/" in table else name.folded()


def _described(column: Node) -> Mapping[str, Any]:
    """Return the fields with the type of a column; those that are computed are casts."""
    return (column.children[0] if column.kind == "Alias" else column).fields


def _schema(columns: Sequence[Node]) -> Schema:
    fields = [
        {
            "name": column.fields["name"],
            "type": _described(column)["dataType"],
            "nullable": _described(column).get("nullable", True),
            "metadata": {},
        }
        for column in columns
        if column.fields["name"] != "_metadata"
    ]
    struct = T.StructType.fromJson({"type": "struct", "fields": fields})
    return Schema(
        tuple(
            Column(name=f.name, type=f.dataType.simpleString(), nullable=f.nullable)
            for f in struct.fields
        )
    )
