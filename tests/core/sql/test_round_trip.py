"""Every statement prints to text that parses to the same statement, however odd its words.

``TIDEGATE_FULL=1 python -m pytest -s tests/core/sql/test_round_trip.py`` goes through 100,000
statements and prints how many of each kind there were.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from random import Random

from tests.core.sql.generate import ALL_KINDS, KINDS, Generator
from tests.core.sql.render import render
from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.external.statements import CreateTableLike
from tidegate_server.core.sql.jobs.statements import BeginStatementSet
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterAsQuery,
    AlterModify,
    AlterRefresh,
    AlterSetImmutable,
    CreateMaterializedTable,
    Explain,
)

COUNT = 100_000 if FULL else 2_000


def test_the_generator_knows_every_kind_of_statement() -> None:
    assert KINDS == ALL_KINDS


def test_generated_statements_survive_printing() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(COUNT):
        statement = Generator(seed).statement()
        text = render(statement)
        assert parse(text) == statement, f"seed {seed}: {text!r}"
        drawn[type(statement).__name__] += 1
    assert len(drawn) == len(KINDS)
    sys.stdout.write(f"{drawn.total():,} statements: {dict(sorted(drawn.items()))}\n")


def test_comments_around_a_statement_change_nothing() -> None:
    for seed in range(COUNT // 10):
        statement = Generator(seed).statement()
        text = f"-- before\n// and\n/* again */ {render(statement)}\n;\n/* after */ ; -- end"
        assert parse(text) == statement, f"seed {seed}: {text!r}"


def test_case_and_spaces_between_words_change_nothing() -> None:
    for seed in range(COUNT // 10):
        statement = Generator(seed).statement()
        if isinstance(statement, _WITH_TEXT):
            continue
        text = _WORDS.sub(_vary_word, render(statement))
        assert parse(text) == statement, f"seed {seed}: {text!r}"


def test_damaged_statements_are_refused_where_they_are_damaged() -> None:
    refused: Counter[str] = Counter()
    for seed in range(COUNT):
        text = _damage(render(Generator(seed).statement()), Random(seed))
        try:
            statement = parse(text)
        except ServerError as problem:
            refused[problem.code] += 1
            lines = text.split("\n")
            assert problem.line is not None and problem.line <= len(lines), f"{seed}: {text!r}"
            assert problem.column is not None, f"seed {seed}: {text!r}"
            assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1, f"{seed}: {text!r}"
        else:
            assert parse(render(statement)) == statement, f"seed {seed}: {text!r}"
    assert refused["PARSE_SYNTAX"] > COUNT / 4
    assert refused.keys() <= _GRAMMAR


_GRAMMAR = {
    "PARSE_SYNTAX",
    "INVALID_REQUEST",
    "MT_FRESHNESS_LITERAL",
    "MT_FRESHNESS_POSITIVE",
    "MT_FRESHNESS_UNIT",
    "MT_OPTIONS_EMPTY",
    "MT_PK_ENFORCED",
    "MT_QUERY_UNSUPPORTED",
    "MT_REPLACE_UNSUPPORTED",
    "MT_START_MODE_ARGUMENT",
    "MT_TEMPORARY_UNSUPPORTED",
    "MT_UNIQUE_UNSUPPORTED",
    "NOT_SUPPORTED",
    "MT_WATERMARK_MULTIPLE",
}
"""The codes with which a parser refuses."""
_PIECES = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|\w+|\s+|.", re.DOTALL)


def _damage(text: str, random: Random) -> str:
    """Return a statement with some of its words lost, doubled, exchanged or cut."""
    pieces = _PIECES.findall(text)
    for _ in range(random.randint(1, 3)):
        at, other = random.randrange(len(pieces)), random.randrange(len(pieces))
        match random.choice(("lose", "double", "exchange", "cut", "quote")):
            case "lose":
                pieces[at] = ""
            case "double":
                pieces.insert(at, pieces[other])
            case "exchange":
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case "cut":
                pieces[at] = pieces[at][: len(pieces[at]) // 2]
            case "quote":
                pieces[at] = random.choice("'`\"/(;") + pieces[at]
    return "".join(pieces)


_WITH_TEXT = (
    *(CreateMaterializedTable, AlterAsQuery, AlterAdd, AlterModify, AlterRefresh, Explain),
    *(AlterSetImmutable, BeginStatementSet, CreateTableLike),
)
"""Statements with words of the user's that are kept as written."""
_WORDS = re.compile(r"('(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`)|(\w+)| ", re.DOTALL)


def _vary_word(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[1]
    return found[2].capitalize() if found[2] else "\n \t/* */ "
