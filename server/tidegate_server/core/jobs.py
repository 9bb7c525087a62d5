"""Jobs: INSERTs that go on without their client, as the store and the engine see them.

Those over streams run until they are stopped, those over tables run once.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/job/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidegate_server.core.model.names import TableName

JOB_INTERVAL_OPTION = "execution.checkpointing.interval"
"""How often a job commits what has arrived; Flink's name for it."""
JOB_NAME_OPTION = "pipeline.name"
"""The name of the next job."""
DML_SYNC_OPTION = "table.dml-sync"
"""Whether statements that change rows wait for their end, or become jobs; Flink's name for it."""


JOB_COLUMN = "job id"
"""The column of the result of a statement that became jobs; as Flink's gateway names it."""


class JobState(Enum):
    """Whether a job runs, and if not, why; the value is what SHOW JOBS shows."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInsert:
    """One INSERT of a job."""

    target: TableName
    table_id: str
    """The id of the table's format, which differs after the table was dropped and created again."""
    columns: tuple[str, ...]
    """The target's columns as they were written; empty for all of them, in their order."""
    query: str
    """The query over a stream, which does not depend on a session."""
    probe: str
    """An INSERT of one row of NULLs into the target, used to check the privilege to write."""
    source_id: str = ""
    """The id of the table whose changes the query reads; empty for another stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """INSERTs that were submitted together, and are started and stopped together."""

    id: str
    name: str
    owner: str
    inserts: tuple[JobInsert, ...] = ()
    """Those over streams."""
    statements: tuple[str, ...] = ()
    """Those over tables, without secrets; a job has either of them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's settings of the session that submitted it."""
    interval: float = 0.0
    """Seconds between commits over streams."""
    state: JobState = JobState.RUNNING
    reason: str | None = None
    """Why it failed, or last failed and was started again."""
    rows: int | None = None
    """How many rows statements over tables have changed; None if that is not known."""
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def runs_once(self) -> bool:
        """Whether its statements are over tables, and so are never repeated."""
        return bool(self.statements)

    @property
    def status(self) -> str:
        """Flink's word for its state."""
        if self.state is JobState.RUNNING and self.reason is not None:
            return "RESTARTING"
        return self.state.value
