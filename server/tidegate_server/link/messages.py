"""Everything gateway and engine say to each other: frozen records, encoded as MessagePack.

Transport is Arrow Flight. A request is an action named after its class; its answers are the
action's result stream: any number of :class:`Progress`, then one answer, or :class:`Failure`.
Results of queries come by DoGet with a :class:`ChunkTicket`; small ones ride inside
:class:`Executed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tidegate_server.errors import ServerError
from tidegate_server.model.names import TableName
from tidegate_server.model.types import Column, Schema
from tidegate_server.model.versions import Source
from tidegate_server.refresh.request import (
    CommittedRefresh,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
)

# ---- start ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine process is to come up; the first line on its standard input, as JSON.

    The gateway keeps that pipe open: its end tells the engine that the gateway is gone.
    """

    socket: str
    """Path of the Unix socket the Flight server listens on."""
    data: str
    """The data directory; warehouse, metastore and spool lie below it."""
    master: str
    driver_memory: str
    java_home: str
    direct_bytes: int
    spool_quota: int
    settings: Mapping[str, str] = field(default_factory=dict)


# ---- requests ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Ask whether Spark is up; answered by :class:`EngineInfo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """Make a child SparkSession of the given id; answered by :class:`Done`.

    Opening an id that exists is harmless: settings and schema are applied again.
    """

    session_id: str
    settings: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    """Forget a session, its results and its temporary objects; answered by :class:`Done`."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Run SQL verbatim in a session; answered by :class:`Executed`.

    ``settings`` hold for this statement alone. ``inline_bytes`` bounds the Arrow bytes that may
    ride in the answer.
    """

    session_id: str
    operation_id: str
    sql: str
    settings: Mapping[str, str] = field(default_factory=dict)
    inline_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop the Spark jobs of an operation or refresh; answered by :class:`Done`."""

    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseResult:
    """Delete a result's chunks; unknown ids are harmless; answered by :class:`Done`."""

    result_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyze:
    """Analyze a definition query in a session without running it; answered by :class:`Analysis`."""

    session_id: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """Create the empty storage of a materialized table; answered by :class:`TableCreated`."""

    name: TableName
    schema: Schema
    partition_keys: tuple[str, ...]
    comment: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTableProperties:
    """Change table properties of a materialized table's storage; answered by :class:`Done`."""

    name: TableName
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """Drop a materialized table's storage with its data; answered by :class:`Done`.

    A table that is gone already, or that carries another ``tidegate.id``, is left alone.
    """

    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """Carry a refresh out; answered by :class:`Refreshed`."""

    order: RefreshOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRefresh:
    """Plan a refresh without running it; answered by :class:`Planned`."""

    order: RefreshOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVersions:
    """Ask for the newest version of each source, without a Spark job; answered by
    :class:`Versions`."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """Ask what a materialized table's own last refresh commit says; answered by
    :class:`LastCommitted`."""

    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTables:
    """Ask for the metastore's content; answered by :class:`TableList`.

    ``schema`` None means every schema; ``with_columns`` also reads the columns.
    """

    schema: str | None = None
    with_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFunctions:
    """Ask for every function Spark knows in a session; answered by :class:`FunctionList`."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSystemTable:
    """Make a Delta directory readable as a table of a system schema; answered by :class:`Done`."""

    name: TableName
    location: str
    comment: str


