from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.examples import NOON
from tests.gateway.protocol.gateway import (
    BatchResult,
    FakeClock,
    FakeEngine,
    Read,
    eventually,
    services,
)
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineSection, ServerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Cancel, CheckSettings, CloseSession, ListNames
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.states import OperationState
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.audit.file import RotatedFile
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.session.handle import Handle
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.operation import Operation
from tidegate_server.gateway.session.session import Session


class World:
    """A manager over fakes whose statements block until let go."""

    def __init__(
        self, audit: AuditLog | None = None, engine: EngineSection | None = None, **limits: Any
    ) -> None:
        self.clock = FakeClock()
        self.engine = FakeEngine()
        self.contexts: list[Context] = []
        self.let_go = threading.Event()
        self.result = BatchResult(Schema(), [])
        section = ServerSection(
            workers=1,
            max_sessions=3,
            disconnect_grace=30.0,
            session_idle_timeout=100.0,
            operation_idle_timeout=60.0,
            **limits,
        )
        config = Config(server=section, engine=engine or EngineSection())
        parts = services(config, engine=self.engine, clock=self.clock)
        if audit is not None:
            parts = replace(parts, audit=audit)
        self.manager = SessionManager(parts, lambda text, dialect: Read(text, self.execute))

    def execute(self, text: str, context: Context) -> Result:
        self.contexts.append(context)
        match text.split()[0]:
            case "BLOCK":
                assert self.let_go.wait(20)
                return self.result
            case "FAIL":
                raise error(Code.NOT_SUPPORTED, what=text)
            case "CRASH":
                raise ZeroDivisionError("oh")
        return nothing()

    def open(self, connection: int | None = None, **configuration: str) -> Session:
        connection = self.manager.connect() if connection is None else connection
        return self.manager.open("eva", configuration, connection)

    def calls(self, kind: type) -> list[object]:
        return [call for call in self.engine.calls if isinstance(call, kind)]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.let_go.set()
    world.manager.shutdown()


def ended(operation: Operation) -> bool:
    return eventually(lambda: operation.state.terminal)


def running(operation: Operation) -> bool:
    return eventually(lambda: operation.state is OperationState.RUNNING)


def test_a_session_is_found_by_its_handle_on_any_connection(world: World) -> None:
    session = world.open()
    assert world.manager.get(session.handle, world.manager.connect()) is session


def test_a_wrong_secret_finds_nothing(world: World) -> None:
    session = world.open()
    with pytest.raises(ServerError, match="Invalid SessionHandle"):
        world.manager.get(Handle(session.handle.guid, bytes(16)), 1)


def test_a_closed_session_is_gone_here_and_in_the_engine(world: World) -> None:
    session = world.open()
    world.manager.close(session)
    with pytest.raises(ServerError, match="Invalid SessionHandle"):
        world.manager.get(session.handle, 1)
    assert world.calls(CloseSession) == [CloseSession(session_id=session.id)]


def test_closing_works_without_an_engine(world: World) -> None:
    session = world.open()
    world.engine.ready = False
    world.manager.close(session)
    assert list(world.manager.sessions()) == []


def test_an_empty_user_is_anonymous(world: World) -> None:
    assert world.manager.open("", None, world.manager.connect()).user == "anonymous"


def test_a_session_knows_who_opened_it_for_whom(world: World) -> None:
    session = world.manager.open("max", None, world.manager.connect(), real_user="eva")
    assert (session.user, session.real_user) == ("max", "eva")
    assert world.open().real_user == "eva"


def test_more_sessions_than_allowed_are_refused(world: World) -> None:
    for _ in range(3):
        world.open()
    with pytest.raises(ServerError, match="Too many sessions"):
        world.open()


def test_a_known_schema_becomes_the_current_one(world: World) -> None:
    assert world.open(**{"use:database": "other_db"}).state.schema == "other_db"


