"""Takes in the changes of a table of MySQL or MariaDB, from its binlog.

The position in the binlog is in the commit with the rows, and nowhere else: a refresh reads on from
the last commit, so that each change is applied once, whatever died before.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.types import TypeKind, parse_type
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.streams import Stream
from tidegate_server.engine.binlog.endpoints import endpoint_of
from tidegate_server.engine.binlog.request import Endpoint, Position, ReadAnswer, ReadRequest
from tidegate_server.engine.binlog.values import Wanted
from tidegate_server.engine.gate.gate import catalogs, enforcing, place_of
from tidegate_server.engine.query.streams import events_view, mysql_source, stream_view
from tidegate_server.engine.refresh.upsert import upsert
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.base import TableFormat, Written
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh

logger = logging.getLogger(__name__)

_TICK: Final = 0.1
_NEEDED: Final = ("pymysql", "pymysqlreplication")
_INSTALL: Final = "Install the extra: pip install 'tidegate[server,mysql]', and restart the server."
_LOST: Final = (
    "Drop the materialized table and create it again: it then begins with the rows that the table "
    "has. Let the server keep its binlog longer than refreshes may be apart."
)
_SERVERS: Final = (1 << 30, (1 << 31) - 1)
"""Numbers of readers, by which a server knows its replicas, if the table names none."""
_read_to: dict[str, tuple[Position, Position]] = {}
"""By table, the position of its last commit, and one up to which nothing has changed since."""


def take_changes(
    order: RefreshOrder,
    last: RecordedRefresh | None,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    stream: Stream,
    text: str,
    key: tuple[str, ...],
) -> Written | None:
    """Commit the rows after all changes until now; None if nothing has changed.

    :param text: the query over the events.
    :param key: the query's columns by which events are applied.
    :raises ServerError: MT_CHANGES_UNREADABLE, ACCESS_DENIED, OPERATION_CANCELED, and as
        :func:`~tidegate_server.engine.refresh.upsert.upsert`.
    """
    with (
        stream_view(session, stream, text),
        enforcing(session, order.admission, order.executor),
    ):
        session.sql(stream.with_view(text))  # the owner may still read the table
    committed = _position(last)
    start = _start(order.table_id, committed)
    directory = tempfile.mkdtemp(prefix="binlog-", dir=session.conf.get("spark.local.dir"))
    try:
        answer = _ask(_request(session, stream, start, directory), stream, operation.check)
        if answer.end is None:
            raise AssertionError("a reader without a problem says where it ended")
        if committed is not None and not answer.rows and answer.end.file == committed.file:
            _read_to[order.table_id] = (committed, answer.end)
            return None
        _read_to.pop(order.table_id, None)
        record = CommitRecord(
            vector={},
            definition_version=order.definition_version,
            logical_time=order.logical_time,
            offsets=answer.end.text(),
            filled=False,
        )
        base = last.version if last is not None else None
        events = session.read.parquet(directory)
        with events_view(session, stream, text, events):
            with enforcing(session, _with_path(order, session, directory), order.executor):
                frame = session.sql(stream.with_view(text))
            return upsert(frame, key, order, record, format, base=base)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _position(last: RecordedRefresh | None) -> Position | None:
    offsets = last.record.offsets if last is not None else None
    return None if offsets is None else Position.read(offsets)


def _start(table_id: str, committed: Position | None) -> Position | None:
    """Return from where to read: not again what had nothing of the table."""
    known = _read_to.get(table_id)
    return known[1] if known is not None and known[0] == committed else committed


def _with_path(order: RefreshOrder, session: SparkSession, directory: str) -> Any:
    """Return the admission of a refresh, with the directory of the changes that were read."""
    if order.admission is None:
        return None
    place = place_of(session, directory)
    access = Access(act=Act.READ, kind=ObjectKind.PATH, name=place)
    return replace(order.admission, accesses=(*order.admission.accesses, access))


def _request(
    session: SparkSession, stream: Stream, start: Position | None, directory: str
) -> ReadRequest:
    source = mysql_source(stream)
    columns = []
    for name, text in source.columns:
        kind = parse_type(text).kind
        columns.append(
            Wanted(name=name, binary=kind is TypeKind.BINARY, boolean=kind is TypeKind.BOOLEAN)
        )
    return ReadRequest(
        endpoint=_endpoint(session, stream),
        database=source.database,
        table=source.table,
        columns=tuple(columns),
        key=source.key,
        start=start,
        initial=source.initial,
        servers=source.servers or _SERVERS,
        directory=directory,
    )


def _endpoint(session: SparkSession, stream: Stream) -> Endpoint:
    name = stream.parameters["connection"]
    options = catalogs(session).options(name)
    if options is None:
        raise _unreadable(stream, f"there is no connection {name}", "Create the connection.")
    try:
        return endpoint_of({str(key): str(value) for key, value in dict(options).items()})
    except ValueError as problem:
        reason = f"the connection {name} cannot be used: {problem}"
        raise _unreadable(stream, reason, "Change its URL.") from problem


def _ask(request: ReadRequest, stream: Stream, check: Callable[[], None]) -> ReadAnswer:
    """Let a process of its own read the binlog; it ends with the refresh.

    :raises ServerError: MT_CHANGES_UNREADABLE or OPERATION_CANCELED.
    """
    if any(find_spec(name) is None for name in _NEEDED):
        reason = "the packages mysql-replication and pymysql are not installed"
        raise _unreadable(stream, reason, _INSTALL)
    errors = Path(request.directory) / "_errors"
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate_server.engine.binlog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
    if process.stdin is None or process.stdout is None:
        raise AssertionError("the process has pipes")
    try:
        process.stdin.write(request.encode() + "\n")
        process.stdin.flush()
        while True:
            check()
            try:
                process.wait(_TICK)
                break
            except subprocess.TimeoutExpired:
                continue
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            logger.debug("the reader of a binlog ended before its input")
    if not line:
        logger.error("the reader of a binlog failed: %s", errors.read_text("utf-8", "replace"))
        raise _unreadable(stream, "the process that reads the binlog has ended", "See engine.log.")
    answer = ReadAnswer.decode(line)
    if answer.problem:
        raise _unreadable(stream, answer.problem, answer.hint or (_LOST if answer.lost else ""))
    return answer


def _unreadable(stream: Stream, reason: str, hint: str) -> ServerError:
    source = f"{stream.parameters['database']}.{stream.parameters['table']}"
    return error(Code.MT_CHANGES_UNREADABLE, source=source, reason=reason.rstrip("."), hint=hint)
