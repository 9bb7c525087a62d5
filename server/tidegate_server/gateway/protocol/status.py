"""Exceptions and operation states as Thrift says them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tidegate.wire.service import ttypes
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.states import OperationState

# Codes are names here, so the vendor's number says only that there was an error.
ERROR_NUMBER: Final = 1
_DETAIL_LIMIT: Final = 16_000

_STATES = {
    OperationState.INITIALIZED: ttypes.TOperationState.INITIALIZED_STATE,
    # Superset takes PENDING for an end, so a queued operation shows as INITIALIZED.
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
    """Return the TStatus of a call that went well, with a statement's warnings and notes.

    The code is SUCCESS even with messages: PyHive, and Hive's JDBC driver in most of its calls,
    take SUCCESS_WITH_INFO for an error.
    """
    code = ttypes.TStatusCode.SUCCESS_STATUS
    return ttypes.TStatus(statusCode=code, infoMessages=list(messages) or None)


def still_executing() -> Any:
    """Return the TStatus of a call whose answer is not there yet."""
    return ttypes.TStatus(statusCode=ttypes.TStatusCode.STILL_EXECUTING_STATUS)


def failed(problem: ServerError) -> Any:
    """Return the TStatus of an error.

    The details follow in Hive's form: a ``*class:message:frames:unique frames`` entry that Hive's
    JDBC driver rebuilds a cause from, then lines for people.
    """
    bad_handle = problem.code in _BAD_HANDLES
    codes = ttypes.TStatusCode
    lines = problem.detail[:_DETAIL_LIMIT].splitlines()
    return ttypes.TStatus(
        statusCode=codes.INVALID_HANDLE_STATUS if bad_handle else codes.ERROR_STATUS,
        infoMessages=[
            f"*java.sql.SQLException:{problem}:0:-1",
            *_in_hives_words(problem),
            # A line that begins with a star is an exception, to Hive's JDBC driver.
            *(f" {line}" if line.startswith("*") else line for line in lines),
        ],
        sqlState=problem.sqlstate,
        errorCode=ERROR_NUMBER,
        errorMessage=_quotable(summary(problem), problem.sqlstate),
    )


def _in_hives_words(problem: ServerError) -> list[str]:
    """Return the sentence of Hive's by which PyHive's dialect knows that a table is missing."""
    if problem.code != "TABLE_OR_VIEW_NOT_FOUND":
        return []
    # An unquoted name is what that dialect asked for.
    parts = _QUOTED.findall(problem.message.partition("cannot be found")[0])
    return [f"SemanticException: Table not found {'.'.join(parts)}"] if parts else []


def _quotable(text: str, sqlstate: str) -> str:
    """Return a text that Python's ``repr`` puts between double quotes.

    Superset looks for the message behind ``errorMessage="`` in the text of PyHive's exception,
    which is the ``repr`` of the response, and shows the whole response if it does not find it.
    """
    text = text.replace('"', "'")
    if "'" not in text:
        text = text.replace("`", "'")
    return text if "'" in text else f"{text} (SQLSTATE '{sqlstate}')"


def summary(problem: ServerError) -> str:
    """Return the text that clients show: the whole message, the hint in a line of its own."""
    headline = problem.headline
    return f"{headline}\nHint: {problem.hint}" if problem.hint else headline


def wire_state(state: OperationState) -> int:
    """Return the TOperationState to show."""
    return int(_STATES[state])
