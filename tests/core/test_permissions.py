"""What the server creates is for its user only; what it is given is checked."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from tidegate_server.core.config_sections import LoggingSection
from tidegate_server.core.data_directory import claim, restrict_access
from tidegate_server.core.logs import LOG_FILE, PrivateLogFile, logging_to
from tidegate_server.core.permissions import exposure, restrict, write_private
from tidegate_server.engine.jvm.session import Directories
from tidegate_server.gateway.link.lock import DataDirectoryLock
from tidegate_server.gateway.store.database import Database


@pytest.fixture(autouse=True)
def lenient() -> object:
    """What is private must not depend on the umask of the process."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_all(data: Path) -> Path:
    """Make a data directory as an earlier release left it."""
    claim(data)
    for name in ("logs", "spool", "tmp", "metastore", "warehouse", "system"):
        (data / name).mkdir()
    for name in (
        "store.db",
        "store.db-wal",
        "gateway.lock",
        "logs/gateway.log.1",
        "logs/spark.log",
    ):
        (data / name).touch(0o644)
    (data / "warehouse" / "t").mkdir()
    return data


def test_a_data_directory_is_closed_to_others(tmp_path: Path) -> None:
    data = open_to_all(tmp_path / "data")
    assert restrict_access(data, group_reads=False) == []
    closed = [data, *data.iterdir(), *(data / "logs").iterdir()]
    assert [path for path in closed if mode(path) & 0o077] == []


def test_a_group_may_read_the_tables_and_nothing_else(tmp_path: Path) -> None:
    data = open_to_all(tmp_path / "data")
    restrict_access(data, group_reads=False)
    restrict_access(data, group_reads=True)
    shared = {data, data / "warehouse", data / "system"}
    assert {mode(path) for path in shared} == {0o750}
    others = [*(set(data.iterdir()) - shared), *(data / "logs").iterdir()]
    assert [path for path in others if mode(path) & 0o077] == []


def test_rights_that_cannot_be_taken_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = open_to_all(tmp_path / "data")

    def refuse(path: Path, rights: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    told = restrict_access(data, group_reads=False)
    assert any(f"chmod go-rwx {data}/store.db" in line for line in told)


def test_special_bits_stay(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    restrict(tmp_path)
    assert mode(tmp_path) == 0o2700


def test_a_store_and_its_log_are_private(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'elsewhere' / 'store.db'}")
    database.open()
    database.check()
    files = list((tmp_path / "elsewhere").iterdir())
    assert {file.name for file in files} >= {"store.db", "store.db-wal", "store.db-shm"}
    assert {mode(file) for file in files} == {0o600}
    database.close()


def test_a_store_of_an_earlier_release_becomes_private(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.touch(0o644)
    database = Database(f"sqlite:///{file}")
    database.open()
    database.close()
    assert mode(file) == 0o600


def test_a_lock_is_private(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path):
        assert mode(tmp_path / "gateway.lock") == 0o600


def test_logs_are_private_after_a_rotation_too(tmp_path: Path) -> None:
    with logging_to(tmp_path, LoggingSection()):
        logging.getLogger("tests").warning("one")
    handler = PrivateLogFile(tmp_path / LOG_FILE, maxBytes=10, backupCount=2, encoding="utf-8")
    for text in ("two", "three"):
        handler.emit(logging.LogRecord("x", logging.INFO, "", 1, text * 9, (), None))
    handler.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [LOG_FILE, f"{LOG_FILE}.1", f"{LOG_FILE}.2"]
    assert {mode(file) for file in files} == {0o600}


def test_a_private_file_is_written_anew(tmp_path: Path) -> None:
    for content in (b"longer", b"short"):
        write_private(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == b"short"
    assert mode(tmp_path / "file") == 0o600


def test_settings_of_a_killed_engine_are_removed_at_the_next_start(tmp_path: Path) -> None:
    directories = Directories(tmp_path / "data")
    directories.prepare()
    left = directories.scratch / "launch-x" / "spark.properties"
    left.parent.mkdir()
    left.write_text("spark.some.password=hush")
    directories.prepare()
    assert not left.parent.exists()


@pytest.mark.parametrize(
    ("rights", "owner", "told"),
    [
        (0o600, 1000, None),
        (0o400, 0, None),
        (0o440, 0, None),
        (0o640, 1000, "its group"),
        (0o604, 1000, "every user of the machine"),
        (0o444, 0, "every user of the machine"),
    ],
)
def test_a_file_of_the_user_is_checked(
    tmp_path: Path, rights: int, owner: int, told: str | None
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    file = tmp_path / "the key"
    file.touch()
    os.chown(file, owner, -1)
    file.chmod(rights)
    expected = f"{file} can be accessed by {told}: chmod 600 '{file}'"
    assert exposure(file) == (told and expected)
