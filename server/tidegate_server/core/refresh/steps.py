"""The steps of a refresh, in the order in which the engine runs them and EXPLAIN prints them."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, assert_never

import msgspec

from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.core.model.wording import number_of


class Scope(Enum):
    """The part of the query whose change is computed."""

    QUERY = "the query's rows"
    GROUPED = "the rows that the query groups"
    ORDERED = "the rows below LIMIT"


class Recording(Enum):
    """State that a full refresh records in its commit, from which the next one continues."""

    AGGREGATES = "the aggregates of each group"
    BOUNDARY = "whether rows tie where LIMIT cuts"


class _Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A step; its tag tells the classes apart when a plan crosses the link."""


class ReadChange(_Step, frozen=True, kw_only=True):
    """Read the changed rows of a source."""

    name: ClassVar[str] = "READ_CHANGE"
    source: str
    before: int | None
    after: int | None
    method: ChangeMethod
    rows: int | None


class ComputeChange(_Step, frozen=True, kw_only=True):
    """Compute the signed change of a part of the query from the changes of the sources."""

    name: ClassVar[str] = "COMPUTE_CHANGE"
    scope: Scope
    keyed: bool = False
    """Whether rows are recomputed by affected keys."""
    compared: bool = False
    """Whether parts of the query are computed before and after the change, and compared."""


class CheckRows(_Step, frozen=True, kw_only=True):
    """Check the query's preconditions on the rows that a refresh reads."""

    name: ClassVar[str] = "CHECK_ROWS"
    with_change: bool = False
    """Whether the Spark job that computes the change checks them."""


class MergeGroups(_Step, frozen=True, kw_only=True):
    """Add the change to the groups that the table stores."""

    name: ClassVar[str] = "MERGE_GROUPS"


class AdvanceAggregates(_Step, frozen=True, kw_only=True):
    """Add the change to the recorded aggregates, from which the rows are computed."""

    name: ClassVar[str] = "ADVANCE_AGGREGATES"


class MergeFirstRows(_Step, frozen=True, kw_only=True):
    """Merge the change with the first rows that the table stores."""

    name: ClassVar[str] = "MERGE_FIRST_ROWS"


class ComputeQuery(_Step, frozen=True, kw_only=True):
    """Compute all rows of the query."""

    name: ClassVar[str] = "COMPUTE_QUERY"
    recording: Recording | None = None


class IngestRows(_Step, frozen=True, kw_only=True):
    """Add the rows that arrived in a stream."""

    name: ClassVar[str] = "INGEST_ROWS"
    stream: str


class AppendRows(_Step, frozen=True, kw_only=True):
    """Commit added rows."""

    name: ClassVar[str] = "APPEND_ROWS"


class ChangeRows(_Step, frozen=True, kw_only=True):
    """Commit removed and added rows."""

    name: ClassVar[str] = "CHANGE_ROWS"


class ReplaceRows(_Step, frozen=True, kw_only=True):
    """Commit new rows for the whole table or a part of it."""

    name: ClassVar[str] = "REPLACE_ROWS"
    partitions: tuple[PartitionSpec, ...] = ()
    predicate: str | None = None
    """The rows to replace, as the user's SQL condition."""


Step = (
    ReadChange
    | ComputeChange
    | CheckRows
    | MergeGroups
    | AdvanceAggregates
    | MergeFirstRows
    | ComputeQuery
    | IngestRows
    | AppendRows
    | ChangeRows
    | ReplaceRows
)
"""One step of a refresh. The last one commits."""


def describe(step: Step) -> str:
    """Return a step in words."""
    match step:
        case ReadChange(source=source, before=before, after=after, method=method, rows=rows):
            count = "" if rows is None else f", at most {number_of(rows, 'row')}"
            return f"read the change of {source} from version {before} to {after} ({method}{count})"
        case ComputeChange(scope=scope, keyed=keyed, compared=compared):
            keys = "; recompute the rows of affected keys" if keyed else ""
            all_ = "; compare all rows before and after where there are no keys" if compared else ""
            return f"compute the change of {scope.value}{keys}{all_}"
        case CheckRows(with_change=with_change):
            job = ", in the job that computes the change" if with_change else ""
            return f"check for ties, NULLs and large numbers that would make rows ambiguous{job}"
        case MergeGroups():
            return "add the change to the stored groups"
        case AdvanceAggregates():
            return "add the change to the recorded aggregates; compute the rows from them"
        case MergeFirstRows():
            return "merge the change with the stored first rows"
        case ComputeQuery(recording=recording):
            recorded = "" if recording is None else f"; record {recording.value}"
            return f"compute the query{recorded}"
        case IngestRows(stream=stream):
            return f"add the rows that arrived in {stream} in one commit"
        case AppendRows():
            return "add the rows in one commit"
        case ChangeRows():
            return "remove and add the changed rows in one commit"
        case ReplaceRows(partitions=partitions, predicate=predicate):
            if predicate is not None:
                return f"replace the rows where {predicate} in one commit"
            part = number_of(len(partitions), "partition") if partitions else "all rows"
            return f"replace {part} in one commit"
    assert_never(step)
