"""The lock of a gateway on its data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class DataDirectoryTakenError(Exception):
    """Another gateway uses the data directory; the message names its process."""


class DataDirectoryLock:
    """A context manager that locks ``<data>/gateway.lock``; the system releases it on exit.

    The embedded metastore and the warehouse allow only one engine, and thus only one gateway.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._file = -1

    def __enter__(self) -> DataDirectoryLock:
        """Acquire the lock.

        :raises DataDirectoryTakenError: if another live process holds it.
        :raises OSError: if the directory cannot be written.
        """
        path = self._data / "gateway.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise DataDirectoryTakenError(
                f"The data directory {self._data} is in use by the gateway with process id {owner}:"
                " stop that one or choose another --data."
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._file = handle
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1
