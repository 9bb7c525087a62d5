"""``tidegate plan`` and ``tidegate apply``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tidegate
from tidegate.cli.arguments import Arguments, add_server, read_session
from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.projects.plan import Plan, Step, as_json, as_markdown, as_text
from tidegate.cli.projects.server import (
    OPTION,
    apply_step,
    make_plan,
    read_fingerprint,
    steps_to_apply,
)
from tidegate.cli.projects.sources import Project, find_project
from tidegate.cli.projects.statements import ProjectError
from tidegate.cli.report import describe_error
from tidegate.cli.run import Display, show_line
from tidegate.cli.script import PreparationError, Workbench

_PLAN_EXAMPLES = """\
The directory has files *.sql, also in folders, with CREATE OR ALTER MATERIALIZED TABLE statements.
It may also be a pipeline of Spark (spark-pipeline.yml) or a compiled dbt project (dbt_project.yml).
The plan shows for each table whether it would be created (+), altered (~) with the effect of each
change on its rows, rejected (!) with the reason, or dropped (-). It changes nothing.

examples:
  tidegate plan tables/
  tidegate plan tables/ -d sales --format markdown > plan.md     for a pull request
  tidegate plan tables/ --out plan.json && tidegate apply tables/ --plan plan.json

exit status: 0 done; 1 a definition is rejected, or with --check something would change; 2 wrong
usage, or a file with another statement; 3 no connection.
"""
_APPLY_EXAMPLES = """\
Shows the plan, asks, and carries it out, each table after those that it reads. If a statement
fails, or the command is killed, run it again: it continues with what is left.

examples:
  tidegate apply tables/
  tidegate apply tables/ --yes --prune
  tidegate apply tables/ --plan plan.json      only if it would do what the plan says

exit status: 0 done, or nothing to do; 1 rejected, failed, or another plan; 2 wrong usage; 3 no
connection.
"""
_DONE, _FAILED, _WRONG_USAGE = 0, 1, 2

_FORMATS: dict[str, Callable[[Plan], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": lambda plan: json.dumps(as_json(plan), indent=2, ensure_ascii=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command line of ``plan`` or ``apply``."""

    applies: bool
    source: Project
    project: str
    prune: bool
    analyze: bool
    connections: int
    format: str
    out: str | None
    check: bool
    plan: str | None
    """File of the plan that has to be the same."""
    yes: bool


def parse_command(word: str, argv: Sequence[str]) -> tuple[Arguments, Command]:
    """Read the command line after ``tidegate plan`` or ``tidegate apply``.

    :raises SystemExit: with status 0 after ``--help``, 2 after wrong usage.
    """
    applies = word == "apply"
    parser = _parser(applies=applies)
    given = parser.parse_args(argv)
    try:
        source = find_project(given.directory)
    except ProjectError as error:
        parser.error(str(error))
    project = given.project or source.name
    owns = source.owns_tables or given.project is not None
    if given.prune and not owns:
        parser.error("--prune of a dbt project needs --project NAME")
    if applies and not (given.yes or given.plan or sys.stdin.isatty()):
        parser.error("standard input is not a terminal: add --yes, or --plan FILE")
    if given.connections < 1:
        parser.error("--connections needs at least 1")
    arguments = read_session(parser, given)
    target = arguments.target
    target = replace(
        target,
        settings=(*source.settings, *target.settings, *([(OPTION, project)] if owns else [])),
        schema=target.schema or source.schema,
    )
    arguments = replace(arguments, target=target)
    return arguments, Command(
        applies=applies,
        source=source,
        project=project,
        prune=given.prune,
        analyze=given.analyze,
        connections=given.connections,
        format=given.plan_format,
        out=given.out,
        check=given.check,
        plan=given.plan,
        yes=given.yes,
    )


def run_command(bench: Workbench, command: Command) -> int:
    """Make the plan, apply it if that is the command, and return the exit status."""
    display = bench.display
    for note in command.source.notes:
        display.notice(f"[INFO] {note}")
    try:
        plan = _make_plan(bench, command)
        if command.applies:
            return _apply(bench, command, plan)
        display.out.write(f"{_FORMATS[command.format](plan)}\n")
        if command.out is not None:
            content = as_json(plan) | {"fingerprint": plan.fingerprint}
            Path(command.out).write_text(f"{json.dumps(content, indent=2)}\n", "utf-8")
    except tidegate.Error as error:
        display.write_error(describe_error(error))
        return _FAILED
    except PreparationError as error:
        display.write_error(str(error))
        return _FAILED
    except ProjectError as error:
        display.write_error(f"ERROR {error}")
        return _WRONG_USAGE
    except OSError as error:
        display.write_error(f"ERROR cannot write {command.out}: {error.strerror}")
        return _WRONG_USAGE
    return _FAILED if plan.rejected or (command.check and not plan.empty) else _DONE


