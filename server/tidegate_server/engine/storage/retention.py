"""Recognizes errors about expired versions."""

from __future__ import annotations

from tidegate_server.engine.storage.base import VersionGoneError

_SIGNS = (
    "DELTA_VERSION",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "FILE_NOT_EXIST",
    "FileNotFoundException",
    "VersionNotFoundException",
    "Cannot find snapshot with ID",
    "org.apache.iceberg.exceptions.NotFoundException",
)
"""Parts of the errors of Spark, Delta and Iceberg for a version whose metadata or files were
removed."""


def is_gone(failure: Exception) -> bool:
    """Say whether Spark failed because a version's metadata or files were removed."""
    if isinstance(failure, VersionGoneError):
        return True
    text = str(failure)
    return any(sign in text for sign in _SIGNS)
