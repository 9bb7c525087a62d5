"""Retriable faults are waited out, others are not; the demo's SQL files are Tidegate's SQL."""

from __future__ import annotations

import re
from importlib import resources
from types import TracebackType

import pytest

import tidegate
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import CreateMaterializedTable, SparkStatement
from tidegate_server.gateway.demo.gateway import Gateway, statements

LOST = tidegate.OperationalError("[ENGINE_LOST] The Spark engine died", sqlstate="08006")
FACTS = {"staging": "/staging", "first": "2013-01-01", "last": "2013-01-31", "day": "2013-01-31"}


class FakeServer:
    """Connections to it fail in the given order, then answer one row."""

    def __init__(self, *failures: tidegate.Error) -> None:
        self.failures = list(failures)
        self.opened = 0
        self.ran: list[str] = []
        self.pauses: list[float] = []
        self.said: list[str] = []

    def gateway(self, patience: float = 100.0) -> Gateway:
        return Gateway(
            self.connect,  # type: ignore[arg-type]
            say=self.said.append,
            patience=patience,
            sleep=self.pauses.append,
        )

    def connect(self) -> FakeConnection:
        self.opened += 1
        return FakeConnection(self)


class FakeConnection:
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    def cursor(self) -> FakeCursor:
        return FakeCursor(self.server)

    def close(self) -> None:
        return None


class FakeCursor:
    description = (("n",),)

    def __init__(self, server: FakeServer) -> None:
        self.server = server

    def __enter__(self) -> FakeCursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        return None

    def execute(self, sql: str) -> None:
        if self.server.failures:
            raise self.server.failures.pop(0)
        self.server.ran.append(sql)

    def fetchall(self) -> list[tuple[int]]:
        return [(1,)]


def test_a_lost_engine_is_waited_out_on_a_new_connection() -> None:
    server = FakeServer(LOST, LOST)
    assert server.gateway().run("SELECT 1") == [(1,)]
    assert (server.ran, server.opened, server.pauses) == (["SELECT 1"], 3, [1.0, 2.0])


def test_waiting_is_said_once() -> None:
    server = FakeServer(LOST, LOST, LOST)
    server.gateway().run("SELECT 1")
    assert server.said == ["waiting: [ENGINE_LOST] The Spark engine died"]


def test_an_error_of_the_statement_itself_is_raised_at_once() -> None:
    server = FakeServer(tidegate.ProgrammingError("no such table", sqlstate="42P01"))
    with pytest.raises(tidegate.ProgrammingError):
        server.gateway().run("SELECT * FROM nowhere")
    assert server.pauses == []


def test_patience_ends() -> None:
    server = FakeServer(*[LOST] * 50)
    with pytest.raises(tidegate.OperationalError):
        server.gateway(patience=10.0).run("SELECT 1")
    assert sum(server.pauses) <= 10.0


def test_a_fact_that_is_not_given_is_an_error() -> None:
    with pytest.raises(KeyError):
        statements("arrival", staging="/staging")


@pytest.mark.parametrize("name", ["ods", "dimensions", "arrival", "corrections"])
def test_loading_is_plain_spark_sql(name: str) -> None:
    found = statements(name, **FACTS)
    assert found
    assert {type(parse(sql)) for sql in found} == {SparkStatement}


@pytest.mark.parametrize("name", ["dwd_flights", "dws_delays"])
def test_each_layer_is_one_materialized_table(name: str) -> None:
    [sql] = statements(name)
    assert isinstance(parse(sql), CreateMaterializedTable)


def test_every_sql_file_is_tried_here() -> None:
    here = resources.files("tidegate_server.gateway.demo").joinpath("sql")
    names = {file.name for file in here.iterdir()}
    assert names == {
        f"{name}.sql"
        for name in ("ods", "dimensions", "arrival", "corrections", "dwd_flights", "dws_delays")
    }
    assert all(re.match(r"--", here.joinpath(name).read_text("utf-8")) for name in names)
