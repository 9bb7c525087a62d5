"""A rotated file keeps the newest lines, whole, for its owner alone."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from tidegate_server.gateway.audit.file import RotatedFile


def rotated(path: Path, *, max_bytes: int = 100, max_files: int = 3) -> RotatedFile:
    return RotatedFile(path / "log" / "a.jsonl", max_bytes=max_bytes, max_files=max_files)


def lines(file: RotatedFile) -> list[bytes]:
    with ExitStack() as stack:
        return list(file.newest_lines(stack))


def test_the_newest_files_are_kept_and_read_newest_first(tmp_path: Path) -> None:
    file = rotated(tmp_path)
    for number in range(10):
        file.append(b"%02d" % number + b"x" * 37 + b"\n")
    names = sorted(each.name for each in file.path.parent.iterdir())
    assert names == ["a.jsonl", "a.jsonl.1", "a.jsonl.2"]
    assert [line[:2] for line in lines(file)] == [b"09", b"08", b"07", b"06", b"05", b"04"]


def test_a_line_longer_than_a_file_is_kept(tmp_path: Path) -> None:
    file = rotated(tmp_path)
    for letter in b"abc":
        file.append(bytes([letter]) * 300 + b"\n")
    assert [line[:1] for line in lines(file)] == [b"c", b"b", b"a"]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        file = rotated(tmp_path)
        for _ in range(5):
            file.append(b"x" * 60 + b"\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in file.path.parent.iterdir()} == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = rotated(tmp_path)
    file.path.parent.mkdir()
    file.path.write_bytes(b"a\n")
    file.path.chmod(0o644)
    file.open()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_it_continues_after_a_restart_and_after_a_torn_line(tmp_path: Path) -> None:
    first = rotated(tmp_path)
    first.append(b"one\n")
    first.close()
    with first.path.open("ab") as torn:
        torn.write(b"tw")
    again = rotated(tmp_path)
    again.append(b"three\n")
    assert lines(again) == [b"three", b"tw", b"one"]


def test_a_deleted_file_is_created_again(tmp_path: Path) -> None:
    file = rotated(tmp_path)
    file.append(b"one\n")
    file.path.unlink()
    file.append(b"two\n")
    assert lines(file) == [b"two"]


def test_lines_across_blocks_are_read_whole(tmp_path: Path) -> None:
    file = rotated(tmp_path, max_bytes=64 << 20)
    written = [b"%07d" % number * (number % 50 + 1) for number in range(20_000)]
    for line in written:
        file.append(line + b"\n")
    assert file.path.stat().st_size > 3 << 20
    assert lines(file) == written[::-1]


def test_what_is_read_is_not_changed_by_a_rotation_meanwhile(tmp_path: Path) -> None:
    file = rotated(tmp_path)
    file.append(b"a" * 60 + b"\n")
    with ExitStack() as stack:
        found = file.newest_lines(stack)
        for letter in (b"b", b"c", b"d", b"e"):
            file.append(letter * 60 + b"\n")
        assert list(found) == [b"a" * 60]


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rotated(tmp_path)
    file.append(b"one\n")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, text: write(handle, text[:2]))
        with pytest.raises(OSError, match="No space") as caught:
            file.append(b"two\n")
    assert caught.value.errno == errno.ENOSPC
    file.append(b"three\n")
    assert file.path.read_bytes() == b"one\nthree\n"
