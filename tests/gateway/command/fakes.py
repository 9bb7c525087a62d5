"""Fakes of everything that commands use, and a world that holds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from tests.gateway.command.fake_storage import FakeStorage
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import (
    Analysis,
    Answer,
    Done,
    EngineInfo,
    EngineMemory,
    Executed,
    InsertAnalyzed,
    JobProgress,
    JobsInspected,
    ObjectFound,
    Planned,
    Progress,
    SettingsChecked,
    StatementChecked,
    StreamFound,
    TableDefinitionFound,
    TableInfo,
    TableList,
    Versions,
)
from tidegate_server.core.messages.requests import (
    Analyze,
    AnalyzeInsert,
    Cancel,
    CheckSettings,
    CheckStatement,
    ChunkTicket,
    CloseResult,
    CloseSession,
    CopySession,
    EndJob,
    Execute,
    ExplainRefresh,
    FindObject,
    FindStream,
    FindTableDefinition,
    InspectJobs,
    ListTables,
    OpenSession,
    Ping,
    Request,
    SetObjectOwner,
    SourceVersions,
    StartJob,
)
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.types import Column, Schema, text_schema
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.refresh.request import RefreshPlan, RefreshRequest, Rollback
from tidegate_server.gateway.authorization.admission import admit_job
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.context import Context, Services, SessionState
from tidegate_server.gateway.link.engine_pool import EnginePool, PooledEngine
from tidegate_server.gateway.link.memory import MemoryState
from tidegate_server.gateway.link.supervisor import Supervisor
from tidegate_server.gateway.options import dialect_in
from tidegate_server.gateway.runs.background import Background
from tidegate_server.gateway.runs.jobs import JobKeeper
from tidegate_server.gateway.runs.waves import Waves
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
)
from tidegate_server.gateway.store.jobs import MemoryJobs

NOW = datetime(2024, 1, 2, 12, tzinfo=UTC)
NIGHT = {"night": {"master": "spark://head:7077"}}
"""An engine beside the gateway's own, for the configuration."""
T1 = Schema(
    (
        Column(name="a", type="bigint", nullable=False),
        Column(name="b", type="string"),
        Column(name="c", type="int"),
        Column(name="d", type="string"),
    )
)


def name(table: str) -> TableName:
    return TableName("spark_catalog", "d", table)


def analysis(schema: Schema = T1, *sources: str, expanded: str = "") -> Analysis:
    found = sources or ("t1",)
    return Analysis(
        schema=schema,
        expanded_query=expanded or "SELECT * FROM spark_catalog.d." + found[0],
        sources=tuple(
            Source(name=name(s), kind=SourceKind.VERSIONED, table_id=f"id-{s}") for s in found
        ),
    )


