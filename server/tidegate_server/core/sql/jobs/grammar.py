"""Reads statements on jobs and statement sets, after their leading words."""

from __future__ import annotations

from tidegate_server.core.errors import Code
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.jobs.statements import (
    BeginStatementSet,
    DescribeJob,
    EndStatementSet,
    ShowJobs,
    StopJob,
)

_ONLY_INSERT = "A statement set contains INSERT INTO statements."


def begin(at: Cursor) -> BeginStatementSet:
    """Read what follows BEGIN STATEMENT SET."""
    return _body(at)


def execute(at: Cursor) -> BeginStatementSet:
    """Read what follows EXECUTE STATEMENT SET."""
    at.expect("BEGIN")
    return _body(at)


def end(at: Cursor) -> EndStatementSet:
    """Read nothing after END."""
    return EndStatementSet()


def show(at: Cursor) -> ShowJobs:
    """Read nothing after SHOW JOBS."""
    return ShowJobs()


def describe(at: Cursor) -> DescribeJob:
    """Read the id after DESCRIBE JOB."""
    return DescribeJob(id=at.string("the id of a job in quotes"))


def stop(at: Cursor) -> StopJob:
    """Read what follows STOP JOB.

    :raises ServerError: NOT_SUPPORTED for WITH SAVEPOINT and WITH DRAIN.
    """
    id = at.string("the id of a job in quotes")
    if at.sees("WITH"):
        what = f"STOP JOB {' '.join(['WITH', at.spelling(1)]).strip()}"
        hint = "What a job has written is committed with its position; a stopped job has ended."
        raise at.failure(Code.NOT_SUPPORTED, what=what, hint=hint)
    return StopJob(id=id)


def _body(at: Cursor) -> BeginStatementSet:
    """Read INSERTs, each up to its semicolon, and END."""
    inserts: list[str] = []
    _skip_semicolons(at)
    while not at.ended and not at.sees("END"):
        if not at.sees("INSERT"):
            raise at.unexpected_token("INSERT", "END", hint=_ONLY_INSERT)
        inserts.append(at.slice_until(";").strip())
        _skip_semicolons(at)
    return BeginStatementSet(inserts=tuple(inserts), ends=at.accept("END"))


def _skip_semicolons(at: Cursor) -> None:
    while at.accept(";"):
        pass
