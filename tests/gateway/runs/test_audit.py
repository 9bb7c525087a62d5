"""Runs leave a line in the audit log when they end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.runs.fakes import World, failing_with, request
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.states import RunState
from tidegate_server.gateway.audit.file import RotatedFile
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.freshness.retries import counts_as_failure, transient
from tidegate_server.gateway.runs.orders import RunRequest
from tidegate_server.gateway.runs.runner import Refresher


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def refresher(world: World, file: Path, **changes: Any) -> Refresher:
    audit = AuditLog(RotatedFile(file, max_bytes=1 << 20, max_files=2), required=True)
    return world.server("server-1", audit=audit, **changes)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_is_recorded_with_its_executor_and_with_what_was_judged(
    world: World, file: Path
) -> None:
    def admit(asked: RunRequest, record: Record) -> RunRequest:
        record.add("SELECT", "TABLE", "spark_catalog.d.t1")
        return asked

    run = refresher(world, file, admit=admit).run(request())
    [line] = lines(file)
    assert (line["event"], line["statement_kind"]) == ("refresh", run.trigger.value)
    assert (line["operation_id"], line["real_user"]) == (run.refresh_id, run.requested_by)
    assert (line["user"], line["outcome"]) == (world.engine.orders[0].executor, "SUCCESS")
    assert line["objects"] == [
        {"act": "REFRESH", "kind": "MATERIALIZED TABLE", "name": str(run.table)},
        {"act": "SELECT", "kind": "TABLE", "name": "spark_catalog.d.t1"},
    ]


def test_denied_and_failed_runs_are_recorded_as_such(world: World, file: Path) -> None:
    def deny(asked: RunRequest, record: Record) -> RunRequest:
        raise error(Code.ACCESS_DENIED, user="ann", privilege="SELECT", object="table t")

    refresher(world, file, admit=deny).run(request())
    world.engine.work = failing_with(RuntimeError("boom"))
    refresher(world, file).run(request())
    found = [(each["allowed"], each["outcome"], each["reason"]) for each in lines(file)]
    assert found == [
        (False, "ACCESS_DENIED", "User ann needs SELECT on table t."),
        (True, "INTERNAL", None),
    ]


def test_a_run_that_cannot_be_recorded_is_refused_and_retried(
    world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    runs = refresher(world, file)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        assert runs.run(request()).state is RunState.SUCCEEDED, "what is committed stays"
        refused = runs.run(request())
    assert (refused.state, refused.error_class) == (RunState.FAILED, "AUDIT_UNAVAILABLE")
    assert transient(refused)
    assert not counts_as_failure(refused)
    assert len(world.engine.orders) == 1
