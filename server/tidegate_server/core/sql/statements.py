"""Every statement of Tidegate, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartMode,
    Watermark,
)
from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.types import Schema
from tidegate_server.core.sql.catalogs.statements import CatalogStatement
from tidegate_server.core.sql.external.statements import ExternalStatement
from tidegate_server.core.sql.jobs.statements import Insert, JobStatement
from tidegate_server.core.sql.privilege_statements import PrivilegeStatement

Name = tuple[str, ...]
"""A table name as written: one to three parts."""


class RequestedMode(Enum):
    """The requested REFRESH_MODE; the value is its spelling."""

    CONTINUOUS = "CONTINUOUS"
    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"
    INCREMENTAL_STRICT = "INCREMENTAL STRICT"


class Downstream(Enum):
    """FRESHNESS = DOWNSTREAM: as fresh as the consumers need."""

    DOWNSTREAM = "DOWNSTREAM"


# ---- parts of a table's schema ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnName:
    """A column of an identifier list."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalColumn:
    """A column with a declared type, as written."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataColumn:
    """A column read from the source's or format's metadata."""

    name: str
    type: str
    nullable: bool = True
    key: str | None = None
    virtual: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedColumn:
    """A column evaluated on read; the expression is the user's text."""

    name: str
    expression: str
    comment: str | None = None


