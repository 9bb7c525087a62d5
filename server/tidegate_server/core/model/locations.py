"""Compares locations of files; pure."""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

_KEPT = 10_000
"""Parsed locations that are kept: those of every table are compared with each statement's."""


def overlap(location: str, other: str) -> bool:
    """Return whether two locations are equal, or one contains the other."""
    one, two = _path(location), _path(other)
    return bool(other) and (one.is_relative_to(two) or two.is_relative_to(one))


@lru_cache(_KEPT)
def _path(location: str) -> PurePosixPath:
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return PurePosixPath(unquote(parts.path) if parts.scheme else location)
    return PurePosixPath(f"/{parts.scheme}:/{parts.netloc}{parts.path}")
