"""Everything gateway and engine say to each other: frozen records, encoded as MessagePack.

Transport is Arrow Flight. A request is an action named after its class; its answers are the
action's result stream: any number of :class:`Progress`, then one answer, or :class:`Failure`.
Results of queries come by DoGet with a :class:`ChunkTicket`; small ones ride inside
:class:`Executed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from tidegate_server.errors import ServerError
from tidegate_server.model.names import TableName
from tidegate_server.model.table import ColumnOrigin
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
class Survey:
    """Ask what a statement would read, without running it; answered by :class:`Surveyed`.

    ``settings`` hold for this look alone.
    """

    session_id: str
    sql: str
    settings: Mapping[str, str] = field(default_factory=dict)


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
class EvolveTable:
    """Bring a storage to exactly this schema, comment and properties in one commit that leaves
    the rows alone; answered by :class:`Done`.

    Columns are matched by name: new ones are NULL in existing rows, those that are not named
    disappear; only the types of ``widened`` columns change. A property of None is removed.
    ``adopts`` is the ``tidegate.id`` of a table to take over, empty for a plain one.
    """

    name: TableName
    table_id: str
    schema: Schema
    comment: str | None
    properties: Mapping[str, str | None]
    widened: tuple[str, ...] = ()
    adopts: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    """Give a storage another name; answered by :class:`Done`.

    Nothing happens when ``name`` does not carry this ``tidegate.id``, as after doing it before.
    """

    name: TableName
    new_name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewColumn:
    """A column of a view; without ``expression`` the stored column of that name.

    ``metadata`` marks an expression over the stored files instead of the stored columns.
    """

    name: str
    expression: str | None = None
    metadata: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutView:
    """Create the view over a storage, or replace the one of this ``tidegate.id``; answered by
    :class:`Done`."""

    name: TableName
    table_id: str
    storage: TableName
    columns: tuple[ViewColumn, ...]
    comment: str | None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    """Drop the view of this ``tidegate.id``; any other is left alone; answered by
    :class:`Done`."""

    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectTable:
    """Ask what a plain table is made of; answered by :class:`Inspected`."""

    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDefinitions:
    """Ask for the definitions that stand in the properties of tables; answered by
    :class:`DefinitionsFound`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckExpressions:
    """Analyze expressions over columns without running them; answered by
    :class:`ExpressionsChecked`.

    ``computed`` are name and text over ``columns``; ``watermark`` and ``conditions`` are texts
    over both.
    """

    session_id: str
    columns: Schema
    computed: tuple[tuple[str, str], ...] = ()
    watermark: str | None = None
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteNames:
    """Replace a table's name wherever queries mention it; answered by :class:`Rewritten`."""

    queries: tuple[str, ...]
    name: TableName
    new_name: TableName


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
class VerifyTable:
    """Compare a version of a materialized table, None the newest, with its definition query on
    the vector it recorded; answered by :class:`Verified`."""

    order: RefreshOrder
    version: int | None = None


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
    """Temporary things the query reads: ``view name``, ``function name``, ``variable name``."""
    lineage: tuple[ColumnOrigin, ...] = ()
    """The source columns of which each column is made."""
    unstable: tuple[str, ...] = ()
    """What may give other rows from the same sources, each after its class: D1 is one value in
    one run (``D1 current_date``), D2 depends on the order of equal rows (``D2 row_number``), D3
    is another value each time or nobody knows (``D3 rand``)."""


class Reach(Enum):
    """A way from SQL to files, programs and the JVM; the value is its name in the configuration.

    UNKNOWN is what cannot be judged before it runs.
    """

    RESOURCES = "resources"
    JAR_FUNCTIONS = "jar-functions"
    SCRIPTS = "scripts"
    STATIC_SETTINGS = "static-settings"
    PATHS = "paths"
    LOCATIONS = "locations"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A place where a statement reads a table, views looked through.

    ``name`` is None for files that were named by their path; ``location`` is the directory read.
    """

    name: TableName | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A table's name in the text of a query; the span is in code points, its end exclusive.

    ``statement`` marks the short query ``TABLE name``, word included.
    """

    name: TableName
    start: int
    end: int
    aliased: bool
    statement: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What a statement would read and how it reaches beyond tables.

    ``mentions`` are those of a plain query on ``information_schema``. ``locations`` are the places
    written in the statement, ``settings`` the keys it sets.
    """

    readings: tuple[Reading, ...] = ()
    mentions: tuple[Mention, ...] = ()
    reaches: tuple[Reach, ...] = ()
    locations: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    lists_tables: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCreated:
    """The storage stands."""

    location: str
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A table as the metastore and its format know it; ``format`` None means there is none.

    ``schema`` and what follows are those of a table of a format with versions.
    """

    format: str | None
    schema: Schema = Schema()
    partition_keys: tuple[str, ...] = ()
    comment: str | None = None
    location: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    materialized_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDefinition:
    """A storage with the definition in its properties."""

    storage: TableName
    table_id: str
    location: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsFound:
    """Every storage of a materialized table."""

    found: tuple[FoundDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionsChecked:
    """The columns that computed expressions make, in the order asked."""

    computed: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Queries with the new name; None for one that does not mention the old name itself."""

    queries: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """A refresh ended well."""

    outcome: RefreshOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan a refresh would carry out."""

    plan: RefreshPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the comparison of a version with its definition query found."""

    version: int
    epoch: int
    missing_rows: int
    """Rows of the query that the table lacks."""
    extra_rows: int
    """Rows of the table that the query does not give."""
    sample: str = ""
    """Some of them as JSON; empty when there are none."""

    @property
    def equal(self) -> bool:
        """Whether table and query are the same multiset of rows."""
        return not self.missing_rows and not self.extra_rows


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
    | Survey
    | CreateTable
    | SetTableProperties
    | EvolveTable
    | RenameTable
    | PutView
    | DropView
    | InspectTable
    | ListDefinitions
    | CheckExpressions
    | RewriteNames
    | DropTable
    | Refresh
    | ExplainRefresh
    | SourceVersions
    | VerifyTable
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
    | Surveyed
    | TableCreated
    | Inspected
    | DefinitionsFound
    | ExpressionsChecked
    | Rewritten
    | Refreshed
    | Planned
    | Verified
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
        Survey,
        CreateTable,
        SetTableProperties,
        EvolveTable,
        RenameTable,
        PutView,
        DropView,
        InspectTable,
        ListDefinitions,
        CheckExpressions,
        RewriteNames,
        DropTable,
        Refresh,
        ExplainRefresh,
        SourceVersions,
        VerifyTable,
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
        Surveyed,
        TableCreated,
        Inspected,
        DefinitionsFound,
        ExpressionsChecked,
        Rewritten,
        Refreshed,
        Planned,
        Verified,
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
