"""What the formats write."""

from __future__ import annotations

import datetime
import io
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main
from tidegate.cli.commands import run_command
from tidegate.cli.formats import FORMATS, MissingExtraError, Page, fitting, text_of
from tidegate.cli.run import Display
from tidegate.cli.script import Workbench, run_text
from tidegate.dsn import ConnectOptions

COLUMNS = ["n", "text"]
PAGES = [[(1, "a"), (None, None)], [(3, "x,y")]]


def format_pages(
    name: str, *, header: bool = True, columns: Any = COLUMNS, pages: Any = PAGES
) -> str:
    out = io.StringIO()
    assert FORMATS[name](columns, pages, out, header) == sum(len(page) for page in pages)
    return out.getvalue()


def test_csv_quotes_where_needed_and_leaves_null_empty() -> None:
    assert format_pages("csv") == 'n,text\n1,a\n,\n3,"x,y"\n'


def test_tsv_separates_by_tabs() -> None:
    assert format_pages("tsv", header=False) == "1\ta\n\t\n3\tx,y\n"


def test_json_writes_one_object_per_line() -> None:
    rows = [json.loads(line) for line in format_pages("json").splitlines()]
    assert rows == [
        {"n": 1, "text": "a"},
        {"n": None, "text": None},
        {"n": 3, "text": "x,y"},
    ]


def test_json_keeps_columns_of_the_same_name_apart() -> None:
    text = format_pages("json", columns=["a", "a", "a_2", "a"], pages=[[(1, 2, 3, 4)]])
    assert json.loads(text) == {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}


def test_json_is_valid_for_values_json_has_not() -> None:
    row = (Decimal("1.50"), float("nan"), datetime.date(2024, 1, 2), b"\xff", {"a": [Decimal(1)]})
    text = format_pages("json", columns=list("abcde"), pages=[[row]])
    assert json.loads(text) == {
        "a": "1.50",
        "b": "NaN",
        "c": "2024-01-02",
        "d": "FF",
        "e": {"a": ["1"]},
    }


def test_vertical_writes_a_line_per_value() -> None:
    assert format_pages("vertical", pages=[[(1, None)]]) == "-[ row 1 ]----\nn     1\ntext  NULL\n"


@pytest.mark.parametrize(
    ("pages", "width", "first"),
    [
        ([[(1, "a" * 30)]], 20, "-[ row 1 ]----"),
        ([[(1, "a" * 30)]], 80, "+-----+----"),
        ([[(1, "a" * 30), (2, "b")]], 20, "+-----+----"),
        ([], 5, "+-----+----"),
    ],
)
def test_a_row_that_is_too_wide_is_written_vertically(
    pages: list[Page], width: int, first: str
) -> None:
    out = io.StringIO()
    count = fitting(width)(["n", "text"], pages, out, True)
    assert count == sum(map(len, pages))
    assert out.getvalue().startswith(first)
    assert out.getvalue().count("text") == 1


def test_a_table_is_laid_out_page_by_page() -> None:
    assert format_pages("table").splitlines() == [
        "+------+--------+",
        "|    n | text   |",
        "|------+--------|",
        "|    1 | a      |",
        "| NULL | NULL   |",
        "+------+--------+",
        "+-----+--------+",
        "|   n | text   |",
        "|-----+--------|",
        "|   3 | x,y    |",
        "+-----+--------+",
    ]


def test_a_table_without_rows_still_shows_its_columns() -> None:
    assert "| n   | text   |" in format_pages("table", pages=[])


def test_a_table_keeps_text_that_looks_like_a_number() -> None:
    assert "| 007  |" in format_pages("table", columns=["id"], pages=[[("007",), ("1e3 ",)]])


def test_wide_characters_keep_the_columns_straight() -> None:
    lines = format_pages("table", columns=["x"], pages=[[("日本",), ("ab",)]]).splitlines()
    assert lines[3:5] == ["| 日本 |", "| ab   |"]


@pytest.mark.parametrize("name", ["table", "vertical"])
def test_a_value_cannot_steer_the_terminal(name: str) -> None:
    text = format_pages(name, columns=["x"], pages=[[("\x1b[2Jred\x07",)]])
    assert "\x1b" not in text
    assert "\\x1b[2Jred\\x07" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (1.5, "1.5"),
        (float("-inf"), "-Infinity"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E-9"), "0.000000001"),
        (b"\x01\xab", "01AB"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5, 600000), "2024-01-02 03:04:05.600000"),  # noqa: DTZ001
        ([1, None], "[1, null]"),
        ({"a": True}, '{"a": true}'),
    ],
)
def test_a_value_is_written_plainly(value: object, text: str) -> None:
    assert text_of(value, null="NULL") == text


def test_a_table_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tabulate", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tidegate\[shell\]'"):
        format_pages("table")


@pytest.fixture
def written(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Path]]:
    """Runs the command line with a file as standard output; returns status and file."""
    server.answers["SELECT"] = Answer(["a", "b"], [(1, "x"), (2, None)])

    def run(*arguments: str) -> tuple[int, Path]:
        path = tmp_path / "out"
        with path.open("w") as file:
            monkeypatch.setattr(sys, "stdout", file)
            return main(arguments, connect=server.connect), path

    return run


def test_a_result_becomes_a_file_of_arrow_or_parquet(
    written: Callable[..., tuple[int, Path]],
) -> None:
    status, path = written("--format", "parquet", "-e", "SELECT")
    assert (status, pq.read_table(path).to_pydict()) == (0, {"a": [1, 2], "b": ["x", None]})
    status, path = written("--format", "arrow", "-e", "SET a = b; SELECT")
    assert status == 0
    with pa.OSFile(str(path)) as file:
        assert pa.ipc.open_file(file).read_all().to_pydict() == {"a": [1, 2], "b": ["x", None]}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("SELECT; SELECT", "A file of parquet has one result: write this one to another."),
        ("SET sql-client.execution.result-mode", "parquet is for the rows of a query only."),
        ("!tables", "parquet is for the rows of a query only."),
    ],
)
def test_what_is_no_file_of_parquet_is_refused(
    written: Callable[..., tuple[int, Path]],
    capsys: pytest.CaptureFixture[str],
    script: str,
    problem: str,
) -> None:
    statements = script.split("; ")
    status, _ = written("--format", "parquet", *(x for each in statements for x in ("-e", each)))
    assert status == 1
    assert problem in capsys.readouterr().err


def test_a_terminal_gets_no_file(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    server.answers["SELECT"] = Answer(["a"], [(1,)])
    bench = Workbench(Display(Terminal(), sys.stderr, format="arrow"), server.connect)
    bench.open(ConnectOptions())
    assert not run_text(bench, "SELECT", command=run_command)
    assert "A terminal cannot show arrow: add > FILE." in capsys.readouterr().err
