"""Formats and destinations of log lines."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

from tidegate_server.core.config_sections import LoggingSection
from tidegate_server.core.log_context import current_log_context
from tidegate_server.core.permissions import private_opener
from tidegate_server.core.sql.redact import without

LOG_FILE = "gateway.log"

_LOG_BYTES = 32 << 20
_LOGS_KEPT = 5


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            **current_log_context().fields(),
            "message": _redacted(record.getMessage()),
        }
        if record.exc_info:
            line["trace"] = _redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """Formats a log record as human-readable text; only a trace takes further lines."""

    def format(self, record: logging.LogRecord) -> str:
        ids = " ".join(f"{name}={value}" for name, value in current_log_context().fields().items())
        # Text from users must not be able to forge another record.
        message = _redacted(record.getMessage()).replace("\r", "\\r").replace("\n", "\\n")
        head = f"{_moment(record)} {record.levelname} {record.name}"
        line = f"{head} [{ids}] {message}" if ids else f"{head} {message}"
        if not record.exc_info:
            return line
        return f"{line}\n{_redacted(self.formatException(record.exc_info))}"


class PrivateLogFile(logging.handlers.RotatingFileHandler):
    """A rotated log file that only its owner can read."""

    def _open(self) -> TextIOWrapper:
        handle = private_opener(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        binary = os.fdopen(handle, "ab")
        return TextIOWrapper(binary, encoding=self.encoding, errors=self.errors)

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 (overrides)
        """Return whether the file is full; its last line may pass the limit.

        The inherited method formats every line a second time to know its length.
        """
        self.stream = self.stream or self._open()
        return os.fstat(self.stream.fileno()).st_size >= self.maxBytes


def formatter(settings: LoggingSection) -> logging.Formatter:
    """Return the formatter that the configuration asks for."""
    return JsonLines() if settings.format == "json" else TextLines()


@contextmanager
def logging_to(folder: Path, settings: LoggingSection) -> Iterator[None]:
    """Write log records to a rotated file of ``folder`` until the block ends.

    With ``logging.console`` the same lines also go to standard error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        PrivateLogFile(
            folder / LOG_FILE, maxBytes=_LOG_BYTES, backupCount=_LOGS_KEPT, encoding="utf-8"
        )
    ]
    if settings.console:
        handlers.append(logging.StreamHandler(sys.stderr))
    root = logging.getLogger()
    level = root.level
    root.setLevel(settings.level)
    for handler in handlers:
        handler.setFormatter(formatter(settings))
        root.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


def _redacted(text: str) -> str:
    """Return a text as it may be logged; whoever logs a statement redacts it, too."""
    return without(current_log_context().secrets, text)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
