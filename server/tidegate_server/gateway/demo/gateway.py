"""A connection to the gateway that survives restarts and network failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import resources
from string import Template
from typing import Any

import tidegate
from tidegate.cli.split import split

Say = Callable[[str], None]
Rows = list[tuple[Any, ...]]

_RETRIABLE_CLASSES = ("08", "40")
_PAUSES = (1.0, 2.0, 5.0)


class Gateway:
    """Runs statements, and retries them if the connection or the engine fails.

    Every statement must therefore be idempotent.
    """

    def __init__(
        self,
        connect: Callable[[], tidegate.Connection],
        *,
        say: Say,
        patience: float = 600.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``patience`` is the longest wait per statement in seconds."""
        self._connect = connect
        self._say = say
        self._patience = patience
        self._sleep = sleep
        self._connection: tidegate.Connection | None = None

    def run(self, sql: str) -> Rows:
        """Run one statement and return its rows, if any.

        :raises tidegate.Error: if it fails for a reason that a retry does not cure, or the patience
            is exhausted.
        """
        waited = 0.0
        attempt = 0
        while True:
            try:
                return self._try(sql)
            except tidegate.Error as error:
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if not retriable(error) or waited + pause > self._patience:
                    raise
                if attempt == 0:
                    self._say(f"waiting: {first_line(error)}")
            self.close()
            self._sleep(pause)
            waited += pause
            attempt += 1

    def run_script(self, name: str, **facts: str) -> None:
        """Run every statement of one of the demo's SQL files, with ``$facts`` substituted."""
        for statement in statements(name, **facts):
            self.run(statement)

    def close(self) -> None:
        """Close the connection; the next statement opens another."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except tidegate.Error as error:
            self._say(f"the old connection was already gone: {first_line(error)}")

    def _try(self, sql: str) -> Rows:
        if self._connection is None:
            self._connection = self._connect()
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [] if cursor.description is None else cursor.fetchall()


def statements(name: str, **facts: str) -> list[str]:
    """Return the statements of ``sql/<name>.sql``, with ``$facts`` substituted.

    :raises KeyError: if the file uses a fact that is missing.
    """
    text = resources.files(__package__).joinpath("sql", f"{name}.sql").read_text("utf-8")
    return [part.sql for part in split(Template(text).substitute(facts)) if part.sql]


def retriable(error: tidegate.Error) -> bool:
    """Return whether the same statement may succeed a little later."""
    return (getattr(error, "sqlstate", None) or "")[:2] in _RETRIABLE_CLASSES


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return str(error).partition("\n")[0]
