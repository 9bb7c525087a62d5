"""Statements on jobs and statement sets, as frozen records.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/insert/
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOT_A_BREAK = re.compile(r"[^\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """The parts of INSERT INTO [TABLE] name [(columns)] query."""

    name: tuple[str, ...]
    columns: tuple[str, ...]
    head: str
    """The text before the query."""
    query: str

    @property
    def placed_query(self) -> str:
        """The query where it is in the statement, after blanks, for the positions of errors."""
        return _NOT_A_BREAK.sub(" ", self.head) + self.query


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginStatementSet:
    """BEGIN STATEMENT SET or EXECUTE STATEMENT SET BEGIN, with what follows in the same text."""

    inserts: tuple[str, ...] = ()
    """The texts of INSERTs."""
    ends: bool = False
    """Whether END is in the same text."""


@dataclass(frozen=True, slots=True)
class EndStatementSet:
    """END: run the INSERTs of the open statement set."""


@dataclass(frozen=True, slots=True)
class ShowJobs:
    """SHOW JOBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeJob:
    """DESCRIBE JOB 'id'."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """STOP JOB 'id'."""

    id: str


JobStatement = BeginStatementSet | EndStatementSet | ShowJobs | DescribeJob | StopJob
