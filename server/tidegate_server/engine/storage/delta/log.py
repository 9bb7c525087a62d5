"""The actions of Delta's transaction log between two versions, read without a Spark job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tidegate_server.engine.storage.delta.commits import commit_text

# How many rows each row counted by a metric adds and removes.
_WEIGHED: Mapping[str, Mapping[str, int]] = {
    "DELETE": {"numDeletedRows": 1},
    "UPDATE": {"numUpdatedRows": 2},
    "MERGE": {"numTargetRowsInserted": 1, "numTargetRowsDeleted": 1, "numTargetRowsUpdated": 2},
}
_CHANGE_FEED = "delta.enableChangeDataFeed"
_MAPPING = "delta.columnMapping."

Action = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """A parsed commit."""

    version: int
    operation: str
    metrics: Mapping[str, str]
    added: tuple[Action, ...]
    """Files with added rows."""
    removed: tuple[Action, ...]
    """All removed files, including those that maintenance rewrote."""
    rows_removed: bool
    """Whether rows were removed with them."""
    change_files: tuple[Action, ...]
    metadata: Action | None

    @property
    def changes_rows(self) -> bool:
        """Whether the commit may have changed rows."""
        return bool(self.added) or self.rows_removed or bool(self.change_files)

    @property
    def rows(self) -> int | None:
        """How many rows the commit added and removed; None if it does not record it."""
        if not self.rows_removed and not self.change_files:
            return _total(_records(file) for file in self.added)
        weights = _WEIGHED.get(self.operation, {})
        if not weights or any(metric not in self.metrics for metric in weights):
            return None
        return sum(int(self.metrics[metric]) * weight for metric, weight in weights.items())

    @property
    def guess(self) -> int | None:
        """Like ``rows``, but estimated from sizes where files were replaced."""
        if self.rows is not None or self.change_files:
            return self.rows
        added = _total(_records(file) for file in self.added)
        size = sum(int(file.get("size") or 0) for file in self.added)
        if not added or not size:
            return None
        gone = sum(int(f.get("size") or 0) for f in self.removed if f.get("dataChange"))
        return added + added * gone // size


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """All commits after one version up to another, oldest first."""

    commits: tuple[LoggedCommit, ...]

    @property
    def changes_rows(self) -> bool:
        """Whether any commit may have changed rows."""
        return any(commit.changes_rows for commit in self.commits)

    @property
    def only_adds(self) -> bool:
        """Whether rows were only added, each file once."""
        paths = [file["path"] for commit in self.commits for file in commit.added]
        kept = not any(c.rows_removed or c.change_files for c in self.commits)
        return kept and len(set(paths)) == len(paths)

    @property
    def rows(self) -> int | None:
        """How many rows were added and removed in all, if the commits record it."""
        return _total(commit.rows for commit in self.commits)

    @property
    def guess(self) -> int | None:
        """Estimated number of rows added and removed in all; None if there is no estimate."""
        return _total(commit.guess for commit in self.commits if commit.changes_rows)

    def same_until(self, first: int, last: int) -> int:
        """Return the last version up to ``last`` that has the rows and columns of ``first``."""
        quiet = takewhile(lambda c: not c.changes_rows and c.metadata is None, self.commits)
        return max((c.version for c in quiet if c.version <= last), default=first)

    def since(self, version: int) -> Span:
        """Return the commits after a version."""
        return Span(commits=tuple(c for c in self.commits if c.version > version))

    def until(self, version: int) -> Span:
        """Return the commits up to a version."""
        return Span(commits=tuple(c for c in self.commits if c.version <= version))

    @property
    def metadata(self) -> tuple[Action, ...]:
        """Every change of the table's metadata."""
        return tuple(c.metadata for c in self.commits if c.metadata is not None)


