"""The interactive shell, with a simulated keyboard."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import tidegate
from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli.complete import ShellCompleter
from tidegate.cli.run import Display
from tidegate.cli.script import Workbench
from tidegate.cli.shell import history_path, run_shell
from tidegate.dsn import ConnectOptions

Type = Callable[[str], str]

ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def type_keys(server: FakeServer, state: Path) -> Iterator[Type]:
    """Types into a shell until it ends, and returns all that it wrote."""

    def type_keys(keys: str) -> str:
        screen = io.StringIO()
        bench = Workbench(display=Display(out=screen, err=screen), connect=server.connect)
        bench.open(ConnectOptions(host="gateway"))
        with create_pipe_input() as keyboard:
            keyboard.send_text(keys)
            with create_app_session(input=keyboard, output=DummyOutput()):
                run_shell(bench)
        return screen.getvalue()

    return type_keys


def test_a_statement_runs_at_its_semicolon(server: FakeServer, type_keys: Type) -> None:
    server.answers["select 1"] = Answer(["a"], [(1,)])
    assert "|   1 |" in type_keys(f"select 1;{ENTER}{CTRL_D}")


def test_a_statement_may_have_several_lines(server: FakeServer, type_keys: Type) -> None:
    type_keys(f"select{ENTER}';'{ENTER};{ENTER}{CTRL_D}")
    assert server.statements == ["select\n';'"]


def test_the_shell_goes_on_after_an_error(server: FakeServer, type_keys: Type) -> None:
    server.answers["one"] = Answer(error=tidegate.ProgrammingError("wrong", sqlstate="42000"))
    assert "ERROR 42000 wrong" in type_keys(f"one;{ENTER}two;{ENTER}!nope{ENTER}{CTRL_D}")
    assert server.statements == ["one", "two"]


def test_ctrl_c_at_the_prompt_drops_what_was_typed(server: FakeServer, type_keys: Type) -> None:
    type_keys(f"one{CTRL_C}two;{ENTER}{CTRL_D}")
    assert server.statements == ["two"]


def test_quit_leaves(server: FakeServer, type_keys: Type) -> None:
    type_keys(f"one;{ENTER}!quit{ENTER}two;{ENTER}")
    assert server.statements == ["one"]


def test_help_lists_the_commands(type_keys: Type) -> None:
    text = type_keys(f"!help{ENTER}{CTRL_D}")
    assert "!tables [[SCHEMA.]PATTERN]" in text
    assert "!quit" in text


def test_the_history_is_kept_for_the_next_shell(type_keys: Type) -> None:
    type_keys(f"one;{ENTER}{CTRL_D}")
    assert "one;" in type_keys(f"!history{ENTER}{CTRL_D}")


def test_the_history_holds_no_passwords_and_is_private(type_keys: Type) -> None:
    type_keys(f"!connect tidegate://other ada secret{ENTER}one;{ENTER}{CTRL_D}")
    text = history_path().read_text()
    assert "one;" in text
    assert "secret" not in text
    assert history_path().stat().st_mode & 0o077 == 0


def completions(completer: ShellCompleter, text: str) -> list[str]:
    found = completer.get_completions(Document(text), CompleteEvent())
    return [completion.text for completion in found]


def test_keywords_are_completed_in_the_case_of_the_word() -> None:
    completer = ShellCompleter(tuple)
    assert completions(completer, "show MATERIALIZE") == ["MATERIALIZED"]
    assert completions(completer, "show materialize") == ["materialized"]


def test_commands_are_completed() -> None:
    assert completions(ShellCompleter(tuple), "!ta") == ["tables"]


def test_table_names_are_loaded_once_until_they_may_have_changed() -> None:
    loaded: list[str] = []

    def load() -> list[str]:
        loaded.append("")
        return ["orders", "sales.orders"]

    completer = ShellCompleter(load)
    assert loaded == []
    assert completions(completer, "select * from sales.o") == ["sales.orders"]
    assert completions(completer, "select count(ord") == ["order", "orders"]
    assert len(loaded) == 1
    completer.forget()
    assert completions(completer, "!columns or") == ["orders"]
    assert len(loaded) == 2


def test_without_its_package_the_shell_names_the_extra(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidegate.cli import main

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.delitem(sys.modules, "tidegate.cli.shell")
    monkeypatch.delitem(sys.modules, "tidegate.cli.complete")
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setitem(sys.modules, "prompt_toolkit.completion", None)
    assert main([], connect=server.connect) == 2
    assert "pip install 'tidegate[shell]'" in capsys.readouterr().err
    assert server.options == []


class Terminal(io.StringIO):
    """A standard input that says it is a terminal."""

    def isatty(self) -> bool:
        return True
