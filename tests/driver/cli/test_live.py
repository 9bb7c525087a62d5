"""The result of a query is followed: as a changelog, or as a view that is shown again."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main
from tidegate.cli.arguments import parse
from tidegate.cli.commands import run_command
from tidegate.cli.live import LiveQueryEndedError, run_live
from tidegate.cli.live_query import LiveQuery
from tidegate.cli.run import Display
from tidegate.cli.script import Workbench, run_text
from tidegate.cli.settings import ResultMode
from tidegate.dsn import ConnectOptions

QUERY = LiveQuery(("t",), "t", "`t`.`a`, `t`.`b`")
VERSION = "DESCRIBE HISTORY `t` LIMIT 1"
SQL = "SELECT * FROM t"
WARNING = (
    "[WARN] The changes of `t` after version 3 cannot be read: {} "
    "All its rows of version {} follow."
)
UNRECORDED = (
    "the changes of the table are not recorded: ALTER TABLE … SET TBLPROPERTIES "
    "('delta.enableChangeDataFeed' = 'true') records them from now on"
)
KEY = Answer(
    ["TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ"],
    [("c", "s", "T", "b", 2), ("c", "s", "t", "a", 1), ("c", "s", "u", "z", 1)],
)


def changes(first: int, last: int, after: int) -> str:
    return QUERY.changes_sql((first, last), after, ["a", "b"], ["a", "b"])


@pytest.fixture
def table(server: FakeServer) -> FakeServer:
    """A table with two columns, one row, and version 3."""
    server.answers |= {
        VERSION: Answer(["version", "timestamp"], [(3, "noon")]),
        "SELECT current_catalog(), current_schema()": Answer(["c", "s"], [("c", "s")]),
        "primary_keys": KEY,
        QUERY.columns_sql(3): Answer(["a", "b"]),
        QUERY.names_sql(3): Answer(["a", "b"]),
        QUERY.rows_sql(3): Answer(["op", "a", "b"], [("+I", 1, "x")]),
        changes(3, 3, 3): Answer(["op", "a", "b"]),
    }
    return server


def follow(
    server: FakeServer,
    sql: str,
    events: Sequence[Callable[[], None]] = (),
    mode: ResultMode = ResultMode.CHANGELOG,
    **options: Any,
) -> str:
    """Follow a query, with an event in each pause, and Ctrl-C after them."""
    screen = io.StringIO()
    display = Display(out=screen, err=screen, **{"format": "csv", **options})
    left = list(events)

    def sleep(seconds: float) -> None:
        assert seconds == 1
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    connection = server.connect(ConnectOptions())
    with pytest.raises(LiveQueryEndedError):
        run_live(connection, sql, display, mode, sleep=sleep)
    return screen.getvalue()


def commit(server: FakeServer, version: int, time: str = "later") -> None:
    server.answers[VERSION] = Answer(["version", "timestamp"], [(version, time)])


def test_rows_are_written_and_then_what_changes(table: FakeServer) -> None:
    def change() -> None:
        commit(table, 5)
        table.answers[changes(4, 5, 3)] = Answer(
            ["op", "a", "b"], [("-U", 1, "x"), ("+U", 1, "y"), ("+I", 2, None)]
        )

    def remove() -> None:
        commit(table, 6)
        table.answers[changes(6, 6, 5)] = Answer(["op", "a", "b"], [("-D", 2, None)])

    written = follow(table, SQL, [lambda: None, change, lambda: None, remove])
    lines = written.splitlines()
    assert lines[:-1] == ["op,a,b", "+I,1,x", "-U,1,x", "+U,1,y", "+I,2,", "-D,2,"]
    assert lines[-1].startswith("5 rows (")
    # Between versions only the version is asked for.
    assert table.statements[table.statements.index(QUERY.rows_sql(3)) + 1 :] == [
        *(VERSION, VERSION, changes(4, 5, 3)),
        *(VERSION, VERSION, changes(6, 6, 5)),
    ]
    assert ("primary_keys", ("s", "t")) in table.calls


@pytest.mark.parametrize("replaced", [False, True])
def test_all_rows_follow_where_changes_are_gone(table: FakeServer, replaced: bool) -> None:
    newest = 3 if replaced else 9

    def vacuum() -> None:
        commit(table, newest)
        table.answers[changes(4, 9, 3)] = Answer(
            error=tidegate.ProgrammingError("[GONE] Version 4 is gone.\nMore.", code="GONE")
        )
        table.answers[QUERY.rows_sql(newest)] = Answer(["op", "a", "b"], [("+I", 7, "z")])

    def again() -> None:
        commit(table, newest + 1)
        table.answers[changes(newest + 1, newest + 1, newest)] = Answer(
            ["op", "a", "b"], [("-D", 7, "z")]
        )

    reason = "the table was replaced." if replaced else "[GONE] Version 4 is gone."
    assert follow(table, SQL, [vacuum, again], quiet=True).splitlines() == [
        "op,a,b",
        "+I,1,x",
        WARNING.format(reason, newest),
        "+I,7,z",
        "-D,7,z",
    ]


def test_pages_are_written_as_they_arrive(table: FakeServer) -> None:
    rows = [("+I", number, "x") for number in range(2500)]
    table.answers[QUERY.rows_sql(3)] = Answer(["op", "a", "b"], rows)
    lines = follow(table, SQL, format="json").splitlines()
    assert lines[2499] == '{"op": "+I", "a": 2499, "b": "x"}'
    assert lines[2500].startswith("2500 rows (")


@pytest.mark.parametrize(
    ("sql", "failing", "error", "reason"),
    [
        ("SELECT a FROM t LIMIT 1", None, None, "it has LIMIT"),
        (
            SQL,
            changes(3, 3, 3),
            tidegate.ProgrammingError("[MISSING_GROUP_BY] x", code="MISSING_GROUP_BY"),
            "it has an aggregate function",
        ),
        (
            SQL,
            changes(3, 3, 3),
            tidegate.ProgrammingError("[X] x", code="DELTA_MISSING_CHANGE_DATA"),
            UNRECORDED,
        ),
        (
            SQL,
            VERSION,
            tidegate.ProgrammingError("[VIEW] It is a view. (line 1, column 8)\nMore."),
            "the table cannot be followed: [VIEW] It is a view",
        ),
    ],
)
def test_other_queries_run_once_after_a_warning(
    table: FakeServer, sql: str, failing: str | None, error: tidegate.Error | None, reason: str
) -> None:
    if failing is not None:
        table.answers[failing] = Answer(error=error)
    table.answers[sql] = Answer(["a"], [(1,)])
    screen = io.StringIO()
    display = Display(out=screen, err=screen, format="csv", quiet=True)
    run_live(table.connect(ConnectOptions()), sql, display, ResultMode.CHANGELOG)
    assert screen.getvalue() == f"[WARN] The query runs once, since {reason}.\na\n1\n"


def test_an_error_ends_it(table: FakeServer) -> None:
    def drop() -> None:
        table.answers[VERSION] = Answer(error=tidegate.ProgrammingError("[NO] There is no t."))

    screen = io.StringIO()
    display = Display(out=screen, err=screen, format="csv")
    with pytest.raises(tidegate.ProgrammingError, match="There is no t"):
        run_live(
            table.connect(ConnectOptions()),
            SQL,
            display,
            ResultMode.CHANGELOG,
            sleep=lambda seconds: drop(),
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_and_the_script(
    table: FakeServer, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    usual = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    table.answers[VERSION] = Answer(["version", "timestamp"], [(3, "noon")])

    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while table.statements.count(VERSION) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    user = threading.Thread(target=interrupt)
    user.start()
    mode = "SET 'sql-client.execution.result-mode' = 'changelog'"
    status = main(["--format", "csv", "-q", "-e", f"{mode}; {SQL}; never"], connect=table.connect)
    user.join()
    assert status == 130
    assert capsys.readouterr().out == "op,a,b\n+I,1,x\n"
    assert "never" not in table.statements
    assert table.open_sessions == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == usual


def test_a_view_is_shown_again_for_each_version(table: FakeServer) -> None:
    sql = "SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n"
    table.answers[sql] = Answer(["a", "n"], [(1, 1)])

    def change() -> None:
        commit(table, 4)
        table.answers[sql] = Answer(["a", "n"], [(number, 1) for number in range(1001)])

    written = follow(table, sql, [lambda: None, change, lambda: None], ResultMode.TABLE)
    assert table.statements.count(sql) == 2
    assert f"version 3: {sql}\na,n\n1,1\n" in written
    assert f"version 4: {sql}\na,n\n0,1\n1,1\n" in written
    assert "\n999,1\n1000 rows (" in written
    assert written.endswith("[INFO] Only the first 1000 rows are shown.\n")


def test_the_mode_is_set_shown_and_reset_in_the_client(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    bench = Workbench(Display(screen, screen, format="csv", header=False), server.connect)
    bench.open(ConnectOptions())

    def run(text: str) -> str:
        screen.truncate(0)
        screen.seek(0)
        run_text(bench, text, command=run_command)
        return screen.getvalue()

    key = "sql-client.execution.result-mode"
    assert run(f"SET '{key}'") == f"{key},tableau\n"
    assert run(f"set '{key}' = 'CHANGELOG';") == "[INFO] Results are shown as changelog.\n"
    assert bench.result_mode is ResultMode.CHANGELOG
    assert run(f"SET {key}=table") == "[INFO] Results are shown as table.\n"
    assert run(f"SET '{key}' = 'lively'") == (
        f"ERROR '{key}' cannot be 'lively': write one of tableau, changelog, table.\n"
    )
    assert bench.result_mode is ResultMode.TABLE
    assert run(f"RESET '{key}'") == "[INFO] Results are shown as tableau.\n"
    assert server.statements == []

    others = ["SET 'sql-client.verbose' = 'true'", "SET", "RESET a", "SET a = b", "SELECT 1"]
    run(f"SET {key} = changelog")
    run("; ".join([*others[:-1], "RESET", others[-1]]))
    assert server.statements == [*others[:-1], "RESET", others[-1]]
    assert bench.result_mode is ResultMode.TABLEAU


def test_files_and_flags_define_the_first_mode(
    tmp_path: Path, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "sql-client.execution.result-mode"
    file = tmp_path / "context.conf"
    file.write_text(f"a = b\n{key} = 'changelog'\n")

    def first_mode(*arguments: str) -> ResultMode:
        given = parse(["--context", str(file), *arguments])
        assert ("a", "b") in given.target.defaults
        assert key not in dict((*given.target.defaults, *given.target.settings))
        return given.result_mode

    assert first_mode() is ResultMode.CHANGELOG
    assert first_mode("--set", f"{key}=TABLE") is ResultMode.TABLE
    with pytest.raises(SystemExit):
        first_mode("--set", f"{key}=lively")
    assert "write one of tableau, changelog, table" in capsys.readouterr().err

    script = f"SET {key} = tableau; RESET {key}; SET {key}"
    arguments = ["--context", str(file), "--format", "csv", "--no-header", "-e", script]
    assert main(arguments, connect=server.connect) == 0
    assert capsys.readouterr().out == f"{key},changelog\n"