def test_an_unknown_schema_is_refused_with_its_sqlstate(world: World) -> None:
    with pytest.raises(ServerError, match="no schema nowhere") as caught:
        world.open(**{"use:database": "nowhere"})
    assert caught.value.sqlstate == "42704"


def test_any_schema_is_taken_while_no_engine_ever_told_what_there_is(world: World) -> None:
    world.engine.ready = False
    assert world.open(**{"use:database": "nowhere"}).state.schema == "nowhere"


@pytest.mark.parametrize(
    ("configuration", "place"),
    [
        ({"use:database": "lake.db"}, ("lake", "db")),
        ({"use:database": "LAKE.db"}, ("lake", "db")),
        ({"use:catalog": "lake", "use:database": "default"}, ("lake", "")),
        ({"use:catalog": "lake", "use:database": "a.b"}, ("lake", "a.b")),
        (
            {"use:catalog": "spark_catalog", "use:database": "other_db"},
            ("spark_catalog", "other_db"),
        ),
        ({"use:database": "spark_catalog.other_db"}, ("spark_catalog", "other_db")),
    ],
)
def test_a_session_begins_in_a_catalog(
    world: World, configuration: dict[str, str], place: tuple[str, str]
) -> None:
    lake = ExternalObject(
        kind=SecuredKind.CATALOG, id="c-1", name="lake", owner="eva", created_at=NOON
    )
    world.manager._services.external.create(lake)
    state = world.open(**configuration).state
    assert (state.catalog, state.schema) == place


def test_an_unknown_catalog_is_refused(world: World) -> None:
    with pytest.raises(ServerError, match="no catalog lake"):
        world.open(**{"use:catalog": "lake"})
    with pytest.raises(ServerError, match=r"no schema lake\.db"):
        world.open(**{"use:database": "lake.db"})


def test_sessions_of_a_broken_connection_close_after_the_grace_time(world: World) -> None:
    connection = world.manager.connect()
    sessions = [world.open(connection) for _ in range(2)]
    other = world.open()
    world.manager.disconnect(connection)
    world.clock.advance(29)
    world.manager.sweep()
    assert set(world.manager.sessions()) == {*sessions, other}
    world.clock.advance(1)
    world.manager.sweep()
    assert set(world.manager.sessions()) == {other}


def test_a_session_used_from_a_new_connection_is_taken_over(world: World) -> None:
    connection, second = world.manager.connect(), world.manager.connect()
    session = world.open(connection)
    world.manager.disconnect(connection)
    world.manager.get(session.handle, second)
    world.clock.advance(60)
    world.manager.sweep()
    assert list(world.manager.sessions()) == [session]
    world.manager.disconnect(second)
    world.clock.advance(60)
    world.manager.sweep()
    assert list(world.manager.sessions()) == []


def test_a_session_used_from_a_new_connection_outlives_the_old_one(world: World) -> None:
    connection, second = world.manager.connect(), world.manager.connect()
    session = world.open(connection)
    world.manager.get(session.handle, second)
    world.manager.disconnect(connection)  # noticed late
    world.clock.advance(60)
    world.manager.sweep()
    assert list(world.manager.sessions()) == [session]


def test_a_visitor_connection_takes_nothing_with_it(world: World) -> None:
    session = world.open()
    visitor = world.manager.connect()
    world.manager.get(session.handle, visitor)
    world.manager.disconnect(visitor)
    world.clock.advance(60)
    world.manager.sweep()
    assert list(world.manager.sessions()) == [session]


def test_a_session_of_a_connection_that_ended_meanwhile_is_not_opened(world: World) -> None:
    connection = world.manager.connect()
    world.manager.disconnect(connection)
    with pytest.raises(ServerError, match="its connection has ended"):
        world.open(connection)
    assert list(world.manager.sessions()) == []


def test_idle_sessions_expire(world: World) -> None:
    world.open()
    world.clock.advance(100)
    world.manager.sweep()
    assert list(world.manager.sessions()) == []


