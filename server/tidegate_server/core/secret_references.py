"""Texts of the configuration that may refer to a file or to an environment variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from tidegate_server.core.permissions import exposure

KINDS = ("file", "env")
"""The kinds of references."""


def _resolve(value: Any) -> Any:
    """Return the text that ``{ file = "…" }`` or ``{ env = "…" }`` refers to; other values as is.

    :raises ValueError: if there is none, or if other users can read the file.
    """
    if not isinstance(value, dict):
        return value
    [(kind, name), *more] = value.items() or [("", "")]
    if more or kind not in KINDS or not isinstance(name, str) or not name:
        raise ValueError('expected a text, { file = "path" } or { env = "NAME" }')
    return _variable(name) if kind == "env" else _content(Path(name))


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(f"the environment variable {name} is not set")
    return value


def _content(path: Path) -> str:
    try:
        exposed = exposure(path)
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    if exposed is not None:
        raise ValueError(exposed)
    return text.removesuffix("\n").removesuffix("\r")


Secret = Annotated[str, BeforeValidator(_resolve)]
"""A text that may be written as a reference to a file or to an environment variable."""
