"""TStatus as an exception."""

from __future__ import annotations

from typing import Any, Final

from tidegate.errors import OperationalError, server_error
from tidegate.wire.service import ttypes

_GOOD: Final = frozenset(
    {
        ttypes.TStatusCode.SUCCESS_STATUS,
        ttypes.TStatusCode.SUCCESS_WITH_INFO_STATUS,
        ttypes.TStatusCode.STILL_EXECUTING_STATUS,
    }
)


def check(status: Any, *, query_id: str | None = None) -> None:
    """Return if the status is a success.

    :raises Error: of the class that its SQLSTATE asks for.
    """
    if status.statusCode in _GOOD:
        return
    error = server_error(
        status.errorMessage,
        sqlstate=status.sqlState,
        error_code=status.errorCode,
        info=status.infoMessages,
        query_id=query_id,
    )
    if status.statusCode == ttypes.TStatusCode.INVALID_HANDLE_STATUS and error.sqlstate is None:
        raise OperationalError(str(error), sqlstate="08003", query_id=query_id, detail=error.detail)
    raise error
