"""A fake connection that answers statements from a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

import tidegate
from tidegate.operation import OperationState, OperationStatus


@dataclass
class Answer:
    """What a statement answers: columns with rows, an error, or nothing."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    error: tidegate.Error | None = None
    rowcount: int = -1
    blocks: bool = False
    messages: Sequence[tidegate.Warning] = ()


@dataclass
class FakeServer:
    """Every connection to it, and all that was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    options: list[Any] = field(default_factory=list)
    canceled: threading.Event = field(default_factory=threading.Event)
    running: threading.Event = field(default_factory=threading.Event)
    open_sessions: int = 0
    refusal: tidegate.Error | None = None
    warnings: tuple[str, ...] = ()
    """About the settings of a new session."""

    def connect(self, options: Any) -> Any:
        self.options.append(options)
        if self.refusal is not None:
            raise self.refusal
        self.open_sessions += 1
        return FakeConnection(self)


@dataclass
class FakeConnection:
    server: FakeServer

    @property
    def messages(self) -> list[tuple[type[tidegate.Warning], tidegate.Warning]]:
        found = [tidegate.Warning(text, severity="warning") for text in self.server.warnings]
        return [(type(message), message) for message in found]

    def cursor(self) -> FakeCursor:
        return FakeCursor(self.server)

    def close(self) -> None:
        self.server.open_sessions -= 1


class FakeCursor:
    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._answer = Answer()
        self._rows: list[Sequence[object]] = []

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        if not self._answer.columns:
            return None
        return [(name, "STRING", None, None, None, None, None) for name in self._answer.columns]

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    @property
    def messages(self) -> list[tuple[type[tidegate.Warning], tidegate.Warning]]:
        return [(type(message), message) for message in self._answer.messages]

    def execute_async(self, sql: str) -> Self:
        self._server.statements.append(sql)
        return self._take(self._server.answers.get(sql, Answer()))

    def execute(self, sql: str) -> Self:
        return self.execute_async(sql).wait()

    def poll(self) -> OperationStatus:
        self.wait()
        return OperationStatus(state=OperationState.FINISHED, has_result_set=True)

    def wait(self) -> Self:
        if self._answer.blocks:
            self._server.running.set()
            assert self._server.canceled.wait(20)
            raise tidegate.OperationalError("canceled", sqlstate="57014")
        if self._answer.error is not None:
            raise self._answer.error
        return self

    def cancel(self) -> None:
        self._server.canceled.set()

    def fetch_logs(self) -> list[str]:
        return []

    def fetchmany(self, size: int) -> list[Sequence[object]]:
        taken, self._rows = self._rows[:size], self._rows[size:]
        return taken

    def fetch_record_batches(self) -> pa.RecordBatchReader:
        columns = zip(*self.fetchall(), strict=True)
        table = pa.table(dict(zip(self._answer.columns, columns, strict=True)))
        return table.to_reader()

    def fetchall(self) -> list[Sequence[object]]:
        return self.fetchmany(len(self._rows))

    def __getattr__(self, name: str) -> Callable[..., Self]:
        if name not in ("tables", "columns", "schemas", "functions", "primary_keys", "catalogs"):
            raise AttributeError(name)

        def call(*arguments: Any, catalog: str | None = None) -> Self:
            self._server.calls.append((name, arguments))
            return self._take(self._server.answers.get(name, Answer(["NAME"], [("x",)])))

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows = []

    def _take(self, answer: Answer) -> Self:
        self._answer, self._rows = answer, list(answer.rows)
        return self
