"""Recognizes errors about expired versions."""

from __future__ import annotations

_SIGNS = (
    "DELTA_VERSION",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "FILE_NOT_EXIST",
    "FileNotFoundException",
    "VersionNotFoundException",
)
"""Parts of the errors of Spark and Delta for a version whose log or files were removed."""


def is_gone(failure: Exception) -> bool:
    """Say whether Spark failed because a version's log or files were removed."""
    text = str(failure)
    return any(sign in text for sign in _SIGNS)
