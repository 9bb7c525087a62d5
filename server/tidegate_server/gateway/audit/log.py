"""Writes the audit log, and reads it back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa

from tidegate_server.core.config_sections import AuditSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clock import Clock, SystemClock
from tidegate_server.gateway.audit.file import RotatedFile
from tidegate_server.gateway.audit.record import Record, line_of
from tidegate_server.gateway.audit.rows import rows_of

logger = logging.getLogger(__name__)


class AuditLog:
    """The audit log of one gateway; thread-safe. Without a file, nothing is recorded."""

    def __init__(
        self,
        file: RotatedFile | None = None,
        *,
        server_id: str = "",
        required: bool = False,
        clock: Clock | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the file and who writes it.

        :param required: whether work is refused while it cannot be recorded.
        :param lost: called for each line that could not be written.
        """
        self._file = file
        self._server_id = server_id
        self._required = required
        self._clock = clock or SystemClock()
        self._lost = lost
        self._lock = threading.Lock()
        self._failure: OSError | None = None
        """Why the last line could not be written."""

    def open(self) -> None:
        """Open the file.

        :raises ServerError: AUDIT_UNAVAILABLE.
        """
        if self._file is None:
            return
        try:
            self._file.open()
        except OSError as problem:
            reason = f"{self._file.path}: {problem.strerror}"
            raise error(Code.AUDIT_UNAVAILABLE, reason=reason) from problem

    def close(self) -> None:
        """Close the file; work that ends later still is recorded."""
        if self._file is not None:
            with self._lock:
                self._file.close()

    @contextmanager
    def recording(self, record: Record) -> Iterator[None]:
        """Write a record when the block ends, with its outcome and duration.

        :raises ServerError: AUDIT_UNAVAILABLE before the block, if recording is required and the
            last record could not be written.
        """
        if self._file is None:
            yield
            return
        begun = time.perf_counter()
        try:
            if self._required and self._failure is not None:
                raise _unavailable(self._failure)
            yield
        except ServerError as problem:
            record.failure = problem
            raise
        except BaseException as problem:
            record.failure = error(Code.INTERNAL, reason=type(problem).__name__)
            raise
        finally:
            self.write(record, time.perf_counter() - begun)

    def require_written(self, record: Record) -> None:
        """Require that a record is in the file, if recording is required.

        :raises ServerError: AUDIT_UNAVAILABLE.
        """
        failure = self._failure
        if self._file is not None and self._required and not record.is_written:
            raise _unavailable(failure)

    def write(self, record: Record, seconds: float | None = None) -> None:
        """Write a record of work that has ended, and took so many seconds."""
        if self._file is None:
            return
        line = line_of(record, server_id=self._server_id, now=self._clock.now(), seconds=seconds)
        encoded = msgspec.json.encode(line) + b"\n"
        with self._lock:
            try:
                self._file.append(encoded)
            except OSError as problem:
                if self._failure is None:
                    logger.error("The audit log cannot be written: %s", problem)
                self._failure = problem
            else:
                if self._failure is not None:
                    logger.warning("The audit log is written again")
                self._failure, record.is_written = None, True
        if not record.is_written:
            self._lost()

    def newest_rows(self) -> pa.Table:
        """Return the newest lines as a table.

        :raises OSError: if a file cannot be read.
        """
        with ExitStack() as stack:
            lines: Iterator[bytes] = iter(())
            if self._file is not None:
                with self._lock:  # no file is renamed meanwhile
                    lines = self._file.newest_lines(stack)
            table, unreadable = rows_of(lines)
        if unreadable:
            logger.warning("%d lines of the audit log are damaged", unreadable)
        return table


def build_audit_log(
    settings: AuditSection,
    directory: Path,
    *,
    default: bool,
    server_id: str,
    clock: Clock,
    lost: Callable[[], None],
) -> AuditLog:
    """Return the audit log that the configuration asks for.

    :param directory: where its file is unless the configuration names another.
    :param default: whether there is one if the configuration does not decide it.
    """
    enabled = default if settings.enabled == "auto" else settings.enabled
    file = RotatedFile(
        Path(settings.file) if settings.file else directory / "audit.jsonl",
        max_bytes=settings.file_bytes,
        max_files=settings.files,
    )
    return AuditLog(
        file if enabled else None,
        server_id=server_id,
        required=settings.required,
        clock=clock,
        lost=lost,
    )


def _unavailable(problem: OSError | None) -> ServerError:
    reason = "it was not written" if problem is None else problem.strerror or str(problem)
    return error(Code.AUDIT_UNAVAILABLE, reason=reason)
