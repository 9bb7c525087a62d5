"""The engine's answers: one record for each kind of answer, including failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.access import Access
from tidegate_server.core.model.names import FunctionName, TableName
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import Source
from tidegate_server.core.refresh.maintenance import FilesRemoved, FilesRewritten, FileStatistics
from tidegate_server.core.refresh.request import CommittedRefresh, RefreshOutcome, RefreshPlan
from tidegate_server.core.sql.statements import ListingKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The request was carried out and has no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChecked:
    """Spark accepts the settings."""

    similar: Mapping[str, str] = field(default_factory=dict)
    """Settings unknown to Spark, each with a similar known one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """The engine is up."""

    spark_version: str
    pid: int
    jvm_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of the running jobs of an operation, as human-readable text."""

    stages_done: int
    stages_total: int
    tasks_done: int
    tasks_running: int
    tasks_total: int
    message: str = ""
    tracking_url: str = ""
    """URL of the first of these jobs in Spark's UI; empty if the UI is off."""


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
    """The analysis of a definition query by Spark."""

    schema: Schema
    expanded_query: str
    sources: tuple[Source, ...]
    temporary_objects: tuple[str, ...] = ()
    """Temporary objects that the query reads, as ``view name``, ``function name`` and so on."""
    lineage: tuple[ColumnOrigin, ...] = ()
    """The source columns that each column is computed from."""
    unstable: tuple[str, ...] = ()
    """Expressions that may give other rows from the same sources, each after its class: D1 is
    one value per run (``D1 current_date``), D2 depends on the order of equal rows
    (``D2 row_number``), D3 is another value each time or unknown (``D3 rand``)."""
    time_zone: str = ""
    """The value of the session in which the query was analyzed."""
    key: tuple[str, ...] = ()
    """The columns by which changes are applied, if the query reads a table of changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A place where a statement reads a table; views are resolved to the tables they read.

    ``name`` is None for files that were named by their path; ``location`` is the directory read.
    ``travelled`` means that the statement, or a view, chooses the version.
    """

    name: TableName | None = None
    location: str | None = None
    travelled: bool = False


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
    """What a statement would access.

    ``readings`` are the tables whose rows it would read, ``mentions`` those named in a plain query
    on ``information_schema``.
    """

    readings: tuple[Reading, ...] = ()
    mentions: tuple[Mention, ...] = ()
    accesses: tuple[Access, ...] = ()
    """What its plans access; empty if none was asked for."""
    lists: ListingKind | None = None
    """What its result lists."""
    plan_id: str = ""
    """Names the analyzed plan of a query, which the session keeps until its next statement."""
    opaque: bool = False
    """Whether some of it is known only while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCreated:
    """The storage exists."""

    location: str
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesPlaced:
    """The names point to their storages; ``table_ids`` are the format's ids of the tables."""

    table_ids: tuple[str, ...]


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


