"""Handles each request of the gateway."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from tidegate_server.core.log_context import log_context
from tidegate_server.core.messages.answers import (
    Analysis,
    Answer,
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
from tidegate_server.core.messages.requests import (
    Analyze,
    AnalyzeInsert,
    BackfillTable,
    Cancel,
    CheckCatalog,
    CheckExpressions,
    CheckSettings,
    CheckStatement,
    CloseResult,
    CloseSession,
    CopySession,
    CreateTable,
    DiscardHeld,
    DisownObject,
    DropTable,
    DropView,
    EndJob,
    EvolveTable,
    Execute,
    ExplainRefresh,
    FindObject,
    FindPlaces,
    FindStream,
    FindTableDefinition,
    FindTables,
    ForgetSessions,
    InspectCatalog,
    InspectFiles,
    InspectJobs,
    InspectMemory,
    InspectTable,
    LastCommit,
    ListCatalog,
    ListDefinitions,
    ListFunctions,
    ListNames,
    ListTables,
    ListTemporaryFunctions,
    ListTemporaryViews,
    OpenSession,
    Ping,
    PlaceTables,
    PublishHeld,
    PutCatalogs,
    PutView,
    Refresh,
    RegisterSystemTables,
    RegisterTable,
    ReleaseOwners,
    RemoveFiles,
    RenameTable,
    Request,
    RewriteFiles,
    RewriteNames,
    RollBackTable,
    SetObjectOwner,
    SetTableProperties,
    SourceVersions,
    StartJob,
    Survey,
    VerifyTable,
)
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshOrder, RefreshOutcome
from tidegate_server.core.sql.redact import secrets_in
from tidegate_server.engine.definition.analyze import analyze
from tidegate_server.engine.definition.analyze_insert import analyze_insert, reads_stream
from tidegate_server.engine.definition.evolve import (
    check_expressions,
    drop_view,
    find_definitions,
    inspect,
    put_view,
    rewrite_names,
)
from tidegate_server.engine.gate.catalogs import (
    check_catalog,
    inspect_catalog,
    load_catalog,
    put_catalogs,
)
from tidegate_server.engine.gate.gate import limiting, running_as, suspended
from tidegate_server.engine.jobs.running import Jobs
from tidegate_server.engine.jvm.memory import JvmMemory
from tidegate_server.engine.metastore.directories import Directories
from tidegate_server.engine.metastore.foreign import list_catalog
from tidegate_server.engine.metastore.listing import Metastore
from tidegate_server.engine.metastore.owners import Owners
from tidegate_server.engine.metastore.system_tables import register_system_tables
from tidegate_server.engine.metastore.warehouse import find_tables, register_table
from tidegate_server.engine.refresh.backfill import backfill
from tidegate_server.engine.refresh.plan import explain, source_versions
from tidegate_server.engine.refresh.publish import publish
from tidegate_server.engine.refresh.recache import read_again
from tidegate_server.engine.refresh.rollback import roll_back
from tidegate_server.engine.refresh.run import refresh
from tidegate_server.engine.refresh.verify import verify
from tidegate_server.engine.results.store import ResultStore
from tidegate_server.engine.session.file_changes import FileChanges
from tidegate_server.engine.session.operations import Operation, Operations
from tidegate_server.engine.session.sessions import Child, Sessions, apply_settings
from tidegate_server.engine.session.settings import check_settings
from tidegate_server.engine.statement.check import check_statement
from tidegate_server.engine.statement.execute import execute
from tidegate_server.engine.statement.guard import disown
from tidegate_server.engine.statement.survey import survey
from tidegate_server.engine.statement.table_definition import find_table_definition
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.formats import TableFormats

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Instant:
    """A request that is answered immediately, without Spark."""

    call: Callable[[Handlers, Any], Answer]


@dataclass(frozen=True, slots=True)
class Control:
    """A short request, which is neither watched nor canceled."""

    call: Callable[[Handlers, Any], Answer]
    urgent: bool = False
    """Whether it must not wait for other requests."""
    counted: bool = True
    """Whether it counts towards the engine's current work."""


@dataclass(frozen=True, slots=True)
class Work:
    """A request that runs as an operation: it reports progress and can be canceled."""

    call: Callable[[Handlers, Any, Operation], Answer]
    operation_id: Callable[[Any], str] = lambda request: str(uuid.uuid4())


