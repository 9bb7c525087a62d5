"""Carries requests out: each on a worker thread, watched while it runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from pyspark.sql import SparkSession

from tidegate_server.core.errors import ServerError
from tidegate_server.core.log_context import serving
from tidegate_server.core.messages.answers import (
    Answer,
    Done,
    EngineInfo,
    EngineMemory,
    FilesLooked,
    FilesLookedAfter,
    LastCommitted,
    Planned,
    Refreshed,
    TableCreated,
    TablesPlaced,
    Versions,
)
from tidegate_server.core.messages.requests import (
    Analyze,
    Cancel,
    CheckExpressions,
    CheckSettings,
    CloseResult,
    CloseSession,
    CreateTable,
    DiscardHeld,
    DropTable,
    DropView,
    EvolveTable,
    Execute,
    ExplainRefresh,
    FindTables,
    InspectTable,
    LastCommit,
    ListDefinitions,
    ListFunctions,
    ListNames,
    ListTables,
    ListTemporaryFunctions,
    ListTemporaryViews,
    LookAtFiles,
    LookAtMemory,
    OpenSession,
    Ping,
    PlaceTables,
    PutView,
    Refresh,
    RegisterSystemTable,
    RegisterTable,
    RemoveFiles,
    RenameTable,
    Request,
    RewriteFiles,
    RewriteNames,
    SetTableProperties,
    SourceVersions,
    Survey,
    VerifyTable,
)
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshOrder, RefreshOutcome
from tidegate_server.engine.definition.analyze import analyze
from tidegate_server.engine.definition.evolve import (
    check_expressions,
    definitions,
    drop_view,
    inspect,
    put_view,
    rewrite_names,
)
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.jvm.memory import JvmMemory
from tidegate_server.engine.metastore.listing import Metastore
from tidegate_server.engine.metastore.warehouse import find_tables, register_table
from tidegate_server.engine.refresh.backfill import backfill
from tidegate_server.engine.refresh.publish import publish
from tidegate_server.engine.refresh.recache import read_again
from tidegate_server.engine.refresh.rollback import roll_back
from tidegate_server.engine.refresh.run import explain, refresh, source_versions
from tidegate_server.engine.refresh.verify import verify
from tidegate_server.engine.results.store import ResultStore
from tidegate_server.engine.session.operations import Operation, Operations
from tidegate_server.engine.session.sessions import Sessions
from tidegate_server.engine.session.settings import check_settings
from tidegate_server.engine.statement.execute import execute
from tidegate_server.engine.statement.survey import survey
from tidegate_server.engine.storage.base import TableFormat

_TICK = 0.3
_WORKERS = 24
_CONTROL_WORKERS = 8
_URGENT_WORKERS = 2


class Service:
    """One method's worth of work per request; blocking work never waits behind other work's pool.

    Python threads keep their JVM thread, and with it the job tags, for life: all Spark work
    happens on the threads of two pools and never on those of the Flight server.
    """

    def __init__(
        self, spark: SparkSession, results: ResultStore, tables: TableFormat, info: EngineInfo
    ) -> None:
        self.results = results
        self._spark = spark
        self._tables = tables
        self._info = info
        self._sessions = Sessions(spark)
        self._operations = Operations(spark)
        self._metastore = Metastore(spark)
        self._memory = JvmMemory(spark)
        self._lock = threading.Lock()
        self._at_work = 0
        self._work = ThreadPoolExecutor(_WORKERS, thread_name_prefix="work")
        self._control = ThreadPoolExecutor(_CONTROL_WORKERS, thread_name_prefix="control")
        # A cancel waits for nobody's list of columns.
        self._urgent = ThreadPoolExecutor(_URGENT_WORKERS, thread_name_prefix="urgent")

    def answers(self, request: Request) -> Iterator[Answer]:
        """Yield progress while the request runs, then its final answer.

        :raises ServerError: what went wrong.
        """
        match request:
            case Ping():
                yield self._info
                return
            case LookAtMemory():
                yield self._urgent.submit(self._look_at_memory, request).result()
                return
        with self._counted():
            yield from self._answers(request)

    def _answers(self, request: Request) -> Iterator[Answer]:
        match request:
            case Execute() | Refresh():
                yield from self._watched(request, _operation_id(request))
            case Analyze() | Survey():
                yield from self._watched(request, request.operation_id or str(uuid.uuid4()))
            case CreateTable() | RegisterSystemTable():
                yield from self._watched(request, str(uuid.uuid4()))
            case EvolveTable() | ListDefinitions() | PlaceTables() | FindTables() | RegisterTable():
                yield from self._watched(request, str(uuid.uuid4()))
            case VerifyTable() | ExplainRefresh():
                yield from self._watched(request, request.order.refresh_id)
            case RewriteFiles() | RemoveFiles():
                yield from self._watched(request, request.upkeep_id)
            case Cancel():
                yield self._urgent.submit(self._controlled, request).result()
            case _:
                yield self._control.submit(self._controlled, request).result()

    def close(self) -> None:
        """Take no more work."""
        self._work.shutdown(wait=False, cancel_futures=True)
        self._control.shutdown(wait=False, cancel_futures=True)
        self._urgent.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def _look_at_memory(self, request: LookAtMemory) -> EngineMemory:
        if not request.with_use:
            return self._memory.look()
        in_use = self._at_work + self.results.count() + self._sessions.temporary()
        return self._memory.look(in_use)

    def _watched(self, request: Request, operation_id: str) -> Iterator[Answer]:
        operation = self._operations.begin(operation_id)
        future = self._work.submit(self._worked, request, operation)
        excess: ServerError | None = None
        while True:
            try:
                answer = future.result(timeout=_TICK)
            except StillRunning:
                if future.done():
                    continue
                excess = excess or self._stop_beyond_quota(operation)
                if operation.canceled:
                    self._urgent.submit(self._operations.interrupt, operation).result()
                progress = self._urgent.submit(self._operations.progress, operation_id).result()
                if progress is not None:
                    yield progress
                continue
            except ServerError as failed:
                if excess is not None:
                    raise excess from failed
                raise
            yield answer
            return

    def _stop_beyond_quota(self, operation: Operation) -> ServerError | None:
        excess = self.results.excess(operation)
        if excess is not None:
            self._operations.cancel(operation.id)
        return excess

    def _worked(self, request: Request, operation: Operation) -> Answer:
        try:
            with _naming(request, operation), self._operations.working(operation):
                return self._work_answer(request, operation)
        except Exception as failed:
            # Here and not later: the JVM's exceptions are asked for more on the thread they hit.
            raise to_server_error(failed, canceled=operation.canceled) from failed

    def _controlled(self, request: Request) -> Answer:
        try:
            return self._control_answer(request)
        except Exception as failed:
            raise to_server_error(failed) from failed

    def _work_answer(self, request: Request, operation: Operation) -> Answer:
        match request:
            case Execute():
                with self._sessions.using(request.session_id) as child:
                    changes = self._sessions.changes
                    return execute(request, child, operation, self.results, self._tables, changes)
            case Survey():
                with (
                    self._sessions.using(request.session_id) as child,
                    child.overlaid(request.settings),
                ):
                    return survey(child, request.sql)
            case Analyze():
                with self._sessions.using(request.session_id) as child:
                    return analyze(child, request.sql, self._tables)
            case Refresh():
                order = request.order
                outcome = _way(order)(order, self._spark, self._tables, operation)
                read_again(self._spark, order.name)
                if outcome.plan.strategy is not Strategy.NO_DATA:
                    metrics = self._operations.measured(outcome.metrics, operation)
                    outcome = replace(outcome, metrics=metrics)
                return Refreshed(outcome=outcome)
            case VerifyTable():
                return verify(
                    request.order,
                    request.version,
                    self._spark,
                    self._tables,
                    operation,
                    part=request.part,
                )
            case RewriteFiles():
                done = self._tables.rewrite_files(request.name, request.table_id, request.upkeep_id)
                return FilesLookedAfter(rewritten=done)
            case RemoveFiles():
                removed = self._tables.remove_files(
                    request.name, request.table_id, request.horizon, request.upkeep_id
                )
                return FilesLookedAfter(removed=removed)
            case ExplainRefresh():
                return Planned(plan=explain(request.order, self._spark, self._tables))
            case CreateTable():
                location, table_id = self._tables.create(
                    request.name,
                    request.schema,
                    request.partition_keys,
                    request.comment,
                    request.properties,
                    request.location,
                )
                return TableCreated(location=location, table_id=table_id)
            case PlaceTables(places=places):
                return TablesPlaced(table_ids=self._tables.place(places))
            case EvolveTable():
                self._tables.evolve(
                    request.name,
                    request.table_id,
                    request.schema,
                    request.comment,
                    request.properties,
                    widened=request.widened,
                    adopts=request.adopts,
                )
                return Done()
            case ListDefinitions():
                return definitions(self._spark, self._tables)
            case FindTables():
                return find_tables(self._spark, request.locations)
            case RegisterTable():
                register_table(self._spark, request)
                return Done()
            case RegisterSystemTable():
                self._metastore.register(request.name, request.location, request.comment)
                return Done()
            case _:
                raise AssertionError(f"{type(request).__name__} is not work")

    def _control_answer(self, request: Request) -> Answer:
        match request:
            case OpenSession():
                self._sessions.open(request.session_id, request.settings, request.schema)
                return Done()
            case CheckSettings(settings=settings):
                return check_settings(self._spark, settings)
            case CloseSession():
                self._sessions.close(request.session_id)
                self.results.close_session(request.session_id)
                return Done()
            case Cancel():
                self._operations.cancel(request.operation_id)
                return Done()
            case CloseResult():
                self.results.close(request.result_id)
                return Done()
            case SourceVersions():
                return Versions(
                    versions=source_versions(request.sources, self._spark, self._tables)
                )
            case LookAtFiles():
                return FilesLooked(
                    found=self._tables.look_at_files(
                        request.name, request.table_id, request.versions, request.back
                    )
                )
            case LastCommit():
                return self._last_commit(request)
            case SetTableProperties():
                self._tables.set_properties(request.name, request.properties)
                return Done()
            case DropTable():
                self._tables.drop(request.name, request.table_id, request.location)
                return Done()
            case DiscardHeld():
                self._tables.discard_held(request.name, request.table_id)
                return Done()
            case RenameTable():
                self._tables.rename(request.name, request.new_name, request.table_id)
                return Done()
            case PutView():
                put_view(self._spark, request)
                return Done()
            case DropView():
                drop_view(self._spark, request)
                return Done()
            case InspectTable():
                return inspect(self._spark, request, self._tables)
            case CheckExpressions():
                with self._sessions.using(request.session_id) as child:
                    return check_expressions(child, request)
            case RewriteNames():
                return rewrite_names(self._spark, request)
            case ListTables():
                return self._metastore.tables(
                    request.schema, with_columns=request.with_columns, names=request.names
                )
            case ListNames():
                return self._metastore.names()
            case ListTemporaryViews():
                with self._sessions.using(request.session_id) as child:
                    return self._metastore.temporary_views(child)
            case ListFunctions():
                return self._metastore.functions()
            case ListTemporaryFunctions():
                with self._sessions.using(request.session_id) as child:
                    return self._metastore.temporary_functions(child)
            case _:
                raise AssertionError(f"{type(request).__name__} is not control")

    def _last_commit(self, request: LastCommit) -> LastCommitted:
        exists = self._tables.find(request.name) is not None
        commit = self._tables.last_commit(request.name, request.table_id) if exists else None
        held = self._tables.held(request.name, request.table_id) if exists else None
        return LastCommitted(commit=commit, exists=exists, held=held)


def _way(
    order: RefreshOrder,
) -> Callable[[RefreshOrder, SparkSession, TableFormat, Operation], RefreshOutcome]:
    """Return what carries an order out."""
    if order.rollback_to is not None:
        return roll_back
    if order.publish is not None:
        return publish
    return refresh if order.backfill_from is None else backfill


def _naming(request: Request, operation: Operation) -> AbstractContextManager[None]:
    """Have log lines name the statement or the refresh, by the id that clients know."""
    match request:
        case Execute():
            return serving(session_id=request.session_id, operation_id=operation.id)
        case Refresh():
            return serving(refresh_id=operation.id)
        case _:
            return nullcontext()


def _operation_id(request: Execute | Refresh) -> str:
    return request.operation_id if isinstance(request, Execute) else request.order.refresh_id
