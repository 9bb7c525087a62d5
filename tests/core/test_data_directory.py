"""A data directory is empty, marked or older, or nothing in it is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.test_app import build
from tidegate_server import __main__ as command
from tidegate_server.core.data_directory import FORMAT_VERSION, MARK, claim
from tidegate_server.core.errors import ServerError
from tidegate_server.engine.jvm.session import Directories
from tidegate_server.gateway.store.database import Database


def content(folder: Path) -> dict[str, bytes | None]:
    """Return every file and directory below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A directory of another program that has the names of ours."""
    folder = tmp_path / "foreign"
    for name in ("tmp", "spool/mail", "warehouse/s.db"):
        (folder / name).mkdir(parents=True)
    (folder / "tmp" / "thesis.tex").write_text("the only copy")
    (folder / "spool" / "mail" / "1").write_text("a letter")
    return folder


def rejection(data: Path) -> str:
    """Claim a directory that is refused, and return why."""
    with pytest.raises(ServerError) as caught:
        claim(data)
    assert caught.value.code == "DATA_DIRECTORY"
    return str(caught.value)


def test_a_new_directory_gets_a_mark_that_stays(tmp_path: Path) -> None:
    first = claim(tmp_path / "a" / "b")
    assert first.version == FORMAT_VERSION
    assert claim(tmp_path / "a" / "b") == first
    assert sorted(content(tmp_path / "a" / "b")) == [MARK]


def test_an_empty_directory_may_hold_what_its_file_system_put_there(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / f".{MARK}.0190").write_text("")  # of a first start that was killed
    assert claim(tmp_path).version == FORMAT_VERSION


def test_every_way_in_leaves_a_foreign_directory_as_it_is(
    foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(foreign)
    assert "it holds spool, tmp, warehouse" in rejection(foreign)
    with pytest.raises(ServerError, match="is not Tidegate's"):
        Directories(foreign).prepare()
    with pytest.raises(ServerError, match="is not Tidegate's"), build(foreign, "mute"):
        pass
    for more in ([], ["--demo"], ["--recover-catalog"]):
        assert command.main(["--data", str(foreign), "--port", "0", *more]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "is not Tidegate's" in said
        assert "--data" in said
    assert content(foreign) == before


def test_an_engine_started_by_itself_refuses_a_foreign_directory(foreign: Path) -> None:
    before = content(foreign)
    options = {
        "socket": str(foreign / "engine.sock"),
        "data": str(foreign),
        "master": "local[1]",
        "driver_memory": "1g",
        "java_home": "",
        "direct_bytes": 1 << 20,
        "spool_quota": 1 << 20,
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tidegate_server.engine"],
        input=json.dumps(options) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("[DATA_DIRECTORY]")
    assert done.stderr.count("\n") == 1
    assert content(foreign) == before


def test_a_directory_of_an_earlier_release_gets_its_mark(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").write_text(f"{os.getpid()}\n")
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.open()
    database.close()
    (tmp_path / "users.txt").write_text("ada")  # people keep other things there too
    assert claim(tmp_path).version == FORMAT_VERSION
    assert (tmp_path / MARK).exists()


def test_so_does_one_whose_store_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").touch()
    (tmp_path / "metastore").mkdir()
    (tmp_path / "metastore" / "service.properties").touch()
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "notes").mkdir()
    assert claim(tmp_path).version == FORMAT_VERSION


def test_so_does_one_whose_first_engine_never_came_up(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").write_text("17\n")
    (tmp_path / "logs").mkdir()
    assert claim(tmp_path).version == FORMAT_VERSION


def test_so_does_one_of_an_engine_without_a_gateway(tmp_path: Path) -> None:
    for name in ("metastore", "warehouse", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "metastore" / "service.properties").touch()
    (tmp_path / "logs" / "log4j2.properties").touch()
    assert claim(tmp_path).version == FORMAT_VERSION


@pytest.mark.parametrize("text", ["this is not a process id", "12345\n" * 20])
def test_a_lock_of_another_program_is_no_layout(tmp_path: Path, text: str) -> None:
    (tmp_path / "gateway.lock").write_text(text)
    (tmp_path / "tmp").mkdir()
    rejection(tmp_path)


def test_a_database_of_another_program_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").touch()
    (tmp_path / "store.db").write_bytes(b"an export of our shop")
    (tmp_path / "cellar").mkdir()
    rejection(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    claim(tmp_path)
    mark = json.loads((tmp_path / MARK).read_text())
    (tmp_path / MARK).write_text(json.dumps({**mark, "version": FORMAT_VERSION + 1}))
    said = rejection(tmp_path)
    assert f"format version {FORMAT_VERSION + 1}" in said
    assert "newer release" in said


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "another"}', '{"version": 1}'])
def test_a_mark_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MARK).write_text(text)
    assert "cannot be read" in rejection(tmp_path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "it is a file" in rejection(tmp_path / "file")


def test_what_an_engine_left_in_a_marked_directory_is_deleted(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    directories.prepare()
    (directories.spool / "result").mkdir()
    (directories.scratch / "blocks").touch()
    directories.prepare()
    assert list(directories.spool.iterdir()) == list(directories.scratch.iterdir()) == []