class Handlers:
    """One method for each request; :data:`HANDLERS` defines how each one runs."""

    def __init__(
        self,
        spark: SparkSession,
        formats: TableFormats,
        results: ResultStore,
        operations: Operations,
        info: EngineInfo,
        at_work: Callable[[], int],
        *,
        waiting: Callable[[], tuple[float, str]] = lambda: (0.0, ""),
        alone: bool = True,
    ) -> None:
        """``at_work`` returns the number of requests in progress.

        ``waiting`` returns for how many seconds work has waited for executors, and why. ``alone``
        says whether no other engine changes the tables.
        """
        self._spark = spark
        self._formats = formats
        self._results = results
        self._operations = operations
        self._info = info
        self._at_work = at_work
        self._waiting = waiting
        self._sessions = Sessions(spark, FileChanges(alone=alone), load_catalog=load_catalog)
        self._metastore = Metastore(spark)
        self._owners = Owners(spark)
        self._directories = Directories(spark)
        self._memory = JvmMemory(spark)
        self._jobs = Jobs(spark, formats.own)

    # ---- the engine ------------------------------------------------------------------------

    def ping(self, request: Ping) -> EngineInfo:
        return self._info

    def inspect_memory(self, request: InspectMemory) -> EngineMemory:
        in_use = 0
        if request.with_use:
            in_use = self._at_work() + self._results.count() + len(self._jobs.progress())
            in_use += self._sessions.count_with_temporary()
        seconds, reason = self._waiting()
        return replace(self._memory.measure(in_use), waiting_seconds=seconds, waiting_reason=reason)

    # ---- sessions and statements -----------------------------------------------------------

    def open_session(self, request: OpenSession) -> Done:
        self._sessions.open(request.session_id, request.settings, request.schema, request.catalog)
        return Done()

    def copy_session(self, request: CopySession) -> Done:
        self._sessions.copy(request.session_id, request.copy_id)
        return Done()

    def check_settings(self, request: CheckSettings) -> SettingsChecked:
        return check_settings(self._spark, request.settings)

    def close_session(self, request: CloseSession) -> Done:
        self._sessions.close(request.session_id)
        self._results.close_session(request.session_id)
        return Done()

    def forget_sessions(self, request: ForgetSessions) -> Done:
        self._operations.cancel_all()
        self._jobs.stop_all()
        self._sessions.close_all()
        self._results.close_all()
        return Done()

    def execute(self, request: Execute, operation: Operation) -> Executed:
        with (
            log_context(
                session_id=request.session_id,
                operation_id=operation.id,
                secrets=secrets_in(request.sql),
            ),
            self._sessions.using(request.session_id) as child,
        ):
            changes = self._sessions.changes
            return execute(request, child, operation, self._results, self._formats, changes)

    def cancel(self, request: Cancel) -> Done:
        self._operations.cancel(request.operation_id)
        return Done()

    def close_result(self, request: CloseResult) -> Done:
        self._results.close(request.result_id)
        return Done()

    def survey(self, request: Survey, operation: Operation) -> Surveyed:
        if request.session_id:
            with (
                self._sessions.using(request.session_id) as child,
                child.overlay(request.settings),
            ):
                found = survey(child, request)
        else:
            child = Child(self._spark.newSession())
            apply_settings(child.spark, request.settings)
            found = survey(child, request)
        reached = self._directories.reached(found.accesses)
        return replace(found, accesses=(*found.accesses, *reached))

    def check_statement(self, request: CheckStatement, operation: Operation) -> StatementChecked:
        with self._sessions.using(request.session_id) as child:
            return check_statement(child, request)

    # ---- definitions and their storage -----------------------------------------------------

    def analyze(self, request: Analyze, operation: Operation) -> Analysis:
        with (
            self._sessions.using(request.session_id) as child,
            limiting(child.spark, request.features, request.user),
        ):
            return analyze(child, request.sql, self._formats.own)

    def check_expressions(self, request: CheckExpressions) -> ExpressionsChecked:
        with (
            self._sessions.using(request.session_id) as child,
            limiting(child.spark, request.features, request.user),
        ):
            return check_expressions(child, request)

    def rewrite_names(self, request: RewriteNames) -> Rewritten:
        return rewrite_names(self._spark, request)

    def create_table(self, request: CreateTable, operation: Operation) -> TableCreated:
        location, table_id = self._formats.of(request.name).create(
            request.name,
            request.schema,
            request.partition_keys,
            request.comment,
            request.properties,
            request.location,
        )
        return TableCreated(location=location, table_id=table_id)

    def set_table_properties(self, request: SetTableProperties) -> Done:
        self._formats.of(request.name).set_properties(request.name, request.properties)
        return Done()

    def evolve_table(self, request: EvolveTable, operation: Operation) -> Done:
        self._formats.of(request.name).evolve(
            request.name,
            request.table_id,
            request.schema,
            request.comment,
            request.properties,
            widened=request.widened,
            adopts=request.adopts,
        )
        return Done()

    def rename_table(self, request: RenameTable) -> Done:
        self._formats.of(request.name).rename(request.name, request.new_name, request.table_id)
        return Done()

    def place_tables(self, request: PlaceTables, operation: Operation) -> TablesPlaced:
        format = self._formats.of(request.places[0].name)
        return TablesPlaced(table_ids=format.place(request.places))

    def put_view(self, request: PutView) -> Done:
        put_view(self._spark, request)
        return Done()

    def drop_view(self, request: DropView) -> Done:
        drop_view(self._spark, request)
        return Done()

    def inspect_table(self, request: InspectTable) -> Inspected:
        return inspect(self._spark, request, self._formats.of(request.name))

    def drop_table(self, request: DropTable) -> Done:
        self._formats.of(request.name).drop(request.name, request.table_id, request.location)
        return Done()

    def list_definitions(self, request: ListDefinitions, operation: Operation) -> DefinitionsFound:
        return find_definitions(self._spark, self._formats.own)

    def find_tables(self, request: FindTables, operation: Operation) -> TablesFound:
        return find_tables(self._spark, request.locations)

    def register_table(self, request: RegisterTable, operation: Operation) -> Done:
        register_table(self._spark, request)
        return Done()

    # ---- refreshes -------------------------------------------------------------------------

    def refresh(self, request: Refresh, operation: Operation) -> Refreshed:
        return self._run(request.order, operation, refresh, request.task)

    def roll_back_table(self, request: RollBackTable, operation: Operation) -> Refreshed:
        return self._run(request.order, operation, roll_back, request.version)

    def publish_held(self, request: PublishHeld, operation: Operation) -> Refreshed:
        return self._run(request.order, operation, publish, request.held_by)

    def backfill_table(self, request: BackfillTable, operation: Operation) -> Refreshed:
        return self._run(request.order, operation, backfill, request.source)

    def _run(
        self,
        order: RefreshOrder,
        operation: Operation,
        run: Callable[[RefreshOrder, T, SparkSession, TableFormat, Operation], RefreshOutcome],
        task: T,
    ) -> Refreshed:
        """Run an order and add the metrics of its Spark tasks."""
        with log_context(refresh_id=operation.id), running_as(self._spark, order.executor):
            format = self._formats.of(order.name)
            outcome = run(order, task, self._spark, format, operation)
            read_again(self._spark, order.name)
            if outcome.plan.strategy is not Strategy.NO_DATA:
                metrics = self._operations.with_task_metrics(outcome.metrics, operation)
                outcome = replace(outcome, metrics=metrics)
            return Refreshed(outcome=outcome)

    def explain_refresh(self, request: ExplainRefresh, operation: Operation) -> Planned:
        with running_as(self._spark, request.order.executor):
            format = self._formats.of(request.order.name)
            return Planned(plan=explain(request.order, request.task, self._spark, format))

    def source_versions(self, request: SourceVersions) -> Versions:
        versions = source_versions(request.sources, self._spark, self._formats.sources)
        return Versions(versions=versions)

    def verify_table(self, request: VerifyTable, operation: Operation) -> Verified:
        with running_as(self._spark, request.order.executor):
            return verify(
                request.order,
                request.version,
                self._spark,
                self._formats.of(request.order.name),
                operation,
                part=request.part,
            )

    def last_commit(self, request: LastCommit) -> LastCommitted:
        format = self._formats.of(request.name)
        exists = format.find(request.name) is not None
        commit = format.last_commit(request.name, request.table_id) if exists else None
        held = format.find_held(request.name, request.table_id) if exists else None
        return LastCommitted(
            commit=commit.summary() if commit is not None else None,
            exists=exists,
            held=held.summary() if held is not None else None,
        )

    def discard_held(self, request: DiscardHeld) -> Done:
        self._formats.of(request.name).discard_held(request.name, request.table_id)
        return Done()

    # ---- files -----------------------------------------------------------------------------

    def inspect_files(self, request: InspectFiles) -> FilesInspected:
        return FilesInspected(
            found=self._formats.of(request.name).inspect_files(
                request.name, request.table_id, request.versions, request.back
            )
        )

    def rewrite_files(self, request: RewriteFiles, operation: Operation) -> MaintenanceDone:
        done = self._formats.of(request.name).rewrite_files(
            request.name, request.table_id, request.maintenance_id
        )
        return MaintenanceDone(rewritten=done)

    def remove_files(self, request: RemoveFiles, operation: Operation) -> MaintenanceDone:
        removed = self._formats.of(request.name).remove_files(
            request.name, request.table_id, request.horizon, request.maintenance_id
        )
        return MaintenanceDone(removed=removed)

    # ---- the metastore ---------------------------------------------------------------------

    def list_tables(self, request: ListTables) -> TableList:
        return self._metastore.tables(
            request.schema, with_columns=request.with_columns, names=request.names
        )

    def list_names(self, request: ListNames) -> NameList:
        return self._metastore.names(with_owners=request.with_owners)

    def find_object(self, request: FindObject) -> ObjectFound:
        return self._owners.find(request.kind, request.name)

    def put_catalogs(self, request: PutCatalogs) -> Done:
        put_catalogs(self._spark, request.catalogs)
        return Done()

    def check_catalog(self, request: CheckCatalog) -> Done:
        check_catalog(self._spark, request.catalog)
        return Done()

    def inspect_catalog(self, request: InspectCatalog) -> CatalogInspected:
        return inspect_catalog(self._spark, request.name)

    def list_catalog(self, request: ListCatalog) -> TableList:
        return list_catalog(self._spark, request)

    def find_places(self, request: FindPlaces) -> PlacesFound:
        return self._directories.places(request.paths)

    def set_object_owner(self, request: SetObjectOwner) -> Done:
        self._owners.set(request.kind, request.name, request.owner)
        return Done()

    def disown_object(self, request: DisownObject) -> Done:
        name = request.name
        disown(self._spark, [(name.catalog, name.schema, name.table)])
        return Done()

    def release_owners(self, request: ReleaseOwners, operation: Operation) -> Done:
        self._owners.release()
        return Done()

    def list_temporary_views(self, request: ListTemporaryViews) -> TableList:
        with self._sessions.using(request.session_id) as child:
            return self._metastore.temporary_views(child)

    def list_functions(self, request: ListFunctions) -> FunctionList:
        return self._metastore.functions()

    def list_temporary_functions(self, request: ListTemporaryFunctions) -> FunctionList:
        with self._sessions.using(request.session_id) as child:
            return self._metastore.temporary_functions(child)

    def find_table_definition(
        self, request: FindTableDefinition, operation: Operation
    ) -> TableDefinitionFound:
        with self._sessions.using(request.session_id) as child, suspended(child.spark):
            return find_table_definition(child.spark, request.name)

    # ---- jobs --------------------------------------------------------------------------------

    def find_stream(self, request: FindStream, operation: Operation) -> StreamFound:
        with self._sessions.using(request.session_id) as child:
            return StreamFound(found=reads_stream(child, request.sql))

    def analyze_insert(self, request: AnalyzeInsert, operation: Operation) -> InsertAnalyzed:
        with (
            self._sessions.using(request.session_id) as child,
            limiting(child.spark, request.features, request.user),
        ):
            return analyze_insert(child, request, self._formats.own)

    def start_job(self, request: StartJob, operation: Operation) -> Done:
        with running_as(self._spark, request.user):
            self._jobs.start(request, operation.check)
        return Done()

    def inspect_jobs(self, request: InspectJobs) -> JobsInspected:
        return JobsInspected(jobs=self._jobs.progress())

    def end_job(self, request: EndJob) -> Done:
        self._jobs.stop(request.job_id)
        return Done()

    def register_system_tables(self, request: RegisterSystemTables, operation: Operation) -> Done:
        register_system_tables(self._spark, request)
        return Done()


