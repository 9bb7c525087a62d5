"""The gateway's requests to the engine: how to start, then one record for each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidegate_server.core.jobs import JobInsert
from tidegate_server.core.messages.answers import (
    Analysis,
    CatalogInspected,
    DefinitionsFound,
    Done,
    EngineInfo,
    EngineMemory,
    Executed,
    ExpressionsChecked,
    FilesInspected,
    FunctionList,
    InsertAnalyzed,
    Inspected,
    JobsInspected,
    LastCommitted,
    MaintenanceDone,
    NameList,
    ObjectFound,
    PlacesFound,
    Planned,
    Refreshed,
    Rewritten,
    SettingsChecked,
    StatementChecked,
    StreamFound,
    Surveyed,
    TableCreated,
    TableDefinitionFound,
    TableList,
    TablesFound,
    TablesPlaced,
    Verified,
    Versions,
)
from tidegate_server.core.model.access import Admission, Features
from tidegate_server.core.model.clauses import Expectation
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import Source
from tidegate_server.core.refresh.maintenance import Horizon, RowPart
from tidegate_server.core.refresh.request import Recompute, RefreshOrder

A = TypeVar("A")


class Request(Generic[A]):
    """A request to the engine, answered with an ``A`` or a failure."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The start parameters of an engine process; the first line on its standard input, as JSON.

    The gateway, or the agent of an engine in a cluster, keeps that pipe open: when it closes, the
    engine ends.
    """

    socket: str
    """Path of the Unix socket the Flight server listens on."""
    data: str
    """The data directory; warehouse, metastore and spool lie below it."""
    installation: str = ""
    """The id in the mark of the gateway's data directory."""
    master: str
    driver_memory: str
    java_home: str
    direct_bytes: int
    spool_quota: int
    spool_quota_per_user: int = 0
    kafka: bool = False
    iceberg: bool = False
    group_reads: bool = False
    """Whether the group of the server's user may read the tables."""
    group_writes: bool = False
    """Whether the group of the engine's account may read and write all that the engine creates."""
    work: str = ""
    """Directory of spool, logs and temporary files; empty for the data directory, which is then
    the engine's own."""
    cache: str = ""
    """Directory of the jars; empty for that of the engine's environment."""
    exchange: str = ""
    """Directory of this engine in a file system that all machines of its cluster share, through
    which they hand files to each other; empty if they share the data directory."""
    alone: bool = True
    """Whether no other engine changes the tables."""
    jars: tuple[str, ...] = ()
    name: str = ""
    """That of its section in the configuration, or its user; empty for the gateway's own engine."""
    in_cluster: bool = False
    """Whether its process runs in the cluster, where Spark has started the JVM already."""
    cluster: str = ""
    """The cluster's name as ``kubernetes.cluster-id`` has it; empty for the usual one."""
    executor_timeout: float = 300.0
    """Seconds for which work waits for a first executor of the cluster."""
    max_statement_bytes: int = 0
    max_statement_tokens: int = 0
    """Maximum size of the text of an EXECUTE IMMEDIATE; 0 means no limit."""
    warm_up: bool = True
    """Whether to run queries once it is ready, for Java to compile frequent code."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Request[EngineInfo]):
    """Ask whether Spark is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession(Request[Done]):
    """Create a child SparkSession with the given id.

    Opening an id that exists is harmless: settings and schema are applied again.
    """

    session_id: str
    settings: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    """Of one or several parts, with dots between them."""
    catalog: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySession(Request[Done]):
    """Create a child SparkSession with the settings, names and temporary objects of another."""

    session_id: str
    """The one to copy."""
    copy_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings(Request[SettingsChecked]):
    """Try Spark settings in a separate session.

    A setting that SET would reject is answered with the same error.
    """

    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession(Request[Done]):
    """Forget a session, its results and its temporary objects."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetSessions(Request[Done]):
    """Cancel all work, and forget all sessions and results: their gateway has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedTable:
    """A materialized table to be read as its query instead of its rows."""

    name: TableName
    query: str
    """Gives the table's columns with their names and types."""
    columns: tuple[str, ...]
    settings: Mapping[str, str]
    """Spark settings for the query."""
    mentioned: bool
    """Whether the statement reads the table itself, and not only through another one's query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """A materialized table's storage and the version to read; None for the newest."""

    name: TableName
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedVersions:
    """The versions at which a query reads tables; every other table is read at its newest."""

    tables: tuple[TableVersion, ...]
    sources: Mapping[str, int] = field(default_factory=dict)
    """Versions of tables that are not materialized, by the format's own identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute(Request[Executed]):
    """Run SQL verbatim in a session.

    ``settings`` apply to this statement only. ``inline_bytes`` bounds the Arrow bytes that may
    be part of the answer. With ``inlined`` the SQL is one query, and those tables are replaced;
    with ``pinned`` one in which every table is read at one version, wherever it is mentioned.
    """

    session_id: str
    operation_id: str
    sql: str
    owner: str = ""
    """The login whose quota of the spool the result uses."""
    user: str = ""
    """The user it runs for: the owner of the tables it creates."""
    settings: Mapping[str, str] = field(default_factory=dict)
    inline_bytes: int = 1 << 20
    inlined: tuple[InlinedTable, ...] = ()
    pinned: PinnedVersions | None = None
    admission: Admission | None = None
    """What its plans may access; everything if it is None."""
    plan_id: str = ""
    """The plan that its survey analyzed, which then runs as it is; empty to analyze the SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(Request[Done]):
    """Stop the Spark jobs of an operation or refresh."""

    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseResult(Request[Done]):
    """Delete a result's chunks; unknown ids are harmless."""

    result_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyze(Request[Analysis]):
    """Analyze a definition query in a session without running it.

    Spark may run jobs for it, to learn what is in files: they end with the operation.
    """

    session_id: str
    sql: str
    operation_id: str = ""
    user: str = ""
    features: Features | None = None
    """Features beyond tables that the user may use; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey(Request[Surveyed]):
    """Ask what a statement would access, without running it.

    ``settings`` apply to this request only. Its jobs end with the operation, as those of
    :class:`Analyze`.
    """

    session_id: str
    """Empty for a new session, as refreshes have one."""
    sql: str
    operation_id: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    features: Features | None = None
    """What the user may use beyond tables; None to leave out the accesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStatement(Request[StatementChecked]):
    """Check a statement that changes rows, without running it; it raises as Execute does."""

    session_id: str
    operation_id: str
    sql: str
    settings: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    admission: Admission | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Request[TableCreated]):
    """Create the empty storage of a materialized table.

    A storage of the same ``tidegate.id`` is kept, even if the metastore no longer knows it.
    """

    name: TableName
    schema: Schema
    partition_keys: tuple[str, ...]
    comment: str | None
    properties: Mapping[str, str]
    location: str = ""
    """Where the storage was before it was lost; empty for a new table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTableProperties(Request[Done]):
    """Change table properties of a materialized table's storage."""

    name: TableName
    table_id: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveTable(Request[Done]):
    """Bring a storage to exactly this schema, comment and properties in one commit that leaves
    the rows alone.

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
class RenameTable(Request[Done]):
    """Rename a storage.

    Nothing happens when ``name`` does not carry this ``tidegate.id``, as after doing it before.
    """

    name: TableName
    new_name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """The name under which the storage of this ``tidegate.id`` is found, and where it lies."""

    name: TableName
    location: str
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTables(Request[TablesPlaced]):
    """Point existing names at storages, one by one.

    A name finds a complete table at every moment. Repeating it is harmless.
    """

    places: tuple[TablePlace, ...]


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
class PutView(Request[Done]):
    """Create a view over a storage, or replace the one of this ``tidegate.id``."""

    name: TableName
    table_id: str
    storage: TableName
    columns: tuple[ViewColumn, ...]
    comment: str | None
    settings: Mapping[str, str] = field(default_factory=dict)
    quarantining: tuple[Expectation, ...] = ()
    """Expectations whose violating rows the view omits."""
    quarantine_of: TableName | None = None
    """The materialized table of a quarantine view, which shows the violating rows instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView(Request[Done]):
    """Drop the view of this ``tidegate.id``; any other is left alone."""

    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectTable(Request[Inspected]):
    """Ask for the schema and properties of a plain table."""

    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDefinitions(Request[DefinitionsFound]):
    """Ask for the definitions in the properties of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectMemory(Request[EngineMemory]):
    """Ask for the memory use of the engine's JVM."""

    with_use: bool = False
    """Whether to count the work that the end of the engine would interrupt or lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindTables(Request[TablesFound]):
    """Look for Delta tables that the metastore does not know, in the warehouse and at some
    locations elsewhere."""

    locations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTable(Request[Done]):
    """Give a Delta table an entry in the metastore."""

    name: TableName
    location: str
    table_id: str
    """The id of the materialized table that it is; empty for another table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckExpressions(Request[ExpressionsChecked]):
    """Analyze expressions over columns without running them.

    ``computed`` are name and text over ``columns``; ``watermark`` and ``conditions`` are texts
    over both. ``listed`` is what a SELECT lists over ``columns``, and the text of ``watermark`` is
    over that. ``stable`` conditions must give the same answer about a row at any time.
    ``assertions`` are conditions over aggregates of ``columns``. ``region`` is the condition of
    immutable rows over ``columns``.
    """

    session_id: str
    columns: Schema
    computed: tuple[tuple[str, str], ...] = ()
    listed: str = ""
    watermark: str | None = None
    conditions: tuple[str, ...] = ()
    stable: bool = False
    assertions: tuple[str, ...] = ()
    region: str | None = None
    user: str = ""
    features: Features | None = None
    """As in :class:`Analyze`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteNames(Request[Rewritten]):
    """Replace a table's name wherever queries mention it."""

    queries: tuple[str, ...]
    name: TableName
    new_name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(Request[Done]):
    """Drop a materialized table's storage with its data.

    A table that is gone already, or that carries another ``tidegate.id``, is left alone.
    """

    name: TableName
    table_id: str
    location: str = ""
    """The storage's location, in case the metastore has lost it; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardHeld(Request[Done]):
    """Delete the held version of a materialized table."""

    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh(Request[Refreshed]):
    """Bring a materialized table up to date with its sources."""

    order: RefreshOrder
    task: Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBackTable(Request[Refreshed]):
    """Restore the rows of an earlier version."""

    order: RefreshOrder
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishHeld(Request[Refreshed]):
    """Serve the version that a refresh left held."""

    order: RefreshOrder
    held_by: str
    """The id of that refresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillTable(Request[Refreshed]):
    """Copy the immutable rows of another table."""

    order: RefreshOrder
    source: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRefresh(Request[Planned]):
    """Plan a refresh without running it."""

    order: RefreshOrder
    task: Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTable(Request[Verified]):
    """Compare a version of a materialized table, None the newest, with its definition query on
    the vector it recorded, or just a part of the rows."""

    order: RefreshOrder
    version: int | None = None
    part: RowPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectFiles(Request[FilesInspected]):
    """Ask for statistics of a materialized table's files, when ``versions`` were made, and the
    one ``back`` before the newest."""

    name: TableName
    table_id: str
    versions: tuple[int, ...]
    back: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles(Request[MaintenanceDone]):
    """Write a materialized table's small files as large ones.

    The caller holds the table's lease."""

    maintenance_id: str
    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFiles(Request[MaintenanceDone]):
    """Delete files that no version since the horizon needs."""

    maintenance_id: str
    name: TableName
    table_id: str
    horizon: Horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVersions(Request[Versions]):
    """Ask for the newest version of each source, without a Spark job.

    Of a source without versions, the fingerprint of its files is the version."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit(Request[LastCommitted]):
    """Ask for the content of a materialized table's last refresh commit."""

    name: TableName
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTables(Request[TableList]):
    """Ask for the metastore's content.

    ``schema`` None means every schema, ``names`` None every table of it; ``with_columns`` also
    reads the columns.
    """

    schema: str | None = None
    with_columns: bool = False
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNames(Request[NameList]):
    """Ask for the names of the metastore alone, which is quick."""

    with_owners: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindObject(Request[ObjectFound]):
    """Ask what a name of the metastore means, and for its owner.

    With TABLE and VIEW, either is found. Of a schema, ``name.table`` is empty.
    """

    kind: SecuredKind
    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogDefinition:
    """A catalog or a connection as the engine uses it."""

    kind: SecuredKind
    name: str
    class_name: str
    """Of Spark's interface CatalogPlugin; empty for a catalog that is written in Python."""
    options: Mapping[str, str] = field(repr=False)
    """Those of the class or type, with secrets."""
    python_type: str = ""
    """The type of a catalog that is written in Python, by which the engine finds what opens it. It
    serves where there is no such class."""
    secret: tuple[str, ...] = ()
    """The names of those options that are secrets."""
    install: str = ""
    """What to do if there is no such class."""
    problem: str = ""
    """Why it cannot be used, whatever its class says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutCatalogs(Request[Done]):
    """Replace all catalogs and connections; each is loaded when a statement first uses it."""

    catalogs: tuple[CatalogDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCatalog(Request[Done]):
    """Check that a catalog can be loaded; some kinds connect to another system for this."""

    catalog: CatalogDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectCatalog(Request[CatalogInspected]):
    """Ask whether a catalog has been loaded, without loading it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCatalog(Request[TableList]):
    """Ask for the schemas and tables of a catalog other than the session catalog.

    It may wait for another system.
    """

    name: str
    schemas: str = ".*"
    """A regular expression for the whole name; case does not matter."""
    tables: str | None = None
    """Likewise; None lists no tables."""
    with_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPlaces(Request[PlacesFound]):
    """Ask where the file system says that paths are; a path need not exist."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetObjectOwner(Request[Done]):
    """Record the owner of a schema, table or view in its metastore entry."""

    kind: SecuredKind
    name: TableName
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DisownObject(Request[Done]):
    """Remove the properties that mark a table or view as Tidegate's."""

    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOwners(Request[Done]):
    """Record, once per metastore, that what belongs to the engine's own user has no owner.

    Earlier versions recorded that user as the owner of views and schemas.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTemporaryViews(Request[TableList]):
    """Ask for a session's own views and the global ones.

    A view of the session alone has the empty text as its schema.
    """

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFunctions(Request[FunctionList]):
    """Ask for the functions that all sessions share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTemporaryFunctions(Request[FunctionList]):
    """Ask for a session's own functions."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """A Delta directory that is readable as a table."""

    name: str
    location: str
    comment: str
    source: str = ""
    """The local directory that the location is a copy of, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSystemTables(Request[Done]):
    """Update copies, and register the tables that the metastore does not have there yet."""

    schema: str
    tables: tuple[SystemTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindTableDefinition(Request[TableDefinitionFound]):
    """Ask for the definition of a table or view, which may be a temporary one of the session."""

    session_id: str
    name: tuple[str, ...]
    """As it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindStream(Request[StreamFound]):
    """Ask whether the query of an INSERT reads a stream, by its text and that of views alone."""

    session_id: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeInsert(Request[InsertAnalyzed]):
    """Analyze an INSERT whose query reads a stream."""

    session_id: str
    sql: str
    """The query, where it is in the statement."""
    head: str
    """The text of the statement before the query."""
    target: tuple[str, ...]
    """The name after INTO, as it was written."""
    columns: tuple[str, ...] = ()
    features: Features | None = None
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartJob(Request[Done]):
    """Start the streams of a job where they last committed; harmless if it runs already."""

    job_id: str
    inserts: tuple[JobInsert, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    interval: float
    """Seconds between commits."""
    user: str = ""
    """Whose privileges it has."""
    admissions: tuple[Admission | None, ...]
    """What each query may access; None for everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectJobs(Request[JobsInspected]):
    """Ask for the jobs that were started in this engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndJob(Request[Done]):
    """Stop the streams of a job after their current batches; ignores an unknown one."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTicket:
    """Names one chunk of a result for DoGet."""

    result_id: str
    chunk: int