ColumnItem = ColumnName | PhysicalColumn | MetadataColumn | ComputedColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKeyClause:
    """PRIMARY KEY (...) NOT ENFORCED with its constraint name, if any."""

    columns: tuple[str, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """A column of ADD or MODIFY and its position; ``after`` None and not ``first`` means last."""

    column: ColumnItem
    first: bool = False
    after: str | None = None


SchemaChange = ColumnChange | PrimaryKeyClause | Watermark | Distribution


# ---- statements ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMaterializedTable:
    """CREATE [OR ALTER] MATERIALIZED TABLE; ``query`` is the text after AS, comments included."""

    name: Name
    query: str
    or_alter: bool = False
    if_not_exists: bool = False
    columns: tuple[ColumnItem, ...] = ()
    primary_key: PrimaryKeyClause | None = None
    watermark: Watermark | None = None
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    comment: str | None = None
    distribution: Distribution | None = None
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    start_mode: StartMode | None = None
    freshness: Freshness | Downstream | None = None
    refresh_mode: RequestedMode | None = None
    on_update: OnUpdate | None = None
    execute_as: str | None = None
    immutable: str | None = None
    backfill_from: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSuspend:
    """ALTER MATERIALIZED TABLE t SUSPEND [CASCADE]."""

    name: Name
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResume:
    """ALTER MATERIALIZED TABLE t RESUME [CASCADE], with options for these pipelines alone."""

    name: Name
    options: Mapping[str, str] = field(default_factory=dict)
    cascade: bool = False


class Cascade(Enum):
    """The related tables that a REFRESH includes."""

    DOWNSTREAM = "DOWNSTREAM"
    UPSTREAM = "UPSTREAM"


class RefreshKind(Enum):
    """The strategy a REFRESH insists on."""

    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """PARTITION FROM (...) TO (...), both ends included."""

    start: Mapping[str, str]
    end: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRefresh:
    """ALTER MATERIALIZED TABLE t REFRESH; at most one of partition, range and predicate is set."""

    name: Name
    kind: RefreshKind | None = None
    partition: Mapping[str, str] | None = None
    range: PartitionRange | None = None
    predicate: str | None = None
    cascade: Cascade | None = None
    asynchronous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterCancelRefresh:
    """ALTER MATERIALIZED TABLE t CANCEL REFRESH."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAsQuery:
    """ALTER MATERIALIZED TABLE t AS query."""

    name: Name
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetOptions:
    """ALTER MATERIALIZED TABLE t SET (...)."""

    name: Name
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResetOptions:
    """ALTER MATERIALIZED TABLE t RESET (...)."""

    name: Name
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetFreshness:
    """ALTER MATERIALIZED TABLE t SET FRESHNESS = ...."""

    name: Name
    freshness: Freshness | Downstream


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetRefreshMode:
    """ALTER MATERIALIZED TABLE t SET REFRESH_MODE = ...."""

    name: Name
    mode: RequestedMode


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetRefreshTrigger:
    """ALTER MATERIALIZED TABLE t SET REFRESH_TRIGGER = ...; None is ON SCHEDULE."""

    name: Name
    on_update: OnUpdate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetExecuteAs:
    """ALTER MATERIALIZED TABLE t SET EXECUTE AS ...; None is OWNER."""

    name: Name
    execute_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetImmutable:
    """ALTER MATERIALIZED TABLE t SET IMMUTABLE WHERE (condition)."""

    name: Name
    predicate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAdd:
    """ALTER MATERIALIZED TABLE t ADD ...."""

    name: Name
    changes: tuple[SchemaChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterModify:
    """ALTER MATERIALIZED TABLE t MODIFY ...."""

    name: Name
    changes: tuple[SchemaChange, ...]


class DropPart(Enum):
    """A part of the definition that DROP names by word."""

    PRIMARY_KEY = "PRIMARY KEY"
    WATERMARK = "WATERMARK"
    DISTRIBUTION = "DISTRIBUTION"
    IMMUTABLE = "IMMUTABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterDrop:
    """ALTER MATERIALIZED TABLE t DROP ...; exactly one of the three is set."""

    name: Name
    columns: tuple[str, ...] = ()
    constraint: str | None = None
    part: DropPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRename:
    """ALTER MATERIALIZED TABLE t RENAME TO n."""

    name: Name
    new_name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSwap:
    """ALTER MATERIALIZED TABLE a SWAP WITH b: each has the other's name from then on."""

    name: Name
    other: Name


class RolledBack(Enum):
    """The part of a table that a rollback restores."""

    DATA = "DATA"
    DEFINITION = "DEFINITION"
    BOTH = "BOTH"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRollback:
    """ALTER MATERIALIZED TABLE t ROLLBACK TO VERSION n [DATA | DEFINITION | BOTH].

    Restores the data, the definition that made them, or both.
    """

    name: Name
    version: int
    what: RolledBack = RolledBack.DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPublishHeld:
    """ALTER MATERIALIZED TABLE t PUBLISH HELD VERSION: serve the held version."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterDiscardHeld:
    """ALTER MATERIALIZED TABLE t DISCARD HELD VERSION: delete the held version."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRollbackDefinition:
    """ALTER MATERIALIZED TABLE t ROLLBACK DEFINITION [TO VERSION n]; None is the previous one."""

    name: Name
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConvertToTable:
    """ALTER MATERIALIZED TABLE t CONVERT TO TABLE: a plain table with the same rows."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyMaterializedTable:
    """VERIFY MATERIALIZED TABLE t [VERSION n]: compare the content with the definition query."""

    name: Name
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMaterializedTable:
    """DROP MATERIALIZED TABLE [IF EXISTS] t."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowMaterializedTables:
    """SHOW MATERIALIZED TABLES; ``schema`` has one or two parts, or none for the current one."""

    schema: Name = ()
    extended: bool = False
    pattern: str | None = None
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateMaterializedTable:
    """SHOW CREATE [OR ALTER] MATERIALIZED TABLE t."""

    name: Name
    or_alter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRefreshHistory:
    """SHOW REFRESH HISTORY [FOR t] [LIMIT n] [ERRORS]."""

    name: Name | None = None
    limit: int | None = None
    errors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLineage:
    """SHOW LINEAGE t [COLUMNS]: the tables, or the columns, that it is computed from."""

    name: Name
    columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLag:
    """SHOW LAG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowEngines:
    """SHOW ENGINES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowVersions:
    """SHOW VERSIONS t [DEFINITION]: versions of its data, or of its definition."""

    name: Name
    definition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateTable:
    """SHOW CREATE TABLE of any table; only the catalog knows whether it is a materialized one."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTable:
    """DESCRIBE of any table; only the catalog knows whether it is a materialized one."""

    name: Name
    materialized: bool = False
    """Whether the statement says that it is one."""
    extended: bool = False
    as_json: bool = False


EXPLAIN_DETAILS = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")
"""The details that Spark's EXPLAIN accepts before a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """EXPLAIN of a statement about a materialized table."""

    statement: CreateMaterializedTable | AlterAsQuery | AlterRollbackDefinition | AlterRefresh
    detail: str = ""
    """The detail for the query of a CREATE: one of ``EXPLAIN_DETAILS``, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption:
    """SET key = value, in Flink's quoted or Spark's bare spelling."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOption:
    """SET key: ask for one setting."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """SET or SET -v: every setting, with its meaning when ``verbose``."""

    verbose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOption:
    """RESET [key]; None means every setting."""

    key: str | None = None


class ListingKind(Enum):
    """The SHOW statements whose results Tidegate adapts."""

    TABLES = auto()
    TABLE_EXTENDED = auto()
    VIEWS = auto()
    SCHEMAS = auto()
    FUNCTIONS = auto()


class ObjectAct(Enum):
    """What a statement does with a named object."""

    CREATE = auto()
    DROP = auto()
    RENAME = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """A statement on an object that is not temporary.

    It creates a function, replaces a table or view, or drops or renames an object.

    DROP TABLE and ALTER TABLE name views as well.
    """

    act: ObjectAct
    kind: SecuredKind
    name: Name
    new_name: Name = ()
    """The name after RENAME TO."""
    may_exist: bool = False
    """Whether it is CREATE OR REPLACE or CREATE IF NOT EXISTS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementFacts:
    """What is known of a statement for Spark from its first words."""

    returns_rows: bool
    """Whether Spark answers it with rows."""
    may_read_rows: bool
    """Whether running it may read rows of tables."""
    changes_rows: bool = False
    """Whether it inserts, updates or deletes rows of tables that exist."""
    verb: str = ""
    """Its first word, in capitals; empty if it does not begin with a keyword's letters."""
    runs_others: bool = False
    """Whether it runs other statements: BEGIN ... END, EXECUTE IMMEDIATE, CALL."""
    lists: ListingKind | None = None
    sets_time_zone: bool = False
    """Whether it is SET TIME ZONE, or runs other statements that may include it."""
    is_set: bool = False
    """Whether it begins with SET, so that its rows may be settings."""
    creates_temporary: str | None = None
    """The temporary object that it creates, such as ``view v``."""
    drops: str | None = None
    """The possibly temporary object that it drops, in the same words."""
    change: ObjectChange | None = None
    """What it does to a named object, if its first words name it."""
    insert: Insert | None = None
    """Its parts, if it is an INSERT INTO of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """The watermark of a connector's table, whose expression only Spark can check."""

    watermark: Watermark
    columns: Schema
    """Those of the table that have a type."""
    listed: str
    """All columns as SQL over those."""
    line: int
    character: int
    """Where the columns are, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStatement:
    """Any other statement, byte for byte."""

    text: str
    facts: StatementFacts
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """Warnings about what has no effect in the statement as it was written."""
    row_time: RowTime | None = field(default=None, compare=False)
    """What is checked before a connector's table is created."""


Alteration = (
    AlterSuspend
    | AlterResume
    | AlterRefresh
    | AlterCancelRefresh
    | AlterAsQuery
    | AlterSetOptions
    | AlterResetOptions
    | AlterSetFreshness
    | AlterSetRefreshMode
    | AlterSetRefreshTrigger
    | AlterSetExecuteAs
    | AlterSetImmutable
    | AlterAdd
    | AlterModify
    | AlterDrop
    | AlterRename
    | AlterSwap
    | AlterRollback
    | AlterRollbackDefinition
    | AlterConvertToTable
    | AlterPublishHeld
    | AlterDiscardHeld
)
Statement = (
    CreateMaterializedTable
    | Alteration
    | VerifyMaterializedTable
    | DropMaterializedTable
    | ShowMaterializedTables
    | ShowCreateMaterializedTable
    | ShowRefreshHistory
    | ShowLineage
    | ShowLag
    | ShowEngines
    | ShowVersions
    | DescribeTable
    | ShowCreateTable
    | Explain
    | SetOption
    | ShowOption
    | ShowOptions
    | ResetOption
    | PrivilegeStatement
    | ExternalStatement
    | CatalogStatement
    | JobStatement
    | SparkStatement
)