# ---- answers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The request was carried out and has nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """The engine is up."""

    spark_version: str
    pid: int
    jvm_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the running jobs of an operation are, for people to read."""

    stages_done: int
    stages_total: int
    tasks_done: int
    tasks_running: int
    tasks_total: int
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A statement ran.

    ``chunks`` is the number of chunks DoGet serves under ``result_id``; when ``inline`` is set it
    holds the whole result as one Arrow IPC stream and there are no chunks to fetch.
    ``current_schema`` is the session's current schema afterwards.
    """

    result_id: str
    schema: Schema
    has_result_set: bool
    chunks: int
    rows: int
    current_catalog: str
    current_schema: str
    inline: bytes | None = None
    modified_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What Spark's analyzer says of a definition query."""

    schema: Schema
    expanded_query: str
    sources: tuple[Source, ...]
    temporary_objects: tuple[str, ...] = ()
    """Temporary views and functions the query reads, as ``view name`` or ``function name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCreated:
    """The storage stands."""

    location: str
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """A refresh ended well."""

    outcome: RefreshOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan a refresh would carry out."""

    plan: RefreshPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Newest versions by table id; a source that is gone is missing."""

    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommitted:
    """The last refresh commit, or None when the table has none."""

    commit: CommittedRefresh | None
    exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table, view or temporary view of the metastore."""

    name: TableName
    type: str  # TABLE or VIEW
    comment: str | None = None
    columns: tuple[Column, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableList:
    """Schemas and tables of the metastore."""

    schemas: tuple[str, ...]
    tables: tuple[TableInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionList:
    """Names of all functions."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The request failed; carries a :class:`ServerError` across."""

    code: str
    sqlstate: str
    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None
    detail: str = ""

    def to_error(self) -> ServerError:
        """Return the error to raise on the gateway's side."""
        return ServerError(
            code=self.code,
            sqlstate=self.sqlstate,
            message=self.message,
            hint=self.hint,
            line=self.line,
            column=self.column,
            detail=self.detail,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTicket:
    """Names one chunk of a result for DoGet."""

    result_id: str
    chunk: int


Request = (
    Ping
    | OpenSession
    | CloseSession
    | Execute
    | Cancel
    | CloseResult
    | Analyze
    | CreateTable
    | SetTableProperties
    | DropTable
    | Refresh
    | ExplainRefresh
    | SourceVersions
    | LastCommit
    | ListTables
    | ListFunctions
    | RegisterSystemTable
)
Answer = (
    Done
    | EngineInfo
    | Progress
    | Executed
    | Analysis
    | TableCreated
    | Refreshed
    | Planned
    | Versions
    | LastCommitted
    | TableList
    | FunctionList
    | Failure
)

REQUESTS: Mapping[str, type[Request]] = {
    kind.__name__: kind
    for kind in (
        Ping,
        OpenSession,
        CloseSession,
        Execute,
        Cancel,
        CloseResult,
        Analyze,
        CreateTable,
        SetTableProperties,
        DropTable,
        Refresh,
        ExplainRefresh,
        SourceVersions,
        LastCommit,
        ListTables,
        ListFunctions,
        RegisterSystemTable,
    )
}
_ANSWERS: Mapping[str, type[Answer]] = {
    kind.__name__: kind
    for kind in (
        Done,
        EngineInfo,
        Progress,
        Executed,
        Analysis,
        TableCreated,
        Refreshed,
        Planned,
        Versions,
        LastCommitted,
        TableList,
        FunctionList,
        Failure,
    )
}


def encode_request(request: Request) -> tuple[str, bytes]:
    """Return the action name and body of a request."""
    return type(request).__name__, msgspec.msgpack.encode(request)


def decode_request(action: str, body: bytes) -> Request:
    """Read a request back.

    :raises KeyError: for an unknown action.
    :raises msgspec.ValidationError: if the body is not that request's.
    """
    return msgspec.msgpack.decode(body, type=REQUESTS[action])


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as ``Name\\n`` and its MessagePack."""
    return type(answer).__name__.encode() + b"\n" + msgspec.msgpack.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """Read an answer back; raises as :func:`decode_request`."""
    name, _, body = data.partition(b"\n")
    return msgspec.msgpack.decode(body, type=_ANSWERS[name.decode()])


def encode_ticket(ticket: ChunkTicket) -> bytes:
    """Return a DoGet ticket."""
    return msgspec.msgpack.encode(ticket)


def decode_ticket(data: bytes) -> ChunkTicket:
    """Read a DoGet ticket back; raises as :func:`decode_request`."""
    return msgspec.msgpack.decode(data, type=ChunkTicket)


def failure(err: ServerError) -> Failure:
    """Return the message that carries ``err`` across."""
    return Failure(
        code=err.code,
        sqlstate=err.sqlstate,
        message=err.message,
        hint=err.hint,
        line=err.line,
        column=err.column,
        detail=err.detail,
    )
