"""Metadata of Delta's commits, read from the transaction log without a Spark job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError

from tidegate_server.engine.storage.commit_metadata import parse_metadata
from tidegate_server.engine.storage.jvm import kind

_HEAD_LINES = 8
_LOOK_BACK = 1000
# Operations that change no row.
_MAINTENANCE = frozenset(
    {
        "OPTIMIZE",
        "REORG",
        "VACUUM START",
        "VACUUM END",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "COMPUTE STATS",
        "UPGRADE PROTOCOL",
        "ADD FEATURE",
        "DROP FEATURE",
        "CLUSTER BY",
    }
)
# Actions that change neither rows nor columns.
_BOOKKEEPING = frozenset({"commitInfo", "txn", "domainMetadata"})
_WRITE = "WRITE"
_INSERT_PLANS = ("AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The metadata of a Delta commit."""

    version: int
    operation: str
    timestamp: int
    """Milliseconds since 1970."""
    metadata: Mapping[str, Any]
    """The commit's userMetadata if it is a JSON object, else empty."""
    rows: int | None
    metrics: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    """Unique across histories, unlike the version: a recreated table counts from 0 again."""
    without_files: bool = False
    """Whether it neither adds nor removes files, nor changes the schema."""

    @property
    def at(self) -> datetime:
        """The time of the commit."""
        return datetime.fromtimestamp(self.timestamp / 1000, UTC)

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has the same rows before and after."""
        return self.without_files or self.operation in _MAINTENANCE


def commits(jvm: Any, snapshot: Any, at: int | None = None) -> Iterator[Commit]:
    """Yield commits, newest first, until the log has expired.

    :param at: start with this version instead of the newest.
    """
    log = snapshot.deltaLog()
    configuration = log.newDeltaHadoopConf()
    newest = int(snapshot.version()) if at is None else min(at, int(snapshot.version()))
    for version in range(newest, max(-1, newest - _LOOK_BACK), -1):
        commit = _read(jvm, log, configuration, version)
        if commit is None:
            return
        yield commit


def commit_of(jvm: Any, snapshot: Any, version: int) -> Commit | None:
    """Return the commit of a version; None if it does not exist or has expired."""
    log = snapshot.deltaLog()
    return _read(jvm, log, log.newDeltaHadoopConf(), version)


def newest_snapshot(jvm: Any, log: Any) -> Any:
    """Return a Delta log's newest snapshot."""
    nothing = jvm.scala.Option.empty()
    return log.update(False, nothing, nothing)


def inserted_rows(jvm: Any, written: Any, since: int) -> int | None:
    """Return how many rows a command inserted into a Delta table; None if that is not certain.

    :param written: the command's analyzed plan.
    :param since: when the command started, in milliseconds since 1970; if there are several
        commits since then, it is unknown which one is the command's.
    """
    if kind(written) not in _INSERT_PLANS:
        return None
    relation = written.table()
    if kind(relation) != "DataSourceV2Relation":
        return None
    table = relation.table()
    if kind(table) != "DeltaTableV2":
        return None
    recent: list[Commit] = []
    for commit in commits(jvm, newest_snapshot(jvm, table.deltaLog())):
        if commit.timestamp < since or len(recent) > 1:
            break
        recent.append(commit)
    certain = len(recent) == 1 and recent[0].operation == _WRITE
    return recent[0].rows if certain else None


def commit_text(
    jvm: Any, log: Any, configuration: Any, version: int, most: int | None = None
) -> str | None:
    """Return the text of a commit's file, or its first lines; None if it has expired."""
    path = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
    try:
        lines = log.store().readAsIterator(path, configuration)
    except Py4JJavaError as error:
        if kind(error.java_exception) != "FileNotFoundException":
            raise
        return None
    try:
        return str((lines if most is None else lines.take(most)).mkString("\n"))
    finally:
        lines.close()


def _read(jvm: Any, log: Any, configuration: Any, version: int) -> Commit | None:
    found = commit_text(jvm, log, configuration, version, _HEAD_LINES)
    if found is None:
        return None
    head = [json.loads(line) for line in found.split("\n") if line]
    # Delta writes a transaction id; commits of other writers are identified by their first lines.
    content = hashlib.sha256(found.encode()).hexdigest()[:32]
    info = next((action["commitInfo"] for action in head if "commitInfo" in action), None)
    if info is None:
        return Commit(
            version=version,
            operation="UNKNOWN",
            timestamp=0,
            metadata={},
            rows=None,
            identity=content,
        )
    complete = len(head) < _HEAD_LINES
    kinds = {kind for action in head for kind in action}
    return replace(
        _parse(version, info),
        identity=str(info.get("txnId") or content),
        without_files=complete and kinds <= _BOOKKEEPING,
    )


def _parse(version: int, info: Mapping[str, Any]) -> Commit:
    metrics = info.get("operationMetrics") or {}
    # A write of no rows counts files only.
    rows = metrics.get("numOutputRows", "0" if metrics.get("numFiles") == "0" else None)
    return Commit(
        version=version,
        operation=str(info.get("operation", "UNKNOWN")),
        timestamp=int(info.get("timestamp", 0)),
        metadata=parse_metadata(info.get("userMetadata")),
        rows=int(rows) if rows is not None else None,
        metrics=metrics,
    )
