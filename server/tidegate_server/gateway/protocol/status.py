"""Conversion of exceptions and operation states to Thrift."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tidegate.wire.service import ttypes
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.states import OperationState

# Error codes are names here, so the vendor's number only means that there was an error.
ERROR_NUMBER: Final = 1
_DETAIL_LIMIT: Final = 16_000

_STATES = {
    OperationState.INITIALIZED: ttypes.TOperationState.INITIALIZED_STATE,
    # Superset treats PENDING as an end, so a queued operation is shown as INITIALIZED.
    OperationState.PENDING: ttypes.TOperationState.INITIALIZED_STATE,
    OperationState.RUNNING: ttypes.TOperationState.RUNNING_STATE,
    OperationState.FINISHED: ttypes.TOperationState.FINISHED_STATE,
    OperationState.CANCELED: ttypes.TOperationState.CANCELED_STATE,
    OperationState.CLOSED: ttypes.TOperationState.CLOSED_STATE,
    OperationState.ERROR: ttypes.TOperationState.ERROR_STATE,
    OperationState.TIMEDOUT: ttypes.TOperationState.TIMEDOUT_STATE,
}
_QUOTED: Final = re.compile(r"`([^`]+)`")
_BAD_HANDLES = frozenset({Code.INVALID_SESSION_HANDLE.name, Code.INVALID_OPERATION_HANDLE.name})


def success(messages: Sequence[str] = ()) -> Any:
    """Return the TStatus of a successful call, with a statement's warnings and notes.

    The code is SUCCESS even with messages: PyHive, and Hive's JDBC driver in most of its calls,
    treat SUCCESS_WITH_INFO as an error.
    """
    code = ttypes.TStatusCode.SUCCESS_STATUS
    return ttypes.TStatus(statusCode=code, infoMessages=list(messages) or None)


def still_executing() -> Any:
    """Return the TStatus of a call whose result is not available yet."""
    return ttypes.TStatus(statusCode=ttypes.TStatusCode.STILL_EXECUTING_STATUS)


def failure(error: ServerError) -> Any:
    """Return the TStatus of an error.

    The details follow in Hive's format: a ``*class:message:frames:unique frames`` entry, from which
    Hive's JDBC driver rebuilds a cause, then human-readable lines.
    """
    bad_handle = error.code in _BAD_HANDLES
    codes = ttypes.TStatusCode
    lines = error.detail[:_DETAIL_LIMIT].splitlines()
    return ttypes.TStatus(
        statusCode=codes.INVALID_HANDLE_STATUS if bad_handle else codes.ERROR_STATUS,
        infoMessages=[
            f"*java.sql.SQLException:{error}:0:-1",
            *_hive_messages(error),
            # Hive's JDBC driver treats a line that begins with a star as an exception.
            *(f" {line}" if line.startswith("*") else line for line in lines),
        ],
        sqlState=error.sqlstate,
        errorCode=ERROR_NUMBER,
        errorMessage=_quotable(summary(error), error.sqlstate),
    )


def _hive_messages(error: ServerError) -> list[str]:
    """Return the message of Hive by which PyHive's dialect recognizes a missing table."""
    if error.code != "TABLE_OR_VIEW_NOT_FOUND":
        return []
    # That dialect looks for the unquoted name.
    parts = _QUOTED.findall(error.message.partition("cannot be found")[0])
    return [f"SemanticException: Table not found {'.'.join(parts)}"] if parts else []


def _quotable(text: str, sqlstate: str) -> str:
    """Return a text that Python's ``repr`` puts between double quotes.

    Superset searches the text of PyHive's exception, which is the ``repr`` of the response, for the
    message after ``errorMessage="``, and shows the whole response if it does not find one.
    """
    text = text.replace('"', "'")
    if "'" not in text:
        text = text.replace("`", "'")
    return text if "'" in text else f"{text} (SQLSTATE '{sqlstate}')"


def summary(error: ServerError) -> str:
    """Return the text that clients show: the whole message, and the hint on a separate line."""
    headline = error.headline
    return f"{headline}\nHint: {error.hint}" if error.hint else headline


def wire_state(state: OperationState) -> int:
    """Return the TOperationState to show."""
    return int(_STATES[state])
