"""Reads the rows of a table, or its changes since a position."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
from pymysql.cursors import SSCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from pymysqlreplication.event import NotImplementedEvent, QueryEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from tidegate_server.engine.binlog.request import Position, ReadAnswer, ReadRequest
from tidegate_server.engine.binlog.server import (
    SourceProblemError,
    SourceTable,
    begin_snapshot,
    check_position,
    check_variables,
    columns_sql,
    find_table,
    missing,
    position_now,
    quoted,
    settings,
)
from tidegate_server.engine.binlog.statements import unfollowed
from tidegate_server.engine.binlog.values import ValueProblemError, Wanted, bits, encode

_BATCH: Final = 10_000
_ATTEMPTS: Final = 50
_PAUSE: Final = 0.1
_KINDS: Final[Mapping[int, str]] = {
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.TIMESTAMP2: "timestamp",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.SET: "set",
}
"""Types of the binlog whose values need more than their Python type says."""
_HARMLESS: Final = frozenset((0x05, 0x0D, 0x1B, 0x1C, 0x22, 0x24, 0x25, 0x29, 0x2A))
"""Events that contain no rows and are not parsed; others might contain some."""
_GONE: Final = 1236
"""The code of the error with which a server has no binlog from the position on."""
FILE: Final = "changes.parquet"

Event = tuple[bool, Sequence[str | bytes | None]]
"""Whether a row was deleted, and its values."""


def read(request: ReadRequest) -> ReadAnswer:
    """Write the events of a table into a file, in their order."""
    try:
        with closing(pymysql.connect(**settings(request.endpoint))) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00'")
                check_variables(cursor)
                end = position_now(cursor)
                if request.start is not None:
                    check_position(cursor, request.start, end)
                table = find_table(cursor, request)
            events: Iterator[Event] = iter(())
            if request.start is not None:
                events = _changes(request, request.start, end)
            elif request.initial:
                end = begin_snapshot(connection, request)
                events = _rows(connection, request, table)
            return ReadAnswer(end=end, rows=_write(request, events))
    except SourceProblemError as problem:
        return ReadAnswer(problem=str(problem), hint=problem.hint, lost=problem.lost)
    except ValueProblemError as problem:
        return ReadAnswer(problem=str(problem))
    except pymysql.MySQLError as error:
        code, *words = error.args or (0,)
        text = " ".join(map(str, words)) or type(error).__name__
        return ReadAnswer(problem=f"the server said: {text} ({code})", lost=code == _GONE)


def _write(request: ReadRequest, events: Iterator[Event]) -> int:
    """Write events with their numbers; return how many there are."""
    types = [pa.binary() if each.binary else pa.string() for each in request.columns]
    names = [f"c{number}" for number in range(len(types))]
    schema = pa.schema(
        [*zip(names, types, strict=True), ("deleted", pa.bool_()), ("sequence", pa.int64())]
    )
    count = 0
    with pq.ParquetWriter(Path(request.directory) / FILE, schema) as writer:
        batch: list[Event] = []
        for event in events:
            batch.append(event)
            if len(batch) == _BATCH:
                writer.write_batch(_batch(batch, count, schema))
                count += len(batch)
                batch = []
        writer.write_batch(_batch(batch, count, schema))
    return count + len(batch)


def _batch(events: Sequence[Event], first: int, schema: pa.Schema) -> pa.RecordBatch:
    columns: list[Sequence[Any]] = [
        [values[number] for _, values in events] for number in range(len(schema) - 2)
    ]
    columns += [[gone for gone, _ in events], range(first, first + len(events))]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# ---- the rows of the table ---------------------------------------------------------------------


def _rows(connection: Any, request: ReadRequest, table: SourceTable) -> Iterator[Event]:
    kinds = {name.lower(): kind for name, kind in table.kinds.items()}
    wanted = [(each, kinds[each.name.lower()]) for each in request.columns]
    with connection.cursor(SSCursor) as cursor:
        columns = ", ".join(columns_sql(request, table))
        cursor.execute(f"SELECT {columns} FROM {quoted(request.database, request.table)}")
        for row in cursor:
            values = zip(row, wanted, strict=True)
            yield False, [encode(value, kind, column) for value, (column, kind) in values]


# ---- the binlog --------------------------------------------------------------------------------


def _changes(request: ReadRequest, start: Position, end: Position) -> Iterator[Event]:
    """Yield the events between two positions.

    :raises SourceProblemError: if the table cannot be followed.
    """
    if start == end:
        return
    stream = BinLogStreamReader(
        connection_settings=settings(request.endpoint),
        server_id=random.randint(*request.servers),
        resume_stream=True,
        log_file=start.file,
        log_pos=start.offset,
        only_schemas=[request.database],
        only_tables=[request.table],
        only_events=[
            *(WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent),
            *(QueryEvent, NotImplementedEvent),
        ],
        filter_non_implemented_events=False,
        enable_logging=False,
    )
    with closing(stream):
        for _ in range(_ATTEMPTS):
            for event in stream:
                if _reached(stream).order > end.order:
                    return
                yield from _events(event, request)
            if _reached(stream).order >= end.order:
                return
            time.sleep(_PAUSE)  # the server gives replicas only what it has written to disk
    raise SourceProblemError(f"the server ended the binlog before {end.file}:{end.offset}")


def _reached(stream: BinLogStreamReader) -> Position:
    return Position(str(stream.log_file), int(stream.log_pos))


def _events(event: Any, request: ReadRequest) -> Iterator[Event]:
    match event:
        case QueryEvent():
            current = event.schema.decode() if isinstance(event.schema, bytes) else event.schema
            reason = unfollowed(str(event.query), current, request.database, request.table)
            if reason is not None:
                raise SourceProblemError(reason, lost=True)
        case WriteRowsEvent() | DeleteRowsEvent():
            read = _reader(event, request)
            for row in event.rows:
                gone = isinstance(event, DeleteRowsEvent)
                yield gone, read(row["values"], row["none_sources"])
        case UpdateRowsEvent():
            read = _reader(event, request)
            keys = [
                number
                for number, each in enumerate(request.columns)
                if each.name.lower() in {name.lower() for name in request.key}
            ]
            for row in event.rows:
                before = read(row["before_values"], row["before_none_sources"])
                after = read(row["after_values"], row["after_none_sources"])
                if any(before[number] != after[number] for number in keys):
                    yield True, before
                yield False, after
        case NotImplementedEvent() if event.event_type in _HARMLESS:
            pass
        case _:
            reason = f"the binlog has an event of the type {event.event_type}, which is not read"
            raise SourceProblemError(reason, lost=True)


Read = Callable[[Mapping[str, Any], Mapping[str, str]], Sequence[str | bytes | None]]


def _reader(event: Any, request: ReadRequest) -> Read:
    """Return what takes the values of a row, by the columns that the table had at the time."""
    columns = {str(each.name).lower(): each for each in event.columns if each.name}
    whole = f"{request.database}.{request.table}"
    if len(columns) < len(event.columns):
        reason = f"a change of {whole} was logged without the names of its columns"
        raise SourceProblemError(reason, "Set binlog_row_metadata = FULL.", lost=True)
    for each in request.columns:
        if each.name.lower() not in columns:
            raise SourceProblemError(missing(each.name, whole), lost=True)
    found = [(each, columns[each.name.lower()]) for each in request.columns]
    for wanted, column in found:
        _check_members(wanted, column, whole)

    def read(values: Mapping[str, Any], missing_values: Mapping[str, str]) -> Sequence[Any]:
        row = []
        for wanted, column in found:
            value, kind = values[column.name], _KINDS.get(column.type, "")
            if value is None and missing_values.get(column.name) == NONE_SOURCE.EMPTY_SET:
                value = frozenset()
            elif value is not None and kind == "bit":
                value = bits(value, wanted)
            elif value is not None and column.character_set_name == "binary":
                value = value or b""  # an empty value was taken for a text
                if column.type == FIELD_TYPE.STRING:
                    value = value.ljust(column.max_length, b"\0")  # the last zeros are not logged
            row.append(encode(value, kind, wanted, column.set_values or ()))
        return row

    return read


def _check_members(wanted: Wanted, column: Any, whole: str) -> None:
    """Require that the members of an ENUM or SET are known.

    :raises SourceProblemError: if one is no UTF-8, which mysql-replication takes for an empty text.
    """
    members = (*(column.enum_values or ("",))[1:], *(column.set_values or ()))
    if "" in members and not str(column.character_set_name).startswith("utf8"):
        reason = (
            f"the column {wanted.name} of {whole} has members in {column.character_set_name}, "
            "which cannot be told apart"
        )
        raise SourceProblemError(reason, "Convert the column to utf8mb4.", lost=True)
