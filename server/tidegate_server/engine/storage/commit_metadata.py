"""The metadata by which the commits of a table describe its refreshes, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_record import (
    CommitRecord,
    RecordedRefresh,
    read_incremental,
    read_preconditions,
    stored_incremental,
)

STATE_PATTERN: Final = r'^(\{"mt": [^\n]*?), "totals": "[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""Pattern of Java for :func:`user_metadata`'s text up to and with the incremental state; the first
group is what comes before that."""


class Commit(Protocol):
    """A commit of a table, of whatever format."""

    @property
    def version(self) -> int:
        """The version that it made."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of a refresh; empty for a commit by another writer."""
        ...

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has the same rows before and after."""
        ...


def user_metadata(
    order: RefreshOrder,
    record: CommitRecord,
    *,
    strategy: str,
    partial: bool = False,
    base: int | None = None,
    breaks: str | None = None,
    with_state: bool = True,
) -> str:
    """Return the metadata of a refresh's commit as JSON.

    :param base: the version the commit is based on; None if it replaces everything.
    :param breaks: the failed assertion of a held version.
    :param with_state: whether it has the incremental state; False if that is stored beside it.
    """
    facts = {
        "mt": order.table_id,
        "refresh_id": order.refresh_id,
        "epoch": order.epoch,
        "definition_version": record.definition_version,
        "sources": dict(record.vector),
        "trigger": order.trigger.value,
        "logical_time": record.logical_time.isoformat(),
        "strategy": strategy,
        "partial": partial,
        "filled": record.filled or not partial,
    }
    optional = {
        "wave": order.wave_id,
        "base": base,
        "fingerprint": record.fingerprint,
        "commits": dict(record.source_commits) or None,
        "rolled_back_to": record.rolled_back_to,
        "offsets": record.offsets,
        "totals": stored_incremental(record.incremental) if with_state else None,
        "provisos": record.preconditions and record.preconditions.value,
        "unique": record.unique or None,
        "frozen_at": record.frozen_at and record.frozen_at.isoformat(),
        "breaks": breaks,
        "backfilled_from": record.backfilled_from,
    }
    return json.dumps(facts | {key: v for key, v in optional.items() if v is not None})


def is_untouched(history: Iterable[Commit], version: int) -> bool:
    """Say whether no commit after a version changed rows.

    :param history: newest first; False if it ends before the version.
    """
    for commit in history:
        if commit.version <= version:
            return True
        if not commit.keeps_rows:
            return False
    return False


def unless_overtaken(
    held: RecordedRefresh | None, last: RecordedRefresh | None
) -> RecordedRefresh | None:
    """Return a held version; None if the table has reached its epoch since."""
    overtaken = held is not None and last is not None and last.epoch >= held.epoch
    return None if overtaken else held


def last_refresh(history: Iterable[Commit], materialized_id: str) -> RecordedRefresh | None:
    """Return a table's last refresh from its commits, newest first.

    A commit by another writer is foreign if it is newer than the refresh, or lies between the
    refresh's base version and its commit.
    """
    found: Commit | None = None
    foreign: int | None = None
    for commit in history:
        if found is not None and commit.version <= int(found.metadata.get("base", found.version)):
            break
        if found is None and commit.metadata.get("mt") == materialized_id:
            found = commit
        elif not commit.keeps_rows and foreign is None:
            foreign = commit.version
    return None if found is None else _as_recorded_refresh(found, foreign)


def _as_recorded_refresh(commit: Commit, foreign: int | None) -> RecordedRefresh:
    facts = commit.metadata
    record = CommitRecord(
        vector={str(k): int(v) for k, v in facts["sources"].items()},
        definition_version=int(facts["definition_version"]),
        logical_time=datetime.fromisoformat(facts["logical_time"]),
        fingerprint=facts.get("fingerprint"),
        source_commits={str(k): str(v) for k, v in facts.get("commits", {}).items()},
        offsets=facts.get("offsets"),
        incremental=read_incremental(facts.get("totals")),
        preconditions=read_preconditions(facts.get("provisos")),
        unique=tuple(facts.get("unique", ())),
        filled=bool(facts.get("filled", True)),
        frozen_at=datetime.fromisoformat(facts["frozen_at"]) if "frozen_at" in facts else None,
    )
    return RecordedRefresh(
        epoch=int(facts["epoch"]),
        version=commit.version,
        refresh_id=str(facts["refresh_id"]),
        record=record,
        strategy=str(facts.get("strategy", "FULL")),
        partial=bool(facts.get("partial", False)),
        foreign_version=foreign,
        breaks=facts.get("breaks"),
    )


def parse_metadata(text: str | None) -> Mapping[str, Any]:
    """Return the JSON object that we write; other writers may write anything."""
    if text is None or not text.startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
