"""The line that shows how far a statement is; pure."""

from __future__ import annotations

import re
from typing import Final

from tidegate.operation import OperationStatus

_BAR: Final = 20
_LEVEL: Final = re.compile(r"^(INFO|WARN|ERROR)\s*: (Warning: )?")

_SAYS_NOTHING: Final = ("Compiling command(", "Executing command(", "Completed ")
"""How lines of Hive's log begin that repeat the statement."""


def progress_line(
    seconds: float, status: OperationStatus | None, note: str, width: int, *, blocks: bool = True
) -> str:
    """Return the line of a running statement, at most ``width`` characters long.

    :param seconds: since it began.
    :param status: what the server last said of it.
    :param note: the newest line of its log, for servers that count no tasks.
    :param blocks: whether the terminal has the characters of a bar.
    """
    parts = [_duration(seconds)]
    if status is not None and status.tasks is not None:
        tasks = status.tasks
        share = tasks.completed / tasks.total if tasks.total else 0.0
        parts.append(f"{_bar(share, blocks)} {share:4.0%}")
        if status.stages is not None:
            parts.append("stages {}/{}".format(*status.stages))
        running = f" ({tasks.running} running)" if tasks.running else ""
        parts.append(f"tasks {tasks.completed}/{tasks.total}{running}")
    elif (text := _LEVEL.sub("", note)) and not text.startswith(_SAYS_NOTHING):
        parts.append(text)
    line = "  ".join(parts)
    return line if len(line) <= width else line[: max(width - 1, 0)] + ("…" if blocks else "")


def _bar(share: float, blocks: bool) -> str:
    done = round(min(share, 1.0) * _BAR)
    full, empty = ("█", "░") if blocks else ("#", "-")
    return full * done + empty * (_BAR - done)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
