"""Rewrites the expressions of Flink's SQL; what it does not recognize stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.flink.clauses import finish_query
from tidegate_server.core.sql.flink.failures import misread, refuse
from tidegate_server.core.sql.flink.intervals import interval
from tidegate_server.core.sql.flink.literals import spark_string, unicode_string
from tidegate_server.core.sql.flink.operators import translate_operations
from tidegate_server.core.sql.flink.output import Part, Parts, made, verbatim
from tidegate_server.core.sql.flink.refusals import check_clause, check_hint
from tidegate_server.core.sql.flink.tokens import Item, Kind, sees, split
from tidegate_server.core.sql.flink.units import KEYWORDS, Frame, Unit, in_a_row

_ONLY_WITHOUT_BRACKETS = frozenset({"LEFT", "RIGHT", "GROUPING"})
"""Keywords that are functions in front of brackets."""
_CLAUSES = frozenset(
    {"SELECT", "FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH"}
    | {"UNION", "INTERSECT", "EXCEPT", "MINUS", "VALUES", "ON", "USING", "INTO", "SET"}
)
_BARE: Mapping[str, str] = {
    "CURRENT_TIME": "Use CURRENT_TIMESTAMP, and DATE_FORMAT for its text.",
    "LOCALTIME": "Use LOCALTIMESTAMP, and DATE_FORMAT for its text.",
}
"""Functions without brackets that have no equivalent."""
_LONGEST = 100_000
"""Characters that the translation of a call may be longer than the text."""
_DEEPEST = 50
"""The most levels of CASE, which are translated recursively."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call."""

    items: tuple[Item, ...]
    parts: Parts

    @property
    def literal(self) -> str | None:
        """The value of a string literal."""
        one = self.items[0] if len(self.items) == 1 else None
        return one.value if one is not None and one.kind is Kind.STRING else None

    @property
    def number(self) -> int | None:
        """The value of a whole number that is written out."""
        items, sign = self.items, 1
        if len(items) == 2 and items[0].word in ("-", "+"):
            sign = -1 if items[0].word == "-" else 1
            items = items[1:]
        if len(items) != 1 or items[0].kind is not Kind.NUMBER or not items[0].value.isdigit():
            return None
        return sign * int(items[0].value)


class Call:
    """A call of a function, with what follows it: FILTER, WITHIN GROUP, OVER."""

    def __init__(self, rewriter: Rewriter, head: Item, group: Item, suffix: Parts) -> None:
        self.rewriter = rewriter
        self.head = head
        self.group = group
        self.suffix = suffix
        self._arguments: list[Argument] | None = None

    @property
    def name(self) -> str:
        """The function's name in upper case."""
        return self.head.word

    @property
    def arguments(self) -> list[Argument]:
        """The arguments between the commas, translated."""
        if self._arguments is None:
            self._arguments = [
                Argument(part, self.rewriter.expression(part)) if part else Argument((), ())
                for part in split(self.group.inner)
            ]
        return self._arguments

    def refuse(self, hint: str, what: str = "") -> ServerError:
        """Return the error for a call without an equivalent."""
        return refuse(self.rewriter.text, self.head.start, what or self.name, hint)

    def made(self, *pieces: str | Parts) -> Parts:
        """Return pieces in the place of the call, with what follows it.

        :raises ServerError: FLINK_SQL_UNSUPPORTED if calls in calls make them too long, since
            arguments may occur several times.
        """
        parts = made(self.head.start, *pieces, self.suffix)
        if sum(len(part.text) for part in parts) > _LONGEST + len(self.rewriter.text):
            raise self.refuse("Use a subquery for the inner calls.", f"So many {self.name} calls")
        return parts

    def unchanged(self) -> Parts:
        """Return the call with translated arguments."""
        text = self.rewriter.text
        parts, at = (
            list(verbatim(text, self.head.start, self.group.start + 1)),
            self.group.start + 1,
        )
        for argument in self.arguments:
            if argument.items:
                parts += verbatim(text, at, argument.items[0].start)
                parts += argument.parts
                at = argument.items[-1].end
        return made(self.head.start, (*parts, *verbatim(text, at, self.group.end)), self.suffix)


