"""A Thrift server over fakes: no Spark, statements answered from a table of functions."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pyarrow as pa

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import ServerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import (
    Done,
    FunctionList,
    NameList,
    Progress,
    SchemaNames,
    SettingsChecked,
    TableInfo,
    TableList,
)
from tidegate_server.core.messages.requests import (
    Cancel,
    CheckSettings,
    ListFunctions,
    ListNames,
    ListTables,
    ListTemporaryFunctions,
    ListTemporaryViews,
)
from tidegate_server.core.model.clock import SystemClock
from tidegate_server.core.model.names import FunctionName, TableName
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.auth.access import build_access
from tidegate_server.gateway.auth.tokens import DelegationTokens, TokenRecord
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.protocol.server import ThriftServer
from tidegate_server.gateway.session.manager import SessionManager


class FakeClock:
    """A clock that moves only when a test advances it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


ORDERS = TableInfo(
    name=TableName("spark_catalog", "default", "orders"),
    type="TABLE",
    comment="all orders",
    columns=(
        Column(name="id", type="bigint", nullable=False),
        Column(name="amount", type="decimal(10,2)", comment="in euro"),
        Column(name="tags", type="array<string>"),
    ),
)
RECENT = TableInfo(name=TableName("spark_catalog", "default", "recent"), type="VIEW")
OTHER = TableInfo(name=TableName("spark_catalog", "other_db", "t"), type="TABLE")


class FakeEngine:
    """Knows three tables and records its requests."""

    generation = 1

    def __init__(self) -> None:
        self.ready = True
        self.tables = [ORDERS, RECENT, OTHER]
        self.views: list[TableInfo] = []
        self.functions = (FunctionName("abs"), FunctionName("f", "other_db"))
        self.temporary: dict[str, tuple[FunctionName, ...]] = {}
        self.calls: list[Any] = []
        self.canceled: dict[str, threading.Event] = {}
        self.unusable: ServerError | None = None
        self.owners: dict[tuple[str, str], str] = {}

    def call(self, request: Any, *, on_progress: Any = None, wait: float | None = None) -> Any:
        self.calls.append(request)
        if not self.ready:
            raise error(Code.ENGINE_UNAVAILABLE, reason="it is a fake")
        match request:
            case ListNames():
                return self._names()
            case ListTables(schema=schema, names=names, with_columns=with_columns):
                tables = [
                    t if with_columns else replace(t, columns=())
                    for t in self.tables
                    if t.name.schema == schema and (names is None or t.name.table in names)
                ]
                return TableList(schemas=("default", "other_db"), tables=tuple(tables))
            case ListTemporaryViews():
                return TableList(schemas=("global_temp",), tables=tuple(self.views))
            case ListFunctions():
                return FunctionList(functions=self.functions)
            case ListTemporaryFunctions(session_id=session_id):
                return FunctionList(functions=self.temporary.get(session_id, ()))
            case CheckSettings():
                if self.unusable is not None:
                    raise self.unusable
                return SettingsChecked()
            case Cancel(operation_id=operation_id):
                self.canceled.setdefault(operation_id, threading.Event()).set()
        return Done()

    def read(self, ticket: Any) -> Any:
        raise AssertionError("results of the fake are in memory")

    def _names(self) -> NameList:
        def of(schema: str, kind: str) -> tuple[str, ...]:
            found = (t for t in self.tables if (t.name.schema, t.type) == (schema, kind))
            return tuple(t.name.table for t in found)

        return NameList(
            schemas=tuple(
                SchemaNames(
                    schema=name,
                    tables=of(name, "TABLE"),
                    views=of(name, "VIEW"),
                    owner=self.owners.get((name, ""), ""),
                    owners={t: o for (schema, t), o in self.owners.items() if schema == name},
                )
                for name in ("default", "other_db")
            )
        )


class FakeCatalog:
    """Holds the materialized tables it was given; only reading is needed here."""

    def __init__(self, *tables: MaterializedTable) -> None:
        self.held = tables

    def tables(
        self, catalog: str | None = None, schema: str | None = None
    ) -> tuple[MaterializedTable, ...]:
        return tuple(t for t in self.held if schema in (None, t.name.schema))


def services(
    config: Config | None = None,
    *,
    engine: Any = None,
    catalog: Any = None,
    clock: Any = None,
) -> Services:
    """Build services of fakes; what is not needed here is None."""
    unused: Any = None
    return Services(
        config=config or Config(),
        catalog=catalog or FakeCatalog(),
        ledger=unused,
        scheduler=unused,
        engine=engine or FakeEngine(),
        run_refresh=unused,
        waves=unused,
        cancel_refresh=lambda operation_id: False,
        publish_system_tables=lambda text, administers: None,
        clock=clock or SystemClock(),
        new_id=lambda: str(uuid.uuid4()),
        server_id="test",
    )


