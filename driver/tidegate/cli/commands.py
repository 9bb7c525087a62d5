"""The table of ``!commands``, named after beeline's."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.formats import FORMATS
from tidegate.cli.run import run_metadata, run_statement
from tidegate.cli.script import CommandError, Workbench, run_text
from tidegate.cli.terminal.pager import find_pager
from tidegate.cli.terminal.record import Recorder
from tidegate.cli.watch import watch
from tidegate.cursor import Cursor
from tidegate.dsn import is_url, parse_url

_TABLE_COLUMNS = ("TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS")
_COLUMN_COLUMNS = (
    *("TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME", "TYPE_NAME", "IS_NULLABLE", "REMARKS"),
)


class QuitShellError(Exception):
    """The user wants to leave."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its arguments, one line of help, its function."""

    usage: str
    help: str
    run: Callable[[Workbench, Sequence[str]], None]
    whole_line: bool = False
    """Whether the rest of the line is its one argument, quotes included."""


def run_command(bench: Workbench, line: str) -> None:
    """Run a line such as ``!tables sales``.

    :raises CommandError: if there is no such command or its arguments are wrong.
    :raises QuitShellError: if the command is to leave.
    """
    name, _, rest = line[1:].strip().partition(" ")
    name = _PSQL.get(name, name.lower()) if line.startswith("\\") else name.lower()
    command = COMMANDS.get(name)
    if command is None:
        raise CommandError(f"There is no command !{name}: !help lists them.")
    try:
        arguments = [rest.strip()] if command.whole_line else shlex.split(rest)
    except ValueError as error:
        raise CommandError(f"!{name}: {error}.") from error
    command.run(bench, arguments)


def _help(bench: Workbench, arguments: Sequence[str]) -> None:
    width = max(len(f"!{name} {command.usage}") for name, command in COMMANDS.items())
    lines = [
        f"{f'!{name} {command.usage}':<{width}}  {command.help}"
        for name, command in COMMANDS.items()
    ]
    lines += [
        "",
        "Names known from psql work too: \\? \\q \\d \\dt \\dn \\i \\watch.",
        "Anything else is SQL and ends with a semicolon. To begin:",
        "  SHOW MATERIALIZED TABLES;",
        "  CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '3' MINUTE AS SELECT ...;",
        "  DESCRIBE EXTENDED t;  SHOW REFRESH HISTORY FOR t;",
    ]
    bench.display.out.write("\n".join(lines) + "\n")


def _quit(bench: Workbench, arguments: Sequence[str]) -> None:
    raise QuitShellError


def _tables(bench: Workbench, arguments: Sequence[str]) -> None:
    schema, table = _pattern("tables", arguments)
    _list(bench, lambda cursor: cursor.tables(schema, table), _TABLE_COLUMNS)


def _materialized_tables(bench: Workbench, arguments: Sequence[str]) -> None:
    schema, table = _pattern("mts", arguments)
    types = ["MATERIALIZED_TABLE"]
    _list(bench, lambda cursor: cursor.tables(schema, table, types), _TABLE_COLUMNS)


def _columns(bench: Workbench, arguments: Sequence[str]) -> None:
    if not arguments:
        raise CommandError("Write !columns [SCHEMA.]TABLE.")
    schema, table = _pattern("columns", arguments)
    _list(bench, lambda cursor: cursor.columns(schema, table), _COLUMN_COLUMNS)


def _schemas(bench: Workbench, arguments: Sequence[str]) -> None:
    _list(bench, lambda cursor: cursor.schemas(), ("TABLE_SCHEM",))


def _functions(bench: Workbench, arguments: Sequence[str]) -> None:
    _list(bench, lambda cursor: cursor.functions(), ("FUNCTION_NAME",))


def _list(bench: Workbench, call: Callable[[Cursor], object], columns: Sequence[str]) -> None:
    run_metadata(bench.require(), call, bench.display, columns)


def _connect(bench: Workbench, arguments: Sequence[str]) -> None:
    if not 1 <= len(arguments) <= 3 or not is_url(arguments[0]):
        raise CommandError("Write !connect URL [USER [PASSWORD]].")
    options = parse_url(arguments[0])
    if len(arguments) > 1:
        options = replace(options, user=arguments[1])
    if len(arguments) > 2:
        options = replace(options, password=arguments[2])
    bench.open(options)
    bench.display.notice(f"[INFO] Connected to {options.address}.")


def _reconnect(bench: Workbench, arguments: Sequence[str]) -> None:
    if bench.options is None:
        raise CommandError("There was no connection yet: use !connect URL.")
    bench.open(bench.options)
    bench.display.notice(f"[INFO] Connected to {bench.options.address}.")


def _close(bench: Workbench, arguments: Sequence[str]) -> None:
    bench.close()


