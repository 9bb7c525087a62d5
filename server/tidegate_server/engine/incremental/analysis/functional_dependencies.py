"""Functional dependencies: which columns of a plan are determined by others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidegate_server.engine.incremental.analysis.classify import is_key
from tidegate_server.engine.query.catalyst import Catalyst, descend, expression_id
from tidegate_server.engine.storage.jvm import items, kind

PASSING = frozenset({"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
"""Operators that pass every row through."""
ROW_WISE = frozenset({"Project", "Filter"}) | PASSING
"""Operators that treat rows one by one, with at most one output row for each."""
PEERS = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
"""Window functions that are equal for rows that tie, with any frame."""

_INNER = frozenset({"Inner", "Cross"})
_LEFT_ROWS = frozenset({"LeftSemi", "LeftAnti", "ExistenceJoin"})


def is_fixed_by(plan: Any, known: Iterable[Any], catalyst: Catalyst) -> bool:
    """Say whether rows of a plan that agree in the known attributes agree in all.

    :param known: the attributes; those whose equal values may not be identical are ignored.
    """
    ids = frozenset(expression_id(each) for each in known if is_key(each))
    return _is_fixed(plan, ids, catalyst)


def covers_peers(frame: Any) -> bool:
    """Say whether a window's frame always contains all or none of the rows that tie."""
    if kind(frame) != "SpecifiedWindowFrame":
        return False
    if kind(frame.frameType()) == "RangeFrame":
        return True
    bounds = (kind(frame.lower()), kind(frame.upper()))
    return bounds == ("UnboundedPreceding", "UnboundedFollowing")


def equated_pairs(condition: Any, left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of expressions that a join's condition equates, left side first."""
    if condition.isEmpty():
        return
    for part in conjuncts(condition.get()):
        yield from _equated_pair(part, left, right)


def _equated_pair(condition: Any, left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    if kind(condition) not in {"EqualTo", "EqualNullSafe"}:
        return
    first, second = condition.left(), condition.right()
    if _reads_only(second, left) and _reads_only(first, right):
        first, second = second, first
    if not (_reads_only(first, left) and _reads_only(second, right)):
        return
    same = str(first.dataType().catalogString()) == str(second.dataType().catalogString())
    if same and is_key(first):
        yield first, second


def null_aware_pair(condition: Any, left: Any, right: Any) -> tuple[Any, Any] | None:
    """Return the two expressions that NOT IN compares: ``a = b OR (a = b) IS NULL``.

    None if the join has another condition.
    """
    if condition.isEmpty() or kind(condition.get()) != "Or":
        return None
    equality, unknown = condition.get().left(), condition.get().right()
    if kind(unknown) != "IsNull" or not bool(unknown.child().semanticEquals(equality)):
        return None
    return next(_equated_pair(equality, left, right), None)


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the parts of a condition that AND connects."""
    if kind(condition) != "And":
        yield condition
        return
    yield from conjuncts(condition.left())
    yield from conjuncts(condition.right())


def _is_fixed(plan: Any, known: frozenset[int], catalyst: Catalyst) -> bool:
    if known.issuperset(catalyst.ids(plan.output())):
        return True
    match kind(plan):
        case "Filter" | "Distinct":
            return _is_fixed(plan.child(), known, catalyst)
        case name if name in PASSING:
            return _is_fixed(plan.child(), known, catalyst)
        case "Project":
            return _fixed_projection(plan, known, catalyst)
        case "Aggregate":
            return _has_all_groups(plan, known)
        case "Window":
            fixed = _is_fixed(plan.child(), known, catalyst)
            return fixed and _same_for_equal_rows(plan, known)
        case "Join":
            return _fixed_join(plan, known, catalyst)
    return False


def _fixed_projection(plan: Any, known: frozenset[int], catalyst: Catalyst) -> bool:
    named = catalyst.describe(plan.projectList())
    below = frozenset(e.passed for e in named if e.id in known and e.passed is not None)
    if _is_fixed(plan.child(), below, catalyst):
        return True
    return all(each.id in known or each.references <= below for each in named)


def _has_all_groups(plan: Any, known: frozenset[int]) -> bool:
    """Say whether all groups are known: there is one row per group."""
    results = [each for each in items(plan.aggregateExpressions()) if expression_id(each) in known]
    return all(
        any(bool(group.semanticEquals(_plain(each))) for each in results)
        for group in items(plan.groupingExpressions())
    )


def _same_for_equal_rows(window: Any, known: frozenset[int]) -> bool:
    """Say whether functions are equal for equal input rows, which tie in every order."""
    for named in items(window.windowExpressions()):
        if expression_id(named) in known:
            continue
        for call in (part for part in descend(named) if kind(part) == "WindowExpression"):
            frame = call.windowSpec().frameSpecification()
            if kind(call.windowFunction()) not in PEERS and not covers_peers(frame):
                return False
    return True


def _fixed_join(plan: Any, known: frozenset[int], catalyst: Catalyst) -> bool:
    left, right, name = plan.left(), plan.right(), kind(plan.joinType())
    if name in _LEFT_ROWS:
        return _is_fixed(left, known, catalyst)
    pairs = [
        (expression_id(first), expression_id(second))
        for first, second in equated_pairs(plan.condition(), left, right)
        if kind(first) == kind(second) == "AttributeReference"
    ]
    if name in _INNER:
        both = known | {b for a, b in pairs if a in known} | {a for a, b in pairs if b in known}
        if _is_fixed(left, both, catalyst) and _is_fixed(right, both, catalyst):
            return True
    # Each row of one side then matches one row of the other, several equal ones, or none.
    if name in _INNER | {"LeftOuter"} and _is_fixed(left, known, catalyst):
        return _is_fixed(right, frozenset(b for _, b in pairs), catalyst)
    if name in _INNER | {"RightOuter"} and _is_fixed(right, known, catalyst):
        return _is_fixed(left, frozenset(a for a, _ in pairs), catalyst)
    return False


def _plain(named: Any) -> Any:
    return named.child() if kind(named) == "Alias" else named


def _reads_only(expression: Any, plan: Any) -> bool:
    references = expression.references()
    return not references.isEmpty() and bool(references.subsetOf(plan.outputSet()))
