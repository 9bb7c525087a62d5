"""The directory of unread results: who owns them and how much space they take."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate_server.core.errors import Code, ServerError, error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allocation:
    operation_id: str
    session_id: str
    owner: str


class Spool:
    """Allocates and releases directories for results, within a total quota and one per owner.

    An owner is a login; a quota per owner of 0 means no limit.
    """

    def __init__(
        self,
        directory: Path,
        *,
        quota: int,
        quota_per_owner: int = 0,
        elsewhere: Callable[[], int] = lambda: 0,
    ) -> None:
        """Take the limits, in bytes; ``elsewhere`` returns what is written in other places."""
        self._directory = directory
        self._elsewhere = elsewhere
        self._quota = quota
        self._quota_per_owner = quota_per_owner
        self._lock = threading.Lock()
        self._places: dict[str, _Allocation] = {}

    def allocate(self, operation_id: str, session_id: str, owner: str) -> tuple[str, Path]:
        """Return the id of a new result and its directory, which does not exist yet."""
        result_id = str(uuid.uuid4())
        place = _Allocation(operation_id=operation_id, session_id=session_id, owner=owner)
        with self._lock:
            self._places[result_id] = place
        return result_id, self._directory / result_id

    def release(self, result_id: str) -> None:
        """Delete a result; an unknown one is harmless."""
        with self._lock:
            known = self._places.pop(result_id, None)
        if known is not None:
            shutil.rmtree(self._directory / result_id, ignore_errors=True)

    def results_of_session(self, session_id: str) -> tuple[str, ...]:
        """Return the results of a session."""
        with self._lock:
            return tuple(r for r, place in self._places.items() if place.session_id == session_id)

    def quota_error(self, operation_id: str) -> ServerError | None:
        """Return the error of an operation whose result exceeds a quota, or None."""
        with self._lock:
            places = dict(self._places)
        owners = {p.owner for p in places.values() if p.operation_id == operation_id}
        if not owners:
            return None
        if _directory_bytes(self._directory) + self._elsewhere() > self._quota:
            return error(Code.RESULT_TOO_LARGE, quota=self._quota)
        limit = self._quota_per_owner
        own = [self._directory / r for r, place in places.items() if place.owner in owners]
        if limit and sum(map(_directory_bytes, own)) > limit:
            return error(Code.RESULTS_OF_USER_TOO_LARGE, user=", ".join(owners), quota=limit)
        return None


def _directory_bytes(directory: Path) -> int:
    """Return the bytes below a directory; files may be deleted meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