def _set(bench: Workbench, arguments: Sequence[str]) -> None:
    display = bench.display
    match arguments:
        case []:
            for name, value in (
                ("format", display.format),
                ("header", _on_off(display.header)),
                ("quiet", _on_off(display.quiet)),
                ("pager", _on_off(bool(display.pager))),
            ):
                display.out.write(f"{name} {value}\n")
        case ["format", str(name)] if name in FORMATS:
            display.format = name
        case ["header", "on" | "off" as value]:
            display.header = value == "on"
        case ["quiet", "on" | "off" as value]:
            display.quiet = value == "on"
        case ["pager", "off"]:
            display.pager = ""
        case ["pager", "on"]:
            display.pager = find_pager(os.environ)
            if not display.pager:
                raise CommandError("There is no pager: set the environment variable PAGER.")
        case _:
            raise CommandError(
                f"Write !set format {'|'.join(FORMATS)}, or !set header, quiet or pager with on or "
                "off; settings of the server are SQL: SET key = value;"
            )


def _run(bench: Workbench, arguments: Sequence[str]) -> None:
    if len(arguments) != 1:
        raise CommandError("Write !run FILE.")
    try:
        text = read_script(arguments[0])
    except UnreadableFileError as error:
        raise CommandError(f"The script was not run: {error}.") from error
    if not run_text(bench, text, command=run_command, source=arguments[0]):
        raise CommandError(f"{arguments[0]} did not run to the end.")


def _history(bench: Workbench, arguments: Sequence[str]) -> None:
    # The shell itself keeps the history and answers this; a script has none.
    raise CommandError("Only the interactive shell has a history.")


def _describe(bench: Workbench, arguments: Sequence[str]) -> None:
    if len(arguments) != 1:
        raise CommandError("Write !describe [SCHEMA.]TABLE.")
    run_statement(bench.require(), f"DESCRIBE EXTENDED {arguments[0]}", bench.display)


def _record(bench: Workbench, arguments: Sequence[str]) -> None:
    display = bench.display
    if len(arguments) > 1:
        raise CommandError("Write !record FILE to begin, and !record to end.")
    if isinstance(display.out, Recorder):
        display.out.file.close()
        display.out = display.out.stream
    elif not arguments:
        raise CommandError("Nothing is recorded: write !record FILE.")
    if arguments:
        try:
            file = Path(arguments[0]).expanduser().open("a", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"Cannot write {arguments[0]}: {error.strerror}.") from error
        display.out = cast("TextIO", Recorder(display.out, file))


def _watch(bench: Workbench, arguments: Sequence[str]) -> None:
    seconds, _, sql = arguments[0].partition(" ")
    try:
        every = float(seconds or _WATCH_SECONDS)
    except ValueError:
        every = 0.0
    if not 0 < every < float("inf"):
        raise CommandError("Write !watch [SECONDS [STATEMENT]].")
    text = sql.strip() or bench.last_sql
    if not text:
        raise CommandError("There is no statement to repeat: run one first, or write it here.")
    watch(bench, text, every)


def _shell(bench: Workbench, arguments: Sequence[str]) -> None:
    [line] = arguments
    if not line:
        raise CommandError("Write !sh COMMAND.")
    status = subprocess.run(line, shell=True, check=False).returncode
    if status:
        raise CommandError(f"The command ended with status {status}.")


def _pattern(name: str, arguments: Sequence[str]) -> tuple[str | None, str]:
    if len(arguments) > 1:
        raise CommandError(f"Write !{name} [[SCHEMA.]PATTERN].")
    schema, dot, table = (arguments[0] if arguments else "%").rpartition(".")
    return (schema if dot else None), table


def _on_off(value: bool) -> str:
    return "on" if value else "off"


_WATCH_SECONDS = 2
_PSQL = {"?": "help", "q": "quit", "d": "describe", "dt": "tables", "dn": "schemas", "i": "run"}
"""What psql calls these commands, after a backslash."""

COMMANDS: dict[str, Command] = {
    "help": Command("", "list the commands", _help),
    "tables": Command("[[SCHEMA.]PATTERN]", "list tables, views, materialized tables", _tables),
    "mts": Command("[[SCHEMA.]PATTERN]", "list materialized tables", _materialized_tables),
    "columns": Command("[SCHEMA.]TABLE", "list the columns of a table", _columns),
    "schemas": Command("", "list schemas", _schemas),
    "functions": Command("", "list functions", _functions),
    "connect": Command("URL [USER [PASSWORD]]", "connect to another server", _connect),
    "reconnect": Command("", "connect to the same server again", _reconnect),
    "close": Command("", "close the connection", _close),
    "set": Command("[NAME VALUE]", "show or change how results are written", _set),
    "run": Command("FILE", "run a file of statements", _run),
    "history": Command("", "list the entered lines", _history),
    "describe": Command("[SCHEMA.]TABLE", "describe a table", _describe),
    "watch": Command(
        "[SECONDS [SQL]]", "repeat a statement, mark what changed", _watch, whole_line=True
    ),
    "record": Command("[FILE]", "also write results to a file; without FILE, stop", _record),
    "sh": Command("COMMAND", "run a command of the system's shell", _shell, whole_line=True),
    "quit": Command("", "leave (also Ctrl-D)", _quit),
}
"""Every command by its name without the exclamation mark."""
