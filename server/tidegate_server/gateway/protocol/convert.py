"""Conversion of schemas, handles and progress to Thrift structs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidegate.wire.service import ttypes
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.model.states import OperationState
from tidegate_server.core.model.types import Column, ColumnType, Schema, TypeKind, parse_type
from tidegate_server.gateway.session.handle import Handle
from tidegate_server.gateway.session.operation import (
    Operation,
    OperationKind,
    OperationView,
    percent_done,
)

_T = ttypes.TTypeId
_TYPES = {
    TypeKind.VOID: _T.NULL_TYPE,
    TypeKind.BOOLEAN: _T.BOOLEAN_TYPE,
    TypeKind.TINYINT: _T.TINYINT_TYPE,
    TypeKind.SMALLINT: _T.SMALLINT_TYPE,
    TypeKind.INT: _T.INT_TYPE,
    TypeKind.BIGINT: _T.BIGINT_TYPE,
    TypeKind.FLOAT: _T.FLOAT_TYPE,
    TypeKind.DOUBLE: _T.DOUBLE_TYPE,
    TypeKind.DECIMAL: _T.DECIMAL_TYPE,
    TypeKind.STRING: _T.STRING_TYPE,
    TypeKind.CHAR: _T.CHAR_TYPE,
    TypeKind.VARCHAR: _T.VARCHAR_TYPE,
    TypeKind.BINARY: _T.BINARY_TYPE,
    TypeKind.DATE: _T.DATE_TYPE,
    # TIMESTAMPLOCALTZ would be exact from V11 on, but no client supports it yet.
    TypeKind.TIMESTAMP: _T.TIMESTAMP_TYPE,
    TypeKind.TIMESTAMP_NTZ: _T.TIMESTAMP_TYPE,
    TypeKind.INTERVAL_DAY_TIME: _T.INTERVAL_DAY_TIME_TYPE,
    TypeKind.INTERVAL_YEAR_MONTH: _T.INTERVAL_YEAR_MONTH_TYPE,
    TypeKind.ARRAY: _T.ARRAY_TYPE,
    TypeKind.MAP: _T.MAP_TYPE,
    TypeKind.STRUCT: _T.STRUCT_TYPE,
}
_FIRST_WITH_INTERVALS = 8
_INTERVALS = (TypeKind.INTERVAL_DAY_TIME, TypeKind.INTERVAL_YEAR_MONTH)


def table_schema(schema: Schema, protocol: int, time_zone: str | None) -> Any:
    """Return a TTableSchema for protocol V``protocol``; positions count from 1."""
    return ttypes.TTableSchema(
        columns=[
            _column_description(column, position, protocol, time_zone)
            for position, column in enumerate(schema, start=1)
        ]
    )


def session_handle(handle: Handle) -> Any:
    """Return the TSessionHandle."""
    return ttypes.TSessionHandle(sessionId=_identifier(handle))


def operation_handle(operation: Operation) -> Any:
    """Return the TOperationHandle.

    Its hasResultSet is predicted from the statement, or taken from the result after its end.
    """
    return ttypes.TOperationHandle(
        operationId=_identifier(operation.handle),
        operationType=operation_type(operation.kind),
        hasResultSet=operation.view().has_result_set,
    )


def operation_type(kind: OperationKind) -> int:
    """Return the TOperationType."""
    return int(getattr(ttypes.TOperationType, kind.value))


def no_operation_handle() -> Any:
    """Return a null handle, for responses that require one."""
    return ttypes.TOperationHandle(
        operationId=_identifier(Handle(bytes(16), bytes(16))),
        operationType=ttypes.TOperationType.UNKNOWN,
        hasResultSet=False,
    )


def read_session_handle(handle: Any) -> Handle:
    """Return the handle in a TSessionHandle.

    :raises ServerError: INVALID_SESSION_HANDLE if it is incomplete.
    """
    identifier = getattr(handle, "sessionId", None)
    return _read_handle(identifier, Code.INVALID_SESSION_HANDLE)


def read_operation_handle(handle: Any) -> Handle:
    """Return the handle in a TOperationHandle.

    :raises ServerError: INVALID_OPERATION_HANDLE if it is incomplete.
    """
    identifier = getattr(handle, "operationId", None)
    return _read_handle(identifier, Code.INVALID_OPERATION_HANDLE)


def progress_update(view: OperationView) -> Any:
    """Return a TProgressUpdateResp in the nine columns that beeline draws."""
    statuses = ttypes.TJobExecutionStatus
    progress = view.progress
    if progress is None:
        status = statuses.NOT_AVAILABLE
    else:
        status = statuses.COMPLETE if view.state.terminal else statuses.IN_PROGRESS
    return ttypes.TProgressUpdateResp(
        headerNames=[] if progress is None else list(_PROGRESS_COLUMNS),
        rows=[] if progress is None else [_progress_row(progress, view.state)],
        progressedPercentage=0.0 if progress is None else percent_done(progress) / 100,
        status=status,
        footerSummary="" if progress is None else _progress_footer(progress),
        startTime=milliseconds(view.started_at),
    )


def milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970."""
    return int(moment.timestamp() * 1000)


