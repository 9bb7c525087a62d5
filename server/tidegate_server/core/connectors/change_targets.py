"""How the targets of jobs take the changes of a table: inserts, updates and deletes of its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from tidegate_server.core.connectors.sinks import Mark

KIND: Final = "_change_type"
"""The column of Delta's change feed that says what became of a row."""
FEED_COLUMNS: Final = (KIND, "_commit_version", "_commit_timestamp")
"""The columns that the changes of a table have besides its own."""
AFTER: Final = ("insert", "update_postimage")
"""The kinds of changes after which the row is there; the others say which row was there before.

https://docs.delta.io/latest/delta-change-data-feed.html
"""

_NAMED = re.compile(rf"\b(?:{'|'.join(FEED_COLUMNS)})\b", re.IGNORECASE)
_NAMED_KIND = re.compile(rf"\b{KIND}\b", re.IGNORECASE)


class Taking(Enum):
    """What becomes of changes in a target."""

    BY_KEY = auto()
    """The last change of each key inserts, replaces or deletes its row."""
    ADDED = auto()
    """Rows are added; anything else is an error."""
    PRINTED = auto()
    """Each change is a row, which says whether it was deleted."""
    AS_ROWS = auto()
    """Each change is a row like any other."""


class ChangeError(Exception):
    """A target cannot take changes; the message is a clause, ``hint`` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        self.hint = hint
        super().__init__(message)


def names_feed(query: str) -> bool:
    """Return whether a query names columns of the change feed."""
    return _NAMED.search(query) is not None


def taking_of(target: Mark | None, query: str) -> Taking:
    """Return how a target takes the changes that a query returns.

    :param target: what the view of a connector's table says; None for a Delta table.
    :raises ChangeError: for a table whose definition is too old to say by which key it is written.
    """
    if _NAMED_KIND.search(query) or (target is not None and target.connector == "blackhole"):
        return Taking.AS_ROWS
    if target is None:
        return Taking.ADDED
    if target.connector == "print":
        return Taking.PRINTED
    if target.connector == "upsert-kafka" and not target.key:
        raise ChangeError(
            "it was created by an earlier version, and does not say what its key is",
            "Drop it and create it again; the topic remains.",
        )
    return Taking.BY_KEY if target.key else Taking.ADDED


def how_taken(
    target: Mark | None, query: str, columns: Sequence[str]
) -> tuple[Taking, tuple[int, ...]]:
    """Return how a target takes the changes that a query returns, and where its key is in a row.

    :param target: that of :func:`taking_of`.
    :param columns: those that are written, in order.
    :raises ChangeError: if the target cannot take them.
    """
    taking = taking_of(target, query)
    if taking is not Taking.BY_KEY or target is None:
        return taking, ()
    return taking, key_places(target.key, columns)


def key_places(key: Sequence[str], columns: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of a target's key among the columns that are written.

    :raises ChangeError: if one is missing.
    """
    places = {name.lower(): place for place, name in enumerate(columns)}
    for name in key:
        if name.lower() not in places:
            raise ChangeError(
                f"rows are replaced and deleted by its key ({', '.join(key)})",
                f"Insert into the column {name}, too.",
            )
    return tuple(places[name.lower()] for name in key)
