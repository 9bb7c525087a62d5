"""A stream that also writes to a file, for ``!record``."""

from __future__ import annotations

from typing import TextIO


class Recorder:
    """Writes to a terminal or another stream, and to a file."""

    def __init__(self, stream: TextIO, file: TextIO) -> None:
        self.stream = stream
        self.file = file

    def write(self, text: str) -> int:
        """Write a text to both."""
        self.file.write(text)
        return self.stream.write(text)

    def flush(self) -> None:
        """Flush both."""
        self.file.flush()
        self.stream.flush()

    def isatty(self) -> bool:
        """Return whether a person reads it."""
        return self.stream.isatty()
