"""What the audit log says about work, and what happens when it cannot be written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.command.fakes import NOW, FixedClock
from tidegate_server.core.config_sections import AuditSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.log_context import log_context
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.gateway.audit.file import RotatedFile
from tidegate_server.gateway.audit.log import AuditLog, build_audit_log
from tidegate_server.gateway.audit.record import MAX_TEXT, Event, Record
from tidegate_server.gateway.audit.rows import SCHEMA


class Log:
    """An audit log in a directory, and how often it lost a line."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.path = folder / "audit.jsonl"
        self.lost = 0
        file = RotatedFile(self.path, max_bytes=1 << 20, max_files=2)
        self.log = AuditLog(file, server_id="s", clock=FixedClock(), lost=self._lose, **options)

    def _lose(self) -> None:
        self.lost += 1

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def written(self, record: Record) -> dict[str, Any]:
        """Write a record and return its line."""
        self.log.write(record)
        return self.lines[-1]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def denial() -> ServerError:
    return error(
        Code.ACCESS_DENIED, user="bob", privilege="SELECT", object="table spark_catalog.d.t"
    )


def test_a_line_has_every_key_in_a_fixed_order(log: Log) -> None:
    line = log.written(Record(event=Event.LOGIN, user="ann"))
    assert list(line) == SCHEMA.names
    assert line == {
        **dict.fromkeys(SCHEMA.names),
        "time": NOW.isoformat().replace("+00:00", "Z"),
        "server_id": "s",
        "event": "login",
        "user": "ann",
        "objects": [],
        "allowed": True,
        "outcome": "SUCCESS",
    }


def test_objects_are_written_once_in_the_order_in_which_they_were_judged(log: Log) -> None:
    record = Record()
    record.add("OWN", "VIEW", "spark_catalog.d.v")
    read = Access(
        act=Act.SELECT,
        kind=ObjectKind.TABLE,
        catalog="spark_catalog",
        schema="d",
        name="t",
        via="spark_catalog.d.v",
    )
    script = Access(act=Act.USE, kind=ObjectKind.FEATURE, catalog="paths", schema="text")
    key = Access(act=Act.SET, kind=ObjectKind.SETTING, name="spark.x")
    record.add_accesses((read, script, read, key))
    assert log.written(record)["objects"] == [
        {"act": "OWN", "kind": "VIEW", "name": "spark_catalog.d.v"},
        {"act": "SELECT", "kind": "TABLE", "name": "spark_catalog.d.t", "via": "spark_catalog.d.v"},
        {"act": "USE", "kind": "FEATURE", "name": "paths: text"},
        {"act": "SET", "kind": "SETTING", "name": "spark.x"},
    ]


def test_the_outcome_of_work_and_its_duration_are_written_at_its_end(log: Log) -> None:
    with log.log.recording(Record(user="ann")):
        assert not log.path.exists()
    with pytest.raises(ServerError), log.log.recording(Record(user="bob")):
        raise denial()
    with pytest.raises(ServerError), log.log.recording(Record(user="cid")):
        raise error(Code.SCHEMA_NOT_FOUND, schema="x")
    with pytest.raises(KeyboardInterrupt), log.log.recording(Record(user="dan")):
        raise KeyboardInterrupt
    found = [(each["allowed"], each["outcome"], each["reason"]) for each in log.lines]
    assert found == [
        (True, "SUCCESS", None),
        (False, "ACCESS_DENIED", "User bob needs SELECT on table spark_catalog.d.t."),
        (True, "SCHEMA_NOT_FOUND", None),
        (True, "INTERNAL", None),
    ]
    assert all(each["duration_ms"] >= 0 for each in log.lines)


def test_every_failed_login_was_not_allowed(log: Log) -> None:
    busy = error(Code.TOO_MANY, what="sessions", limit=1)
    line = log.written(Record(event=Event.LOGIN, failure=busy))
    assert (line["allowed"], line["outcome"]) == (False, "TOO_MANY")


def test_secrets_are_replaced_and_long_texts_cut(log: Log) -> None:
    text = "CREATE TABLE t USING jdbc OPTIONS (password 'hush')"
    assert "hush" not in str(log.written(Record(text=text)))
    unnamed = error(Code.ACCESS_DENIED, user="u", privilege="p", object="what hush reads")
    with log_context(secrets=("hush",)):
        assert "hush" not in str(log.written(Record(failure=unnamed)))
    assert log.written(Record(text="x" * (MAX_TEXT + 1)))["text"] == "x" * MAX_TEXT + "…"


