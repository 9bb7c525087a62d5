"""The heap of an engine where the configuration leaves it to the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

AUTOMATIC: Final = "auto"

_SHARE, _SHARE_OF_USER = 4, 16
_LEAST: Final = 2 << 30
_MOST: Final = 16 << 30
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""The files of control groups, version 2 and 1, that limit the memory of a container."""


def heap_size(configured: str, memory: int, *, of_user: bool = False) -> str:
    """Return the heap in Spark's notation.

    A quarter of the memory leaves room for direct memory, which may become as large as the heap,
    for Python's processes and for the page cache.

    :param configured: ``engine.driver_memory``.
    :param memory: that of the machine, in bytes.
    :param of_user: whether the engine is that of one user among others, which gets a sixteenth.
    """
    if configured != AUTOMATIC:
        return configured
    share = memory // (_SHARE_OF_USER if of_user else _SHARE)
    least = min(_LEAST, memory // 2)
    return f"{min(max(share, least), _MOST) >> 20}m"


def machine_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory of the machine or container.

    :param groups: where the control groups are mounted.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_read_limit(groups / name) for name in _LIMITS)
    return min([physical, *(limit for limit in limits if limit is not None)])


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
