"""One gateway per data directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate_server.gateway.link.lock import DataDirectoryLock, DataDirectoryTakenError


def test_a_second_gateway_is_refused_with_the_first_ones_process_id(tmp_path: Path) -> None:
    with (
        DataDirectoryLock(tmp_path),
        pytest.raises(DataDirectoryTakenError, match=f"process id {os.getpid()}"),
        DataDirectoryLock(tmp_path),
    ):
        pass


def test_a_freed_directory_can_be_taken_again(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path):
        pass
    with DataDirectoryLock(tmp_path):
        pass


def test_a_file_left_behind_by_a_dead_gateway_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").write_text("12345\n")
    with DataDirectoryLock(tmp_path):
        assert (tmp_path / "gateway.lock").read_text() == f"{os.getpid()}\n"