_PROGRESS_COLUMNS = (
    "STAGES",
    "ATTEMPT",
    "STATUS",
    "TOTAL",
    "COMPLETED",
    "RUNNING",
    "PENDING",
    "FAILED",
    "",
)


_PROGRESS_STATUS = {
    OperationState.FINISHED: "FINISHED",
    OperationState.CLOSED: "FINISHED",
    OperationState.ERROR: "FAILED",
    OperationState.CANCELED: "KILLED",
    OperationState.TIMEDOUT: "KILLED",
}
"""Hive's names for the states of operations that have ended."""


def _progress_row(progress: Progress, state: OperationState) -> list[str]:
    pending = max(0, progress.tasks_total - progress.tasks_done - progress.tasks_running)
    counts = (progress.tasks_total, progress.tasks_done, progress.tasks_running, pending, 0)
    status = _PROGRESS_STATUS.get(state, "RUNNING")
    return [progress.message or "Spark", "0", status, *map(str, counts), ""]


def _progress_footer(progress: Progress) -> str:
    return f"STAGES: {progress.stages_done:02d}/{progress.stages_total:02d}"


def _column_description(column: Column, position: int, protocol: int, time_zone: str | None) -> Any:
    kind = parse_type(column.type)
    entry = ttypes.TPrimitiveTypeEntry(
        type=_type_id(kind.kind, protocol), typeQualifiers=_qualifiers(kind, time_zone)
    )
    return ttypes.TColumnDesc(
        columnName=column.name,
        typeDesc=ttypes.TTypeDesc(types=[ttypes.TTypeEntry(primitiveEntry=entry)]),
        position=position,
        comment=column.comment or "",
    )


def _type_id(kind: TypeKind, protocol: int) -> int:
    if kind in _INTERVALS and protocol < _FIRST_WITH_INTERVALS:
        return int(_T.STRING_TYPE)
    return int(_TYPES.get(kind, _T.STRING_TYPE))


def _qualifiers(kind: ColumnType, time_zone: str | None) -> Any:
    numbers = {
        "precision": kind.precision,
        "scale": kind.scale,
        "characterMaximumLength": kind.length,
    }
    values = {
        name: ttypes.TTypeQualifierValue(i32Value=value)
        for name, value in numbers.items()
        if value is not None
    }
    if kind.kind is TypeKind.TIMESTAMP and time_zone:
        values["session.timeZone"] = ttypes.TTypeQualifierValue(stringValue=time_zone)
    return ttypes.TTypeQualifiers(qualifiers=values) if values else None


def _identifier(handle: Handle) -> Any:
    return ttypes.THandleIdentifier(guid=handle.guid, secret=handle.secret)


def _read_handle(identifier: Any, code: Code) -> Handle:
    guid, secret = getattr(identifier, "guid", None), getattr(identifier, "secret", None)
    if not isinstance(guid, bytes) or not isinstance(secret, bytes):
        raise error(code, handle="it is incomplete")
    return Handle(guid, secret)