class FakeEngine:
    """Answers from what the test prepared and remembers every request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.analyses: dict[str, Analysis] = {}
        self.plan = RefreshPlan(
            strategy=Strategy.FULL, reason_code="FORCED", reason_text="why", vector={}
        )
        self.plain: tuple[TableInfo, ...] = ()
        self.failures: dict[type, ServerError] = {}
        self.versions: dict[str, int] = {}
        self.similar: dict[str, str] = {}
        self.storage = FakeStorage()
        self.generation = 1
        self.ready = True
        self.jobs: dict[str, JobProgress] = {}
        self.definitions: dict[tuple[str, ...], TableDefinitionFound] = {}
        self.catalog = "spark_catalog"
        """The current catalog of every session after a statement."""

    def call(
        self,
        request: Request,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> Answer:
        self.requests.append(request)
        if failure := self.failures.get(type(request)):
            raise failure
        if (answer := self.storage.answer(request)) is not None:
            return answer
        match request:
            case Analyze(sql=sql):
                return self.analyses.get(sql) or analysis()
            case ListTables():
                return TableList(
                    schemas=("d", "default"), tables=(*self.plain, *self.storage.table_infos())
                )
            case Execute(sql=sql):
                schema = "other" if sql.startswith("USE ") else "d"
                return Executed(
                    result_id="r",
                    schema=text_schema("plan") if sql.startswith("EXPLAIN ") else Schema(),
                    has_result_set=False,
                    chunks=0,
                    rows=0,
                    current_catalog=self.catalog,
                    current_schema=schema,
                )
            case ExplainRefresh():
                return Planned(plan=self.plan)
            case SourceVersions(sources=sources):
                return Versions(
                    versions={s.table_id: self.versions.get(s.table_id, 7) for s in sources}
                )
            case CheckSettings(settings=settings):
                known = {key: near for key, near in self.similar.items() if key in settings}
                return SettingsChecked(similar=known)
            case FindTableDefinition(name=written):
                return self.definitions[written]
            case FindStream(sql=sql):
                return StreamFound(found="STREAM" in sql)
            case AnalyzeInsert(sql=sql, target=target):
                place = TableName("spark_catalog", "d", target[-1])
                probe = f"INSERT INTO {place.quoted()} SELECT NULL"
                found = analysis(expanded=sql)
                return InsertAnalyzed(analysis=found, target=place, table_id="t", probe=probe)
            case StartJob() | EndJob():
                return Done()
            case InspectJobs():
                return JobsInspected(jobs=self.jobs)
            case FindObject():
                return ObjectFound()
            case CheckStatement():
                return StatementChecked(targets=("d.t",))
            case CloseResult() | OpenSession() | CloseSession() | SetObjectOwner():
                return Done()
            case CopySession() | Cancel():
                return Done()
            case _:
                raise AssertionError(f"unexpected {request}")

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"unexpected {ticket}")

    def requests_of(self, kind: type) -> list[Request]:
        return [request for request in self.requests if isinstance(request, kind)]


class FakeScheduler:
    """Keeps workflows in a dictionary; ``broken`` makes every change fail."""

    def __init__(self) -> None:
        self.workflows: dict[str, Workflow] = {}
        self.broken: ServerError | None = None

    def open(self) -> None: ...

    def close(self) -> None: ...

    def create(self, request: CreateWorkflow) -> None:
        self._set(request.workflow)

    def modify(self, request: ModifyWorkflow) -> None:
        self._set(request.workflow)

    def delete(self, request: DeleteWorkflow) -> None:
        self.workflows.pop(request.table_id, None)

    def workflow(self, table_id: str) -> Workflow | None:
        return self.workflows.get(table_id)

    def _set(self, workflow: Workflow) -> None:
        if self.broken:
            raise self.broken
        self.workflows[workflow.table_id] = workflow


class FakeLedger:
    """A history to read from."""

    def __init__(self) -> None:
        self.history: list[RefreshRun] = []
        self.canceled: list[str] = []
        self.leases: dict[str, str] = {}
        self.epochs: dict[str, int] = {}

    def runs(self, table_id: str | None = None, limit: int = 1000) -> tuple[RefreshRun, ...]:
        found = [run for run in self.history if table_id in (None, run.table_id)]
        return tuple(reversed(found))[:limit]

    def commits(self, table_id: str | None, limit: int) -> tuple[RefreshRun, ...]:
        found = [run for run in self.runs(table_id) if run.to_version is not None]
        return tuple(
            run
            for run in found
            if run.state is RunState.SUCCEEDED and run.action is not Strategy.NO_DATA
        )[:limit]

    def find(self, refresh_id: str) -> RefreshRun | None:
        found = (run for run in self.runs() if run.refresh_id == refresh_id)
        return next(found, None)

    def unfinished_runs(self) -> tuple[RefreshRun, ...]:
        latest = {run.refresh_id: run for run in self.history}
        waiting = (RunState.QUEUED, RunState.RUNNING)
        return tuple(run for run in latest.values() if run.state in waiting)

    def request_cancel(self, refresh_id: str) -> None:
        self.canceled.append(refresh_id)

    def claim(self, table_id: str, owner: str, now: datetime, seconds: float) -> int | None:
        if self.leases.setdefault(table_id, owner) != owner:
            return None
        return 1

    def extend(self, table_id: str, owner: str, now: datetime, seconds: float) -> bool:
        return self.leases.get(table_id) == owner

    def holder(self, table_id: str, now: datetime) -> str | None:
        return self.leases.get(table_id)

    def raise_epoch(self, table_id: str, epoch: int) -> None:
        self.epochs[table_id] = epoch

    def release(self, table_id: str, owner: str) -> None:
        if self.leases.get(table_id) == owner:
            del self.leases[table_id]

    def last_success(self, table_id: str) -> RefreshRun | None:
        found = self.runs(table_id)
        return next((run for run in found if run.state is RunState.SUCCEEDED), None)


class FakeQueue:
    """Refreshes that wait in a history until they are run or taken back."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.ledger = ledger
        self.waiting: dict[str, RefreshRun] = {}
        self.names: dict[str, TableName] = {}

    def enqueue(self, request: RefreshRequest) -> RefreshRun:
        run = RefreshRun(
            refresh_id=request.refresh_id or "",
            table_id=request.table_id,
            table=self.names.get(request.table_id, name("m")),
            definition_version=1,
            trigger=request.trigger,
            state=RunState.QUEUED,
            queued_at=NOW,
            requested_by=request.requested_by,
            server_id="server-1",
            wave_id=request.wave_id,
            partitions=request.recompute.partitions,
        )
        self.waiting[run.refresh_id] = run
        self.ledger.history.append(run)
        return run

    def withdraw(self, refresh_id: str, end: RunState, code: str, text: str) -> RefreshRun | None:
        run = self.waiting.pop(refresh_id, None)
        if run is not None:
            run = replace(run, state=end, reason_code=code, reason_text=text)
            self.ledger.history.append(run)
        return run

    def cancel_table(self, table_id: str) -> tuple[str, ...]:
        found = [run for run in self.waiting.values() if run.table_id == table_id]
        for run in found:
            self.withdraw(run.refresh_id, RunState.CANCELLED, "CANCELED", "")
        return tuple(run.refresh_id for run in found)

    def following(
        self, operation_id: str, tell: Callable[[str], None]
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def wait_ended(self, refresh_ids: Collection[str], seconds: float) -> bool:
        return True


class FixedClock:
    """A clock that does not move."""

    def now(self) -> datetime:
        return NOW


_MEMORY = EngineMemory(
    heap_used=1,
    heap_live=0,
    heap_limit=2,
    direct_used=1,
    direct_limit=2,
    collecting_ms=0,
    uptime_ms=1,
)


class PoolWithoutEngines(EnginePool):
    """A pool in which no engine is ever started, except for those of ``startable``."""

    def __init__(
        self, startable: Callable[[str], bool], waiting: Mapping[str, float] | None = None
    ) -> None:
        """``waiting`` are seconds for which work of engines that are up waits for executors."""
        super().__init__(
            _no_supervisor,
            prepare=lambda: None,
            max_engines=1,
            idle_timeout=60,
            limit="engines.NAME.max_engines",
            announce=lambda text: None,
        )
        self._startable = startable
        self._waiting = waiting or {}

    def up(self) -> Mapping[str, EngineInfo]:
        return dict.fromkeys(self._waiting, EngineInfo(spark_version="4", pid=1, jvm_pid=2))

    def memory(self) -> Mapping[str, MemoryState]:
        return {
            key: MemoryState(memory=replace(_MEMORY, waiting_seconds=seconds), collecting=0)
            for key, seconds in self._waiting.items()
        }

    def of(self, key: str) -> PooledEngine:
        return StartedEngine(key, lambda engine: None) if self._startable(key) else super().of(key)


class StartedEngine(PooledEngine):
    """An engine that answers whether it is there, and nothing else."""

    def call(self, request: Request, **options: object) -> Answer:  # type: ignore[override]
        assert isinstance(request, Ping)
        return EngineInfo(spark_version="4", pid=1, jvm_pid=2)


def _no_supervisor(key: str) -> Supervisor:
    raise error(Code.ENGINE_UNAVAILABLE, reason=f"{key} is not started in these tests")


@dataclass
class World:
    """A gateway's parts around one session, ready to execute statements."""

    config: Config = field(default_factory=lambda: Config(scheduler={"patience": 0}))  # type: ignore[arg-type]
    startable: set[str] = field(default_factory=set)
    """The keys of engines beside the gateway's own that answer."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Seconds for which the work of such engines waits for executors."""
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    ledger: FakeLedger = field(default_factory=FakeLedger)
    scheduler: FakeScheduler = field(default_factory=FakeScheduler)
    engine: FakeEngine = field(default_factory=FakeEngine)
    refreshed: list[RefreshRequest] = field(default_factory=list)
    refresh_failure: ServerError | None = None
    failing: str | None = None
    """The only table whose refreshes fail, or None for all."""
    failing_partition: dict[str, str] | None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    """Cleared, it holds refreshes back."""
    ran: threading.Event = field(default_factory=threading.Event)
    stopped: list[str] = field(default_factory=list)
    """The refreshes that were asked to stop, by id."""
    published: int = 0
    logged: list[str] = field(default_factory=list)
    ids: int = 0
    operations: int = 0
    require_wanted: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.go_on.set()
        self.background = Background()
        self.queue = FakeQueue(self.ledger)
        self.jobs = JobKeeper(
            store=MemoryJobs(),
            ledger=self.ledger,
            engine_of=lambda owner: self._services().engine_of(owner),
            admit=lambda job: admit_job(job, self._services()),
            clock=FixedClock(),
            server_id="server-1",
            lease_seconds=30,
            kept_days=90,
            shared=False,
            starts_engines=False,
        )
        self.session = SessionState(
            session_id="s1", user="ann", catalog="spark_catalog", schema="d"
        )

    def execute(self, text: str, overlay: dict[str, str] | None = None) -> Result:
        self.operations += 1
        context = Context(
            services=self._services(),
            session=self.session,
            operation_id=f"op{self.operations}",
            log=self.logged.append,
            progress=lambda progress: None,
            overlay=overlay or {},
            require_wanted=self.require_wanted,
        )
        layers = (context.overlay, self.session.settings, self.config.options)
        return prepare(text, dialect_in(*layers)).run(context)

    def rows(self, text: str) -> list[tuple[object, ...]]:
        result = self.execute(text)
        return [tuple(row.values()) for batch in result.batches(0) for row in batch.to_pylist()]

    def table(self, table: str) -> MaterializedTable:
        found = self.catalog.find(name(table))
        assert found is not None
        return found

    def definition(self, table: str) -> Definition:
        return self.table(table).definition

    @property
    def waves(self) -> Waves:
        return self._services().waves

    def workflow(self, table: str) -> Workflow:
        return self.scheduler.workflows[self.table(table).id]

    def _services(self) -> Services:
        return Services(
            config=self.config,
            catalog=self.catalog,
            ledger=self.ledger,
            scheduler=self.scheduler,
            engine=self.engine,
            run_refresh=self._refresh,
            waves=Waves(
                catalog=self.catalog,
                engine=self.engine,
                queue=self.queue,
                run_refresh=self._refresh,
                new_id=self._new_id,
                max_concurrent=2,
            ),
            jobs=self.jobs,
            background=self.background,
            cancel_refresh=self._stop,
            publish_system_tables=self._publish,
            clock=FixedClock(),
            new_id=self._new_id,
            server_id="server-1",
            target_engines={
                name: PoolWithoutEngines(lambda key: key in self.startable, self.waiting)
                for name in self.config.engines
            },
        )

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def _stop(self, refresh_id: str) -> bool:
        self.stopped.append(refresh_id)
        return True

    def _publish(self, text: str, administers: bool) -> None:
        self.published += 1

    def _refresh(self, request: RefreshRequest) -> RefreshRun:
        assert self.go_on.wait(10)
        self.refreshed.append(request)
        self.queue.waiting.pop(request.refresh_id or "", None)
        table = self.catalog.by_id(request.table_id)
        assert table is not None
        run = RefreshRun(
            refresh_id=request.refresh_id or self._new_id(),
            table_id=table.id,
            table=table.name,
            definition_version=table.definition.version,
            trigger=request.trigger,
            state=RunState.SUCCEEDED,
            queued_at=NOW,
            started_at=NOW,
            finished_at=NOW,
            requested_by=request.requested_by,
            server_id="server-1",
            partitions=request.recompute.partitions,
            action=Strategy.FULL,
            wave_id=request.wave_id,
            sources=dict(request.recompute.vector or {}),
            to_version=100 + len(self.refreshed),
        )
        if self.failing_partition in request.recompute.partitions:
            run = replace(run, state=RunState.FAILED, error_class="X", error_message="it broke")
        if self.refresh_failure and self.failing in (None, table.name.table):
            run = replace(
                run,
                state=RunState.FAILED,
                error_class=self.refresh_failure.code,
                sqlstate=self.refresh_failure.sqlstate,
                error_message=self.refresh_failure.message,
            )
        if run.state is RunState.SUCCEEDED and run.to_version is not None:
            restored = request.task.version if isinstance(request.task, Rollback) else None
            before = self.engine.storage.commit(table.id, run.refresh_id, run.to_version, restored)
            run = replace(run, from_version=before)
        self.ledger.history.append(run)
        self.ran.set()
        return run


def engine_lost() -> ServerError:
    return error(Code.ENGINE_LOST)
