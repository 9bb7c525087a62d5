"""Statements over tables that become jobs; what is recorded of jobs that end, or are ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.gateway.command.fakes import NOW, World, engine_lost
from tests.gateway.command.guarded import Guarded
from tests.support.waiting import wait_until
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.jobs import Job, JobState
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.messages.requests import (
    Cancel,
    CheckStatement,
    CloseSession,
    CopySession,
    Execute,
    StartJob,
)
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.runs.single_jobs import MAX_RUNNING, SingleRun

INSERT = "INSERT INTO t SELECT * FROM t1"
KEY = "table.dml-sync"
ASYNC = f"SET '{KEY}' = 'false'"


def status(world: World) -> str:
    return str(world.rows("SHOW JOBS")[0][2])


def message(world: World) -> str:
    return str(world.rows("SHOW JOBS")[0][5])


def wait_for(world: World, *states: str) -> None:
    wait_until(lambda: status(world) in states, f"the job is not {states}", 10)


def count(world: World, kind: type) -> int:
    return len(world.engine.requests_of(kind))


@pytest.mark.parametrize(
    "text",
    [
        INSERT,
        "INSERT OVERWRITE t VALUES (1)",
        "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
        "FROM t1 INSERT INTO t SELECT *",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE",
    ],
)
def test_a_statement_that_changes_rows_becomes_a_job(world: World, text: str) -> None:
    world.execute(ASYNC)
    world.engine.requests.clear()
    [(id,)] = world.rows(text)
    wait_for(world, "FINISHED")
    [copied] = world.engine.requests_of(CopySession)
    assert isinstance(copied, CopySession)
    assert (copied.session_id, copied.copy_id) == ("s1", id)
    [ran] = world.engine.requests_of(Execute)
    assert isinstance(ran, Execute)
    assert (ran.sql, ran.session_id, ran.operation_id) == (text, id, id)
    wait_until(lambda: count(world, CloseSession) == 1, "the copy stays open", 10)
    described = dict(world.rows(f"DESCRIBE JOB '{id}'"))
    assert (described["status"], described["statement 1"]) == ("FINISHED", text)


@pytest.mark.parametrize("text", ["SELECT 1", "CREATE TABLE c AS SELECT 1", "TRUNCATE TABLE t"])
def test_others_wait(world: World, text: str) -> None:
    world.execute(ASYNC)
    world.execute(text)
    assert world.rows("SHOW JOBS") == []
    assert count(world, Execute) == 1


@pytest.mark.parametrize("value", ["true", "TRUE", None])
def test_statements_wait_unless_they_are_not_to(world: World, value: str | None) -> None:
    if value is not None:
        world.execute(f"SET '{KEY}' = '{value}'")
    world.execute(INSERT)
    assert world.rows("SHOW JOBS") == []
    assert count(world, Execute) == 1


@pytest.mark.parametrize("place", ["session", "statement", "server"])
def test_the_option_may_come_from_anywhere(world: World, place: str) -> None:
    if place == "server":
        world.config = Config(options={KEY: "false"})
    if place == "session":
        world.execute(ASYNC)
    world.execute(INSERT, {KEY: "FALSE"} if place == "statement" else None)
    assert len(world.rows("SHOW JOBS")) == 1


def test_a_mistake_is_told_at_once(world: World) -> None:
    world.execute(ASYNC)
    world.engine.failures[CheckStatement] = bad = error(Code.INTERNAL, reason="no such column")
    with pytest.raises(ServerError) as caught:
        world.execute(INSERT)
    assert caught.value is bad
    assert world.rows("SHOW JOBS") == []
    assert count(world, CloseSession) == 1


def test_a_failure_is_kept(world: World) -> None:
    world.execute(ASYNC)
    world.engine.failures[Execute] = error(Code.INTERNAL, reason="of the day")
    world.execute(INSERT)
    wait_for(world, "FAILED")
    assert "of the day" in message(world)


def test_a_lost_engine_leaves_no_doubt(world: World) -> None:
    world.execute(ASYNC)
    world.engine.failures[Execute] = engine_lost()
    world.execute(INSERT)
    wait_for(world, "FAILED")
    assert message(world).startswith("[JOB_INTERRUPTED]")
    assert "before you submit it again" in message(world)
    assert count(world, Execute) == 1  # it is not repeated


def test_the_name_and_secrets(world: World) -> None:
    world.execute(ASYNC)
    world.execute("SET 'pipeline.name' = 'nightly'")
    [(id,)] = world.rows("INSERT INTO t SELECT 1 AS a /* password 'x' */")
    [(_, name, *_)] = world.rows("SHOW JOBS")
    assert name == "nightly"
    assert world.rows(f"DESCRIBE JOB '{str(id).replace('-', '').upper()}'")


def test_the_tables_of_a_set_are_one_job_and_its_streams_another(world: World) -> None:
    world.execute(ASYNC)
    world.execute("BEGIN STATEMENT SET")
    world.execute("INSERT INTO t SELECT 1")
    world.execute("INSERT INTO u SELECT * FROM STREAM rate()")
    world.execute("INSERT INTO v SELECT 2")
    ids = {id for (id,) in world.rows("END")}
    jobs = {row[0]: row[2] for row in world.rows("SHOW JOBS")}
    assert jobs.keys() == ids and len(ids) == 2
    wait_until(lambda: count(world, Execute) == 2, "both run", 10)
    assert count(world, StartJob) == 1


def test_an_error_in_a_set_leaves_out_what_follows(world: World) -> None:
    world.execute(ASYNC)
    world.engine.failures[Execute] = error(Code.INTERNAL, reason="x")
    world.execute("BEGIN STATEMENT SET; INSERT INTO t SELECT 1; INSERT INTO u SELECT 2; END")
    wait_for(world, "FAILED")
    assert count(world, Execute) == 1


def test_a_job_is_its_owners(guarded_world: Guarded) -> None:
    world = guarded_world
    world.be("bob")
    world.execute(ASYNC)
    [(id,)] = world.rows(INSERT)
    world.be("eve")
    assert world.rows("SHOW JOBS") == []
    with pytest.raises(ServerError) as caught:
        world.execute(f"STOP JOB '{id}'")
    assert caught.value.code == Code.JOB_NOT_FOUND.name


# ---- without statements ----------------------------------------------------------------------


class Held:
    """A job whose work lasts until it is released."""

    def __init__(self, world: World, id: str = "j", *, owner: str = "ann") -> None:
        self.run = SingleRun(Job(id=id, name=id, owner=owner, statements=("x",), created_at=NOW))
        self.go_on = threading.Event()
        self.world = world

    def submit(self, limit: int = 0) -> None:
        self.world.jobs.single.submit(self.run, self._work, limit)

    def end(self) -> None:
        self.go_on.set()
        assert self.run.ended.wait(10)

    def _work(self) -> int:
        assert self.go_on.wait(10)
        return 3


@pytest.fixture
def held(world: World) -> Held:
    return Held(world)


def test_rows_and_progress_are_shown(world: World, held: Held) -> None:
    held.submit()
    progress = Progress(stages_done=0, stages_total=1, tasks_done=3, tasks_running=1, tasks_total=8)
    held.run.report(progress)
    assert dict(world.rows("DESCRIBE JOB 'j'"))["tasks"] == "3 of 8"
    held.end()
    assert dict(world.rows("DESCRIBE JOB 'j'"))["rows"] == "3"


def test_stop_cancels_until_the_work_ends(world: World, held: Held) -> None:
    held.submit()
    world.execute("STOP JOB 'j'")
    assert (status(world), count(world, Cancel)) == ("STOPPED", 1)
    world.jobs.check()
    assert count(world, Cancel) == 2
    with pytest.raises(ServerError, match="STOP JOB"):
        held.run.require_wanted()
    held.end()
    world.jobs.check()
    assert count(world, Cancel) == 2


def test_what_was_done_before_it_could_be_stopped_is_not_hidden(world: World, held: Held) -> None:
    held.submit()
    world.execute("STOP JOB 'j'")
    held.end()
    assert status(world) == "FINISHED"
    assert "before it could be stopped" in message(world)


def test_another_server_may_stop_it(world: World, held: Held) -> None:
    held.submit()
    world.jobs.store.end("j", JobState.STOPPED, None, NOW)
    world.jobs.check()
    assert count(world, Cancel) == 1
    held.end()


def test_a_job_of_a_dead_server_has_failed(world: World, held: Held) -> None:
    world.jobs.store.add(held.run.job)
    world.jobs.check()
    assert status(world) == "FAILED"
    assert "its server ended" in message(world)


def test_a_running_job_is_left_alone(world: World, held: Held) -> None:
    held.submit()
    world.jobs.check()
    assert (status(world), count(world, Cancel)) == ("RUNNING", 0)
    held.end()


def test_a_job_submitted_during_a_check_is_left_alone(
    world: World, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = world.jobs.store.running

    def running() -> tuple[Job, ...]:
        found = read()
        monkeypatch.setattr(world.jobs.store, "running", read)
        held.submit()
        return found

    monkeypatch.setattr(world.jobs.store, "running", running)
    world.jobs.check()
    assert (status(world), count(world, Cancel)) == ("RUNNING", 0)
    held.end()
    assert status(world) == "FINISHED"


def test_a_job_ends_after_the_longest_time(world: World, held: Held) -> None:
    held.run.timeout = 60
    held.submit()
    world.jobs.single._clock = Later(NOW + timedelta(seconds=61))
    world.jobs.check()
    assert count(world, Cancel) == 1
    with pytest.raises(ServerError) as caught:
        held.run.require_wanted()
    assert caught.value.code == Code.OPERATION_TIMEOUT.name
    held.end()


def test_the_number_of_jobs_is_bounded(world: World) -> None:
    jobs = [Held(world, f"j{n}", owner=f"u{n % 2}") for n in range(MAX_RUNNING)]
    for each in jobs:
        each.submit()
    for owner, limit in (("u9", 0), ("u0", 10)):
        with pytest.raises(ServerError) as caught:
            Held(world, "more", owner=owner).submit(limit)
        assert caught.value.code == Code.TOO_MANY.name
    for each in jobs:
        each.end()
    with pytest.raises(KeyError):
        world.jobs.store._jobs["more"]  # type: ignore[attr-defined]


def test_a_user_may_have_so_many_jobs(world: World) -> None:
    first, second = Held(world, "a"), Held(world, "b")
    first.submit(1)
    with pytest.raises(ServerError) as caught:
        second.submit(1)
    assert caught.value.code == Code.TOO_MANY.name
    first.end()
    second.submit(1)
    second.end()


def test_an_error_inside_the_server_is_recorded(world: World) -> None:
    run = SingleRun(Job(id="j", name="j", owner="ann", statements=("x",), created_at=NOW))
    broken: Callable[[], int] = {}.__getitem__  # type: ignore[assignment]
    world.jobs.single.submit(run, lambda: broken("missing"))  # type: ignore[call-arg]
    assert run.ended.wait(10)
    assert status(world) == "FAILED" and "KeyError" in message(world)


class Later(Clock):
    """A clock that stands still."""

    def __init__(self, moment: object) -> None:
        self._moment = moment

    def now(self):  # type: ignore[no-untyped-def]
        return self._moment