Rule = Callable[[Call], Parts | None]
"""Translates a call; None leaves it as it is."""
Relation = Callable[["Rewriter", Sequence[Item], int], tuple[Parts, int] | None]
"""Translates what stands where a table may stand, and returns the index after it."""


class Rewriter:
    """Translates one text."""

    def __init__(
        self, text: str, calls: Mapping[str, Rule], relations: Sequence[Relation] = ()
    ) -> None:
        self.text = text
        self.frames: list[Frame] = []
        self._cases = 0
        self._calls = calls
        self._relations = relations

    # ---- levels

    def level(self, items: Sequence[Item], start: int, end: int) -> Parts:
        """Translate the items of one level, which fill a range of the text."""
        frame = Frame(any(item.word == "SELECT" for item in items))
        return self._level(frame, items, start, end)

    def _level(self, frame: Frame, items: Sequence[Item], start: int, end: int) -> Parts:
        self.frames.append(frame)
        try:
            units = self._units(items, frame)
            return in_a_row(self.text, finish_query(self.text, units, frame), start, end)
        finally:
            self.frames.pop()

    def expression(self, items: Sequence[Item]) -> Parts:
        """Translate the items of an expression."""
        return self.level(items, items[0].start, items[-1].end) if items else ()

    def relation(self, items: Sequence[Item]) -> Parts:
        """Translate the items of a table, as after FROM."""
        return self._level(Frame(False, clause="FROM"), items, items[0].start, items[-1].end)

    def group(self, group: Item) -> Parts:
        """Translate a group with its brackets."""
        inner = self.level(group.inner, group.start + 1, group.end - 1)
        return (
            *verbatim(self.text, group.start, group.start + 1),
            *inner,
            *verbatim(self.text, group.end - 1, group.end),
        )

    def require_time(self, parts: Parts) -> None:
        """Note that rows of the query around do not count where a time is NULL."""
        for frame in reversed(self.frames):
            if frame.has_query:
                frame.required.append((len(frame.units), parts))
                return

    def source(self, item: Item) -> str:
        """Return an item's text."""
        return self.text[item.start : item.end]

    def unexpected(
        self, items: Sequence[Item], at: int, expected: str, hint: str = ""
    ) -> ServerError:
        """Return the syntax error at an item."""
        if at < len(items):
            return misread(self.text, items[at].start, self.source(items[at])[:40], expected, hint)
        end = items[-1].end if items else len(self.text)
        return misread(self.text, end, "the end", expected, hint)

    def _units(self, items: Sequence[Item], frame: Frame) -> list[Unit]:
        """Translate items one operand, keyword or symbol after the other."""
        units = frame.units = []
        at = 0
        while at < len(items):
            unit, at = self._unit(items, at, units, frame)
            units.append(unit)
            if unit.word in _CLAUSES and not unit.operand:
                frame.clause = unit.word
        return translate_operations(self.text, units)

    # ---- units

    def _unit(
        self, items: Sequence[Item], at: int, before: Sequence[Unit], frame: Frame
    ) -> tuple[Unit, int]:
        item = items[at]
        if self._stands_for_table(before, frame, item):
            for relation in self._relations:
                found = relation(self, items, at)
                if found is not None:
                    parts, after = found
                    return Unit(item.start, items[after - 1].end, parts, operand=True), after
        if item.kind is Kind.HINT:
            check_hint(self.text, item)
            return _keyword(self.text, item), at + 1
        check_clause(self.text, items, at, before, frame)
        word = item.word
        function = at + 1 < len(items) and items[at + 1].opens("(")
        if word in KEYWORDS and word != "CASE":
            return _keyword(self.text, item), at + 1
        if word in _ONLY_WITHOUT_BRACKETS and not function:
            return _keyword(self.text, item), at + 1
        if item.kind is Kind.SYMBOL:
            return _keyword(self.text, item), at + 1
        parts, after, literal = self._operand(items, at)
        parts, after = self._postfix(items, at, parts, after)
        last = items[after - 1].end
        return Unit(item.start, last, parts, item.word, True, literal), after

    def _operand(self, items: Sequence[Item], at: int) -> tuple[Parts, int, str | None]:
        """Translate an operand; return its parts, the index after it, and a string's value."""
        item = items[at]
        if item.kind is Kind.GROUP:
            return self.group(item), at + 1, None
        if item.kind is Kind.STRING:
            return self.string(item), at + 1, item.value
        if item.kind is Kind.NUMBER:
            return verbatim(self.text, item.start, item.end), at + 1, None
        if item.word == "CASE":
            return (*self._case(items, at), None)
        special = self._special(items, at)
        if special is not None:
            return (*special, None)
        return (*self._path(items, at), None)

    def _special(self, items: Sequence[Item], at: int) -> tuple[Parts, int] | None:
        """Translate literals and constructors that begin with a word."""
        item = items[at]
        following = items[at + 1] if at + 1 < len(items) else None
        if following is None:
            return None
        word = item.word
        if following.kind is Kind.STRING and word in ("DATE", "TIME", "TIMESTAMP"):
            if word == "TIME":
                raise refuse(
                    self.text, item.start, "A TIME literal", "Use a string or a TIMESTAMP."
                )
            head = "TIMESTAMP_NTZ" if word == "TIMESTAMP" else self.source(item)
            gap = verbatim(self.text, item.end, following.start)
            return made(item.start, head, gap, self.string(following)), at + 2
        if word == "INTERVAL":
            found = interval(items, at)
            if found is not None:
                return self._interval(items, at, found.next, found.skipped), found.next
        if word == "U" and sees(items, at + 1, "&") and following.start == item.end:
            return self._unicode(items, at)
        if following.opens("[") and word in ("ARRAY", "MAP", "MULTISET"):
            if word == "MULTISET":
                raise refuse(self.text, item.start, "MULTISET", "Use ARRAY.")
            inner = self.level(following.inner, following.start + 1, following.end - 1)
            return made(item.start, self.source(item), "(", inner, ")"), at + 2
        return None

    def string(self, item: Item) -> Parts:
        """Return a string literal; a backslash in it is Flink's own character."""
        if "\\" not in item.value:
            return verbatim(self.text, item.start, item.end)
        return made(item.start, self.source(item).replace("\\", "\\\\"))

    def _interval(
        self, items: Sequence[Item], at: int, after: int, skipped: Sequence[Item]
    ) -> Parts:
        parts: list[Part] = []
        start = items[at].start
        for item in skipped:
            parts += verbatim(self.text, start, item.start)
            start = item.end
        return (*parts, *verbatim(self.text, start, items[after - 1].end))

    def _unicode(self, items: Sequence[Item], at: int) -> tuple[Parts, int] | None:
        string = items[at + 2] if at + 2 < len(items) else None
        if string is None or string.kind is not Kind.STRING or string.start != items[at + 1].end:
            return None
        escape, after = "\\", at + 3
        if sees(items, after, "UESCAPE"):
            given = items[after + 1] if after + 1 < len(items) else None
            if given is None or given.kind is not Kind.STRING or len(given.value) != 1:
                raise self.unexpected(items, after + 1, "one character in quotes")
            escape, after = given.value, after + 2
        value = unicode_string(string.value, escape)
        if value is None:
            raise misread(self.text, string.start, "a malformed escape", f"{escape}0041")
        return made(items[at].start, spark_string(value)), after

    def _case(self, items: Sequence[Item], at: int) -> tuple[Parts, int]:
        depth, end = 0, at
        while end < len(items):
            depth += {"CASE": 1, "END": -1}.get(items[end].word, 0)
            if depth == 0:
                break
            end += 1
        if end >= len(items):
            raise self.unexpected(items, end, "END")
        if self._cases >= _DEEPEST:
            raise self.unexpected(items, at, f"at most {_DEEPEST} levels of CASE")
        self._cases += 1
        inner = self._units(items[at + 1 : end], Frame(False))
        self._cases -= 1
        start, stop = items[at].start, items[end].end
        return in_a_row(self.text, [_keyword(self.text, items[at]), *inner], start, stop), end + 1

    def _path(self, items: Sequence[Item], at: int) -> tuple[Parts, int]:
        """Translate a name with its qualifiers, or a call."""
        first = items[at]
        after = at + 1
        while sees(items, after, ".") and after + 1 < len(items):
            following = items[after + 1]
            if not following.named and following.word != "*":
                break
            after += 2
        if after < len(items) and items[after].opens("("):
            inner = items[after].inner
            query = bool(inner) and inner[0].word in ("SELECT", "WITH")
            suffix, end = self._suffix(items, after + 1)
            call = Call(self, first, items[after], suffix)
            if after == at + 1 and first.kind is Kind.WORD and not query:
                rule = self._calls.get(first.word)
                found = None if rule is None else rule(call)
                return (call.unchanged() if found is None else found), end
            head = verbatim(self.text, first.start, items[after].start)
            return (*head, *self.group(items[after]), *suffix), end
        if after == at + 1 and first.word in _BARE:
            raise refuse(self.text, first.start, first.word, _BARE[first.word])
        return verbatim(self.text, first.start, items[after - 1].end), after

    def _suffix(self, items: Sequence[Item], at: int) -> tuple[Parts, int]:
        """Translate FILTER, WITHIN GROUP, OVER and the treatment of NULLs after a call."""
        parts: list[Part] = []
        end = items[at - 1].end
        while at < len(items):
            if items[at].word in ("RESPECT", "IGNORE") and sees(items, at + 1, "NULLS"):
                parts += verbatim(self.text, end, items[at + 1].end)
                end, at = items[at + 1].end, at + 2
                continue
            width = 2 if sees(items, at, "WITHIN", "GROUP") else 1
            after = at + width
            known = items[at].word in ("FILTER", "OVER") or width == 2
            if not known or after >= len(items):
                break
            if items[after].opens("("):
                parts += verbatim(self.text, end, items[after].start)
                parts += self.group(items[after])
            elif items[at].word == "OVER" and items[after].named:
                parts += verbatim(self.text, end, items[after].end)
            else:
                break
            end, at = items[after].end, after + 1
        return tuple(parts), at

    def _postfix(
        self, items: Sequence[Item], at: int, parts: Parts, after: int
    ) -> tuple[Parts, int]:
        """Translate access to elements, which Flink counts from one, and to fields."""
        while after < len(items):
            item = items[after]
            if item.opens("["):
                index = self.level(item.inner, item.start + 1, item.end - 1)
                parts = made(items[at].start, "try_element_at(", parts, ", ", index, ")")
                after += 1
            elif (
                item.word == "."
                and after + 1 < len(items)
                and (items[after + 1].named or items[after + 1].word == "*")
            ):
                parts = (*parts, *verbatim(self.text, item.start, items[after + 1].end))
                after += 2
            else:
                break
        return parts, after

    # ---- clauses

    def _stands_for_table(self, before: Sequence[Unit], frame: Frame, item: Item) -> bool:
        last = before[-1].word if before and not before[-1].operand else ""
        if not before and frame.clause == "FROM":
            return True
        if last in ("FROM", "JOIN", "INTO") or (last == "," and frame.clause == "FROM"):
            return True
        return item.word == "FOR" or (item.kind is Kind.HINT and last != "SELECT")


def _keyword(text: str, item: Item) -> Unit:
    """Return the unit of a keyword, a symbol or a hint."""
    return Unit(item.start, item.end, verbatim(text, item.start, item.end), item.word)
