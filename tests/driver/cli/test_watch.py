"""A statement is repeated, and what changed in its result is marked."""

from __future__ import annotations

import io

import pytest

from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli.run import Display
from tidegate.cli.script import Workbench
from tidegate.cli.watch import mark_changes, watch
from tidegate.dsn import ConnectOptions


@pytest.mark.parametrize(
    ("before", "rows", "marked"),
    [
        ([], [], []),
        ([(1,)], [(1,), (1,)], [("", 1), ("+", 1)]),
        (
            [(1, [2]), (3, None)],
            [(3, None), (1, [5])],
            [("", 3, None), ("+", 1, [5]), ("-", 1, [2])],
        ),
        ([(1,), (1,)], [(1,)], [("", 1), ("-", 1)]),
    ],
)
def test_rows_that_came_and_went_are_marked(
    before: list[tuple[object, ...]],
    rows: list[tuple[object, ...]],
    marked: list[tuple[object, ...]],
) -> None:
    assert mark_changes(before, rows) == marked


def test_a_statement_is_repeated_until_ctrl_c(server: FakeServer) -> None:
    screen = io.StringIO()
    display = Display(out=screen, err=screen, format="csv", header=False)
    bench = Workbench(display=display, connect=server.connect)
    bench.open(ConnectOptions())
    server.answers["select n"] = Answer(["n"], [(1,)])
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        server.answers["select n"] = Answer(["n"], [(1,), (len(pauses),)])

    watch(bench, "select n", 5, sleep=sleep)
    assert pauses == [5, 5, 5]
    rows = [line for line in screen.getvalue().splitlines() if line.startswith((",", "+,", "-,"))]
    assert rows == [",1", ",1", "+,1", ",1", "+,2", "-,1"]


def test_at_most_a_thousand_rows_are_kept(server: FakeServer) -> None:
    screen = io.StringIO()
    bench = Workbench(Display(out=screen, err=screen, format="csv"), server.connect)
    bench.open(ConnectOptions())
    server.answers["select n"] = Answer(["n"], [(n,) for n in range(2500)])

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    watch(bench, "select n", 1, sleep=stop)
    assert "\n…,\n" in screen.getvalue()
    assert ",999\n" in screen.getvalue()
    assert ",1000\n" not in screen.getvalue()
