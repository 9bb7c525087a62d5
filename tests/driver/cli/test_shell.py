"""The interactive shell, with a simulated keyboard."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import tidegate
from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli.run import Display
from tidegate.cli.script import Workbench
from tidegate.cli.shell import history_path, run_shell
from tidegate.cli.shell.complete import ShellCompleter
from tidegate.cli.shell.highlight import StatementLexer
from tidegate.cli.shell.names import SessionNames
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


class Names:
    """A few names; remembers which kinds were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def objects(self) -> Sequence[str]:
        self.asked.append("objects")
        return ["orders", "sales", "sales.orders"]

    def functions(self) -> Sequence[str]:
        self.asked.append("functions")
        return ["abs", "order_hash"]

    def settings(self) -> Sequence[str]:
        self.asked.append("settings")
        return ["materialized-table.initialize", "spark.sql.ansi.enabled"]

    def columns(self, table: str) -> Sequence[str]:
        self.asked.append(table)
        return {"sales.orders": ["id", "order_date"], "t": ["identity"]}.get(table, [])


def completions(text: str, after: str = "", names: Names | None = None) -> list[str]:
    document = Document(text + after, len(text))
    completer = ShellCompleter(names or Names())
    return [each.text for each in completer.get_completions(document, CompleteEvent())]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("show MATERIALIZE", "", ["MATERIALIZED"]),
        ("show materialize", "", ["materialized"]),
        ("!ta", "", ["tables"]),
        ("!columns or", "", ["orders"]),
        ("select * from sales.o", "", ["sales.orders"]),
        ("select count(ord", "", ["order", "orders", "order_hash"]),
        # After the words that a table follows, there are no columns and functions.
        ("select * from ord", "", ["order", "orders"]),
        ("select ab", "", ["abs"]),
        ("select i", " from t, x", ["identity", "if", "ilike", "immutable", "in"]),
        ("select s.o", " from sales.orders AS s join t", ["order_date"]),
        ("select * from sales.orders o where o.i", "", ["id"]),
        ("select * from sales.orders where orders.", "", ["id", "order_date"]),
        ("select * from sales.orders where x.", "", []),
        ("set spark", "", ["spark.sql.ansi.enabled"]),
        ("SET 'mat", "", ["materialized-table.initialize'"]),
        ("SET 'mat", "' = 'a'", ["materialized-table.initialize"]),
        ("create materialized table t with ('mat", "", ["materialized-table.initialize'"]),
        ("select 'mat", "", []),
        ("select 'it', ab", "", ["abs"]),
        ("", "", []),
    ],
)
def test_words_are_completed(text: str, after: str, expected: list[str]) -> None:
    assert [each for each in completions(text, after) if each in expected] == expected
    if len(expected) < 3:
        assert completions(text, after) == expected


def test_only_names_that_can_follow_are_loaded() -> None:
    names = Names()
    assert completions("select * from sales.o", names=names)
    assert names.asked == ["objects"]


def test_names_are_loaded_once_until_a_statement_may_have_changed_them(
    server: FakeServer,
) -> None:
    bench = Workbench(Display(io.StringIO(), io.StringIO()), server.connect)
    names = SessionNames(bench)
    assert names.objects() == ()
    bench.open(ConnectOptions())
    server.answers["tables"] = Answer(["a"], [("c", "s", "b"), ("c", "s", "a")])
    server.answers["catalogs"] = Answer(["a"], [("c",)])
    server.answers["SET -v"] = Answer(["key"], [("k2",), ("k1",)])
    server.answers["columns"] = Answer(["a"], [("c", "s", "a_b", "z"), ("c", "s", "a_b", "y")])
    assert names.objects() == names.objects() == ("a", "b", "c", "s", "s.a", "s.b")
    assert names.settings() == ("k1", "k2")
    assert names.columns("s.a_b") == ("z", "y")
    asked = [call for call in server.calls if call[0] == "tables"]
    assert len(asked) == 1
    assert ("columns", ("s", r"a\_b")) in server.calls
    names.forget()
    names.objects()
    assert len([call for call in server.calls if call[0] == "tables"]) == 2


def test_names_that_cannot_be_loaded_are_none(server: FakeServer) -> None:
    bench = Workbench(Display(io.StringIO(), io.StringIO()), server.connect)
    bench.open(ConnectOptions())
    server.answers["SET -v"] = Answer(error=tidegate.OperationalError("gone"))
    assert SessionNames(bench).settings() == ()


def colored(text: str) -> list[tuple[str, str]]:
    tokens = StatementLexer().get_tokens(text)
    return [(str(kind).removeprefix("Token."), part) for kind, part in tokens if part.strip()]


def test_statements_are_colored_by_what_their_words_are() -> None:
    assert colored("Refresh abs(1.5e3) 'it''s' \"x\" `from` r'a\\' -- b") == [
        ("Keyword", "Refresh"),
        ("Name.Function", "abs"),
        ("Punctuation", "("),
        ("Literal.Number", "1.5e3"),
        ("Punctuation", ")"),
        ("Literal.String.Single", "'it''s'"),
        ("Literal.String.Double", '"x"'),
        ("Name", "`from`"),
        ("Literal.String", "r'a\\'"),
        ("Comment.Single", "-- b"),
    ]
    assert colored("/* a /* b */ c */ x 'open") == [
        *[("Comment.Multiline", part) for part in ("/*", " a ", "/*", " b ", "*/", " c ", "*/")],
        ("Name", "x"),
        ("Literal.String.Single", "'open\n"),
    ]
    assert colored("!tables select") == [("Name.Builtin", "!tables select\n")]


def test_without_its_package_the_shell_names_the_extra(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidegate.cli import main

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.delitem(sys.modules, "tidegate.cli.shell")
    monkeypatch.delitem(sys.modules, "tidegate.cli.shell.complete")
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setitem(sys.modules, "prompt_toolkit.completion", None)
    assert main([], connect=server.connect) == 2
    assert "pip install 'tidegate[shell]'" in capsys.readouterr().err
    assert server.options == []


class Terminal(io.StringIO):
    """A standard input that says it is a terminal."""

    def isatty(self) -> bool:
        return True
