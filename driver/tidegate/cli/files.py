"""Reads scripts from files and standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

STDIN: Final = "-"
"""The file name that means standard input."""


class UnreadableFileError(Exception):
    """A script cannot be read; the message names it."""


def read_script(name: str) -> str:
    """Return the text of a file, which may begin with a mark of its byte order.

    :raises UnreadableFileError: if there is no such file, or not of text in UTF-8.
    """
    try:
        if name == STDIN:
            return sys.stdin.read()
        return Path(name).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        shown = "standard input" if name == STDIN else name
        raise UnreadableFileError(
            f"{shown} is not text in UTF-8: byte {error.object[error.start]:#04x} at position "
            f"{error.start}"
        ) from error
