"""The cursor of PEP 249, extended by asynchronous execution, logs, Arrow and metadata."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self
from uuid import uuid4

from tidegate.batches import insert_batches
from tidegate.errors import (
    DatabaseError,
    Error,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    Warning,
)
from tidegate.network.line import STATEMENT_ID
from tidegate.operation import Operation, OperationStatus
from tidegate.parameters import Parameters, bind
from tidegate.result import Pause, ResultSet
from tidegate.rows import Row, RowFactory, RowMaker, tuple_row
from tidegate.status import check
from tidegate.types import NestedType, type_code
from tidegate.wire.schema import WireColumn
from tidegate.wire.service import ttypes

if TYPE_CHECKING:
    from tidegate.connection import Connection

logger = logging.getLogger(__name__)

Description = list[tuple[str, str | NestedType, None, None, int | None, int | None, bool | None]]

Message = tuple[type[Warning], Warning]

_UNKNOWN_COUNT: Final = -1


class Sums:
    """Row count and messages of the statements of one ``executemany``."""

    def __init__(self) -> None:
        self.rowcount = 0
        self.messages: list[Message] = []

    def add(self, cursor: Cursor[Any]) -> None:
        """Add those of the statement that a cursor ran last."""
        known = self.rowcount >= 0 and cursor.rowcount >= 0
        self.rowcount = self.rowcount + cursor.rowcount if known else _UNKNOWN_COUNT
        self.messages += cursor.messages


class Cursor(Generic[Row]):
    """Runs statements and hands out their rows, of the type that the row factory makes.

    Made by ``Connection.cursor``. One thread uses a cursor at a time; ``cancel`` alone may be
    called from another.

    Values arrive as int, float, Decimal, str, bytes, bool, date, datetime, timedelta (day-time
    intervals), list and dict (ARRAY, MAP, STRUCT) and None; year-month intervals as str such as
    ``1-2``. A TIMESTAMP is a naive datetime in the time zone of the session, as Hive shows it.
    """

    def __init__(self, connection: Connection[Any], row_factory: RowFactory[Row]) -> None:
        self.connection = connection
        self.row_factory = row_factory
        self.arraysize = 1
        """Default number of rows for ``fetchmany``."""
        self.messages: list[Message] = []
        """Warnings and notes of the server about the last statement, as PEP 249 has them."""
        self._closed = False
        self._operation: Operation | None = None
        self._status: OperationStatus | None = None
        self._columns: tuple[WireColumn, ...] = ()
        self._result: ResultSet | None = None
        self._rowcount = _UNKNOWN_COUNT

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._operation is None:
            state = "no statement"
        else:
            state = self._status.state.name.lower() if self._status else "running"
        return f"<tidegate.Cursor ({state}) of {self.connection!r}>"

    @property
    def closed(self) -> bool:
        """Whether it, or its connection, was closed."""
        return self._closed or self.connection.closed

    # Attributes of PEP 249.

    @property
    def description(self) -> Description | None:
        """One tuple per column: name, type_code, None, None, precision, scale, null_ok.

        ``type_code`` equals the SQL type's name, such as ``DECIMAL``, and one of the type
        objects STRING, BINARY, NUMBER and DATETIME. None when there are no rows to fetch.
        """
        if not self._columns:
            return None
        return [
            (c.name, type_code(c.type.name), None, None, c.type.precision, c.type.scale, None)
            for c in self._columns
        ]

    @property
    def rowcount(self) -> int:
        """Rows changed by the last DML where the server counts them, otherwise -1."""
        return self._rowcount

    @property
    def settled(self) -> bool:
        """Whether a statement ran to its end, as far as the cursor knows."""
        return self._status is not None

    @property
    def row_ready(self) -> bool:
        """Whether ``fetchone`` returns a row without a call to the server."""
        return self._result is not None and self._result.ready

    @property
    def columns_info(self) -> tuple[WireColumn, ...]:
        """The columns of the result with complete types."""
        return self._columns

    @property
    def query_id(self) -> str | None:
        """The server's id of the last statement, None before the first one."""
        return self._operation.query_id if self._operation else None

    @property
    def operation_handle(self) -> str | None:
        """The argument for ``Connection.cancel_operation``, None before the first statement."""
        return self._operation.portable_handle if self._operation else None

    # Running statements.

    def execute(
        self,
        operation: str,
        parameters: Parameters | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Run a statement until it is done.

        Markers are ``%(name)s`` with a mapping, ``%s`` or ``?`` with a sequence; without
        ``parameters`` the statement goes out as it is. ``settings`` hold for this statement only.

        :raises Error: of the class that matches the server's SQLSTATE.
        """
        self.execute_async(operation, parameters, settings=settings)
        return self.wait()

    def execute_async(
        self,
        operation: str,
        parameters: Parameters | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a statement and return; ``poll`` and ``wait`` follow it."""
        self._refuse_closed()
        self.discard()
        statement = operation if parameters is None else bind(operation, parameters)
        overlay = {key: str(value) for key, value in (settings or {}).items()}
        if self.connection.resumable:
            overlay[STATEMENT_ID] = uuid4().hex
        request = ttypes.TExecuteStatementReq(
            sessionHandle=self.connection.session_handle,
            statement=statement,
            confOverlay=overlay or None,
            runAsync=True,
            queryTimeout=self.connection.query_timeout,
        )
        self._begin("ExecuteStatement", request)
        return self

    def executemany(
        self,
        operation: str,
        seq_of_parameters: Iterable[Parameters],
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Run a statement once per set of parameters.

        An ``INSERT … VALUES (…)`` runs with many rows at a time. ``rowcount`` is the sum.
        """
        self._refuse_closed()
        self.messages.clear()
        sums = Sums()
        limit = self.connection.max_batch_bytes()
        for statement in insert_batches(operation, seq_of_parameters, limit):
            self.execute(statement, settings=settings)
            sums.add(self)
        self.conclude(sums)
        return self

    def conclude(self, sums: Sums) -> None:
        """Show the sums of several statements as those of the last one."""
        self._rowcount = sums.rowcount
        self.messages[:] = sums.messages

    def poll(self) -> OperationStatus:
        """Ask how far the statement is; the server may hold the answer for some seconds.

        :raises Error: if the statement failed.
        :raises ProgrammingError: if none was started.
        """
        status = self._require_operation().poll()
        if status.finished and self._status is None:
            self._finish(status)
        return status

    def wait(self) -> Self:
        """Block until the statement is done; an interrupt cancels it on the server.

        :raises Error: if the statement failed.
        :raises ProgrammingError: if none was started.
        """
        operation = self._require_operation()
        if self._status is None:
            try:
                self._finish(operation.wait())
            except KeyboardInterrupt:
                self._cancel_interrupted(operation)
                raise
        return self

    def cancel(self) -> None:
        """Cancel the statement on the server, if there is one; any thread may do so."""
        operation = self._operation
        if operation is not None:
            operation.cancel()

    def discard(self) -> None:
        """Free the last statement's result; cancels the statement if it still runs."""
        operation, self._operation = self._operation, None
        self._status, self._result, self._columns = None, None, ()
        self._rowcount = _UNKNOWN_COUNT
        self.messages.clear()
        if operation is not None and not self.connection.closed:
            operation.close()

    def fetch_logs(self) -> list[str]:
        """Return the lines of the statement's log that were not returned yet."""
        return self._require_operation().fetch_log()

    def logs(self) -> Iterator[str]:
        """Yield the lines of the statement's log as they come, until it is done.

        :raises Error: at the end, if the statement failed.
        """
        operation = self._require_operation()
        pause, failure = Pause(), None
        while self._status is None and failure is None:
            yield from operation.fetch_log()
            started = monotonic()
            try:
                if not self.poll().finished:
                    pause.after(started)
            except DatabaseError as error:
                failure = error
        while lines := operation.fetch_log():
            yield from lines
        if failure is not None:
            raise failure

    def callproc(self, procname: str, parameters: Sequence[Any] | None = None) -> None:
        """Refuse: there are no stored procedures.

        :raises NotSupportedError: always.
        """
        raise NotSupportedError("stored procedures are not supported", sqlstate="0A000")

    # Metadata; each answers rows to fetch.

    def catalogs(self) -> Self:
        """List the catalogs."""
        return self._metadata("GetCatalogs", ttypes.TGetCatalogsReq)

    def schemas(self, pattern: str | None = None, *, catalog: str | None = None) -> Self:
        """List the schemas whose name matches ``pattern`` (``%`` and ``_`` as in LIKE)."""
        return self._metadata(
            "GetSchemas", ttypes.TGetSchemasReq, catalogName=catalog, schemaName=pattern
        )

    def tables(
        self,
        schema: str | None = None,
        pattern: str | None = None,
        types: Sequence[str] | None = None,
        *,
        catalog: str | None = None,
    ) -> Self:
        """List tables, views and materialized tables by patterns; ``types`` as table_types."""
        return self._metadata(
            "GetTables",
            ttypes.TGetTablesReq,
            catalogName=catalog,
            schemaName=schema,
            tableName=pattern,
            tableTypes=list(types) if types is not None else None,
        )

    def columns(
        self,
        schema: str | None = None,
        table: str | None = None,
        pattern: str | None = None,
        *,
        catalog: str | None = None,
    ) -> Self:
        """List the columns that match the patterns of schema, table and column."""
        return self._metadata(
            "GetColumns",
            ttypes.TGetColumnsReq,
            catalogName=catalog,
            schemaName=schema,
            tableName=table,
            columnName=pattern,
        )

    def table_types(self) -> Self:
        """List the kinds of tables."""
        return self._metadata("GetTableTypes", ttypes.TGetTableTypesReq)

    def type_info(self) -> Self:
        """List the data types."""
        return self._metadata("GetTypeInfo", ttypes.TGetTypeInfoReq)

    def functions(
        self, pattern: str = "%", schema: str | None = None, *, catalog: str | None = None
    ) -> Self:
        """List the functions whose name matches ``pattern``."""
        return self._metadata(
            "GetFunctions",
            ttypes.TGetFunctionsReq,
            catalogName=catalog,
            schemaName=schema,
            functionName=pattern,
        )

    def primary_keys(
        self, schema: str | None, table: str | None, *, catalog: str | None = None
    ) -> Self:
        """List the columns of a table's primary key."""
        return self._metadata(
            "GetPrimaryKeys",
            ttypes.TGetPrimaryKeysReq,
            catalogName=catalog,
            schemaName=schema,
            tableName=table,
        )

    # Fetching.

    def fetchone(self) -> Row | None:
        """Return the next row, None at the end."""
        row: Row | None = self._rows().fetchone()
        return row

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next ``size`` rows, or ``arraysize``; fewer at the end."""
        return self._rows().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Row]:
        """Return all rows that are left."""
        return self._rows().fetchall()

    def fetch_arrow_table(self) -> Any:
        """Return all rows that are left as a ``pyarrow.Table``.

        Nested values are strings of JSON; a timestamp keeps its zone.

        :raises NotSupportedError: without pyarrow.
        """
        return self._arrow(None)

    def fetchmany_arrow(self, size: int) -> Any:
        """Return the next ``size`` rows as a ``pyarrow.Table``, fewer at the end."""
        return self._arrow(size)

    def fetch_record_batches(self) -> Any:
        """Return the rows that are left as a ``pyarrow.RecordBatchReader``.

        It fetches page by page while it is read, so that memory is bounded. It ends with the
        cursor's next statement, or when the cursor is closed.

        :raises NotSupportedError: without pyarrow.
        """
        with _needing_arrow():
            return self._rows().reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export ``fetch_record_batches`` by Arrow's PyCapsule interface.

        With it, ``polars.DataFrame(cursor)``, ``duckdb.from_arrow(cursor)`` and
        ``pyarrow.table(cursor)`` read the rows that are left, once.

        :raises ProgrammingError: if they were read in this way before.
        """
        if self._result is not None and self._result.streamed:
            # A library that reads its source again would take nothing for the result.
            raise ProgrammingError(
                "the rows were read before",
                sqlstate="HY010",
                hint="Execute the statement again, or keep the rows with fetch_arrow_table().",
            )
        return self.fetch_record_batches().__arrow_c_stream__(requested_schema)

    def fetch_pandas(self) -> Any:
        """Return all rows that are left as a ``pandas.DataFrame``, by way of Arrow."""
        return self._arrow(None).to_pandas()

    def fetch_polars(self) -> Any:
        """Return all rows that are left as a ``polars.DataFrame``, by way of Arrow."""
        with _needing_arrow():
            import polars

            return polars.from_arrow(self._rows().table())

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def nextset(self) -> None:
        """Return None: a statement has one result."""

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Cancel a running statement and free the result; later calls do nothing."""
        if not self._closed:
            self.discard()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _metadata(self, call: str, request_class: Any, **fields: Any) -> Self:
        self._refuse_closed()
        self.discard()
        self._begin(call, request_class(self.connection.session_handle, **fields))
        return self.wait()

    def _begin(self, call: str, request: Any) -> None:
        reply = self.connection.call(call, request)
        check(reply.status)
        self._operation = Operation(self.connection, reply.operationHandle)

    def _finish(self, status: OperationStatus) -> None:
        operation = self._require_operation()
        if status.has_result_set:
            self._columns = operation.columns()
        if self._columns:
            self._result = ResultSet(
                self._columns,
                fetch=operation.fetch,
                fetch_size=self.connection.fetch_size,
                table_fetch_size=self.connection.table_fetch_size,
                make_row=self._row_maker(),
                native=self.connection.native,
                arrow=self.connection.sends_arrow,
            )
        if status.modified_rows is not None and status.modified_rows >= 0:
            self._rowcount = status.modified_rows
        self.messages += [(type(message), message) for message in status.messages]
        self._status = status

    def _row_maker(self) -> RowMaker[Row] | None:
        if self.row_factory is tuple_row:
            return None
        return self.row_factory([column.name for column in self._columns])

    def _require_operation(self) -> Operation:
        self._refuse_closed()
        if self._operation is None:
            raise ProgrammingError("no statement was executed on this cursor", sqlstate="HY010")
        return self._operation

    def _rows(self) -> ResultSet:
        if self._result is None:
            self.wait()
        if self._result is None:
            raise ProgrammingError("the statement has no rows to fetch", sqlstate="HY010")
        return self._result

    def _arrow(self, size: int | None) -> Any:
        with _needing_arrow():
            return self._rows().table(size)

    def _cancel_interrupted(self, operation: Operation) -> None:
        try:
            operation.cancel()
        except Error as error:
            logger.warning("the interrupted statement could not be canceled: %s", error)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed", sqlstate="24000")


@contextmanager
def _needing_arrow() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        install = "polars" if error.name == "polars" else "'tidegate[arrow]'"
        raise NotSupportedError(
            f"Arrow results need {error.name}", hint=f"pip install {install}"
        ) from error