def test_rows_are_the_lines_newest_first_without_damaged_ones(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    record = Record(user="ann", text="SELECT 'ü\n'")
    record.add("SELECT", "TABLE", "spark_catalog.d.t")
    log.log.write(record, 0.25)
    with log.path.open("a") as file:
        file.write("nonsense\n")
    log.log.write(Record(user="bob"))
    rows = log.log.newest_rows().to_pylist()
    assert [row["user"] for row in rows] == ["bob", "ann"]
    assert (rows[1]["time"], rows[1]["text"]) == (NOW, "SELECT 'ü\n'")
    assert rows[1]["duration_ms"] == 250.0
    assert json.loads(rows[1]["objects"]) == [
        {"act": "SELECT", "kind": "TABLE", "name": "spark_catalog.d.t"}
    ]
    assert "1 lines of the audit log are damaged" in caplog.text


def test_without_a_file_nothing_is_recorded_and_nothing_refused() -> None:
    log = AuditLog(required=True)
    log.open()
    record = Record()
    with log.recording(record):
        pass
    log.require_written(record)
    assert log.newest_rows().num_rows == 0
    log.close()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A disk that is full until the patch is undone."""

    def fail(handle: int, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    return monkeypatch


def test_a_full_disk_is_logged_once_and_each_lost_line_is_counted(
    log: Log, broken: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with log.log.recording(Record()):
            pass
    assert log.lost == 3
    assert caplog.text.count("The audit log cannot be written: [Errno 28]") == 1
    broken.undo()
    log.log.write(Record())
    assert (log.lost, len(log.lines)) == (3, 1)
    assert caplog.text.count("The audit log is written again") == 1


def test_if_it_is_required_work_is_refused_until_it_can_be_recorded(
    tmp_path: Path, broken: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path, required=True)
    ran = []

    def work(number: int) -> None:
        record = Record(user=str(number))
        with log.log.recording(record):
            ran.append(number)
        log.log.require_written(record)

    def refused(number: int) -> str:
        with pytest.raises(ServerError) as caught:
            work(number)
        return caught.value.code + caught.value.message

    told = "AUDIT_UNAVAILABLEThe audit log cannot be written: No space left on device."
    assert (refused(1), refused(2)) == (told, told)
    assert ran == [1], "the first one showed that the disk is full"
    broken.undo()
    assert refused(3) == told, "its denial is the first line that can be written"
    work(4)
    assert ran == [1, 4]
    written = [(each["user"], each["allowed"], each["outcome"]) for each in log.lines]
    assert written == [("3", False, "AUDIT_UNAVAILABLE"), ("4", True, "SUCCESS")]


def test_a_gateway_does_not_start_without_its_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(ServerError) as caught:
        Log(tmp_path / "plain").log.open()
    assert caught.value.code == "AUDIT_UNAVAILABLE"
    assert "plain/audit.jsonl: " in caught.value.message


@pytest.mark.parametrize(
    ("given", "default", "expected"),
    [({}, True, True), ({}, False, False), ({"enabled": False}, True, False)]
    + [({"enabled": "auto"}, True, True), ({"enabled": True}, False, True)],
)
def test_it_is_enabled_by_default_or_by_the_configuration(
    tmp_path: Path, given: dict[str, Any], default: bool, expected: bool
) -> None:
    log = build_audit_log(
        AuditSection.model_validate(given),
        tmp_path / "audit",
        default=default,
        server_id="s",
        clock=FixedClock(),
        lost=lambda: None,
    )
    log.write(Record())
    assert (tmp_path / "audit" / "audit.jsonl").exists() == expected


def test_its_file_can_be_elsewhere(tmp_path: Path) -> None:
    log = build_audit_log(
        AuditSection(file=str(tmp_path / "here"), file_bytes=64 << 10, files=2),
        tmp_path / "audit",
        default=True,
        server_id="s",
        clock=FixedClock(),
        lost=lambda: None,
    )
    for _ in range(1000):
        log.write(Record(text="x" * 200))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "here.1"]
