"""``tidegate mt``: a verb for each thing that scripts do with materialized tables."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tidegate.cli.arguments import (
    Arguments,
    Script,
    Source,
    add_format,
    add_server,
    read_session,
)
from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.formats import Page
from tidegate.cli.run import run_statement
from tidegate.cli.script import Workbench
from tidegate.cli.split import split
from tidegate.errors import ProgrammingError
from tidegate.lexical import significant_tokens
from tidegate.materialized import statements
from tidegate.materialized.statements import split_name

_EXAMPLES = """\
examples:
  tidegate mt list --json
  tidegate mt create -f daily.sql
  tidegate mt refresh sales.daily --partition ds=2026-01-31 --cascade downstream
  tidegate mt history sales.daily --errors --limit 5
  tidegate mt verify sales.daily && tidegate mt lag sales.daily

exit status: 0 done; 1 a statement failed, verify found a difference, or lag found a table that is
older than its FRESHNESS allows; 2 wrong usage; 3 no connection.
"""

_DEFINITION = re.compile(r"CREATE (OR ALTER )?MATERIALIZED TABLE\b")

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    """One verb of a command line, as a statement and a view of its rows."""

    statement: str
    keep: Callable[[Row], bool] = lambda row: True
    """Which rows are shown."""
    alarming: Callable[[Row], bool] = lambda row: False
    """For which rows the exit status is 1."""


def parse_verb(argv: Sequence[str]) -> tuple[Arguments, Request | None]:
    """Read the command line after ``tidegate mt``.

    :return: the request is None for ``create``, whose statements are in the script.
    :raises SystemExit: with status 0 after ``--help``, 2 after wrong usage.
    """
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        scripts = tuple(Script(Source.FILE, file) for file in getattr(given, "files", ()))
        for script in scripts:
            _check_definitions(script.value)
    except UnreadableFileError as error:
        parser.error(str(error))
    arguments = replace(read_session(parser, given), scripts=scripts)
    if given.json:
        arguments = replace(arguments, format="json")
    return arguments, given.request(given) if given.request else None


def run_request(bench: Workbench, request: Request) -> bool:
    """Run a request, write its rows, and return whether none of them is alarming.

    :raises tidegate.Error: if the statement fails.
    """
    alarmed = False

    def kept(names: Sequence[str], page: Page) -> Page:
        nonlocal alarmed
        rows = [(row, dict(zip(names, row, strict=True))) for row in page]
        rows = [(row, named) for row, named in rows if request.keep(named)]
        alarmed = alarmed or any(request.alarming(named) for _, named in rows)
        return [row for row, _ in rows]

    def edit(names: Sequence[str], pages: Iterable[Page]) -> tuple[Sequence[str], Iterable[Page]]:
        return names, (kept(names, page) for page in pages)

    run_statement(bench.require(), request.statement, bench.display, edit)
    return not alarmed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate mt",
        description="Manage materialized tables from scripts.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def add(
        verb: str, summary: str, request: Callable[[argparse.Namespace], Request] | None
    ) -> argparse.ArgumentParser:
        own = verbs.add_parser(verb, help=summary, description=f"{summary}.", allow_abbrev=False)
        own.set_defaults(request=request)
        return own

    def add_named(
        verb: str, summary: str, request: Callable[[argparse.Namespace], Request]
    ) -> argparse.ArgumentParser:
        own = add(verb, summary, request)
        own.add_argument("name", type=_name, metavar="NAME", help="[[CATALOG.]SCHEMA.]TABLE")
        return own

    own = add("list", "List materialized tables", _list)
    own.add_argument("pattern", nargs="?", help="names to list, as in LIKE: % matches any text")
    own = add_named("show", "Show a table's definition, state and options", _show)
    own.add_argument("--ddl", action="store_true", help="show the statement that creates it")
    own = add("create", "Run CREATE [OR ALTER] MATERIALIZED TABLE statements", None)
    own.add_argument(
        *("-f", "--file"),
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="file of the statements, - is standard input; may be repeated",
    )
    own = add_named("refresh", "Refresh a table", _refresh)
    way = own.add_mutually_exclusive_group()
    way.add_argument("--full", action="store_true", help="compute all rows again")
    way.add_argument("--incremental", action="store_true", help="fail if that is not possible")
    own.add_argument(
        "--partition",
        action="append",
        default=[],
        type=_pair,
        metavar="COLUMN=VALUE",
        help="refresh only this partition; may be repeated for further columns",
    )
    own.add_argument(
        "--cascade",
        choices=("upstream", "downstream"),
        help="also refresh the tables that it reads, or those that read it",
    )
    own.add_argument(
        "--async", dest="wait", action="store_false", help="return the job id without waiting"
    )
    for verb, summary, request in (
        ("suspend", "Stop the refreshes of a table", _suspend),
        ("resume", "Continue the refreshes of a table", _resume),
    ):
        own = add_named(verb, summary, request)
        own.add_argument("--cascade", action="store_true", help="also those of its dependents")
    own = add("history", "List refreshes, newest first", _history)
    own.add_argument("name", type=_name, nargs="?", metavar="NAME", help="only of this table")
    own.add_argument("--limit", type=int, default=20, help="how many (default: 20)")
    own.add_argument("--errors", action="store_true", help="only those that failed")
    own = add_named("lineage", "List what a table reads and what reads it", _lineage)
    own.add_argument("--columns", action="store_true", help="by column")
    own = add_named("verify", "Compare a table with its query; 1 if they differ", _verify)
    own.add_argument("--version", type=int, help="an earlier version of the table")
    own = add("lag", "List lags; 1 if one is above its target", _lag)
    own.add_argument("name", type=_name, nargs="?", metavar="NAME", help="only of this table")
    for own in verbs.choices.values():
        add_server(own.add_argument_group("server"))
        output = own.add_argument_group("output")
        output.add_argument("--json", action="store_true", help="a JSON object for each row")
        add_format(output)
    return parser


def _list(given: argparse.Namespace) -> Request:
    return Request(statements.show_tables(like=given.pattern))


def _show(given: argparse.Namespace) -> Request:
    if given.ddl:
        return Request(statements.show_create(given.name))
    return Request(statements.describe(given.name))


def _refresh(given: argparse.Namespace) -> Request:
    return Request(
        statements.refresh(
            given.name,
            kind="FULL" if given.full else "INCREMENTAL" if given.incremental else None,
            partition=given.partition,
            cascade=given.cascade and given.cascade.upper(),
            wait=given.wait,
        )
    )


def _suspend(given: argparse.Namespace) -> Request:
    return Request(statements.suspend(given.name, cascade=given.cascade))


def _resume(given: argparse.Namespace) -> Request:
    return Request(statements.resume(given.name, cascade=given.cascade))


def _history(given: argparse.Namespace) -> Request:
    return Request(statements.show_history(given.name, limit=given.limit, errors=given.errors))


def _lineage(given: argparse.Namespace) -> Request:
    return Request(statements.show_lineage(given.name, columns=given.columns))


def _verify(given: argparse.Namespace) -> Request:
    return Request(
        statements.verify(given.name, version=given.version),
        alarming=lambda row: row["equal"] is not True,
    )


def _lag(given: argparse.Namespace) -> Request:
    wanted = [part.lower() for part in split_name(given.name)] if given.name else []

    def keep(row: Row) -> bool:
        full = [str(row[column]).lower() for column in ("catalog", "database", "table")]
        return full[len(full) - len(wanted) :] == wanted

    return Request(statements.show_lag(), keep=keep, alarming=lambda row: row["breached"] is True)


def _name(text: str) -> str:
    try:
        split_name(text)
    except ProgrammingError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected COLUMN=VALUE, got {text!r}")
    return name, value


def _check_definitions(file: str) -> None:
    """Reject a script with other statements than those that create materialized tables.

    :raises UnreadableFileError: at the first one, or if the file cannot be read.
    """
    for part in split(read_script(file)):
        head = " ".join(token.text.upper() for token in islice(significant_tokens(part.sql), 5))
        if part.sql and not _DEFINITION.match(head):
            raise UnreadableFileError(
                f"{file}:{part.line}: only CREATE [OR ALTER] MATERIALIZED TABLE is expected here: "
                "tidegate -f runs any script"
            )
