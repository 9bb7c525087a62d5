"""Which definition queries can be refreshed incrementally, told from the shape of their plan.

The rule that decides correctness: what is not recognised makes a full refresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidegate_server.core.model.reasons import Reason


class Rule(Enum):
    """How the change of an operator's rows is found; each can be switched off."""

    LINEAR = "LINEAR"
    """Filter, projection, generator, UNION ALL: the operator is applied to the change."""
    JOIN = "JOIN"
    """Inner and cross join: each side's change is joined with the other side."""
    OUTER_JOIN = "OUTER_JOIN"
    SEMI_JOIN = "SEMI_JOIN"
    """Semi and anti join, as EXISTS, IN and NOT EXISTS become."""
    AGGREGATE = "AGGREGATE"
    GROUPING_SETS = "GROUPING_SETS"
    WINDOW = "WINDOW"
    DISTINCT = "DISTINCT"
    SET_OPERATION = "SET_OPERATION"
    """INTERSECT and EXCEPT."""
    LIMIT = "LIMIT"
    """ORDER BY with LIMIT at the end of the query: the change is merged with the stored rows."""
    NESTED = "NESTED"
    """Such an operator below others: its rows of the affected keys are computed at both versions
    instead of being read from the table."""
    ALGEBRA = "ALGEBRA"
    """Exact sums and counts at the top follow from the change alone; without it, and wherever that
    is not so, groups are computed anew."""


ALL_RULES = frozenset(Rule)

RULES_OPTION = "materialized-table.incremental.rules"
"""The rules a table's refreshes may use, separated by commas, or ALL."""


def read_rules(value: str) -> frozenset[Rule]:
    """Read the value of :data:`RULES_OPTION`.

    :raises ValueError: naming a word that is no rule.
    """
    words = [word.strip().upper() for word in value.split(",") if word.strip()]
    return ALL_RULES if words == ["ALL"] else frozenset(Rule(word) for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a query, or one refresh of it, cannot be incremental."""

    code: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a definition query, as far as incremental refresh is concerned."""

    name: str
    rule: Rule = Rule.LINEAR
    children: tuple[Operator, ...] = ()
    source: str | None = None
    """The table id of a versioned source, at a leaf."""
    keyed_by: tuple[int, ...] = ()
    """Children whose change is followed through affected keys."""
    keyless: Obstacle | None = None
    """Why there are no keys to follow such a change by; None if there are."""
    replaced: bool = False
    """Whether its rows of some keys are told in the table by the same keys."""
    inexact: Obstacle | None = None
    """Why computing it twice from the same rows may give different rows; None if it cannot."""
    bounded: bool = False
    """Whether it cannot either as long as the numbers that it adds up are not too large."""
    ambiguous: Obstacle | None = None
    """Why its rows are a matter of chance where rows that tie differ; None if they never are."""
    unless: Obstacle | None = None
    """Why there are none, unless the rows looked up are such that it makes no difference."""
    obstacles: tuple[Obstacle, ...] = ()
    """What makes every refresh full."""
    subqueries: tuple[Operator, ...] = ()
    """What its expressions read as a whole."""

    def changes(self, changed: frozenset[str]) -> bool:
        """Say whether its rows may differ when these sources changed."""
        return self.source in changed or any(child.changes(changed) for child in self.children)

    def reads(self, changed: frozenset[str]) -> bool:
        """Say whether it or any expression below reads one of these sources."""
        below = (*self.children, *self.subqueries)
        return self.source in changed or any(each.reads(changed) for each in below)

    def computed_from(self, other: Operator) -> bool:
        """Say whether it is another operator, or somewhere above it."""
        return self is other or any(child.computed_from(other) for child in self.children)


def obstacles(
    root: Operator,
    changed: frozenset[str],
    rules: frozenset[Rule] = ALL_RULES,
    *,
    combined: Operator | None = None,
    provided: bool = False,
) -> tuple[Obstacle, ...]:
    """Return all that stands against an incremental refresh after these sources changed.

    :param combined: an operator whose rows all follow from the change of what it reads; what is
        above it is computed from all of them.
    :param provided: whether the rows were such, when the table was refreshed, that what the plan
        leaves open made no difference.
    """
    found = dict.fromkeys(_obstacles(root, changed, rules, combined, provided=provided))
    return tuple(found)


def _obstacles(
    operator: Operator,
    changed: frozenset[str],
    rules: frozenset[Rule],
    combined: Operator | None,
    *,
    provided: bool,
) -> Iterator[Obstacle]:
    yield from operator.obstacles
    if operator.ambiguous is not None and not provided:
        yield operator.ambiguous
    whole = combined is not None and operator.computed_from(combined)
    exact = operator.replaced or whole or (operator.bounded and provided)
    if operator.inexact is not None and not exact:
        yield operator.inexact
    if operator.children and operator.changes(changed):
        yield from _rule_obstacles(operator, changed, rules, whole=whole, provided=provided)
    for child in operator.children:
        yield from _obstacles(child, changed, rules, combined, provided=provided)
    for subquery in operator.subqueries:
        yield from _subquery_obstacles(subquery, operator, changed, rules)


def _subquery_obstacles(
    subquery: Operator, reader: Operator, changed: frozenset[str], rules: frozenset[Rule]
) -> Iterator[Obstacle]:
    if subquery.reads(changed):
        yield Obstacle(
            code=Reason.SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE,
            text=f"a source of a scalar subquery in {reader.name} changed",
        )
    yield from _obstacles(subquery, frozenset(), rules, None, provided=False)


def _rule_obstacles(
    operator: Operator,
    changed: frozenset[str],
    rules: frozenset[Rule],
    *,
    whole: bool,
    provided: bool,
) -> Iterator[Obstacle]:
    needed = {operator.rule}
    if not whole and any(operator.children[index].changes(changed) for index in operator.keyed_by):
        if operator.keyless is not None:
            yield operator.keyless
        if operator.unless is not None and not provided:
            yield operator.unless
        if not operator.replaced:
            needed.add(Rule.NESTED)
    for rule in sorted(needed - rules, key=lambda rule: rule.value):
        yield Obstacle(
            code=Reason.RULE_DISABLED, text=f"{operator.name} needs rule {rule.value}, which is off"
        )