def test_a_result_that_nobody_asks_for_is_freed(world: World) -> None:
    session = world.open()
    operation, blocked = session.submit("SET a=b"), session.submit("BLOCK")
    assert ended(operation)
    assert running(blocked)
    world.clock.advance(59)
    (connection,) = session.connections
    assert world.manager.find_operation(operation.handle, connection) is not None
    world.clock.advance(59)
    assert world.manager.is_still_open(operation, connection)
    world.clock.advance(59)
    world.manager.sweep()
    assert session.find(operation.handle.guid) is operation
    world.clock.advance(1)
    world.manager.sweep()
    assert session.find(operation.handle.guid) is None
    assert session.find(blocked.handle.guid) is blocked
    assert operation.state is OperationState.CLOSED
    assert not world.manager.is_still_open(operation, connection)


def test_one_login_may_have_so_many_sessions() -> None:
    world = World(max_sessions_per_user=2)
    try:
        first = world.open()
        world.open()
        with pytest.raises(ServerError, match="TOO_MANY.*sessions of user eva"):
            world.open()
        world.manager.open("ada", {}, world.manager.connect())
        world.manager.close(first)
        world.open()
    finally:
        world.manager.shutdown()


def test_one_login_may_have_so_many_statements_at_work() -> None:
    world = World(max_statements_per_user=2)
    try:
        first = world.open().submit("BLOCK")
        session = world.open()
        session.submit("BLOCK")
        with pytest.raises(ServerError, match="TOO_MANY.*statements of user eva"):
            session.submit("SELECT 1")
        other = world.manager.open("ada", {}, world.manager.connect())
        other.submit("SELECT 1")
        session.cancel(first)
        session.submit("SELECT 1")
    finally:
        world.let_go.set()
        world.manager.shutdown()


def test_statements_that_never_run_are_recorded(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "audit.jsonl", max_bytes=1 << 20, max_files=2)
    audit = AuditLog(file, server_id="s")
    section = EngineSection(max_statement_bytes=2000, max_statement_tokens=100)
    world = World(audit, section, max_statements_per_user=1)
    large, many = "SELECT '" + "x" * 2000 + "'", "SELECT " + "1," * 100 + "1"
    try:
        session = world.open()
        session.submit("BLOCK")
        for text in (large, many, "SELECT 1", "SELECT '\ud800'"):
            with pytest.raises(ServerError):
                session.submit(text)
    finally:
        world.let_go.set()
        world.manager.shutdown()
    lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    seen = [line for line in lines if line["event"] == "statement"]
    assert {line["session_id"] for line in seen} == {session.id}
    assert {line["user"] for line in seen} == {"eva"}
    assert [(line["outcome"], line["text"]) for line in seen] == [
        ("STATEMENT_TOO_LARGE", large),
        ("STATEMENT_TOO_LARGE", many),
        ("TOO_MANY", "SELECT 1"),
        ("TOO_MANY", r"SELECT '\ud800'"),
    ]


def test_a_cancel_waits_for_no_other_call() -> None:
    world = World()
    hold = threading.Event()
    try:
        for _ in range(100):
            world.manager.executor.short.submit(hold.wait)
        assert world.manager.executor.urgent.submit(lambda: True).result(timeout=30)
    finally:
        hold.set()
        world.manager.shutdown()


@pytest.mark.parametrize("asked", [None, 30.0])
def test_the_server_ends_what_runs_too_long(asked: float | None) -> None:
    world = World(query_timeout=0.05)
    try:
        operation = world.open().submit("BLOCK", timeout=asked)
        assert ended(operation)
        assert operation.state is OperationState.TIMEDOUT
    finally:
        world.let_go.set()
        world.manager.shutdown()


def test_a_session_with_running_work_never_idles(world: World) -> None:
    session = world.open()
    assert running(session.submit("BLOCK"))
    world.clock.advance(1000)
    world.manager.sweep()
    assert list(world.manager.sessions()) == [session]


