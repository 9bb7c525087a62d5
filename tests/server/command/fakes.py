"""Hand-made stand-ins for what commands use, and a world that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from tidegate_server.catalog.memory import MemoryCatalog
from tidegate_server.command.context import Context, Services, SessionState
from tidegate_server.command.dispatch import execute
from tidegate_server.config import Config
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.link.messages import (
    Analysis,
    Analyze,
    Answer,
    ChunkTicket,
    CreateTable,
    Done,
    DropTable,
    Execute,
    Executed,
    ExplainRefresh,
    ListTables,
    OpenSession,
    Planned,
    Progress,
    Request,
    SetTableProperties,
    TableCreated,
    TableInfo,
    TableList,
)
from tidegate_server.model.names import TableName
from tidegate_server.model.result import Result
from tidegate_server.model.runs import RefreshRun, Strategy
from tidegate_server.model.states import RunState
from tidegate_server.model.table import MaterializedTable
from tidegate_server.model.types import Column, Schema
from tidegate_server.model.versions import Source, SourceKind
from tidegate_server.refresh.request import RefreshPlan, RefreshRequest
from tidegate_server.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
)

NOW = datetime(2024, 1, 2, 12, tzinfo=UTC)
T1 = Schema(
    (
        Column(name="a", type="bigint", nullable=False),
        Column(name="b", type="string"),
        Column(name="c", type="int"),
        Column(name="d", type="string"),
    )
)


def name(table: str) -> TableName:
    return TableName("c", "d", table)


def analysis(schema: Schema = T1, *sources: str, expanded: str = "") -> Analysis:
    found = sources or ("t1",)
    return Analysis(
        schema=schema,
        expanded_query=expanded or "SELECT * FROM c.d." + found[0],
        sources=tuple(
            Source(name=name(s), kind=SourceKind.VERSIONED, table_id=f"id-{s}") for s in found
        ),
    )


class FakeEngine:
    """Answers from what the test prepared and remembers every request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.analyses: dict[str, Analysis] = {}
        self.plain: tuple[TableInfo, ...] = ()
        self.failures: dict[type, ServerError] = {}
        self.generation = 1
        self.ready = True

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
        match request:
            case Analyze(sql=sql):
                return self.analyses.get(sql) or analysis()
            case CreateTable(name=table):
                return TableCreated(location=f"/warehouse/{table.table}", table_id="delta-id")
            case ListTables():
                return TableList(schemas=("d",), tables=self.plain)
            case Execute(sql=sql):
                schema = "other" if sql.startswith("USE ") else "d"
                return Executed(
                    result_id="r",
                    schema=Schema(),
                    has_result_set=False,
                    chunks=0,
                    rows=0,
                    current_catalog="c",
                    current_schema=schema,
                )
            case ExplainRefresh():
                plan = RefreshPlan(
                    strategy=Strategy.FULL, reason_code="FORCED", reason_text="why", vector={}
                )
                return Planned(plan=plan)
            case OpenSession() | DropTable() | SetTableProperties():
                return Done()
            case _:
                raise AssertionError(f"unexpected {request}")

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"unexpected {ticket}")

    def asked(self, kind: type) -> list[Request]:
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

    def runs(self, table_id: str | None = None, limit: int = 1000) -> tuple[RefreshRun, ...]:
        found = [run for run in self.history if table_id in (None, run.table_id)]
        return tuple(reversed(found))[:limit]

    def last_success(self, table_id: str) -> RefreshRun | None:
        found = self.runs(table_id)
        return next((run for run in found if run.state is RunState.SUCCEEDED), None)


class FixedClock:
    """Time that stands still."""

    def now(self) -> datetime:
        return NOW


@dataclass
class World:
    """A gateway's parts around one session, ready to execute statements."""

    config: Config = field(default_factory=Config)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    ledger: FakeLedger = field(default_factory=FakeLedger)
    scheduler: FakeScheduler = field(default_factory=FakeScheduler)
    engine: FakeEngine = field(default_factory=FakeEngine)
    refreshed: list[RefreshRequest] = field(default_factory=list)
    refresh_failure: ServerError | None = None
    published: int = 0
    logged: list[str] = field(default_factory=list)
    ids: int = 0
    operations: int = 0

    def __post_init__(self) -> None:
        self.session = SessionState(session_id="s1", user="ann", catalog="c", schema="d")

    def execute(self, text: str, overlay: dict[str, str] | None = None) -> Result:
        self.operations += 1
        context = Context(
            services=self._services(),
            session=self.session,
            operation_id=f"op{self.operations}",
            log=self.logged.append,
            progress=lambda progress: None,
            overlay=overlay or {},
        )
        return execute(text, context)

    def rows(self, text: str) -> list[tuple[object, ...]]:
        result = self.execute(text)
        return [tuple(row.values()) for batch in result.batches(0) for row in batch.to_pylist()]

    def table(self, table: str) -> MaterializedTable:
        found = self.catalog.find(name(table))
        assert found is not None
        return found

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
            cancel_refresh=lambda operation_id: False,
            publish_system_tables=self._publish,
            clock=FixedClock(),
            new_id=self._new_id,
            server_id="server-1",
        )

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def _publish(self) -> None:
        self.published += 1

    def _refresh(self, request: RefreshRequest) -> RefreshRun:
        self.refreshed.append(request)
        table = self.catalog.by_id(request.table_id)
        assert table is not None
        run = RefreshRun(
            refresh_id=request.refresh_id or self._new_id(),
            table_id=table.id,
            table=table.name,
            definition_version=table.definition_version,
            trigger=request.trigger,
            state=RunState.SUCCEEDED,
            queued_at=NOW,
            started_at=NOW,
            finished_at=NOW,
            requested_by=request.requested_by,
            server_id="server-1",
            partitions=request.partitions,
            action=Strategy.FULL,
        )
        if self.refresh_failure:
            run = replace(
                run,
                state=RunState.FAILED,
                error_class=self.refresh_failure.code,
                sqlstate=self.refresh_failure.sqlstate,
                error_message=self.refresh_failure.message,
            )
        self.ledger.history.append(run)
        return run


def lost() -> ServerError:
    return error(Code.ENGINE_LOST)
