"""Completes keywords, commands, options, and names of tables, columns and functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tidegate.cli.commands import COMMANDS

_WORDS = """
ADD ALL ALTER ANALYZE AND ANTI AS ASC BETWEEN BY CACHE CASCADE CASE CAST COLUMN COLUMNS COMMENT
CONVERT CREATE CROSS CURRENT_DATE CURRENT_TIMESTAMP DATABASE DAY DEFINITION DELETE DESC DESCRIBE
DISTINCT DISTRIBUTED DOWNSTREAM DROP ELSE END ESCAPE EXCEPT EXECUTE EXISTS EXPLAIN EXTENDED FALSE
FILTER FIRST FORMATTED FRESHNESS FROM FULL FUNCTIONS GROUP GROUPING HAVING HISTORY HOUR IF ILIKE IN
INCREMENTAL INNER INSERT INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE LIMIT LINEAGE MATCHED
MATERIALIZED MERGE MINUTE MODIFY NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER OVERWRITE
PARTITION PARTITIONED PARTITIONS PIVOT PRIMARY KEY REFRESH REFRESH_MODE REFRESH_TRIGGER RENAME
REPLACE RESET RESUME RIGHT RLIKE ROLLBACK ROLLUP SCHEMA SCHEMAS SECOND SELECT SEMI SET SETS SHOW
SUSPEND SWAP TABLE TABLES TABLESAMPLE TBLPROPERTIES TEMPORARY THEN TO TRUE TRUNCATE UNION UPDATE USE
USING VALUES VERSION VERSIONS VIEW VIEWS WHEN WHERE WINDOW WITH CONTINUOUS CONSTRAINT ENFORCED
ASSERT DISCARD EXPECT FAIL HELD HOLD PUBLISH QUARANTINE VIOLATION WARN BACKFILL IMMUTABLE
CATALOG CATALOGS CURRENT BEGIN JOB JOBS STATEMENT STOP
"""
KEYWORDS = tuple(sorted(_WORDS.split()))
_KEYWORD_SET = frozenset(KEYWORDS)

_TABLE_FOLLOWS = r"\b(?:from|join|into|update|table|describe|desc|overwrite)\s+"
_IN_TABLE = re.compile(rf"{_TABLE_FOLLOWS}[\w.`]*$", re.IGNORECASE)
_TABLE = re.compile(rf"{_TABLE_FOLLOWS}([\w.`]+)(?:\s+(?:as\s+)?([\w`]+))?", re.IGNORECASE)
_TAKES_OPTIONS = re.compile(r"\b(?:set|reset|with)\b[^;]*$", re.IGNORECASE)
_SETS_KEY = re.compile(r"\s*(?:set|reset)\s+[\w.-]+", re.IGNORECASE)
_WORD = re.compile(r"[\w.`]*$")
_KEY = re.compile(r"[\w.-]*$")
_LITERALS = re.compile(r"'[^']*'")


class Names(Protocol):
    """The names to complete; each kind is only asked for if needed."""

    def objects(self) -> Sequence[str]:
        """Return catalogs, schemas and tables."""
        ...

    def functions(self) -> Sequence[str]: ...

    def settings(self) -> Sequence[str]: ...

    def columns(self, table: str) -> Sequence[str]: ...


class ShellCompleter(Completer):
    """Offers completions of the word before the cursor."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the completions of the word before the cursor."""
        before = document.text_before_cursor
        line = before.lstrip()
        if line.startswith(("!", "\\")):
            if " " in line:
                yield from _matching(_last(_WORD, before), self._names.objects())
            else:
                yield from _matching(line[1:], COMMANDS)
        elif "'" in _LITERALS.sub("", before):
            if _TAKES_OPTIONS.search(before):
                yield from self._keys(_last(_KEY, before), document)
        elif _SETS_KEY.fullmatch(before):
            yield from _matching(_last(_KEY, before), self._names.settings())
        elif word := _last(_WORD, before):
            yield from self._words(word, before, document.text)

    def _keys(self, begun: str, document: Document) -> Iterator[Completion]:
        """Yield the options that can be the literal before the cursor, with its closing quote."""
        end = "" if document.text_after_cursor.startswith("'") else "'"
        for key in _matching(begun, self._names.settings()):
            yield Completion(key.text + end, key.start_position, display=key.text)

    def _words(self, word: str, before: str, text: str) -> Iterator[Completion]:
        qualifier, dot, begun = word.rpartition(".")
        tables = _tables_in(text)
        if dot:
            named = tables.get(_folded(qualifier))
            yield from _matching(begun, () if named is None else self._names.columns(named))
            yield from _matching(word, self._names.objects())
            return
        is_table = _IN_TABLE.search(before) is not None
        if not is_table:
            for table in dict.fromkeys(tables.values()):
                yield from _matching(word, self._names.columns(table))
        yield from _matching(word, KEYWORDS, upper=not word.islower())
        yield from _matching(word, self._names.objects())
        if not is_table:
            yield from _matching(word, self._names.functions())


def _tables_in(text: str) -> dict[str, str]:
    """Return the tables that a statement names, by their aliases and their names."""
    found: dict[str, str] = {}
    for table, alias in _TABLE.findall(text):
        name = table.replace("`", "")
        found.setdefault(_folded(name.rpartition(".")[2]), name)
        found.setdefault(_folded(name), name)
        if alias and alias.upper() not in _KEYWORD_SET:
            found[_folded(alias)] = name
    return found


def _folded(name: str) -> str:
    return name.replace("`", "").lower()


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[0] if found else ""


def _matching(
    begun: str, candidates: Iterable[str], *, upper: bool | None = None
) -> Iterator[Completion]:
    for candidate in candidates:
        if candidate.lower().startswith(_folded(begun)):
            text = candidate
            if upper is not None:
                text = candidate.upper() if upper else candidate.lower()
            yield Completion(text, start_position=-len(begun))
