"""INSERTs over streams become jobs; statement sets; SHOW, DESCRIBE and STOP JOB."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from tests.gateway.command.fakes import NOW, World
from tests.gateway.command.guarded import Guarded
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.jobs import JobState
from tidegate_server.core.messages.answers import JobProgress, failure
from tidegate_server.core.messages.requests import EndJob, Execute, StartJob
from tidegate_server.gateway.options import JOB_INTERVAL_OPTION, JOB_NAME_OPTION

NOON_TEXT = NOW.isoformat()
INSERT = "INSERT INTO t SELECT * FROM STREAM rate()"


def requests(world: World, kind: type) -> list[object]:
    return [each for each in world.engine.requests if isinstance(each, kind)]


def refused(world: World, text: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    return caught.value


def job_id(world: World) -> str:
    return str(world.rows("SHOW JOBS")[0][0])


def test_an_insert_over_a_stream_is_started_and_kept(world: World) -> None:
    world.execute("SET spark.sql.ansi.enabled = false")
    world.engine.requests.clear()
    world.execute(INSERT)
    [started] = requests(world, StartJob)
    assert isinstance(started, StartJob)
    assert started.settings == {"spark.sql.ansi.enabled": "false"}
    assert started.interval == 10.0
    [(insert,), [(id, name, status, *_)]] = [started.inserts, world.rows("SHOW JOBS")]
    assert (insert.query, insert.columns) == ("SELECT * FROM STREAM rate()", ())
    assert (id, name, status) == (started.job_id, "insert-into_spark_catalog.d.t", "RUNNING")
    assert any(f"STOP JOB '{id}'" in line for line in world.logged)
    assert requests(world, Execute) == []


def test_an_insert_over_tables_runs_at_once(world: World) -> None:
    world.execute("INSERT INTO t SELECT * FROM t1")
    assert len(requests(world, Execute)) == 1
    assert requests(world, StartJob) == []
    assert world.rows("SHOW JOBS") == []


def test_options_are_those_of_the_session(world: World) -> None:
    world.execute(f"SET '{JOB_INTERVAL_OPTION}' = '3 s'")
    world.execute(f"SET '{JOB_NAME_OPTION}' = 'nightly'")
    world.execute(INSERT)
    [job] = world.jobs.store.all()
    assert (job.name, job.interval) == ("nightly", 3.0)


def test_the_inserts_of_a_statement_set_are_one_job(world: World) -> None:
    world.execute("BEGIN STATEMENT SET")
    world.execute(INSERT)
    world.execute("INSERT INTO u (a, b) SELECT a, b FROM STREAM rate()")
    world.execute("INSERT INTO v SELECT 1")
    assert requests(world, StartJob) == requests(world, Execute) == []
    world.execute("END")
    [started] = requests(world, StartJob)
    assert isinstance(started, StartJob)
    assert [each.target.table for each in started.inserts] == ["t", "u"]
    assert started.inserts[1].columns == ("a", "b")
    assert len(requests(world, Execute)) == 1  # the one over tables


@pytest.mark.parametrize("begin", ["BEGIN STATEMENT SET;", "EXECUTE STATEMENT SET BEGIN"])
def test_a_statement_set_may_be_one_text(world: World, begin: str) -> None:
    world.execute(f"{begin} {INSERT}; INSERT INTO u SELECT 2; END;")
    assert len(requests(world, StartJob)) == len(requests(world, Execute)) == 1


def test_a_statement_set_has_inserts_alone(world: World) -> None:
    assert refused(world, "END").code == Code.STATEMENT_SET.name
    world.execute("BEGIN STATEMENT SET")
    for text in ("SELECT 1", "SHOW JOBS", "BEGIN STATEMENT SET", "DELETE FROM t"):
        assert refused(world, text).code == Code.STATEMENT_SET.name
    assert "contains no INSERT" in refused(world, "END").message
    world.rows("SHOW JOBS")  # no set is open


def test_what_cannot_be_started_is_not_kept(world: World) -> None:
    world.engine.failures[StartJob] = bad = error(Code.MT_STREAM_SOURCE, source="x")
    assert refused(world, INSERT) is bad
    assert world.rows("SHOW JOBS") == []


def test_a_materialized_table_is_no_target(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1")
    assert refused(world, "INSERT INTO m SELECT * FROM STREAM rate()").code == "MT_WRONG_KIND"


def test_a_job_is_started_in_each_new_engine(world: World) -> None:
    world.execute(INSERT)
    world.jobs.check()
    assert len(requests(world, StartJob)) == 2  # the engine of this test has forgotten it
    world.engine.jobs = {job_id(world): JobProgress(commits=1)}
    world.jobs.check()
    assert len(requests(world, StartJob)) == 2


def test_a_failed_job_is_started_again_and_given_up_in_the_end(world: World) -> None:
    world.execute(INSERT)
    problem = failure(error(Code.INTERNAL, reason="of the day"))
    world.engine.jobs = {job_id(world): JobProgress(failure=problem)}
    clock = world.jobs._clock
    for _ in range(20):
        world.jobs.check()
        if world.rows("SHOW JOBS")[0][2] != "FAILED":
            assert world.rows("SHOW JOBS")[0][2] == "RESTARTING"
        world.jobs._clock = clock = _Later(clock.now() + timedelta(minutes=2))
    [(_, _, status, _, _, message)] = world.rows("SHOW JOBS")
    assert status == "FAILED" and "of the day" in str(message)
    assert 2 < len(requests(world, StartJob)) < 10
    assert len(requests(world, EndJob)) == 1


def test_a_job_that_commits_again_is_no_longer_restarting(world: World) -> None:
    world.execute(INSERT)
    id = job_id(world)
    world.jobs.store.explain(id, "of an earlier server")
    world.engine.jobs = {id: JobProgress()}
    world.jobs.check()
    assert world.rows("SHOW JOBS")[0][2] == "RESTARTING"
    world.engine.jobs = {id: JobProgress(commits=1)}
    world.jobs.check()
    assert world.rows("SHOW JOBS")[0][2:] == ("RUNNING", NOON_TEXT, "ann", None)


def test_a_job_whose_table_is_gone_ends(world: World) -> None:
    world.execute(INSERT)
    lost = failure(error(Code.JOB_TARGET_LOST, table="t"))
    world.engine.jobs = {job_id(world): JobProgress(failure=lost)}
    world.jobs.check()
    assert world.rows("SHOW JOBS")[0][2] == "FAILED"


def test_a_stopped_job_stays_stopped(world: World) -> None:
    world.execute(INSERT)
    id = job_id(world)
    world.execute(f"STOP JOB '{id}'")
    world.jobs.check()
    assert (len(requests(world, StartJob)), len(requests(world, EndJob))) == (1, 1)
    described = dict(world.rows(f"DESCRIBE JOB '{id}'"))
    assert described["status"] == "STOPPED"
    assert described["insert into spark_catalog.d.t"] == "SELECT * FROM STREAM rate()"
    world.execute(f"STOP JOB '{id}'")
    assert any("had ended before" in line for line in world.logged)
    assert refused(world, "STOP JOB 'other'").code == Code.JOB_NOT_FOUND.name


def test_a_job_that_another_server_stopped_ends_here(world: World) -> None:
    world.execute(INSERT)
    [job] = world.jobs.store.running()
    world.jobs.store.end(job.id, JobState.STOPPED, None, NOW)
    world.jobs.check()
    assert [dataclasses.astuple(each) for each in requests(world, EndJob)] == [(job.id,)]


def test_jobs_are_their_owners(guarded_world: Guarded) -> None:
    world = guarded_world
    world.be("bob")
    world.execute(INSERT)
    [(id, *_)] = world.rows("SHOW JOBS")
    world.be("eve")
    assert world.rows("SHOW JOBS") == []
    assert refused(world, f"STOP JOB '{id}'").code == Code.JOB_NOT_FOUND.name
    assert refused(world, f"DESCRIBE JOB '{id}'").code == Code.JOB_NOT_FOUND.name


class _Later:
    """A clock that stands still."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment
