"""The table of all error codes, each with its SQLSTATE, message and hint.

A message states what was expected and what was found; the hint says what to do. SQLSTATEs follow
SQL:2016 and Spark's own assignment where Spark has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One row of the table: SQLSTATE, message template, hint template."""

    sqlstate: str
    message: str
    hint: str = ""


class Code(Enum):
    """The stable error codes of Tidegate's own; Spark's error conditions pass through by name."""

    PARSE_SYNTAX = ErrorSpec("42601", "Syntax error at {found}: expected {expected}.", "{hint}")
    MT_NOT_FOUND = ErrorSpec(
        "42P01",
        "There is no materialized table {table}.",
        "SHOW MATERIALIZED TABLES lists those of the current schema.",
    )
    MT_ALREADY_EXISTS = ErrorSpec(
        "42P07",
        "{kind} {table} already exists.",
        "Choose another name, drop it first, or write IF NOT EXISTS.",
    )
    MT_WRONG_KIND = ErrorSpec("42809", "{table} is {found}, not {expected}.", "{hint}")
    MT_PARTITION_COLUMN_NOT_FOUND = ErrorSpec(
        "42703",
        "Partition column {name} is not produced by the query; it produces {available}.",
        "Add the column to the SELECT list, or correct its name in PARTITIONED BY.",
    )
    MT_PARTITION_UNSUPPORTED = ErrorSpec(
        "0A000",
        "Partition column {name} is {type}; a table cannot be partitioned by values of that type.",
        "{hint}",
    )
    MT_PARTITION_VALUE = ErrorSpec(
        "22023",
        "{table} cannot store the value {value} in its partition column {name}: {reason}.",
        "{hint}",
    )
    MT_DATE_FORMATTER_NOT_PARTITION = ErrorSpec(
        "42611",
        "The date-formatter names {name}, which is not a partition column; those are: {available}.",
        "Name a column of PARTITIONED BY in 'partition.fields.<column>.date-formatter'.",
    )
    MT_DATE_FORMATTER_TYPE = ErrorSpec(
        "42611",
        "The date-formatter needs a STRING partition column, but {name} is {type}.",
        "Produce the column with date_format(...) or CAST(... AS STRING).",
    )
    MT_DATE_FORMATTER_PATTERN = ErrorSpec(
        "22007",
        "{pattern} is not a valid date pattern: {reason}.",
        "Use Java date letters, for example yyyy-MM-dd or yyyyMMddHH.",
    )
    MT_COLUMN_COUNT = ErrorSpec(
        "42802",
        "The column list has {declared} columns but the query produces {produced}: {available}.",
        "List every column of the query once.",
    )
    MT_COLUMN_NOT_FOUND = ErrorSpec(
        "42703", "Column {name} is not produced by the query; it produces {available}."
    )
    MT_PK_NOT_FOUND = ErrorSpec(
        "42703", "Primary key column {name} is not produced by the query: {available}."
    )
    MT_PK_NULLABLE = ErrorSpec(
        "42831",
        "Primary key {key} has the nullable column {name}.",
        "Make the query produce it NOT NULL, for example with coalesce(...).",
    )
    MT_PK_ENFORCED = ErrorSpec(
        "0A000", "Primary key {key} is not marked NOT ENFORCED.", "Write NOT ENFORCED after it."
    )
    MT_UNIQUE_UNSUPPORTED = ErrorSpec(
        "0A000", "UNIQUE constraints are not supported.", "Declare PRIMARY KEY (...) NOT ENFORCED."
    )
    MT_FRESHNESS_LITERAL = ErrorSpec(
        "22007",
        "FRESHNESS must be an INTERVAL literal, not {found}.",
        "Write it as INTERVAL '3' MINUTE.",
    )
    MT_FRESHNESS_UNIT = ErrorSpec(
        "22007", "FRESHNESS does not support the unit {unit}.", "Use SECOND, MINUTE, HOUR or DAY."
    )
    MT_FRESHNESS_POSITIVE = ErrorSpec(
        "22007",
        "FRESHNESS only supports positive integer values, not {value}.",
        "Write for example INTERVAL '1' MINUTE.",
    )
    MT_FRESHNESS_TOO_LARGE = ErrorSpec(
        "22007",
        "In FULL mode freshness must be less than {limit} when the time unit is {unit}, but it is "
        "{value}.",
        "Use the next larger unit.",
    )
    MT_FRESHNESS_NOT_FACTOR = ErrorSpec(
        "22007",
        "In FULL mode only freshness that are factors of {limit} are supported when the time unit "
        "is {unit}, but it is {value}.",
        "Write one of {factors}.",
    )
    MT_FRESHNESS_DAY = ErrorSpec(
        "22007",
        "In FULL mode freshness must be 1 when the time unit is DAY, but it is {value}.",
        "Write INTERVAL '1' DAY.",
    )
    MT_FRESHNESS_NEIGHBOUR = ErrorSpec(
        "22023",
        "{reason}",
        "Change one of the two, or SET '{key}' = 'false' for a warning.",
    )
    MT_TRIGGER_INTERVAL = ErrorSpec(
        "22007",
        "AT MOST EVERY only supports positive integer values, not {value}.",
        "Write it as AT MOST EVERY INTERVAL '10' MINUTE.",
    )
    MT_TRIGGER_UNSUPPORTED = ErrorSpec(
        "0A000", "REFRESH_TRIGGER = ON UPDATE is not possible here: {reason}.", "{hint}"
    )
    MT_TEMPORARY_UNSUPPORTED = ErrorSpec(
        "0A000", "A materialized table cannot be TEMPORARY.", "Leave the word out."
    )
    MT_REPLACE_UNSUPPORTED = ErrorSpec(
        "0A000",
        "CREATE OR REPLACE MATERIALIZED TABLE is not supported.",
        "CREATE OR ALTER MATERIALIZED TABLE keeps the data and evolves the definition.",
    )
    MT_START_MODE_ARGUMENT = ErrorSpec(
        "22023",
        "{kind} takes {expected}, not {found}.",
        "Write FROM_NOW(INTERVAL '1' HOUR) or FROM_TIMESTAMP(TIMESTAMP '2024-01-01 00:00:00').",
    )
    MT_START_MODE_CREATE = ErrorSpec(
        "42601",
        "{kind} is not possible in CREATE MATERIALIZED TABLE: a new table has nothing to resume.",
        "Use it in CREATE OR ALTER MATERIALIZED TABLE, or choose a FROM_ mode.",
    )
    MT_WATERMARK_MULTIPLE = ErrorSpec("42601", "A materialized table has at most one watermark.")
    MT_WATERMARK_COLUMN = ErrorSpec(
        "42703", "Watermark column {name} is not produced by the query; it produces {available}."
    )
    MT_WATERMARK_TYPE = ErrorSpec(
        "42804",
        "Watermark column {name} is {type}; it must be TIMESTAMP or TIMESTAMP_NTZ.",
        "Add a computed column of such a type and name it instead, for example {example}.",
    )
    MT_DISTRIBUTION_TYPE = ErrorSpec(
        "42804",
        "Rows cannot be distributed by column {name}, which is {type}.",
        "Name columns whose values can be compared; types with a MAP or a VARIANT cannot.",
    )
    MT_OPTIONS_EMPTY = ErrorSpec(
        "42601", "{what} needs at least one option.", "Write for example {example}."
    )
    MT_OPTION_RESERVED = ErrorSpec("42809", "Option {key} cannot be reset.")
    MT_DUPLICATE_COLUMN = ErrorSpec("42711", "Column {name} appears more than once.")
    MT_PERSISTED_COLUMN_NOT_IN_QUERY = ErrorSpec(
        "42703",
        "{statement}: the {kind} column {name} is not produced by the query; it produces "
        "{available}.",
        "Add the column to the SELECT list, or leave it out of the column list.",
    )
    MT_INCOMPATIBLE_TYPE = ErrorSpec(
        "42846",
        "Column {name} at position {position} is declared {declared}, to which the query's "
        "{produced} is not implicitly castable.",
        "Write the CAST in the query.",
    )
    UNSUPPORTED_DATATYPE = ErrorSpec(
        "0A000",
        "Column {name} is declared {type}, which is not a data type.",
        "Write a type of Spark SQL, such as BIGINT, STRING, DECIMAL(10, 2) or ARRAY<INT>.",
    )
    MT_EVOLUTION_UNSUPPORTED = ErrorSpec(
        "0A000",
        "The change of column {position} of {table} from {old} to {new} is not supported.",
        "A definition query may only add columns after the existing ones; otherwise drop and "
        "create the table.",
    )
    MT_EVOLUTION_NON_PERSISTED = ErrorSpec(
        "0A000",
        "{table} has columns that are not stored ({names}), so ALTER ... AS cannot change its "
        "columns.",
        "Use CREATE OR ALTER MATERIALIZED TABLE with a column list.",
    )
    MT_EVOLUTION_REFRESH_MODE = ErrorSpec(
        "0A000",
        "CREATE OR ALTER cannot change the refresh mode of {table} from {old} to {new}.",
        "Use ALTER MATERIALIZED TABLE {table} SET REFRESH_MODE = {new}.",
    )
    MT_EVOLUTION_PARTITIONING = ErrorSpec(
        "0A000",
        "The partitioning of {table} by {old} cannot be changed to {new}.",
        "Drop the table and create it with the other PARTITIONED BY.",
    )
    MT_CONVERSION_DISABLED = ErrorSpec(
        "0A000",
        "{table} is a plain table, and converting plain tables is disabled.",
        "An administrator can set table.materialized-table.conversion-from-table.enabled under "
        "[options] in the server's configuration.",
    )
    MT_START_MODE_UNSUPPORTED = ErrorSpec("0A000", "START_MODE = {kind}: {reason}.", "{hint}")
    MT_METADATA_KEY = ErrorSpec(
        "42703",
        "Column {name}: there is no metadata {key}; there is {available}.",
        "Write for example METADATA FROM 'file_name' VIRTUAL.",
    )
    MT_COLUMN_EXPRESSION = ErrorSpec(
        "42611", "The expression of {name} is invalid: {reason}.", "{hint}"
    )
    MT_ALTER_SCHEMA_EXISTS = ErrorSpec("42710", "{table} already has {what}.", "{hint}")
    MT_ALTER_SCHEMA_NOT_FOUND = ErrorSpec("42704", "{table} has no {what}.", "{hint}")
    MT_ALTER_SCHEMA_POSITION = ErrorSpec(
        "42703", "{table} has no column {name} to place another one after; it has {available}."
    )
    MT_ALTER_SCHEMA_KIND = ErrorSpec(
        "42809",
        "Column {name} of {table} is {found} and cannot become {wanted}.",
        "Drop the column and add it again.",
    )
    MT_ALTER_SCHEMA_CAST = ErrorSpec(
        "42846",
        "Column {name} of {table} is {found}, which does not widen to {wanted}.",
        "Write the CAST in the query and create the table again.",
    )
    MT_ALTER_SCHEMA_EXPRESSION = ErrorSpec(
        "42611", "The new expression of {name} is invalid: {reason}.", "{hint}"
    )
    MT_RENAME_DEPENDANTS = ErrorSpec(
        "2BP01",
        "{table} cannot be renamed: {consumers} read it through a view.",
        "Change their queries to read the table itself, or create the views again afterwards.",
    )
    MT_DROP_COLUMN_NOT_FOUND = ErrorSpec(
        "42703", "{table} has no column {name}; it has {available}."
    )
    MT_DROP_COLUMN_REPEATED = ErrorSpec("42711", "DROP names column {name} twice.")
    MT_DROP_COLUMN_PARTITION_KEY = ErrorSpec(
        "42809", "Column {name} of {table} is a partition key and cannot be dropped."
    )
    MT_DROP_COLUMN_PRIMARY_KEY = ErrorSpec(
        "42809",
        "Column {name} of {table} belongs to the primary key and cannot be dropped.",
        "DROP PRIMARY KEY first.",
    )
    MT_DROP_COLUMN_DISTRIBUTION = ErrorSpec(
        "42809",
        "Column {name} of {table} belongs to the distribution and cannot be dropped.",
        "DROP DISTRIBUTION first.",
    )
    MT_DROP_COLUMN_WATERMARK = ErrorSpec(
        "42809",
        "Column {name} of {table} is used by the watermark and cannot be dropped.",
        "DROP WATERMARK first.",
    )
    MT_DROP_COLUMN_QUERY = ErrorSpec(
        "42809",
        "Column {name} of {table} is produced by its query and cannot be dropped.",
        "Only computed columns and METADATA VIRTUAL columns can.",
    )
    MT_PARTITION_TYPE = ErrorSpec(
        "42804",
        "Partition column {name} of {table} is {type}; REFRESH PARTITION needs a string column.",
        "Produce the column with date_format(...) or CAST(... AS STRING).",
    )
    MT_SCHEDULE_TIME = ErrorSpec(
        "22007",
        "A periodic refresh needs a schedule time, but {found} is not one.",
        "Write scheduleTime as yyyy-MM-dd HH:mm:ss, for example 2024-01-03 00:00:00.",
    )
    MT_NO_SCHEDULER = ErrorSpec(
        "55000",
        "{action} of a table in FULL mode needs a workflow scheduler, but none is configured.",
        "Set scheduler.type = 'embedded' in the server's configuration.",
    )
    MT_TEMPORARY_DEPENDENCY = ErrorSpec(
        "42K0F",
        "The query reads the temporary {kind} {name}.",
        "Refreshes run outside this session: use permanent tables, views and functions.",
    )
    MT_CYCLE = ErrorSpec(
        "42P17",
        "The query of {table} reads {table} itself{via}.",
        "A materialized table cannot be computed from its own content.",
    )
    MT_SOURCE_NOT_FOUND = ErrorSpec(
        "42P01",
        "Source {kind} {source} of {table} no longer exists.",
        "Create it again, or change the query with ALTER MATERIALIZED TABLE {table} AS; until then "
        "the table keeps the data it has.",
    )
    MT_SOURCE_CHANGED = ErrorSpec(
        "42000",
        "Source {source} of {table} has changed: {change}.",
        "Change it back, or create {table} again with a query that matches; until then the table "
        "keeps the data it has.",
    )
    MT_PARTITION_UNKNOWN = ErrorSpec(
        "42703", "{name} is not a partition column of {table}; those are: {available}."
    )
    MT_PARTITION_RANGE = ErrorSpec(
        "22023",
        "The range of partitions is invalid: {reason}.",
        "FROM and TO must name the same partition columns; both ends are included.",
    )
    MT_PREDICATE = ErrorSpec(
        "42601",
        "The condition {predicate} cannot choose rows of the table: {reason}.",
        "Compare columns of the table with literals.",
    )
    MT_BACKFILL = ErrorSpec(
        "42846",
        "Rows of {source} cannot be copied by BACKFILL FROM: {reason}.",
        "Name a table or view that has all columns of the materialized table, with the same names "
        "and compatible types.",
    )
    MT_STATE = ErrorSpec(
        "55000", "{table} is {found}; {action} requires it to be {expected}.", "{hint}"
    )
    MT_STREAM_UNUSABLE = ErrorSpec(
        "42601",
        "The stream is invalid: {reason}.",
        "Write for example FROM STREAM read_files('/place', format => 'json', schema => 'a INT').",
    )
    MT_STREAM_QUERY = ErrorSpec(
        "0A000",
        "A query over a stream can select, filter and explode its rows; {found} is not possible.",
        "Let this table ingest the rows unchanged, and compute the rest in a materialized table "
        "that reads this one.",
    )
    MT_STREAM_UNSUPPORTED = ErrorSpec(
        "0A000", "{what} is not possible for {table}, which ingests a stream.", "{hint}"
    )
    MT_STREAM_CHANGED = ErrorSpec(
        "42809",
        "{table} reads {found}; its query cannot read {wanted} instead.",
        "Ingestion progress belongs to one stream: create another table, or keep the stream and "
        "change the columns selected from it.",
    )
    MT_STREAM_SOURCE = ErrorSpec(
        "58004",
        "The source {source} is not available in Spark.",
        "Set engine.kafka = true in the server's configuration and restart the server.",
    )
    MT_CHANGES_UNREADABLE = ErrorSpec(
        "58030", "The changes of {source} cannot be read: {reason}.", "{hint}"
    )
    MT_QUERY_UNSUPPORTED = ErrorSpec("0A000", "The definition query is invalid: {reason}.")
    MT_EXECUTION_MODE = ErrorSpec(
        "22023",
        "execution.mode {mode} is not supported.",
        "{hint}",
    )
    MT_OPTION_UNKNOWN = ErrorSpec("42704", "There is no option {key}.", "{hint}")
    MT_OPTION_VALUE = ErrorSpec("22023", "Option {key} cannot be {value}: {reason}.")
    MT_REFRESH_FENCED = ErrorSpec(
        "40001",
        "Refresh epoch {epoch} of {table} was overtaken by epoch {current}; nothing was written.",
        "The newer refresh takes precedence; run REFRESH again if needed.",
    )
    MT_EXPECTATION_FAILED = ErrorSpec(
        "23514",
        "A row of {table} breaks the expectation {expectation} ({condition}): {row}",
        "The table keeps its previous version. Correct the sources or the query, or declare the "
        "expectation with ON VIOLATION WARN, DROP ROW or QUARANTINE.",
    )
    MT_ASSERTION_FAILED = ErrorSpec(
        "23514",
        "The new version of {table} breaks the assertion {assertion} ({condition}): {found}.",
        "The table keeps its previous version. Correct the sources or the query, or declare the "
        "assertion with ON VIOLATION WARN or HOLD.",
    )
    MT_VERSION_HELD = ErrorSpec(
        "23514",
        "The new version of {table} is held because it breaks {reason}.",
        "The previous version is served. ALTER MATERIALIZED TABLE {table} PUBLISH HELD VERSION "
        "serves the new one, DISCARD HELD VERSION deletes it, REFRESH replaces it.",
    )
    MT_NOTHING_HELD = ErrorSpec(
        "55000",
        "{table} has no held version: {reason}.",
        "SHOW REFRESH HISTORY FOR {table} shows what happened to earlier ones.",
    )
    MT_PK_VIOLATED = ErrorSpec(
        "23505",
        "The primary key {key} ({columns}) of {table} would be violated: {count} of its values "
        "would be NULL or duplicated, such as {sample}.",
        "The table keeps its previous version. Correct the sources or the query, or set "
        "'constraint.enforce' = 'warn'.",
    )
    MT_VERIFY_IMPOSSIBLE = ErrorSpec(
        "55000", "Version {version} of {table} cannot be verified: {reason}.", "{hint}"
    )
    MT_ROLLBACK_IMPOSSIBLE = ErrorSpec(
        "55000", "{table} cannot be rolled back to version {version}: {reason}.", "{hint}"
    )
    MT_DEFINITION_NOT_FOUND = ErrorSpec(
        "42704",
        "{table} has no definition version {version}; it has {available}.",
        "SHOW VERSIONS {table} DEFINITION lists them.",
    )
    MT_NOT_INCREMENTAL = ErrorSpec(
        "0A000",
        "{table} cannot be refreshed incrementally: {reasons}.",
        "Use refresh mode INCREMENTAL, which then refreshes fully, or change the query.",
    )
    MT_TOO_STALE = ErrorSpec(
        "55000",
        "Materialized table {table} is too stale to be read: {reason}.",
        "Refresh it with ALTER MATERIALIZED TABLE {table} REFRESH, or let reads refresh it with "
        "SET '{key}' = '... REFRESH'.",
    )
    MT_SNAPSHOT_UNAVAILABLE = ErrorSpec(
        "55000",
        "No consistent versions of {tables} can be read: {reason}.",
        "Refresh them together, as ALTER MATERIALIZED TABLE ... REFRESH CASCADE does, or "
        "SET '{key}' = 'LATEST' to read the newest version of each.",
    )
    MT_DATA_LOST = ErrorSpec(
        "58030",
        "The stored content of {table} cannot be read: {reason}.",
        "Run ALTER MATERIALIZED TABLE {table} REFRESH FULL to recreate its storage.",
    )
    SCHEDULER_CONFIGURATION = ErrorSpec(
        "55000",
        "The workflow scheduler {scheduler} cannot be used: {reason}.",
        "scheduler.type is embedded, none, the name of an entry point in tidegate.schedulers, or "
        "module:Class.",
    )
    SCHEDULER_FAILED = ErrorSpec(
        "58000",
        "The workflow scheduler {scheduler} failed to {action} the workflow of {table}: {reason}.",
        "Nothing was changed; check the scheduler and retry.",
    )
    ALERTS_CONFIGURATION = ErrorSpec(
        "55000",
        "Alerts cannot be sent by {key}: {reason}.",
        "alerts.webhook is an http or https URL, alerts.webhook_headers are plain header lines, "
        "alerts.command is a list of a program and its arguments.",
    )
    STORE_VERSION = ErrorSpec(
        "55000",
        "The store has schema version {found}; this program knows versions up to {known}.",
        "Run the newer release that wrote the store, or restore an older backup.",
    )
    STORE_BUSY = ErrorSpec(
        "40001",
        "The store is locked: {reason}.",
        "Repeat the statement in a few seconds. If the store stays locked, stop the other program "
        "that has it open.",
    )
    STORE_FULL = ErrorSpec(
        "53100",
        "The store cannot grow: {reason}.",
        "Free space on that disk, then repeat the statement.",
    )
    STORE_UNAVAILABLE = ErrorSpec(
        "08006",
        "The store is not available: {reason}.",
        "Repeat the statement when the store is available again; the log has the details.",
    )
    STORE_DAMAGED = ErrorSpec(
        "58030",
        "The store is damaged: {reason}.",
        "Stop the gateway, move the damaged store away or restore a backup, and start once with "
        "--recover-catalog, which restores the definitions from the warehouse.",
    )
    DATA_DIRECTORY = ErrorSpec(
        "55000", "The data directory {path} cannot be used: {reason}.", "{hint}"
    )
    SECRET_EXPOSED = ErrorSpec(
        "55000",
        "The setting {key} contains a secret, and every user of the machine can see it on the "
        "command line of a process: {names}.",
        "Write the options into a file that only the server's user can read, and refer to it: "
        '"{key}" = "@/etc/tidegate/java.options".',
    )
    CLUSTER_STORAGE = ErrorSpec(
        "55000",
        "With engine.master = {master} the warehouse cannot be {warehouse}, a directory of this "
        "machine: executors on other machines do not share it.",
        "Set engine.settings.spark.sql.warehouse.dir to storage that all machines reach, such as "
        "s3a://bucket/warehouse. If all of them mount it at the same path, set "
        "engine.shared_warehouse = true, or engine.shared_data = true for the data directory.",
    )
    CLUSTER_CONFIGURATION = ErrorSpec(
        "55000", "Engines cannot use the master {master}: {reason}.", "{hint}"
    )
    METASTORE_NOT_SHARED = ErrorSpec(
        "55000",
        "With engine.share = user or [engines.NAME] several engines open the metastore, and the "
        "embedded Derby database can be opened by one only.",
        "Set engine.settings.spark.hadoop.hive.metastore.uris to a metastore service, or "
        "engine.settings.spark.hadoop.javax.jdo.option.ConnectionURL to a database server such as "
        "PostgreSQL.",
    )
    REGISTRATION = ErrorSpec(
        "55000",
        "Engines in clusters cannot be listened for: {reason}.",
        "Set registration.host and registration.port to an address of this machine that is free, "
        "and look at engines/registration.pem in the data directory.",
    )
    LOG_STORE_UNSAFE = ErrorSpec(
        "55000",
        "Several engines cannot write Delta tables to {warehouse}: two of them could commit the "
        "same version, and one commit would be lost.",
        "Set engine.settings.spark.delta.logStore.{scheme}.impl to a log store for several "
        "drivers, such as io.delta.storage.S3DynamoDBLogStore, and add its jar to engine.jars. Or "
        "leave out [engines.NAME] and engine.share = user.",
    )
    ENGINE_ACCOUNT = ErrorSpec(
        "28000",
        "The engine of user {user} cannot run under the account {account}: {reason}.",
        "engine.account and engine.launcher say under which account it runs; see Security in the "
        "manual for what such an account needs.",
    )
    ENGINE_UNAVAILABLE = ErrorSpec(
        "08006",
        "The Spark engine is not available: {reason}.",
        "It is being restarted; repeat the statement in a few seconds.",
    )
    ENGINE_LOST = ErrorSpec(
        "08006",
        "The Spark engine died while it ran this statement.",
        "A new engine is starting; repeat the statement.",
    )
    CLUSTER_NO_EXECUTORS = ErrorSpec(
        "53000",
        "{master} has given {engine} no executor for {seconds} s{why}.",
        "Other applications may have all cores and memory of the cluster, or no machine has what "
        "spark.executor.cores and spark.executor.memory ask for: see the cluster's own pages. "
        "Repeat the statement when there is room, move the table to another engine with ALTER "
        "MATERIALIZED TABLE ... SET ('execution.engine' = ...), or raise engine.executor_timeout.",
    )
    SESSION_OBJECTS_LOST = ErrorSpec(
        "55000",
        "The Spark engine was restarted; this session lost {objects}.",
        "Create them again, then repeat the statement. Settings and the current schema are kept.",
    )
    OPERATION_CANCELED = ErrorSpec("57014", "The operation was canceled{by}.")
    OPERATION_TIMEOUT = ErrorSpec(
        "57014", "The operation ran longer than its timeout of {seconds} s."
    )
    OUT_OF_MEMORY = ErrorSpec("53200", "{what}.", "{hint}")
    DISK_FULL = ErrorSpec("53100", "The disk is full.", "Free space under the data directory.")
    STATEMENT_TOO_LARGE = ErrorSpec(
        "54001",
        "The text of the statement has {size}, but at most {limit} are allowed.",
        "Put the values into a table, with several INSERTs or from a file, and join with it; an "
        "administrator can raise {key}.",
    )
    STATEMENT_TOO_COMPLEX = ErrorSpec(
        "54001",
        "The statement is too complex: {reason}.",
        "Split it into several statements, for example with temporary views or tables between "
        "them; write IN (...) instead of many ORs.",
    )
    VALUE_TOO_LARGE = ErrorSpec(
        "54000",
        "The function {function} would return a value of {size} bytes, but at most {limit} fit the "
        "engine's memory.",
        "For many rows, use range(first, end) instead of explode(sequence(...)); an administrator "
        "can raise engine.driver_memory.",
    )
    RESULT_TOO_LARGE = ErrorSpec(
        "54000",
        "The result does not fit the spool quota of {quota} bytes.",
        "Add a LIMIT, write the result to a table, or raise engine.spool_quota.",
    )
    RESULTS_OF_USER_TOO_LARGE = ErrorSpec(
        "53400",
        "The open results of user {user} do not fit the quota of {quota} bytes of the spool.",
        "Close statements that have been read, add a LIMIT, or raise engine.spool_quota_per_user.",
    )
    RESULT_INCOMPLETE = ErrorSpec(
        "58030",
        "The result is not complete: {written} rows were written and {read} were read.",
        "Repeat the statement. Executors on other machines must share the data directory: see "
        "engine.shared_data.",
    )
    RESOURCE_NOT_FOUND = ErrorSpec(
        "42K03",
        "{statement}: there is no file {path}.",
        "Name a file that the server can read; paths are resolved on the server's machine.",
    )
    INVALID_SESSION_HANDLE = ErrorSpec(
        "08003", "Invalid SessionHandle: {handle}.", "Open a new session."
    )
    INVALID_OPERATION_HANDLE = ErrorSpec("HY000", "Invalid OperationHandle: {handle}.")
    FETCH_ORIENTATION = ErrorSpec("HY106", "FetchResults does not support {orientation}.")
    FLINK_SQL_UNSUPPORTED = ErrorSpec(
        "0A000", "{what} cannot be translated from Flink's SQL.", "{hint}"
    )
    NOT_SUPPORTED = ErrorSpec("0A000", "{what} is not supported.", "{hint}")
    INVALID_REQUEST = ErrorSpec("HY000", "The request is invalid: {reason}.")
    TOO_MANY = ErrorSpec("53300", "Too many {what}: at most {limit} are allowed.", "{hint}")
    SCHEMA_NOT_FOUND = ErrorSpec(
        "42704", "There is no schema {schema}.", "SHOW SCHEMAS lists them."
    )
    ACCESS_DENIED = ErrorSpec("42501", "User {user} needs {privilege} on {object}.", "{hint}")
    AUDIT_UNAVAILABLE = ErrorSpec(
        "53100",
        "The audit log cannot be written: {reason}.",
        "Free space on its disk, or let the server's user write to its directory.",
    )
    OBJECT_NOT_FOUND = ErrorSpec(
        "42704", "There is no {kind} {name}.", "Check the name and the current schema."
    )
    OBJECT_WRONG_KIND = ErrorSpec(
        "42809", "{name} is a {found}, not a {expected}.", "Write {wanted} before the name."
    )
    INVALID_GRANT = ErrorSpec("0LP01", "{privilege} cannot be granted on {object}.", "{hint}")
    DEPENDENT_GRANTS = ErrorSpec(
        "2BP01",
        "Other grants depend on this grant option: {grants}.",
        "Add CASCADE to revoke them as well.",
    )
    ROLE_NOT_FOUND = ErrorSpec("42704", "There is no role {role}.", "SHOW ROLES lists them.")
    ROLE_ALREADY_EXISTS = ErrorSpec(
        "42710", "The role {role} already exists.", "Add IF NOT EXISTS to accept that."
    )
    ROLE_CYCLE = ErrorSpec(
        "0LP01",
        "The role {role} cannot be granted to the role {member}, which it contains.",
        "SHOW GRANTS ON ROLE lists the members of a role.",
    )
    ROLE_OWNS_OBJECTS = ErrorSpec(
        "2BP01", "The role {role} owns {objects}.", "Transfer them with ALTER ... SET OWNER."
    )
    EXTERNAL_EXISTS = ErrorSpec(
        "42710", "The {kind} {name} already exists.", "Add IF NOT EXISTS to accept that."
    )
    INVALID_LOCATION = ErrorSpec(
        "22023",
        "{url} cannot be an external location: {reason}.",
        "Write the absolute path of a directory, such as 'file:/data/in' or 's3a://bucket/in'.",
    )
    PLACE_UNKNOWN = ErrorSpec(
        "22023",
        "No file system knows {path}: {reason}.",
        "Write a path, or a URL whose scheme is known to Hadoop.",
    )
    INVALID_CONNECTOR = ErrorSpec(
        "22023",
        "The options of the connector {connector} are invalid: {reason}.",
    )
    SCHEMA_REGISTRY = ErrorSpec(
        "58030",
        "The schema registry {url} cannot be used: {reason}.",
        "The table's option 'url' of the format names it; the next statement asks it again.",
    )
    INVALID_LIKE = ErrorSpec(
        "42601", "The table cannot be created like {other}: {reason}.", "{hint}"
    )
    INVALID_READER = ErrorSpec(
        "42601",
        "The parameters of the function are invalid: {reason}.",
        "Write for example SELECT * FROM read_files('/place', format => 'json').",
    )
    JOB_NOT_FOUND = ErrorSpec(
        "42704",
        "There is no job {job} that you may see.",
        "SHOW JOBS lists the jobs with their ids.",
    )
    JOB_TARGET_LOST = ErrorSpec(
        "55000",
        "The job cannot write into {table}: the table was dropped or replaced.",
        "STOP JOB ends the job. Submit its INSERT again to write into the new table.",
    )
    JOB_CHANGES_UNWRITABLE = ErrorSpec(
        "0A000", "The changes of {source} cannot be written into {target}: {reason}.", "{hint}"
    )
    JOB_INTERRUPTED = ErrorSpec(
        "58000",
        "The job was interrupted: {reason}.",
        "Its last statement may have changed rows. Look at the table before you submit it again.",
    )
    JOB_ENDED = ErrorSpec("58000", "A stream of the job ended without an error.", "")
    STATEMENT_SET = ErrorSpec("25000", "{reason}.", "{hint}")
    INVALID_CONNECTION = ErrorSpec("22023", "The connection {name} is invalid: {reason}.", "{hint}")
    INVALID_CATALOG = ErrorSpec("22023", "The catalog {name} is invalid: {reason}.", "{hint}")
    CATALOG_TYPE = ErrorSpec(
        "22023", "A catalog of the type {type} cannot be created: {reason}.", "{hint}"
    )
    CATALOG_UNAVAILABLE = ErrorSpec(
        "08001",
        "The catalog {name} cannot be used: {reason}.",
        "DESCRIBE CATALOG EXTENDED {name} shows its options; the next statement tries again.",
    )
    CATALOG_METHOD = ErrorSpec(
        "0A000",
        "The catalog {name} does not offer {method}.",
        "Its type is written in Python and lacks this method: make the change in the other system.",
    )
    CATALOG_REFUSED = ErrorSpec(
        "0A000",
        "The catalog {name} refused the statement: {reason}.",
        "The reason is that of the catalog; change the statement accordingly.",
    )
    CATALOG_FAILED = ErrorSpec(
        "58000",
        "The catalog {name} failed: {reason}.",
        "The log of the engine has the details, for the author of the type of the catalog.",
    )
    CATALOG_IN_USE = ErrorSpec("55006", "The catalog {name} cannot be dropped: {reason}.", "{hint}")
    CATALOG_STORE = ErrorSpec(
        "58030",
        "The catalog store {path} cannot be used: {reason}.",
        "Check the directory and its rights.",
    )
    REFRESH_NOT_FOUND = ErrorSpec("42704", "There is no refresh {refresh}.")
    INSECURE_ADDRESS = ErrorSpec(
        "28000",
        "Listening on {host} without authentication would let anyone in.",
        "Listen on 127.0.0.1, or set server.insecure to allow it.",
    )
    INSECURE_PASSWORDS = ErrorSpec(
        "28000",
        "With server.auth = {method}, passwords or tokens would travel to {host} unencrypted.",
        "Set tls.certificate and tls.key, or server.plaintext_passwords to allow it.",
    )
    FLIGHT_CONFIGURATION = ErrorSpec(
        "58000", "server.flight_port cannot be used: {reason}.", "{hint}"
    )
    LOGIN_CONFIGURATION = ErrorSpec("28000", "{what} is invalid: {reason}.", "{hint}")
    TLS_CONFIGURATION = ErrorSpec(
        "28000",
        "TLS cannot be offered: {reason}.",
        "Set tls.certificate and tls.key to PEM files; the key must not be encrypted.",
    )
    LOGIN_REFUSED = ErrorSpec("28000", "{reason}.", "{hint}")
    LOGIN_UNAVAILABLE = ErrorSpec(
        "08004", "The login could not be checked: {reason}.", "Try again; the log says why."
    )
    PROXY_REFUSED = ErrorSpec(
        "28000",
        "User {user} may not act as {other} from {host}.",
        "An administrator can allow it under [proxy] in the configuration.",
    )
    PARTITION_VALUE_TOO_LONG = ErrorSpec(
        "22001",
        "A value of partition column {name} makes a directory name of {found} bytes; the file "
        "system takes at most {limit}.",
        "Partition by a shorter value, such as left({name}, 50), and keep the long one in another "
        "column.",
    )
    INTERNAL = ErrorSpec(
        "XX000", "Internal error: {reason}.", "The server's log has the details under this query."
    )
