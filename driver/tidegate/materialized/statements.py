"""The statements about materialized tables, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from tidegate.errors import ProgrammingError
from tidegate.lexical import quote_name, unquote_name
from tidegate.literals import literal

Cascade = Literal["UPSTREAM", "DOWNSTREAM"]
RefreshKind = Literal["FULL", "INCREMENTAL"]

_PART: Final = re.compile(r"`(?:[^`]|``)+`|[^`.\s]+")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern})){{0,2}}")


def split_name(name: str) -> list[str]:
    """Return the parts of ``[[catalog.]schema.]table``, each without its backticks.

    :raises ProgrammingError: if it is no such name.
    """
    if not _NAME.fullmatch(name):
        raise ProgrammingError(
            f"expected [[CATALOG.]SCHEMA.]TABLE, got {name!r}",
            sqlstate="42602",
            hint="Quote a part that contains dots or spaces with backticks.",
        )
    return list(map(unquote_name, _PART.findall(name)))


def quoted(name: str) -> str:
    """Return a table's name with each part in backticks.

    :raises ProgrammingError: if it is not ``[[catalog.]schema.]table``.
    """
    return joined(*split_name(name))


def joined(*parts: str) -> str:
    """Return the name that has these parts, each in backticks."""
    return ".".join(map(quote_name, parts))


def show_tables(schema: str | None = None, like: str | None = None) -> str:
    """List the tables of a schema; of the current one if none is given."""
    of = f" IN {quoted(schema)}" if schema else ""
    return f"SHOW MATERIALIZED TABLES EXTENDED{of}{f' LIKE {literal(like)}' if like else ''}"


def describe(name: str, *, as_json: bool = False) -> str:
    """Describe a table."""
    return f"DESCRIBE MATERIALIZED TABLE EXTENDED {quoted(name)}{' AS JSON' if as_json else ''}"


def show_create(name: str) -> str:
    """Show the statement that creates an equal table."""
    return f"SHOW CREATE MATERIALIZED TABLE {quoted(name)}"


def refresh(
    name: str,
    *,
    kind: RefreshKind | None = None,
    partition: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    where: str | None = None,
    cascade: Cascade | None = None,
    wait: bool = True,
) -> str:
    """Refresh a table.

    :param where: a condition in SQL; the rows that satisfy it are replaced.
    :raises ProgrammingError: for a partition together with a condition.
    """
    words = [_alter(name, "REFRESH")]
    words += [kind] if kind else []
    if partition and where is not None:
        raise ProgrammingError("a refresh has a partition or a condition, not both")
    if partition:
        pairs = partition.items() if isinstance(partition, Mapping) else partition
        values = (f"{quote_name(key)} = {literal(value)}" for key, value in pairs)
        words.append(f"PARTITION ({', '.join(values)})")
    if where is not None:
        words.append(f"WHERE {where}")
    if cascade:
        words.append(f"CASCADE {cascade}")
    words.append("SYNC" if wait else "ASYNC")
    return " ".join(words)


def suspend(name: str, *, cascade: bool = False) -> str:
    """Stop the refreshes of a table."""
    return _alter(name, "SUSPEND", cascade=cascade)


def resume(name: str, *, cascade: bool = False) -> str:
    """Continue the refreshes of a table."""
    return _alter(name, "RESUME", cascade=cascade)


def cancel_refresh(name: str) -> str:
    """Stop the refreshes of a table that run."""
    return _alter(name, "CANCEL REFRESH")


def drop(name: str, *, if_exists: bool = False) -> str:
    """Drop a table with its rows."""
    return f"DROP MATERIALIZED TABLE {'IF EXISTS ' if if_exists else ''}{quoted(name)}"


def show_history(name: str | None = None, *, limit: int | None = None, errors: bool = False) -> str:
    """List refreshes of a table, or of all tables, newest first."""
    of = f" FOR {quoted(name)}" if name else ""
    at_most = f" LIMIT {limit:d}" if limit is not None else ""
    return f"SHOW REFRESH HISTORY{of}{at_most}{' ERRORS' if errors else ''}"


def show_lineage(name: str, *, columns: bool = False) -> str:
    """List what a table reads and what reads it, perhaps by column."""
    return f"SHOW LINEAGE {quoted(name)}{' COLUMNS' if columns else ''}"


def verify(name: str, *, version: int | None = None) -> str:
    """Compare a table with its query."""
    of = f" VERSION {version:d}" if version is not None else ""
    return f"VERIFY MATERIALIZED TABLE {quoted(name)}{of}"


def show_lag() -> str:
    """List how far each table is behind its sources."""
    return "SHOW LAG"


def _alter(name: str, action: str, *, cascade: bool = False) -> str:
    return f"ALTER MATERIALIZED TABLE {quoted(name)} {action}{' CASCADE' if cascade else ''}"