def _requested_operation_id(request: Analyze | Survey) -> str:
    return request.operation_id or str(uuid.uuid4())


def _refresh_id(
    request: Refresh | RollBackTable | PublishHeld | BackfillTable | ExplainRefresh | VerifyTable,
) -> str:
    return request.order.refresh_id


def _maintenance_id(request: RewriteFiles | RemoveFiles) -> str:
    return request.maintenance_id


HANDLERS: Mapping[type[Request[Any]], Instant | Control | Work] = {
    Ping: Instant(Handlers.ping),
    InspectMemory: Control(Handlers.inspect_memory, urgent=True, counted=False),
    OpenSession: Control(Handlers.open_session),
    CopySession: Control(Handlers.copy_session),
    CheckSettings: Control(Handlers.check_settings),
    CloseSession: Control(Handlers.close_session),
    ForgetSessions: Control(Handlers.forget_sessions),
    Execute: Work(Handlers.execute, lambda request: str(request.operation_id)),
    Cancel: Control(Handlers.cancel, urgent=True),
    CloseResult: Control(Handlers.close_result),
    Analyze: Work(Handlers.analyze, _requested_operation_id),
    Survey: Work(Handlers.survey, _requested_operation_id),
    CheckStatement: Work(Handlers.check_statement, lambda request: str(request.operation_id)),
    CreateTable: Work(Handlers.create_table),
    SetTableProperties: Control(Handlers.set_table_properties),
    EvolveTable: Work(Handlers.evolve_table),
    RenameTable: Control(Handlers.rename_table),
    PlaceTables: Work(Handlers.place_tables),
    PutView: Control(Handlers.put_view),
    DropView: Control(Handlers.drop_view),
    InspectTable: Control(Handlers.inspect_table),
    ListDefinitions: Work(Handlers.list_definitions),
    FindTables: Work(Handlers.find_tables),
    RegisterTable: Work(Handlers.register_table),
    CheckExpressions: Control(Handlers.check_expressions),
    RewriteNames: Control(Handlers.rewrite_names),
    DropTable: Control(Handlers.drop_table),
    DiscardHeld: Control(Handlers.discard_held),
    Refresh: Work(Handlers.refresh, _refresh_id),
    RollBackTable: Work(Handlers.roll_back_table, _refresh_id),
    PublishHeld: Work(Handlers.publish_held, _refresh_id),
    BackfillTable: Work(Handlers.backfill_table, _refresh_id),
    InspectFiles: Control(Handlers.inspect_files),
    RewriteFiles: Work(Handlers.rewrite_files, _maintenance_id),
    RemoveFiles: Work(Handlers.remove_files, _maintenance_id),
    ExplainRefresh: Work(Handlers.explain_refresh, _refresh_id),
    SourceVersions: Control(Handlers.source_versions),
    VerifyTable: Work(Handlers.verify_table, _refresh_id),
    LastCommit: Control(Handlers.last_commit),
    ListTables: Control(Handlers.list_tables),
    ListNames: Control(Handlers.list_names),
    FindObject: Control(Handlers.find_object),
    FindPlaces: Control(Handlers.find_places),
    PutCatalogs: Control(Handlers.put_catalogs),
    CheckCatalog: Control(Handlers.check_catalog),
    InspectCatalog: Control(Handlers.inspect_catalog),
    ListCatalog: Control(Handlers.list_catalog),
    SetObjectOwner: Control(Handlers.set_object_owner),
    DisownObject: Control(Handlers.disown_object),
    ReleaseOwners: Work(Handlers.release_owners),
    ListTemporaryViews: Control(Handlers.list_temporary_views),
    ListFunctions: Control(Handlers.list_functions),
    ListTemporaryFunctions: Control(Handlers.list_temporary_functions),
    RegisterSystemTables: Work(Handlers.register_system_tables),
    FindTableDefinition: Work(Handlers.find_table_definition),
    FindStream: Work(Handlers.find_stream),
    AnalyzeInsert: Work(Handlers.analyze_insert),
    StartJob: Work(Handlers.start_job),
    InspectJobs: Control(Handlers.inspect_jobs, counted=False),
    EndJob: Control(Handlers.end_job),
}
"""How each request runs."""
