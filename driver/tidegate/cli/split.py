"""Cuts a script into statements.

A statement ends at a semicolon outside of quotes and comments. Quotes are ``'…'``, ``"…"`` (both
with backslash escapes unless written ``r'…'``) and `` `…` ``; a doubled quote stays inside.
Comments are ``-- …``, ``/* … */`` (nesting, as Spark reads them) and ``// …`` where it begins a
token, so that ``ADD JAR hdfs://host/x.jar`` stays whole. A line that begins with ``!`` or ``\\``
where a statement could begin is a command of the shell and ends with its line. ``BEGIN … END`` of
Spark's SQL scripting is one statement. Time is linear in the length of the script.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidegate.lexical import LINE_COMMENT, QUOTED, RAW, comment_end

_TOKEN = re.compile(
    rf"""
      (?P<space>\s++)
    | (?P<comment>{LINE_COMMENT} | (?<![^\s,;()])//(?:\\\n|[^\r\n])*+)
    | (?P<bracket>/\*)
    | (?P<raw>{RAW})
    | (?P<quoted>{QUOTED})
    | (?P<open>['"`])
    | (?P<end>;)
    | (?P<word>\w++)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE_END = re.compile(r"\r?\n|\Z")
_STATEMENT_OPENERS = frozenset({"BEGIN", "IF", "LOOP", "REPEAT"})
_STATEMENT_BEGINS = frozenset({";", ":", "BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT"})
_NOT_BLOCKS = frozenset({"STATEMENT", "TRANSACTION", "WORK"})


class Ending(Enum):
    """How a statement ends."""

    SEMICOLON = "terminated by a semicolon"
    COMMAND = "a shell command, which ends with its line"
    INPUT = "the input ended outside of quotes and comments"
    IN_QUOTE = "the input ended inside quotes"
    IN_COMMENT = "the input ended inside a bracketed comment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One statement of a script.

    ``raw`` is the exact slice of the script with its terminator and surroundings: all raws joined
    give the script back. ``sql`` is what to send: no leading space or comments, no terminator,
    ``//`` comments turned into ``--`` comments of the same length. ``sql`` is empty when there are
    only comments. ``line`` and ``column`` (from 1) say where ``sql`` begins in the script.
    """

    raw: str
    sql: str
    line: int
    column: int
    ending: Ending

    @property
    def is_command(self) -> bool:
        """Whether this is a ``!command`` of the shell."""
        return self.ending is Ending.COMMAND


@dataclass(slots=True)
class _Blocks:
    """Counts the open BEGIN … END blocks of one statement of Spark's SQL scripting."""

    scripting: bool | None = None
    depth: int = 0
    previous: str = ";"

    def see(self, token: str) -> None:
        """Take the next word or sign of the statement."""
        token = token.upper()
        if self.scripting is None:
            self.scripting = token == "BEGIN"
        if not self.scripting:
            return
        if self.previous == "BEGIN" and token in _NOT_BLOCKS:
            self.scripting, self.depth = False, 0
        elif token == "END":
            self.depth -= 1
        elif self._opens(token):
            self.depth += 1
        self.previous = token

    def ended(self) -> bool:
        """Take a semicolon, and return whether it ends the statement."""
        bare = self.previous == "BEGIN" and self.depth == 1
        self.previous = ";"
        return bare or self.depth <= 0

    def _opens(self, token: str) -> bool:
        # if(…) and repeat(…) are functions too: they open a block only at the start of a statement.
        if token in ("CASE", "DO"):
            return self.previous != "END"
        return token in _STATEMENT_OPENERS and self.previous in _STATEMENT_BEGINS


def split(script: str) -> Iterator[Part]:
    """Yield the statements and commands of a script in order; the last may be unterminated."""
    position, line, line_start = 0, 1, 0
    while position < len(script):
        stop, begin, pieces, ending = _scan(script, position)
        raw = script[position:stop]
        lead = script[position:begin]
        breaks = lead.count("\n")
        if breaks:
            line_start = position + lead.rindex("\n") + 1
        yield Part(
            raw=raw,
            sql="".join(pieces).rstrip(),
            line=line + breaks,
            column=begin - line_start + 1,
            ending=ending,
        )
        breaks = raw.count("\n")
        if breaks:
            line_start = position + raw.rindex("\n") + 1
        line += breaks
        position = stop


def is_complete(text: str) -> bool:
    """Return whether every statement of a buffer is terminated."""
    parts = deque(split(text), maxlen=1)
    if not parts:
        return True
    last = parts[0]
    if last.ending in (Ending.SEMICOLON, Ending.COMMAND):
        return True
    return last.ending is Ending.INPUT and not last.sql


def _scan(script: str, start: int) -> tuple[int, int, list[str], Ending]:
    """Find one statement from ``start``: its end, where its SQL begins, the SQL, its ending."""
    position = start
    begin: int | None = None
    pieces: list[str] = []
    blocks = _Blocks()
    while position < len(script):
        match = _TOKEN.match(script, position)
        assert match is not None  # the last alternative takes any character
        kind, text, position = match.lastgroup, match.group(), match.end()
        if kind == "bracket":
            closed = comment_end(script, position)
            stop = len(script) if closed is None else closed
            text = script[match.start() : stop]
            if begin is not None:
                pieces.append(text)
            if closed is None:
                return stop, stop if begin is None else begin, pieces, Ending.IN_COMMENT
            position = stop
            continue
        if begin is None and kind not in ("space", "comment", "end"):
            begin = match.start()
            if text in ("!", "\\"):
                return _command(script, begin)
        if kind == "open":
            pieces.append(script[match.start() :])
            return len(script), begin or 0, pieces, Ending.IN_QUOTE
        if kind == "end":
            if blocks.ended():
                return position, match.start() if begin is None else begin, pieces, Ending.SEMICOLON
        elif kind in ("word", "quoted", "other"):
            blocks.see(text)
        elif kind == "comment" and text.startswith("//"):
            text = f"--{text[2:]}"
        if begin is not None:
            pieces.append(text)
    return position, position if begin is None else begin, pieces, Ending.INPUT


def _command(script: str, begin: int) -> tuple[int, int, list[str], Ending]:
    match = _LINE_END.search(script, begin)
    assert match is not None  # \Z matches at the latest
    text = script[begin : match.start()].rstrip().rstrip(";")
    return match.end(), begin, [text], Ending.COMMAND
