"""Clauses and hints without an equivalent."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate_server.core.sql.flink.failures import refuse
from tidegate_server.core.sql.flink.tokens import Item, Kind, hint_items, sees
from tidegate_server.core.sql.flink.units import Frame, Unit

_HINTS = frozenset({"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE"})
_PLAIN_QUERY = "Write a subquery with the columns, and compare them in its WHERE."


def check_hint(text: str, item: Item) -> None:
    """Refuse a hint after SELECT that Spark does not have."""
    for found in (each.word for each in hint_items(text, item) if each.kind is Kind.WORD):
        if found not in _HINTS:
            known = ", ".join(sorted(_HINTS))
            raise refuse(
                text,
                item.start,
                f"The hint {found}",
                f"Leave it out: it does not change the result. Hints of both are {known}.",
            )


def check_clause(
    text: str, items: Sequence[Item], at: int, before: Sequence[Unit], frame: Frame
) -> None:
    """Refuse a clause that begins at an item.

    :param before: what comes before it on its level.
    :raises ServerError: FLINK_SQL_UNSUPPORTED.
    """
    item = items[at]
    following = items[at + 1] if at + 1 < len(items) else None
    if item.word == "MATCH_RECOGNIZE" and following is not None and following.opens("("):
        hint = "Use window functions such as LAG and LEAD."
        raise refuse(text, item.start, item.word, hint)
    after_operand = bool(before) and before[-1].operand
    if item.word == "QUALIFY" and after_operand and frame.has_query and following is not None:
        if frame.clause in ("FROM", "WHERE", "GROUP", "HAVING", "ON", "USING"):
            raise refuse(text, item.start, item.word, _PLAIN_QUERY)
    elif item.word == "SIMILAR" and sees(items, at + 1, "TO"):
        hint = "Use REGEXP(text, pattern) with a Java pattern."
        raise refuse(text, item.start, "SIMILAR TO", hint)
    elif item.word == "OVERLAPS" and after_operand:
        hint = "Compare the ends: a_start < b_end AND b_start < a_end."
        raise refuse(text, item.start, item.word, hint)
    elif item.word in ("SYMMETRIC", "ASYMMETRIC") and before and before[-1].word == "BETWEEN":
        hint = "Use LEAST and GREATEST for the ends of BETWEEN."
        raise refuse(text, item.start, f"BETWEEN {item.word}", hint)
