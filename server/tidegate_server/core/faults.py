"""Places at which a test can pause a process, to kill or stop it there.

Nothing happens unless ``TIDEGATE_FAULTS`` names a folder and a test has put a file there.
"""

from __future__ import annotations

import os
import time
from enum import Enum
from pathlib import Path

VARIABLE = "TIDEGATE_FAULTS"
_PAUSE = 0.01


class Point(Enum):
    """A place; a refresh passes the first seven in this order.

    The others belong to SWAP WITH, ROLLBACK TO VERSION ... BOTH, CREATE, DROP, RENAME and CONVERT
    TO TABLE: before and after the change of the storage.
    """

    BEFORE_LEASE = "before-lease"
    AFTER_LEASE = "after-lease"
    AFTER_VERSIONS = "after-versions"
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"
    BEFORE_STORE = "before-store"
    AFTER_STORE = "after-store"
    BETWEEN_PLACES = "between-places"
    BETWEEN_HALVES = "between-halves"
    BEFORE_STORAGE = "before-storage"
    AFTER_STORAGE = "after-storage"
    BEFORE_REMOVAL = "before-removal"
    BEFORE_FILES = "before-files"
    AFTER_REMOVAL = "after-removal"
    BEFORE_RENAME = "before-rename"
    AFTER_RENAME = "after-rename"
    BEFORE_RELEASE = "before-release"
    AFTER_RELEASE = "after-release"


def pause_at(point: Point) -> None:
    """Wait here if a test armed this point, until it releases it; once per arming."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    held = Path(folder) / f"{point.value}.held"
    try:
        (Path(folder) / f"{point.value}.armed").rename(held)
    except FileNotFoundError:
        return
    while held.exists():
        time.sleep(_PAUSE)
