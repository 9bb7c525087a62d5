"""The command line ``tidegate``: scripts, single statements, a shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from getpass import getpass
from importlib.util import find_spec

import tidegate
from tidegate.cli.arguments import Arguments, Script, Source, Target, parse
from tidegate.cli.commands import QuitShellError, run_command
from tidegate.cli.embedded import EmbeddedServerError, embedded_server
from tidegate.cli.files import STDIN, UnreadableFileError, read_script
from tidegate.cli.formats import MissingExtraError
from tidegate.cli.projects.command import parse_command
from tidegate.cli.projects.command import run_command as run_project
from tidegate.cli.report import describe_error
from tidegate.cli.run import Display, InterruptedStatementError
from tidegate.cli.script import (
    Connect,
    PreparationError,
    Workbench,
    connect,
    connect_options,
    run_safely,
    run_text,
)
from tidegate.cli.terminal.pager import find_pager
from tidegate.cli.verbs import Request, parse_verb, run_request

DONE = 0
STATEMENT_FAILED = 1
WRONG_USAGE = 2
NO_CONNECTION = 3
INTERRUPTED = 130
BROKEN_PIPE = 141

Work = Callable[[Workbench], int]
"""What a command does with a connection; returns the exit status."""


def main(argv: Sequence[str] | None = None, *, connect: Connect = connect) -> int:
    """Run the command line and return the exit status that ``--help`` lists."""
    arguments, work = _parse(sys.argv[1:] if argv is None else argv)
    try:
        status = _main(arguments, work, connect)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away; nothing may be written at interpreter exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (InterruptedStatementError, KeyboardInterrupt):
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    return status


def _parse(argv: Sequence[str]) -> tuple[Arguments, Work | None]:
    """Return the arguments, and what to do with a connection; None for scripts and the shell."""
    match list(argv):
        case ["mt", *rest]:
            arguments, request = parse_verb(rest)
            return arguments, None if request is None else partial(_run_request, request=request)
        case ["plan" | "apply" as word, *rest]:
            arguments, command = parse_command(word, rest)
            return arguments, partial(run_project, command=command)
    return parse(argv), None


def _run_request(bench: Workbench, request: Request) -> int:
    succeeded = run_safely(bench, lambda: run_request(bench, request))
    return DONE if succeeded else STATEMENT_FAILED


def _main(arguments: Arguments, given: Work | None, connect: Connect) -> int:
    bench = Workbench(
        display=_display(arguments),
        connect=connect,
        preparations=arguments.preparations,
        default_result_mode=arguments.result_mode,
    )
    try:
        scripts = [] if given else list(map(_read, (*arguments.init, *_scripts(arguments))))
        shell = _shell() if given is None and _is_interactive(arguments) else None
    except (MissingExtraError, UnreadableFileError) as error:
        bench.display.write_error(f"ERROR {error}")
        return WRONG_USAGE
    target = arguments.target
    if target.ask_password:
        target = replace(target, password=getpass("Password: "))

    def run_scripts(bench: Workbench) -> int:
        succeeded = _run(bench, scripts, force=arguments.force)
        if shell is not None and succeeded:
            shell(bench)
        return DONE if succeeded else STATEMENT_FAILED

    work = given or run_scripts
    if not arguments.embedded:
        return _connected(bench, target, work)
    progress = sys.stderr if bench.display.progress else None
    try:
        with embedded_server(arguments.data, progress, bench.display.write_error) as socket:
            if arguments.data is None and shell is not None:
                bench.display.notice("[INFO] The data is deleted at the end: --data DIR keeps it.")
            target = replace(target, socket=socket)
            return _connected(bench, target, work)
    except EmbeddedServerError as error:
        bench.display.write_error(f"ERROR {error}")
        return NO_CONNECTION


def _connected(bench: Workbench, target: Target, work: Work) -> int:
    """Connect, work, and return the exit status."""
    try:
        bench.open(connect_options(target))
    except tidegate.InterfaceError as error:
        bench.display.write_error(describe_error(error))
        return WRONG_USAGE
    except tidegate.Error as error:
        bench.display.write_error(describe_error(error))
        return NO_CONNECTION
    except PreparationError as error:
        bench.display.write_error(str(error))
        return STATEMENT_FAILED
    try:
        return work(bench)
    finally:
        _close(bench)


def _run(bench: Workbench, scripts: Sequence[tuple[str, str | None]], *, force: bool) -> bool:
    succeeded = True
    try:
        for text, source in scripts:
            if not run_text(bench, text, command=run_command, source=source, force=force):
                succeeded = False
                if not force:
                    break
    except QuitShellError:
        return succeeded
    return succeeded


def _close(bench: Workbench) -> None:
    try:
        bench.close()
    except tidegate.Error as error:
        # All statements are done: a connection that broke meanwhile only deserves a warning.
        bench.display.write_error(f"WARNING closing the session: {error}")


def _is_interactive(arguments: Arguments) -> bool:
    return not arguments.scripts and sys.stdin.isatty()


def _scripts(arguments: Arguments) -> tuple[Script, ...]:
    if arguments.scripts or sys.stdin.isatty():
        return arguments.scripts
    return (Script(Source.FILE, STDIN),)


def _read(script: Script) -> tuple[str, str | None]:
    """Return the text of a script and the name that its errors show.

    :raises UnreadableFileError: if the file cannot be read.
    """
    if script.source is Source.STATEMENT:
        return script.value, None
    return read_script(script.value), "stdin" if script.value == STDIN else script.value


def _display(arguments: Arguments) -> Display:
    chosen = arguments.format
    if chosen is None:
        # A driver-only install lays out no tables.
        chosen = "table" if find_spec("tabulate") is not None else "vertical"
    return Display(
        out=sys.stdout,
        err=sys.stderr,
        format=chosen,
        header=arguments.header,
        quiet=arguments.quiet,
        progress=sys.stderr.isatty() and not arguments.quiet,
        pager=find_pager(os.environ) if arguments.pager and sys.stdin.isatty() else "",
    )


def _shell() -> Callable[[Workbench], None]:
    """Return the shell.

    :raises MissingExtraError: if its packages are not installed.
    """
    from tidegate.cli.shell import run_shell

    return run_shell
