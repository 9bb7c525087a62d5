"""Completes keywords, commands, table names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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

LoadNames = Callable[[], Iterable[str]]


class ShellCompleter(Completer):
    """Offers completions of the word before the cursor; loads table names on first use."""

    def __init__(self, load_names: LoadNames) -> None:
        self._load_names = load_names
        self._names: tuple[str, ...] | None = None

    def forget(self) -> None:
        """Reload table names next time, because a statement may have changed them."""
        self._names = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the completions of the word before the cursor."""
        line = document.text_before_cursor.lstrip()
        if line.startswith(("!", "\\")) and " " not in line:
            yield from _matching(line[1:], COMMANDS, upper=False)
            return
        word = document.get_word_before_cursor(WORD=True).rpartition(",")[2].rpartition("(")[2]
        if not word:
            return
        if not line.startswith(("!", "\\")):
            yield from _matching(word, KEYWORDS, upper=not word.islower())
        if self._names is None:
            self._names = tuple(self._load_names())
        yield from _matching(word, self._names, upper=None)


def _matching(word: str, candidates: Iterable[str], *, upper: bool | None) -> Iterator[Completion]:
    for candidate in candidates:
        if candidate.lower().startswith(word.lower()):
            text = candidate
            if upper is not None:
                text = candidate.upper() if upper else candidate.lower()
            yield Completion(text, start_position=-len(word))
