"""Long and wide results go to the pager, on a real terminal."""

from __future__ import annotations

import os
import pty
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import pytest

from tests.driver.cli.fakes import FakeServer
from tidegate.cli import main
from tidegate.cli.arguments import parse
from tidegate.cli.terminal.pager import PagerClosedError, find_pager, paged
from tidegate.cli.terminal.record import Recorder


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TextIO, list[bytes]]]:
    """A terminal of 10 lines with 20 columns, and what it shows."""
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "20")
    reader, writer = pty.openpty()
    attributes = termios.tcgetattr(writer)
    attributes[1] &= ~termios.OPOST  # newlines remain as they are
    termios.tcsetattr(writer, termios.TCSANOW, attributes)
    shown: list[bytes] = []

    def read() -> None:
        while True:
            try:
                shown.append(os.read(reader, 65536))
            except OSError:
                return

    thread = threading.Thread(target=read)
    thread.start()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream, shown
    thread.join(10)
    os.close(reader)


@pytest.fixture
def pager(tmp_path: Path) -> str:
    """A command that writes what it gets into a file."""
    return f"cat > {tmp_path / 'paged'}"


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("x\n" * 8, False),
        ("x\n" * 9, True),
        ("x" * 20 + "\n", False),
        ("x" * 21 + "\n", True),
    ],
)
def test_what_does_not_fit_goes_to_the_pager(
    terminal: tuple[TextIO, list[bytes]], tmp_path: Path, pager: str, text: str, goes: bool
) -> None:
    stream, _ = terminal
    with paged(stream, pager) as out:
        for line in text.splitlines(keepends=True):
            out.write(line)
    assert (tmp_path / "paged").exists() is goes
    if goes:
        assert (tmp_path / "paged").read_text() == text


def test_what_fits_is_shown(terminal: tuple[TextIO, list[bytes]], pager: str) -> None:
    stream, shown = terminal
    with paged(stream, pager) as out:
        out.write("a\n")
    stream.flush()
    while not shown:
        pass
    assert b"".join(shown) == b"a\n"


def test_a_file_and_no_pager_get_it_as_it_is(tmp_path: Path, pager: str) -> None:
    with (tmp_path / "out").open("w") as stream, paged(stream, pager) as out:
        assert out is stream
    with paged(sys.__stdout__ or stream, "") as out:
        assert out is sys.__stdout__


def test_a_user_who_leaves_ends_the_result(terminal: tuple[TextIO, list[bytes]]) -> None:
    stream, _ = terminal
    with pytest.raises(PagerClosedError), paged(stream, "true") as out:
        for _ in range(10_000):
            out.write("x\n" * 1000)


def test_what_is_recorded_is_complete(
    terminal: tuple[TextIO, list[bytes]], tmp_path: Path, pager: str
) -> None:
    stream, _ = terminal
    with (tmp_path / "recorded").open("w") as file:
        recorder = cast("TextIO", Recorder(stream, file))
        with paged(recorder, pager) as out:
            out.write("x\n" * 20)
    assert (tmp_path / "recorded").read_text() == (tmp_path / "paged").read_text() == "x\n" * 20


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ({"PAGER": "true -x"}, "true -x"),
        ({"PAGER": "false", "TIDEGATE_PAGER": "true"}, "true"),
        ({"PAGER": ""}, ""),
        ({"PAGER": "cat"}, ""),
        ({"PAGER": "no-such-command"}, ""),
        ({"PAGER": "'"}, ""),
        ({"PAGER": "true", "TIDEGATE_PAGER": ""}, ""),
    ],
)
def test_the_environment_names_it(environment: dict[str, str], command: str) -> None:
    assert find_pager(environment) == command


def test_it_can_be_turned_off(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["-e", "x"]).pager
    assert not parse(["--no-pager", "-e", "x"]).pager
    assert main(["-e", "!set pager off\n!set"], connect=server.connect) == 0
    assert "pager off\n" in capsys.readouterr().out


def test_it_can_be_turned_on(
    server: FakeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_PAGER", "true")
    assert main(["-e", "!set pager on\n!set"], connect=server.connect) == 0
    assert "pager on\n" in capsys.readouterr().out
    monkeypatch.setenv("TIDEGATE_PAGER", "")
    assert main(["-e", "!set pager on"], connect=server.connect) == 1
    assert "There is no pager" in capsys.readouterr().err