def parse_commit(version: int, text: str) -> LoggedCommit:
    """Parse the text of a commit file."""
    actions = [json.loads(line) for line in text.split("\n") if line]
    info = _first(actions, "commitInfo") or {}
    removed = tuple(action["remove"] for action in actions if "remove" in action)
    return LoggedCommit(
        version=version,
        operation=str(info.get("operation", "UNKNOWN")),
        metrics=info.get("operationMetrics") or {},
        added=tuple(a["add"] for a in actions if "add" in a and a["add"].get("dataChange")),
        removed=removed,
        rows_removed=any(file.get("dataChange") for file in removed),
        change_files=tuple(action["cdc"] for action in actions if "cdc" in action),
        metadata=_first(actions, "metaData"),
    )


def read_span(jvm: Any, log: Any, before: int, after: int) -> Span | None:
    """Read the commits after ``before`` up to ``after``; None if one of them is missing."""
    configuration = log.newDeltaHadoopConf()
    commits = []
    for version in range(before + 1, after + 1):
        text = commit_text(jvm, log, configuration, version)
        if text is None:
            return None
        commits.append(parse_commit(version, text))
    return Span(commits=tuple(commits))


def column_layout(metadata: Action) -> tuple[object, ...]:
    """Return a value that is equal for versions with the same columns."""
    fields = json.loads(metadata["schemaString"])
    return metadata["id"], _fields(fields), tuple(metadata.get("partitionColumns", ()))


def has_change_feed(metadata: Action) -> bool:
    """Say whether changes are recorded under this metadata."""
    value = (metadata.get("configuration") or {}).get(_CHANGE_FEED, "false")
    return str(value).lower() == "true"


def vacuum_candidates(span: Span, most: int) -> Iterator[Action]:
    """Yield files that are missing if VACUUM deleted any file the span needs.

    VACUUM deletes files removed before some moment, so it is enough to check those removed first;
    but it spares files that were added again, for example by RESTORE.
    """
    files, vectors = _alive(span)

    def may_delete(file: Action) -> bool:
        return file["path"] not in files or stored_vector(file) not in {None, *vectors}

    for kind in ("removed", "change_files"):
        deleted = ([f for f in getattr(commit, kind) if may_delete(f)] for commit in span.commits)
        yield from next(filter(None, deleted), [])[:most]


def stored_vector(file: Action) -> str | None:
    """Return the name of a file's deletion vector; None if it has none or an inline one."""
    vector = file.get("deletionVector") or {"storageType": "i"}
    return None if vector["storageType"] == "i" else str(vector["pathOrInlineDv"])


def _alive(span: Span) -> tuple[set[str], set[str | None]]:
    """Return the files that a span added and did not remove, and their deletion vectors."""
    alive: dict[str, str | None] = {}
    for commit in span.commits:
        for file in commit.removed:
            alive.pop(file["path"], None)
        alive |= {file["path"]: stored_vector(file) for file in commit.added}
    return set(alive), set(alive.values())


def _fields(type: Any) -> object:
    """Return a type without comments and nullability; ids of mapped columns stay."""
    if isinstance(type, list):
        return tuple(_fields(part) for part in type)
    if not isinstance(type, dict):
        return type
    kept = []
    for key, value in sorted(type.items()):
        if key == "metadata":
            mapped = {k: v for k, v in value.items() if k.startswith(_MAPPING)}
            kept.append((key, json.dumps(mapped, sort_keys=True)))
        elif key not in ("nullable", "containsNull", "valueContainsNull"):
            kept.append((key, _fields(value)))  # type: ignore[arg-type]
    return tuple(kept)


def _records(file: Action) -> int | None:
    if file.get("deletionVector"):
        return None
    try:
        return int(json.loads(file.get("stats") or "{}")["numRecords"])
    except (json.JSONDecodeError, KeyError):
        return None


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if any(count is None for count in known) else sum(c for c in known if c is not None)


def _first(actions: Sequence[Action], kind: str) -> Action | None:
    return next((action[kind] for action in actions if kind in action), None)