def _make_plan(bench: Workbench, command: Command) -> Plan:
    options = bench.options
    assert options is not None  # the bench is open
    try:
        return make_plan(
            bench.require(),
            lambda: bench.begin_session(options),
            command.source,
            command.project,
            prune=command.prune,
            analyze=command.analyze,
            connections=command.connections,
            say=lambda text: _show_progress(bench.display, text),
        )
    finally:
        _show_progress(bench.display, "")


def _apply(bench: Workbench, command: Command, plan: Plan) -> int:
    display = bench.display
    display.out.write(f"{as_text(plan)}\n")
    display.out.flush()
    if plan.rejected:
        display.write_error("Nothing was applied: change what is rejected first.")
        return _FAILED
    if command.plan is not None and not _is_as_planned(command.plan, plan):
        display.write_error(
            f"ERROR {command.plan} is the plan of another state: make it again. "
            "Nothing was applied."
        )
        return _FAILED
    if plan.empty:
        return _DONE
    if not (command.yes or command.plan) and not _confirmed():
        display.write_error("Nothing was applied.")
        return _FAILED
    steps = steps_to_apply(plan)
    with bench.require().cursor() as cursor:
        for number, step in enumerate(steps, 1):
            display.notice(f"[{number}/{len(steps)}] {_doing(step)}")
            try:
                apply_step(cursor, step)
            except tidegate.Error as error:
                definition = step.definition
                part, file = (definition.part, definition.file) if definition else (None, None)
                display.write_error(describe_error(error, part, file))
                display.write_error(
                    f"{number - 1} of {len(steps)} were applied: the next apply continues here."
                )
                return _FAILED
    display.notice(f"{len(steps)} of {len(steps)} were applied.")
    return _DONE


def _is_as_planned(file: str, plan: Plan) -> bool:
    try:
        return read_fingerprint(read_script(file)) == plan.fingerprint
    except UnreadableFileError as error:
        raise ProjectError(str(error)) from error


def _confirmed() -> bool:
    try:
        return input("Apply? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _doing(step: Step) -> str:
    verb = "dropping" if step.definition is None else "defining"
    return f"{verb} {'.'.join(step.name)}"


def _show_progress(display: Display, text: str) -> None:
    if display.progress:
        show_line(display.err, text)


def _parser(*, applies: bool) -> argparse.ArgumentParser:
    summary = (
        "Make a server's materialized tables equal to the definitions in a directory."
        if applies
        else "Compare a server's materialized tables with the definitions in a directory."
    )
    parser = argparse.ArgumentParser(
        prog=f"tidegate {'apply' if applies else 'plan'}",
        description=summary,
        epilog=_APPLY_EXAMPLES if applies else _PLAN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", help="directory of the definitions")
    parser.add_argument(
        "--project",
        metavar="NAME",
        help="by which the server knows whose tables they are (default: the directory's name)",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="drop tables of the project that the directory does not define any more",
    )
    parser.add_argument(
        "--analyze",
        action="store_true",
        help="also look for columns of sources that changed since a table was defined; slower",
    )
    parser.add_argument(
        "--connections",
        type=int,
        default=4,
        metavar="N",
        help="how many definitions are compared at a time (default: 4)",
    )
    parser.set_defaults(plan_format="text", out=None, check=False, plan=None, yes=False)
    if applies:
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--plan", metavar="FILE", help="only if this would do what the plan in the file says"
        )
    else:
        parser.add_argument(
            "--format",
            dest="plan_format",
            choices=tuple(_FORMATS),
            help="how the plan is written (default: text)",
        )
        parser.add_argument("--out", metavar="FILE", help="also write it for apply --plan")
        parser.add_argument(
            "--check", action="store_true", help="end with status 1 if something would change"
        )
    add_server(parser.add_argument_group("server"))
    return parser
