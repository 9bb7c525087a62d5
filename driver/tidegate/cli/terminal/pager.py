"""Hands long or wide results to a pager, as psql does."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO, cast

from tidegate.cli.terminal.record import Recorder

_VARIABLES: Final = ("TIDEGATE_PAGER", "PAGER")
_DEFAULTS: Final = ("less", "more")
_LESS: Final = "-FRSX"
"""Options of less, unless the environment has others: lines are not folded, and text remains."""
_BESIDE: Final = 2
"""Lines of the screen for the number of rows and the prompt."""


class PagerClosedError(Exception):
    """The user left the pager before the end of the result."""


def find_pager(environment: Mapping[str, str]) -> str:
    """Return the command of the pager; empty if there is none, or none is wanted."""
    for name in _VARIABLES:
        if name in environment:
            command = environment[name].strip()
            return command if _exists(command) else ""
    return next(filter(_exists, _DEFAULTS), "")


def _exists(command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return bool(words) and words[0] != "cat" and shutil.which(words[0]) is not None


@contextmanager
def paged(out: TextIO, command: str) -> Iterator[TextIO]:
    """Yield a stream whose text goes to a pager if it does not fit on the terminal ``out``.

    The block ends when the user has left the pager.

    :param command: of the pager; empty for none.
    :raises PagerClosedError: if that was before the end of the text.
    """
    if not command or not out.isatty():
        yield out
        return
    terminal = out.stream if isinstance(out, Recorder) else out
    pages = _Pages(terminal, command, shutil.get_terminal_size())
    stream = Recorder(cast("TextIO", pages), out.file) if isinstance(out, Recorder) else pages
    try:
        yield cast("TextIO", stream)
    finally:
        pages.close()


class _Pages:
    """Holds text back until it fills the screen; then a pager gets it, and all that follows."""

    def __init__(self, out: TextIO, command: str, size: os.terminal_size) -> None:
        self._out = out
        self._command = command
        self._size = size
        self._held: list[str] = []
        self._lines = 0
        self._pager: subprocess.Popen[str] | None = None

    def write(self, text: str) -> int:
        """Write a text; raises PagerClosedError."""
        if self._pager is None:
            self._held.append(text)
            self._lines += text.count("\n")
            if self._fits(text):
                return len(text)
            self._begin()
            text = "".join(self._held)
        self._pipe(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: whether the text fits is known at its end."""

    def isatty(self) -> bool:
        """Return True: a person reads it."""
        return True

    def close(self) -> None:
        """Write what fits on the screen, or wait until the user leaves the pager."""
        if self._pager is None:
            self._out.write("".join(self._held))
            self._out.flush()
            return
        with contextlib.suppress(BrokenPipeError):
            if self._pager.stdin is not None:
                self._pager.stdin.close()
        while True:
            # Ctrl-C is for the pager, which otherwise would go on beside the prompt.
            with contextlib.suppress(KeyboardInterrupt):
                self._pager.wait()
                return

    def _fits(self, text: str) -> bool:
        if self._lines > self._size.lines - _BESIDE:
            return False
        return all(len(line) <= self._size.columns for line in text.split("\n"))

    def _begin(self) -> None:
        self._out.flush()
        self._pager = subprocess.Popen(
            self._command,
            shell=True,  # the user's own command, as in every program with a pager
            stdin=subprocess.PIPE,
            text=True,
            encoding=self._out.encoding,
            errors="replace",
            env={"LESS": _LESS, **os.environ},
        )

    def _pipe(self, text: str) -> None:
        if self._pager is None or self._pager.stdin is None:
            raise AssertionError("the pager was started")
        try:
            self._pager.stdin.write(text)
            self._pager.stdin.flush()
        except BrokenPipeError as error:
            raise PagerClosedError from error