def test_a_statement_ends_with_its_result(world: World) -> None:
    operation = world.open().submit("SET a=b")
    assert ended(operation)
    assert operation.state is OperationState.FINISHED


def test_the_context_carries_the_operation_and_its_overlay(world: World) -> None:
    session = world.open()
    operation = session.submit("SET a=b", overlay={"k": "v"})
    assert ended(operation)
    (context,) = world.contexts
    assert (context.operation_id, context.session, context.setting("k")) == (
        operation.id,
        session.state,
        "v",
    )
    context.log("hello")
    assert operation.log.read(9)[1][-1] == "INFO  : hello"


def test_variables_of_the_session_are_put_into_its_statements(world: World) -> None:
    session = world.open(**{"set:hivevar:day": "today"})
    assert session.submit("SET x=${day}").statement == "SET x=today"


def test_a_refused_statement_keeps_its_error(world: World) -> None:
    operation = world.open().submit("FAIL")
    assert ended(operation)
    problem = operation.view().error
    assert problem is not None
    assert problem.code == "NOT_SUPPORTED"


def test_a_crash_becomes_an_internal_error(world: World) -> None:
    operation = world.open().submit("CRASH")
    assert ended(operation)
    problem = operation.view().error
    assert problem is not None
    assert (problem.code, problem.sqlstate) == ("INTERNAL", "XX000")
    assert "ZeroDivisionError: oh" in str(problem)


def test_a_cancel_of_running_work_reaches_the_engine(world: World) -> None:
    session = world.open()
    operation = session.submit("BLOCK")
    assert running(operation)
    session.cancel(operation)
    assert operation.state is OperationState.CANCELED
    assert world.calls(Cancel) == [Cancel(operation_id=operation.id)]


def test_a_cancel_is_repeated_until_the_work_ends(world: World) -> None:
    session = world.open()
    operation = session.submit("BLOCK")
    assert running(operation)
    session.cancel(operation)
    assert eventually(lambda: len(world.calls(Cancel)) > 1)
    world.let_go.set()
    assert operation.work_ended.wait(10)


def test_a_result_that_comes_after_a_cancel_is_closed(world: World) -> None:
    session = world.open()
    operation = session.submit("BLOCK")
    assert running(operation)
    session.cancel(operation)
    world.let_go.set()
    assert eventually(lambda: world.result.closed)


def test_a_canceled_statement_that_waits_for_a_thread_never_runs(world: World) -> None:
    session = world.open()
    first = session.submit("BLOCK")
    assert running(first)
    second = session.submit("SET a=b")
    assert second.state is OperationState.PENDING
    session.cancel(second)
    world.let_go.set()
    assert second.work_ended.wait(10)
    assert len(world.contexts) == 1
    assert world.calls(Cancel) == []


def test_a_timeout_ends_and_interrupts_the_statement(world: World) -> None:
    operation = world.open().submit("BLOCK", timeout=2)
    assert running(operation)
    assert ended(operation)
    assert operation.state is OperationState.TIMEDOUT
    assert eventually(lambda: bool(world.calls(Cancel)))


def test_closing_a_session_cancels_what_runs(world: World) -> None:
    session = world.open()
    operation = session.submit("BLOCK")
    assert running(operation)
    world.manager.close(session)
    assert operation.state is OperationState.CLOSED
    assert world.calls(Cancel)


def test_releasing_an_operation_frees_its_result(world: World) -> None:
    session = world.open()
    operation = session.submit("BLOCK")
    assert running(operation)
    world.let_go.set()
    assert ended(operation)
    session.release(operation)
    assert world.result.closed
    assert world.manager.find_operation(operation.handle, 1) is None


def test_an_operation_is_found_by_its_handle(world: World) -> None:
    session = world.open()
    operation = session.submit("SET a=b")
    assert world.manager.find_operation(operation.handle, 1) == (session, operation)
    wrong = replace(operation.handle, secret=bytes(16))
    assert world.manager.find_operation(wrong, 1) is None


