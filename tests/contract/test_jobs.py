"""The promises of jobs in the store, over every implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contract.examples import NOON, name
from tests.contract.stores import open_database
from tidegate_server.core.jobs import Job, JobInsert, JobState
from tidegate_server.gateway.store.jobs import JobStore, MemoryJobs, SqlJobs

INSERT = JobInsert(
    target=name("t"),
    table_id="delta-1",
    columns=("a", "größe"),
    query="SELECT 'it''s' FROM STREAM rate()",
    probe="INSERT INTO t SELECT NULL",
)
FIRST = Job(
    id="job-1",
    name="nightly",
    owner="ann",
    inserts=(INSERT, replace(INSERT, columns=())),
    settings={"spark.sql.ansi.enabled": "false"},
    interval=2.5,
    created_at=NOON,
)
SECOND = replace(FIRST, id="job-2", created_at=NOON + timedelta(seconds=1))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobStore]:
    if request.param == "memory":
        yield MemoryJobs()
        return
    with open_database(request.param, tmp_path) as database:
        yield SqlJobs(database)


def test_jobs_come_back_whole_and_newest_first(jobs: JobStore) -> None:
    jobs.add(FIRST)
    jobs.add(SECOND)
    assert jobs.all() == (SECOND, FIRST)
    assert sorted(jobs.running(), key=lambda job: job.id) == [FIRST, SECOND]


def test_a_job_ends_once(jobs: JobStore) -> None:
    jobs.add(FIRST)
    jobs.explain(FIRST.id, "no space")
    assert [job.reason for job in jobs.running()] == ["no space"]
    assert jobs.end(FIRST.id, JobState.FAILED, "no space left", NOON)
    assert not jobs.end(FIRST.id, JobState.STOPPED, None, NOON)
    assert not jobs.end("unknown", JobState.STOPPED, None, NOON)
    failed = replace(FIRST, state=JobState.FAILED, reason="no space left", ended_at=NOON)
    assert (jobs.all(), jobs.running()) == ((failed,), ())


def test_only_old_jobs_that_ended_are_forgotten(jobs: JobStore) -> None:
    for job in (FIRST, SECOND):
        jobs.add(job)
    jobs.end(FIRST.id, JobState.STOPPED, None, NOON)
    jobs.forget(NOON)
    assert len(jobs.all()) == 2
    jobs.forget(NOON + timedelta(days=1))
    assert jobs.all() == (SECOND,)
