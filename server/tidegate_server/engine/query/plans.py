"""Spark's plans as trees of plain data, fetched from the JVM in one call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SQL_KEYWORDS: Mapping[str, str] = {
    "Aggregate": "GROUP BY",
    "Distinct": "DISTINCT",
    "Except": "EXCEPT",
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "Join": "JOIN",
    "LateralJoin": "LATERAL",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Pivot": "PIVOT",
    "Sample": "TABLESAMPLE",
    "ScriptTransformation": "TRANSFORM",
    "Sort": "ORDER BY",
    "Union": "UNION",
    "UnionLoop": "WITH RECURSIVE",
    "UnionLoopRef": "WITH RECURSIVE",
    "UnresolvedHaving": "HAVING",
    "UnresolvedWith": "WITH",
    "Window": "OVER",
    "WithWindowDefinition": "WINDOW",
}
"""The SQL keywords for operators of these classes."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator or expression: simple class name, fields and inputs.

    Fields hold an expression or plan as a :class:`Node`, several as a tuple.
    """

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Node, ...]

    def one(self, name: str) -> Node | None:
        """Return the expression or plan of a field, or None."""
        value = self.fields.get(name)
        return value if isinstance(value, Node) else None

    def many(self, name: str) -> tuple[Node, ...]:
        """Return the expressions or plans of a field as a tuple."""
        value = self.fields.get(name)
        found = value if isinstance(value, tuple) else (value,)
        return tuple(node for node in found if isinstance(node, Node))

    def parts(self) -> Iterator[Node]:
        """Yield the expressions and plans in the fields; the children are not among them."""
        for value in self.fields.values():
            yield from _nodes(value)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all its descendants, in fields as well."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += [*node.children, *node.parts()]


def read_plan(plan: Any) -> Node:
    """Return the tree of a plan in the JVM."""
    return read_tree(json.loads(str(plan.toJSON())))


def read_tree(flat: list[Mapping[str, Any]]) -> Node:
    """Return the tree of a list of nodes in preorder."""
    node, end = _tree(flat, 0)
    if end != len(flat):
        raise ValueError(f"{len(flat) - end} nodes are left over")
    return node


def expression_id(node: Node) -> int:
    """Return the id of a named expression or attribute, or -1."""
    found = node.fields.get("exprId")
    return int(found["id"]) if isinstance(found, Mapping) else -1


def _tree(flat: list[Mapping[str, Any]], start: int) -> tuple[Node, int]:
    raw = flat[start]
    children = []
    end = start + 1
    for _ in range(int(raw["num-children"])):
        child, end = _tree(flat, end)
        children.append(child)
    fields = {
        name: _value(value) for name, value in raw.items() if name not in ("class", "num-children")
    }
    kind = str(raw["class"]).rstrip("$").replace("$", ".").rsplit(".", 1)[-1]
    return Node(kind, fields, tuple(children)), end


def _value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], dict) and "num-children" in value[0]:
        return read_tree(value)
    return tuple(_value(item) for item in value)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
