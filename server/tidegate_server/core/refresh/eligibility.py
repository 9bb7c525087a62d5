"""Decides from the plan which definition queries can be refreshed incrementally.

For correctness, anything unknown causes a full refresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidegate_server.core.model.reasons import Reason


class Rule(Enum):
    """How the change of an operator's rows is computed; each can be disabled."""

    LINEAR = "LINEAR"
    """Filter, projection, generator, UNION ALL: the operator is applied to the change."""
    JOIN = "JOIN"
    """Inner and cross join: each side's change is joined with the other side."""
    OUTER_JOIN = "OUTER_JOIN"
    SEMI_JOIN = "SEMI_JOIN"
    """Semi and anti join, including EXISTS, IN and NOT EXISTS."""
    AGGREGATE = "AGGREGATE"
    GROUPING_SETS = "GROUPING_SETS"
    WINDOW = "WINDOW"
    DISTINCT = "DISTINCT"
    SET_OPERATION = "SET_OPERATION"
    """INTERSECT and EXCEPT."""
    LIMIT = "LIMIT"
    """ORDER BY with LIMIT at the end of the query: the change is merged with the stored rows."""
    NESTED = "NESTED"
    """Such an operator below others: its rows with affected keys are computed at both versions
    instead of being read from the table."""
    WHOLE = "WHOLE"
    """An operator without keys, such as a window without PARTITION BY: all of its rows at both
    versions are compared."""
    ALGEBRA = "ALGEBRA"
    """Exact sums and counts at the top are updated from the change alone; otherwise, groups are
    recomputed."""


ALL_RULES = frozenset(Rule)

RULES_OPTION = "materialized-table.incremental.rules"
"""The rules a table's refreshes may use, separated by commas, or ALL."""


def read_rules(value: str) -> frozenset[Rule]:
    """Read the value of :data:`RULES_OPTION`.

    :raises ValueError: naming an unknown rule.
    """
    words = [word.strip().upper() for word in value.split(",") if word.strip()]
    return ALL_RULES if words == ["ALL"] else frozenset(Rule(word) for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a query or a single refresh cannot be incremental."""

    code: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a definition query, as seen by incremental refresh."""

    name: str
    rule: Rule = Rule.LINEAR
    children: tuple[Operator, ...] = ()
    source: str | None = None
    """The table id of a versioned source, at a leaf."""
    keyed_by: tuple[int, ...] = ()
    """Children whose change is propagated by affected keys."""
    keyless: Obstacle | None = None
    """Why there are no keys for such a change; None if there are."""
    whole: bool = False
    """Whether all of its rows at both versions can be compared if there are no keys."""
    replaced: bool = False
    """Whether the table's columns contain its keys, so stored rows can be replaced."""
    inexact: Obstacle | None = None
    """Why computing it twice from the same rows may give different rows; None if it cannot."""
    bounded: bool = False
    """Whether ``inexact`` does not apply while the summed numbers are small enough."""
    ambiguous: Obstacle | None = None
    """Why its rows are arbitrary if tied rows differ; None if they never are."""
    obstacles: tuple[Obstacle, ...] = ()
    """Reasons to make every refresh full."""
    subqueries: tuple[Operator, ...] = ()
    """Subqueries in its expressions."""
    replaceable: bool = False
    """Whether its subqueries can be replaced by their values."""

    def changes(self, changed: frozenset[str]) -> bool:
        """Say whether a change of these sources may change its rows."""
        below = (*self.children, *self.subqueries)
        return self.source in changed or any(each.changes(changed) for each in below)

    def changes_by_keys(self, changed: frozenset[str]) -> bool:
        """Say whether a change of these sources is propagated by affected keys."""
        return any(self.children[index].changes(changed) for index in self.keyed_by)

    def is_compared(self, changed: frozenset[str]) -> bool:
        """Say whether its rows at both versions are compared after these sources changed."""
        return self.whole and self.keyless is not None and self.changes_by_keys(changed)

    def has_changed_subqueries(self, changed: frozenset[str]) -> bool:
        """Say whether a change of these sources may change the value of a subquery."""
        return any(each.changes(changed) for each in self.subqueries)

    def computed_from(self, other: Operator) -> bool:
        """Say whether it is the other operator, or above it."""
        return self is other or any(child.computed_from(other) for child in self.children)


def obstacles(
    root: Operator,
    changed: frozenset[str],
    rules: frozenset[Rule] = ALL_RULES,
    *,
    combined: Operator | None = None,
    provided: bool = False,
) -> tuple[Obstacle, ...]:
    """Return the obstacles to an incremental refresh after these sources changed.

    :param combined: an operator whose rows all follow from its input's change; operators above it
        are computed from all of them.
    :param provided: whether the rows satisfied the query's preconditions when the table was last
        refreshed.
    """
    judge = _Judge(changed=changed, rules=rules, combined=combined, provided=provided)
    return tuple(dict.fromkeys(judge.obstacles(root)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """Looks for obstacles; the fields are the parameters of :func:`obstacles`."""

    changed: frozenset[str]
    rules: frozenset[Rule]
    combined: Operator | None
    provided: bool

    def obstacles(
        self, operator: Operator, *, ruled: bool = True, stored: bool = True
    ) -> Iterator[Obstacle]:
        """Yield the obstacles in an operator and below.

        :param ruled: whether its change is computed by its rule, not by comparing all rows of an
            operator above.
        :param stored: whether rows that the table stores may be replaced without being recomputed.
        """
        derived = self.combined is not None and operator.computed_from(self.combined)
        compared = not derived and Rule.WHOLE in self.rules and operator.is_compared(self.changed)
        # Should the value of a subquery differ, all rows are compared.
        stored = stored and not compared and not operator.has_changed_subqueries(self.changed)
        yield from operator.obstacles
        if operator.ambiguous is not None and not self.provided:
            yield operator.ambiguous
        exact = derived or (operator.replaced and stored) or (operator.bounded and self.provided)
        if operator.inexact is not None and not exact:
            yield operator.inexact
        if ruled and operator.children and operator.changes(self.changed):
            yield from self._rule_obstacles(operator, derived=derived, compared=compared)
        for child in operator.children:
            yield from self.obstacles(child, ruled=ruled and not compared, stored=stored)
        for subquery in operator.subqueries:
            yield from self._subquery_obstacles(subquery, operator)

    def _rule_obstacles(
        self, operator: Operator, *, derived: bool, compared: bool
    ) -> Iterator[Obstacle]:
        needed = {operator.rule}
        if not derived and not compared and operator.changes_by_keys(self.changed):
            if operator.keyless is not None:
                yield operator.keyless
            if not operator.replaced:
                needed.add(Rule.NESTED)
        for rule in sorted(needed - self.rules, key=lambda rule: rule.value):
            yield Obstacle(
                code=Reason.RULE_DISABLED,
                text=f"{operator.name} needs rule {rule.value}, which is off",
            )

    def _subquery_obstacles(self, subquery: Operator, reader: Operator) -> Iterator[Obstacle]:
        known = reader.replaceable and Rule.WHOLE in self.rules
        if subquery.changes(self.changed) and not known:
            yield Obstacle(
                code=Reason.SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE,
                text=f"a source of a scalar subquery in {reader.name} changed",
            )
        yield from self.obstacles(subquery, ruled=False, stored=False)
