"""The words that may stand at a place in a statement; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

_WORD: Final = re.compile(r"[\w.`]*$")
_STARTS: Final = (
    *("ALTER MATERIALIZED TABLE", "ALTER TABLE", "BEGIN STATEMENT SET", "CREATE CATALOG"),
    *("CREATE DATABASE", "CREATE FUNCTION", "CREATE MATERIALIZED TABLE", "CREATE TABLE"),
    *("CREATE VIEW", "DELETE FROM", "DESCRIBE", "DROP CATALOG", "DROP DATABASE", "DROP FUNCTION"),
    *("DROP MATERIALIZED TABLE", "DROP TABLE", "DROP VIEW", "EXPLAIN", "INSERT INTO"),
    *("INSERT OVERWRITE", "MERGE INTO", "RESET", "SELECT", "SET", "SHOW CATALOGS"),
    *("SHOW CREATE MATERIALIZED TABLE", "SHOW CREATE TABLE", "SHOW CURRENT CATALOG"),
    *("SHOW CURRENT DATABASE", "SHOW DATABASES", "SHOW FUNCTIONS", "SHOW JOBS", "SHOW LAG"),
    *("SHOW MATERIALIZED TABLES", "SHOW REFRESH HISTORY", "SHOW TABLES", "SHOW VIEWS"),
    *("STOP JOB", "UPDATE", "USE", "USE CATALOG", "VALUES", "VERIFY MATERIALIZED TABLE", "WITH"),
)
_WITHIN: Final = (
    *("AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "CROSS JOIN", "DESC", "DISTINCT"),
    *("ELSE", "END", "EXCEPT", "EXISTS", "FALSE", "FRESHNESS", "FROM", "FULL JOIN", "GROUP BY"),
    *("HAVING", "IN", "INNER JOIN", "INTERSECT", "INTERVAL", "IS", "JOIN", "LATERAL", "LEFT JOIN"),
    *("LIKE", "LIMIT", "NOT", "NULL", "ON", "OR", "ORDER BY", "OVER", "PARTITION BY"),
    *("PARTITIONED BY", "REFRESH", "REFRESH_MODE", "RESUME", "RIGHT JOIN", "SELECT", "SUSPEND"),
    *("THEN", "TRUE", "UNION", "UNION ALL", "USING", "VALUES", "WHEN", "WHERE", "WITH"),
)
_TABLES_FOLLOW: Final = frozenset(
    {"FROM", "JOIN", "INTO", "TABLE", "VIEW", "DESCRIBE", "DESC", "UPDATE", "OVERWRITE"}
)


class Names(Protocol):
    """The names that a user may see; each is only asked for if needed."""

    def catalogs(self) -> Iterable[str]: ...

    def schemas(self) -> Iterable[str]: ...

    def tables(self) -> Iterable[str]:
        """Return the tables of the current schema by their name, others with their schema."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """What stands before a position."""

    before: tuple[str, ...]
    """The words, in upper case."""
    begun: str
    """The beginning of the word that is to be completed."""


def candidates(statement: str, position: int, names: Names) -> tuple[str, ...]:
    """Return the words that can replace the one that ends at a position, in order.

    :param position: how many characters precede it; too many mean the end.
    """
    place = _place(statement[: max(position, 0)])
    found = _matching(_source(place, names)(), place.begun)
    return tuple(dict.fromkeys(found))


def _place(text: str) -> _Place:
    begun = _WORD.search(text)
    start = begun.start() if begun else len(text)
    return _Place(tuple(text[:start].upper().split()), text[start:])


def _source(place: _Place, names: Names) -> Callable[[], Iterable[str]]:
    match place.before:
        case ():
            return lambda: _STARTS
        case (*_, "USE" | "DROP" | "DESCRIBE" | "SHOW", "CATALOG"):
            return names.catalogs
        case (*_, "USE") | (*_, "DATABASE" | "SCHEMA"):
            return names.schemas
        case (*_, last) if last in _TABLES_FOLLOW:
            return names.tables
    started = " ".join(place.before)
    rest = [each.removeprefix(f"{started} ") for each in _STARTS if each.startswith(f"{started} ")]
    return lambda: (*rest, *_WITHIN)


def _matching(words: Iterable[str], begun: str) -> list[str]:
    folded = begun.replace("`", "").lower()
    return sorted(word for word in words if word.lower().startswith(folded))
