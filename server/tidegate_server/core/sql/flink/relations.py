"""What stands for a table: UNNEST, table functions, options in hints, versions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate_server.core.sql.flink.failures import refuse
from tidegate_server.core.sql.flink.literals import spark_string
from tidegate_server.core.sql.flink.output import Parts, made, verbatim
from tidegate_server.core.sql.flink.rewriter import Relation, Rewriter
from tidegate_server.core.sql.flink.tokens import Item, Kind, hint_items, sees, split

_PROCESSING_TIME = re.compile(r"proc(ess(ing)?)?_?time", re.IGNORECASE)
_NOW = frozenset({"PROCTIME", "CURRENT_TIMESTAMP", "NOW", "CURRENT_ROW_TIMESTAMP"})
_EVENT_TIME = (
    "A version for each row cannot be read. If the column is the processing time, call it proctime "
    "or leave the clause out; otherwise join a table of versions by their times."
)
_OPTIONS = "Write OPTIONS('key' = 'value', ...)."
_OTHER_HINT = "Leave it out: it does not change the result."


def _unnest(rewriter: Rewriter, items: Sequence[Item], at: int) -> tuple[Parts, int] | None:
    if items[at].word != "UNNEST" or at + 1 >= len(items) or not items[at + 1].opens("("):
        return None
    group = items[at + 1]
    value = rewriter.expression(group.inner)
    before = items[at - 1].word if at else ""
    lateral = "LATERAL " if before in ("JOIN", ",") else ""
    if sees(items, at + 2, "WITH", "ORDINALITY"):
        found = made(
            items[at].start,
            f"{lateral}(SELECT tidegate_value, tidegate_place + 1 FROM (SELECT posexplode(",
            value,
            ") AS (tidegate_place, tidegate_value)))",
        )
        return found, at + 4
    return made(items[at].start, f"{lateral}(SELECT flink_unnest(", value, "))"), at + 2


def _table_function(rewriter: Rewriter, items: Sequence[Item], at: int) -> tuple[Parts, int] | None:
    """Leave TABLE(...) out around a call."""
    word = at + 1 if items[at].word == "LATERAL" else at
    if not sees(items, word, "TABLE") or word + 1 >= len(items):
        return None
    group = items[word + 1]
    inner = group.inner
    if not group.opens("(") or len(inner) < 2 or not inner[0].named or not inner[-1].opens("("):
        return None
    return made(
        items[at].start, "LATERAL " if word > at else "", rewriter.expression(inner)
    ), word + 2


def _options(rewriter: Rewriter, items: Sequence[Item], at: int) -> tuple[Parts, int] | None:
    if items[at].kind is not Kind.HINT:
        return None
    hint = items[at]
    inner = hint_items(rewriter.text, hint)
    if not inner or inner[0].word != "OPTIONS":
        name = inner[0].word if inner else ""
        raise refuse(rewriter.text, hint.start, f"The hint {name}", _OTHER_HINT)
    pairs = split(inner[1].inner) if len(inner) == 2 and inner[1].opens("(") else []
    if not pairs or not all(_is_pair(pair) for pair in pairs):
        raise refuse(rewriter.text, hint.start, "This form of OPTIONS", _OPTIONS)
    written = (
        f"{spark_string(key.value)} = {spark_string(value.value)}" for key, _, value in pairs
    )
    return made(hint.start, f"WITH ({', '.join(written)})"), at + 1


def _is_pair(pair: Sequence[Item]) -> bool:
    return (
        len(pair) == 3
        and pair[0].kind is Kind.STRING
        and pair[1].word == "="
        and pair[2].kind is Kind.STRING
    )


def _version(rewriter: Rewriter, items: Sequence[Item], at: int) -> tuple[Parts, int] | None:
    """Translate FOR SYSTEM_TIME AS OF: at a constant, or at the processing time, which is now."""
    if not sees(items, at, "FOR", "SYSTEM_TIME", "AS", "OF"):
        return None
    place, begin = items[at], at + 4
    if begin >= len(items):
        raise rewriter.unexpected(items, begin, "a time")
    first = items[begin]
    if first.word in ("TIMESTAMP", "CAST", "TO_TIMESTAMP", "TO_TIMESTAMP_LTZ"):
        return verbatim(rewriter.text, place.start, items[at + 3].end), begin
    if first.word in _NOW:
        after = begin + 1
        after += 1 if after < len(items) and items[after].opens("(") else 0
        if after < len(items) and items[after].word in ("+", "-"):
            return verbatim(rewriter.text, place.start, items[at + 3].end), begin
        return made(place.start, ""), after
    if not first.named:
        raise refuse(rewriter.text, place.start, "FOR SYSTEM_TIME of an expression", _EVENT_TIME)
    end = begin + 1
    while sees(items, end, ".") and end + 1 < len(items) and items[end + 1].named:
        end += 2
    last = items[end - 1].value
    computed = re.search(
        rf"\bPROCTIME\s*\(\s*\)\s+(?:AS\s+)?`?{re.escape(last)}\b", rewriter.text, re.IGNORECASE
    )
    if _PROCESSING_TIME.search(last) is None and computed is None:
        raise refuse(rewriter.text, place.start, f"FOR SYSTEM_TIME AS OF {last}", _EVENT_TIME)
    return made(place.start, ""), end


RELATIONS: Sequence[Relation] = (_unnest, _table_function, _options, _version)
