"""A file of lines that is rotated by size."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tidegate_server.core.permissions import private_opener, restrict

_BLOCK = 1 << 20


class RotatedFile:
    """Appends whole lines; not thread-safe.

    When the file is full it is renamed to ``NAME.1``, an earlier one to ``NAME.2``, and so on; the
    oldest is deleted.
    """

    def __init__(self, path: Path, *, max_bytes: int, max_files: int) -> None:
        """Take the limits of the size of a file, and of the number of files."""
        self.path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._handle: int | None = None

    def open(self) -> None:
        """Open the file for appending, private to the server's user.

        :raises OSError: if it cannot be opened.
        """
        # The server's umask may let a group read.
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        restrict(self.path)
        handle = private_opener(str(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._handle = handle
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            self._write(b"\n")  # after a line that a crash of the machine cut off

    def append(self, line: bytes) -> None:
        """Append a line, of which nothing remains in the file if this fails.

        :raises OSError: if it cannot be written.
        """
        if self._handle is not None:
            found = os.fstat(self._handle)
            if found.st_nlink == 0:
                self.close()  # it was deleted
            elif found.st_size and found.st_size + len(line) > self._max_bytes:
                self._rotate()
        if self._handle is None:
            self.open()
        self._write(line)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def newest_lines(self, stack: ExitStack) -> Iterator[bytes]:
        """Return all lines, the newest first, without their ends.

        :param stack: keeps open what is read; lines may be written meanwhile.
        :raises OSError: if a file cannot be opened.
        """
        opened = [
            stack.enter_context(path.open("rb")).fileno() for path in self._paths() if path.exists()
        ]
        sizes = [(handle, os.fstat(handle).st_size) for handle in opened]
        return (line for handle, size in sizes for line in _lines_backward(handle, size))

    def _write(self, line: bytes) -> None:
        assert self._handle is not None
        size = os.fstat(self._handle).st_size
        written = os.write(self._handle, line)
        if written < len(line):
            os.ftruncate(self._handle, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def _rotate(self) -> None:
        self.close()
        paths = self._paths()
        for older, newer in zip(paths[:0:-1], paths[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)

    def _paths(self) -> list[Path]:
        """Return the paths of all files, the newest first."""
        rotated = (
            self.path.with_name(f"{self.path.name}.{number}")
            for number in range(1, self._max_files)
        )
        return [self.path, *rotated]


def _lines_backward(handle: int, size: int) -> Iterator[bytes]:
    """Yield the lines within the first ``size`` bytes of a file, the last one first."""
    begun = b""
    while size > 0:
        start = max(0, size - _BLOCK)
        begun, *lines = (os.pread(handle, size - start, start) + begun).split(b"\n")
        yield from (line for line in reversed(lines) if line)
        size = start
    if begun:
        yield begun