def test_the_metastore_is_listed_again_after_a_statement_that_changes_names(
    world: World,
) -> None:
    session = world.open()
    world.manager.snapshot.listing()
    world.manager.snapshot.listing()
    assert len(world.calls(ListNames)) == 1
    assert ended(session.submit("DROP TABLE t"))
    world.manager.snapshot.listing()
    assert len(world.calls(ListNames)) == 2


def test_a_query_leaves_the_listing_as_it_is(world: World) -> None:
    session = world.open()
    world.manager.snapshot.listing()
    assert ended(session.submit("SELECT 1"))
    world.manager.snapshot.listing()
    assert len(world.calls(ListNames)) == 1


# ---- settings at connect -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("execution.mode", "nowhere", Code.MT_EXECUTION_MODE),
        ("materialized-table.initialize", "NEVER", Code.MT_OPTION_VALUE),
        ("set:hiveconf:materialized-table.initialise", "ON_CREATE", Code.MT_OPTION_UNKNOWN),
        ("materialised-table.initialize", "ON_CREATE", Code.MT_OPTION_UNKNOWN),
        ("constraint.enforce", "FAIL", Code.MT_OPTION_VALUE),
        ("tidegate.result.formats", "arrow", Code.MT_OPTION_UNKNOWN),
    ],
)
def test_a_setting_that_set_refuses_opens_no_session(
    world: World, key: str, value: str, code: Code
) -> None:
    with pytest.raises(ServerError) as caught:
        world.open(**{key: value})
    assert caught.value.code == code.name
    assert list(world.manager.sessions()) == []


@pytest.mark.parametrize("key", ["fs.defaultFS", "set:hiveconf:spark.redaction.regex", "spark.x"])
def test_a_setting_that_is_not_free_opens_no_session_where_users_matter(key: str) -> None:
    world = World(auth="PASSWORD")
    with pytest.raises(ServerError) as caught:
        world.open(**{key: "x"})
    assert caught.value.code == Code.ACCESS_DENIED.name
    assert list(world.manager.sessions()) == []
    assert world.calls(CheckSettings) == []
    free = {"set:hiveconf:spark.sql.ansi.enabled": "false", "hive.server2.proxy.user": "eva"}
    world.open(**free, **{"set:hivevar:day": "1", "execution.mode": "embedded"})
    with pytest.raises(ServerError) as caught:
        world.open(**{"refresh.retries": "1"})
    assert caught.value.code == Code.MT_OPTION_VALUE.name  # it says what the option is called
    world.manager.shutdown()


def test_what_spark_says_of_a_setting_is_the_answer_to_its_client(world: World) -> None:
    world.engine.unusable = ServerError(
        code="INVALID_CONF_VALUE.TIME_ZONE", sqlstate="22022", message="no such zone"
    )
    with pytest.raises(ServerError, match="no such zone"):
        world.open(**{"spark.sql.session.timeZone": "Nowhere/Bad"})
    assert list(world.manager.sessions()) == []
    assert world.calls(CheckSettings) == [
        CheckSettings(settings={"spark.sql.session.timeZone": "Nowhere/Bad"})
    ]


def test_settings_that_are_no_business_of_sparks_need_no_engine(world: World) -> None:
    world.engine.ready = False
    session = world.open(**{"set:hivevar:day": "1", "execution.mode": "embedded"})
    assert session.state.settings == {"day": "1", "execution.mode": "embedded"}
    assert world.calls(CheckSettings) == []


def test_an_engine_that_does_not_come_up_keeps_nobody_from_connecting(world: World) -> None:
    world.engine.ready = False
    session = world.open(**{"spark.sql.ansi.enabled": "maybe"})
    assert session.state.settings == {"spark.sql.ansi.enabled": "maybe"}


def test_a_setting_without_effect_is_in_the_servers_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.open(**{"parallelism.default": "4", "spark.app.name": "report"})
    assert "parallelism.default changes nothing here" in caplog.text
    assert "spark.app.name changes nothing here" in caplog.text
