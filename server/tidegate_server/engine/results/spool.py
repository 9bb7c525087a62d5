"""The directory of results that wait to be read: whose they are, and how much room they take."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

from tidegate_server.core.errors import Code, ServerError, error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    operation_id: str
    session_id: str
    owner: str


class Spool:
    """Gives results their places and takes those back, within a quota in all and one per owner.

    An owner is a login; a quota per owner of 0 bounds nobody.
    """

    def __init__(self, directory: Path, *, quota: int, quota_per_owner: int = 0) -> None:
        self._directory = directory
        self._quota = quota
        self._quota_per_owner = quota_per_owner
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}

    def take(self, operation_id: str, session_id: str, owner: str) -> tuple[str, Path]:
        """Return the id of a new result and where to write it: nothing is there yet."""
        result_id = str(uuid.uuid4())
        place = _Place(operation_id=operation_id, session_id=session_id, owner=owner)
        with self._lock:
            self._places[result_id] = place
        return result_id, self._directory / result_id

    def give_back(self, result_id: str) -> None:
        """Delete a result; an unknown one is harmless."""
        with self._lock:
            known = self._places.pop(result_id, None)
        if known is not None:
            shutil.rmtree(self._directory / result_id, ignore_errors=True)

    def of_session(self, session_id: str) -> tuple[str, ...]:
        """Return the results of a session."""
        with self._lock:
            return tuple(r for r, place in self._places.items() if place.session_id == session_id)

    def excess(self, operation_id: str) -> ServerError | None:
        """Return why the result that an operation has written, or is writing, cannot stay."""
        with self._lock:
            places = dict(self._places)
        owners = {p.owner for p in places.values() if p.operation_id == operation_id}
        if not owners:
            return None
        if _size(self._directory) > self._quota:
            return error(Code.RESULT_TOO_LARGE, quota=self._quota)
        limit = self._quota_per_owner
        own = [self._directory / r for r, place in places.items() if place.owner in owners]
        if limit and sum(map(_size, own)) > limit:
            return error(Code.RESULTS_OF_USER_TOO_LARGE, user=", ".join(owners), quota=limit)
        return None


def _size(directory: Path) -> int:
    """Return the bytes below a directory whose files may vanish meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