NO_MEMORY_EXIT = 71
"""Exit code of an engine whose JVM ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Memory use of the engine's JVM in bytes, and the time of its garbage collections."""

    heap_used: int
    heap_live: int
    """What the last full collection left; 0 before the first."""
    heap_limit: int
    direct_used: int
    """Memory outside the heap that the JVM accounts for, such as buffers of files."""
    direct_limit: int
    collecting_ms: int
    """Milliseconds of garbage collections since the JVM's start."""
    uptime_ms: int
    in_use: int = 0
    """Running requests, unread results and sessions with temporary objects, which the end of the
    engine would interrupt or lose; counted only on request."""
    waiting_seconds: float = 0.0
    """For how long work has waited for a first executor of the cluster; 0 if not for long."""
    waiting_reason: str = ""
    """Why the cluster has given none, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A Delta table without an entry in the metastore, as its own log describes it."""

    directory: TableName | None
    """The name derived from its directory; None outside of the warehouse."""
    location: str
    table_id: str
    """The id of the materialized table that it is; empty for another table."""
    definition: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesFound:
    """Every Delta table without an entry, and the tables and views that have one."""

    found: tuple[FoundTable, ...]
    entries: tuple[TableName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsFound:
    """Every storage of a materialized table."""

    found: tuple[FoundDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionsChecked:
    """The columns of computed expressions, in the order of the request."""

    computed: Schema
    """With ``listed`` those that it lists."""
    watermark: str = ""
    """The type of the watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Queries with the new name; None for one that does not mention the old name itself."""

    queries: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """A refresh succeeded."""

    outcome: RefreshOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan a refresh would carry out."""

    plan: RefreshPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The differences between a version and its definition query."""

    version: int
    epoch: int
    missing_rows: int
    """Rows of the query that the table lacks."""
    extra_rows: int
    """Rows of the table that the query does not give."""
    sample: str = ""
    """Some of them as JSON; empty when there are none."""
    left_out: str | None = None
    """The condition of the immutable rows, which were not compared; None if all were."""
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """The snapshots that were read, by the sources' names; not of sources whose versions SQL names
    by their numbers."""

    @property
    def equal(self) -> bool:
        """Whether table and query are the same multiset of rows."""
        return not self.missing_rows and not self.extra_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Newest versions by table id, without sources that are gone or have no version."""

    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesInspected:
    """Statistics of a table's files; None if the table is gone."""

    found: FileStatistics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDone:
    """The changes of a table's files."""

    rewritten: FilesRewritten = FilesRewritten()
    removed: FilesRemoved = FilesRemoved()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommitted:
    """The last refresh commit, or None when the table has none, and that of a held version."""

    commit: CommittedRefresh | None
    exists: bool
    held: CommittedRefresh | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table, view or temporary view of the metastore."""

    name: TableName
    type: str  # TABLE or VIEW
    comment: str | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableList:
    """Schemas and tables of the metastore."""

    schemas: tuple[str, ...]
    tables: tuple[TableInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaNames:
    """The names in one schema; views do not count as tables here."""

    schema: str
    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    owner: str = ""
    """The schema's owner; empty if it was not requested or is unknown."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The owners of the tables and views, if they were requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameList:
    """Every schema of the metastore with its names."""

    schemas: tuple[SchemaNames, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogInspected:
    """The state of a catalog in an engine: UNUSED, READY or FAILED."""

    state: str
    problem: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesFound:
    """Where files are, as the file system has resolved it."""

    places: tuple[str, ...]
    warehouse: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFound:
    """What an object is and who owns it; ``kind`` None means there is none."""

    kind: SecuredKind | None = None
    owner: str = ""
    """Empty if unknown, as that of a function always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionList:
    """Names of functions."""

    functions: tuple[FunctionName, ...]


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
    name: str | None = None

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
            name=self.name,
        )


def failure(error: ServerError) -> Failure:
    """Return the message that carries ``error`` across."""
    return Failure(
        code=error.code,
        sqlstate=error.sqlstate,
        message=error.message,
        hint=error.hint,
        line=error.line,
        column=error.column,
        detail=error.detail,
        name=error.name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertAnalyzed:
    """The analysis of the query and the target of an INSERT."""

    analysis: Analysis
    target: TableName
    table_id: str
    probe: str
    """That of :class:`JobInsert`."""
    source_id: str = ""
    """That of :class:`JobInsert`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinitionFound:
    """The definition of a table or view."""

    connector: str = ""
    """The connector whose table it is; empty for any other table or view, which has columns."""
    definition: str = ""
    """The one that the table of a connector records; empty if it records none."""
    columns: Schema = field(default_factory=Schema)
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementChecked:
    """The full names of the tables whose rows a statement changes, as they are shown."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFound:
    """Whether a query reads a stream."""

    found: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """What a job has done since it was started in this engine."""

    commits: int = 0
    failure: Failure | None = None
    """Why it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsInspected:
    """The jobs of an engine, by their ids."""

    jobs: Mapping[str, JobProgress]


Answer = (
    Done
    | SettingsChecked
    | EngineInfo
    | EngineMemory
    | Progress
    | Executed
    | Analysis
    | Surveyed
    | TableCreated
    | TablesPlaced
    | Inspected
    | DefinitionsFound
    | TablesFound
    | ExpressionsChecked
    | Rewritten
    | Refreshed
    | Planned
    | Verified
    | Versions
    | FilesInspected
    | MaintenanceDone
    | LastCommitted
    | TableList
    | NameList
    | ObjectFound
    | PlacesFound
    | CatalogInspected
    | FunctionList
    | InsertAnalyzed
    | StatementChecked
    | StreamFound
    | TableDefinitionFound
    | JobsInspected
    | Failure
)