def rows_of(name: str, spark_type: str, values: pa.Array) -> Result:
    """Return a one-column result over an Arrow array."""
    return BatchResult(
        Schema((Column(name=name, type=spark_type),)),
        [pa.RecordBatch.from_arrays([values], names=[name])],
    )


class BatchResult:
    """A result of given batches."""

    has_result_set = True
    modified_rows: int | None = None

    def __init__(self, schema: Schema, batches: list[pa.RecordBatch]) -> None:
        self.schema = schema
        self.closed = False
        self._batches = batches

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if start_row < batch.num_rows:
                yield batch.slice(start_row)
            start_row = max(0, start_row - batch.num_rows)

    def close(self) -> None:
        self.closed = True


@dataclass
class Gateway:
    """A running server with its parts."""

    host: str
    port: int
    sessions: SessionManager
    engine: FakeEngine
    config: Config
    answers: dict[str, Callable[[Context], Result]] = field(default_factory=dict)

    def connections(self) -> int:
        """Count the connections that are open."""
        own = psutil.Process().net_connections("tcp")
        return sum(c.laddr.port == self.port and c.status == "ESTABLISHED" for c in own)


@dataclass(frozen=True)
class Read:
    """A statement that a function carries out."""

    text: str
    execute: Callable[[str, Context], Result]

    @property
    def kind(self) -> str:
        return prepare(self.text).kind

    @property
    def returns_rows(self) -> bool:
        return self.text.split()[0].upper() in ("SELECT", "SHOW") if self.text.split() else False

    @property
    def may_change_names(self) -> bool:
        return not self.returns_rows

    @property
    def lists_names(self) -> bool:
        return prepare(self.text).lists_names

    def run(self, context: Context) -> Result:
        return self.execute(self.text, context)


@contextmanager
def running_gateway(config: Config | None = None, catalog: Any = None) -> Iterator[Gateway]:
    """Run a server on a free port, in its own thread."""
    config = config or Config(server=ServerSection(port=0, workers=4, disconnect_grace=0.0))
    engine = FakeEngine()
    answers: dict[str, Callable[[Context], Result]] = {}

    def execute(text: str, context: Context) -> Result:
        if text in answers:
            return answers[text](context)
        if text.upper().startswith("USE "):
            context.session.schema = text.split()[1].strip("`")
            return nothing()
        if text == "SELECT 1":
            one = Schema((Column(name="1", type="int"),))
            return RowsResult(one, [(1,)], types=(pa.int32(),))
        if text == "WAIT FOR CANCEL":
            wait_for_cancel(engine, context)
        if text == "TALK":
            return talk(context)
        if text.startswith("WARN"):
            context.warn("the ice is thin")
            context.note("nothing was changed")
        if text == "WARN":
            return nothing()
        raise ServerError(
            code="TABLE_OR_VIEW_NOT_FOUND",
            sqlstate="42P01",
            message=f"cannot run {text}",
            detail="first line\nsecond line",
        )

    sessions = SessionManager(
        services(config, engine=engine, catalog=catalog),
        lambda text, dialect: Read(text, execute),
    )
    loop = asyncio.new_event_loop()
    server = ThriftServer(config, sessions, build_access(config, SystemClock(), tokens(config)))
    host, port = loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Gateway(host, port, sessions, engine, config, answers)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def wait_for_cancel(engine: FakeEngine, context: Context) -> None:
    event = engine.canceled.setdefault(context.operation_id, threading.Event())
    if not event.wait(30):
        raise AssertionError("nobody canceled the statement")
    raise error(Code.OPERATION_CANCELED, by="")


def talk(context: Context) -> Result:
    context.log("one line of the log")
    context.progress(
        Progress(stages_done=0, stages_total=1, tasks_done=1, tasks_running=1, tasks_total=4)
    )
    return nothing()


class MemoryTokens:
    """Delegation tokens that end with the process."""

    def __init__(self) -> None:
        self.records: dict[str, TokenRecord] = {}

    def key(self) -> bytes:
        return b"a key"

    def add(self, record: TokenRecord) -> None:
        self.records[record.id] = record

    def find(self, token_id: str) -> TokenRecord | None:
        return self.records.get(token_id)

    def renew(self, token_id: str, expires_at: datetime) -> None:
        self.records[token_id] = replace(self.records[token_id], expires_at=expires_at)

    def remove(self, token_id: str) -> None:
        del self.records[token_id]


def tokens(config: Config) -> DelegationTokens:
    """Return delegation tokens that are kept in memory."""
    return DelegationTokens(MemoryTokens(), SystemClock(), lambda: str(uuid.uuid4()), config.login)


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until a condition holds, bounded."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
