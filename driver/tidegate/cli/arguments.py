"""The command line of ``tidegate`` as a frozen value."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import NoReturn

from tidegate._version import __version__
from tidegate.cli.contexts import Preparation, SessionContext, read_context
from tidegate.cli.files import UnreadableFileError
from tidegate.cli.formats import FILE_FORMATS, FORMATS
from tidegate.cli.settings import (
    ResultMode,
    Settings,
    defaults_path,
    parse_result_mode,
    split_result_mode,
)
from tidegate.literals import literal

_COMMANDS = frozenset({"mt", "plan", "apply"})
_EXAMPLES = """\
examples:
  tidegate                                          open the shell on localhost:10000
  tidegate -u tidegate://ada@gateway:10000/sales    open it on another server and schema
  tidegate -e "SHOW MATERIALIZED TABLES"            run one statement
  tidegate -f nightly.sql --set spark.sql.shuffle.partitions=8
  tidegate --format csv -e "SELECT * FROM t" | head
  echo "SELECT 1" | tidegate --format json          read the script from standard input
  tidegate --embedded --data ./lake                 open it on a private server that ends with it

Other commands, each with its own --help: tidegate mt (verbs for scripts), tidegate plan and
tidegate apply (tables that follow a directory of definitions).

In the shell a statement ends with ';', !help lists the commands, Ctrl-C cancels the running
statement on the server, Ctrl-D leaves.

exit status: 0 done, 1 a statement failed, 2 wrong usage, 3 no connection, 130 interrupted.
"""


class Source(Enum):
    """Where a script of the command line comes from."""

    STATEMENT = "-e"
    FILE = "-f"
    INIT = "-i"


@dataclass(frozen=True, slots=True)
class Script:
    """One thing to run: the text of ``-e``, or the path of ``-f`` or ``-i`` (``-`` is stdin)."""

    source: Source
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which server to connect to, as whom; None leaves the choice to the driver."""

    url: str | None = None
    host: str | None = None
    port: int | None = None
    socket: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ask_password: bool = False
    auth: str | None = None
    schema: str | None = None
    settings: Settings = ()
    defaults: Settings = ()
    """Settings from files; a URL and ``settings`` override them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Everything the command line says."""

    target: Target = field(default_factory=Target)
    scripts: tuple[Script, ...] = ()
    init: tuple[Script, ...] = ()
    preparations: tuple[Preparation, ...] = ()
    """Statements with which each session begins: those of jars and of context files."""
    result_mode: ResultMode = ResultMode.TABLEAU
    """How results of queries are shown at first."""
    format: str | None = None
    header: bool = True
    force: bool = False
    quiet: bool = False
    pager: bool = True
    """Whether long results on a terminal go to a pager."""
    embedded: bool = False
    data: str | None = None
    """Data directory of the embedded server; None for a temporary one."""


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line.

    :raises SystemExit: with status 0 after ``--help`` and ``--version``, 2 after wrong usage.
    """
    parser = _parser()
    given, rest = parser.parse_known_args(argv)
    if rest:
        _reject(parser, rest)
    if given.data is not None and not given.embedded:
        parser.error("--data is the data directory of --embedded: a server has its own")
    return replace(
        read_session(parser, given),
        scripts=tuple(given.scripts),
        init=tuple(given.init),
        force=given.force,
        embedded=given.embedded,
        data=given.data,
    )


def _reject(parser: argparse.ArgumentParser, rest: Sequence[str]) -> NoReturn:
    word = next((word for word in rest if word in _COMMANDS), None)
    if word is not None:
        # The options themselves are not repeated, since a password can be among them.
        parser.error(f"{word} is a command, which comes before the options: tidegate {word} …")
    parser.error(f"unrecognized arguments: {shlex.join(rest)}")


def read_session(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Arguments:
    """Return the server and the sessions that the arguments of :func:`add_server` describe, and how
    results are written, by those of :func:`add_format` if there are any.

    :raises SystemExit: with status 2 if they contradict each other or a file cannot be read.
    """
    contexts = _read_contexts(parser, given)
    client = {key: value for context in contexts for key, value in context.client.items()}
    default_mode, defaults = split_result_mode(
        tuple(setting for context in contexts for setting in context.settings)
    )
    mode, settings = split_result_mode(tuple(given.set))
    try:
        result_mode = parse_result_mode(mode or default_mode or ResultMode.TABLEAU)
    except ValueError as error:
        parser.error(str(error))
    return Arguments(
        target=_read_target(parser, given, settings, defaults),
        result_mode=result_mode,
        preparations=(
            *_added_jars(parser, given),
            *(each for context in contexts for each in context.preparations),
        ),
        format=getattr(given, "format", None) or client.get("format"),
        header=not getattr(given, "no_header", False) and client.get("header", True),
        quiet=getattr(given, "quiet", False) or client.get("quiet", False),
        pager=not getattr(given, "no_pager", False),
    )


def _read_target(
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    settings: Settings,
    defaults: Settings,
) -> Target:
    embedded = getattr(given, "embedded", False)
    _check_server(parser, given, embedded=embedded)
    return Target(
        url=None if embedded else given.url or os.environ.get("TIDEGATE_URL"),
        host=given.host,
        port=given.port,
        socket=given.socket,
        user=given.user,
        password=_password(parser, given),
        ask_password=given.password is _ASK,
        auth=given.auth,
        schema=given.schema,
        settings=settings,
        defaults=defaults,
    )


def _check_server(
    parser: argparse.ArgumentParser, given: argparse.Namespace, *, embedded: bool
) -> None:
    """Reject arguments that name two servers."""
    ways = {
        "-u": given.url,
        "--socket": given.socket,
        "--host and --port": given.host or given.port,
        "--embedded": embedded,
    }
    chosen = [name for name, value in ways.items() if value]
    if len(chosen) > 1:
        first, second, *_ = chosen
        parser.error(f"{first} already names the server: leave out {second}")


_ASK = "\0ask"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate",
        description="Run SQL on a Tidegate server, or on any other that speaks HiveServer2.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    server = parser.add_argument_group("server")
    add_server(server)
    _add_embedded(server)
    _add_scripts(parser.add_argument_group("what to run (without any of these: the shell)"))
    add_format(parser.add_argument_group("output"))
    parser.add_argument("--version", action="version", version=f"tidegate {__version__}")
    return parser


def add_server(group: argparse._ArgumentGroup) -> None:
    """Add the arguments that :func:`read_session` reads."""
    group.add_argument(
        "-u",
        "--url",
        help="tidegate://user@host:port/schema?auth=… or jdbc:hive2://… "
        "(default: environment variable TIDEGATE_URL)",
    )
    group.add_argument("--host", help="name or address of the server (default: localhost)")
    group.add_argument("--port", type=int, help="its Thrift port (default: 10000)")
    group.add_argument("--socket", metavar="PATH", help="its Unix socket, instead of host and port")
    group.add_argument("-n", "--user", help="user name")
    group.add_argument(
        "-p", "--password", nargs="?", const=_ASK, help="password; asked for when left out"
    )
    group.add_argument("--password-file", metavar="FILE", help="file that holds the password")
    group.add_argument("--auth", help="how to authenticate, for example NONE, NOSASL or LDAP")
    group.add_argument("-d", "--schema", help="schema to begin in")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="session setting, may be repeated",
    )
    group.add_argument(
        "--hiveconf",
        dest="set",
        action="append",
        type=_setting,
        metavar="KEY=VALUE",
        help="the same, as beeline calls it",
    )
    group.add_argument(
        "--hivevar",
        dest="set",
        action="append",
        type=_variable,
        metavar="NAME=VALUE",
        help="variable for ${NAME} in statements, may be repeated",
    )
    group.add_argument(
        "--context",
        action="append",
        default=[],
        metavar="FILE",
        help="file of session settings, a line key = value each, or TOML or YAML with catalogs, "
        "tables, views, functions and variables too; "
        f"over those in {_abbreviate(defaults_path())}, under those of the URL and --set",
    )
    group.add_argument(
        "--jar",
        action="append",
        default=[],
        metavar="FILE",
        help="jar of functions for the session, which the server reads; may be repeated",
    )
    group.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="DIR",
        help="directory of such jars; may be repeated",
    )


def _added_jars(
    parser: argparse.ArgumentParser, given: argparse.Namespace
) -> tuple[Preparation, ...]:
    """Return the statements that add jars. The server may be on another machine."""
    jars = [(f"--jar {jar}", jar) for jar in given.jar]
    for directory in given.library:
        found = sorted(Path(directory).glob("*.jar"))
        if not found:
            parser.error(f"--library {directory}: there are no files *.jar")
        jars += [(f"--library {directory}", str(jar)) for jar in found]
    return tuple(Preparation(place, f"ADD JAR {literal(_absolute(jar))}") for place, jar in jars)


def _absolute(path: str) -> str:
    """Return the absolute path of a file of this machine; any other path as it is."""
    return str(Path(path).resolve()) if Path(path).exists() else path


def _add_embedded(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--embedded",
        action="store_true",
        help="start a private server, which ends with this command",
    )
    group.add_argument(
        "--data",
        metavar="DIR",
        help="data directory of --embedded; without it the data is deleted at the end",
    )


def _add_scripts(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-e",
        "--execute",
        dest="scripts",
        action="append",
        default=[],
        type=lambda text: Script(Source.STATEMENT, text),
        metavar="SQL",
        help="run these statements, may be repeated and mixed with -f",
    )
    group.add_argument(
        "-f",
        "--file",
        dest="scripts",
        action="append",
        type=lambda text: Script(Source.FILE, text),
        metavar="FILE",
        help="run this file; - is standard input",
    )
    group.add_argument(
        "-i",
        "--init",
        action="append",
        default=[],
        type=lambda text: Script(Source.INIT, text),
        metavar="FILE",
        help="run this file first, also before the shell",
    )
    errors = group.add_mutually_exclusive_group()
    errors.add_argument(
        "--stop-on-error",
        dest="force",
        action="store_false",
        default=False,
        help="stop a script at its first error (default)",
    )
    errors.add_argument(
        "--force", dest="force", action="store_true", help="go on with a script after an error"
    )


def add_format(group: argparse._ArgumentGroup) -> None:
    """Add the arguments about how results are written."""
    group.add_argument(
        "--format",
        choices=(*FORMATS, *FILE_FORMATS),
        help="how results are written (default: table); arrow and parquet are files of one query",
    )
    group.add_argument("--no-header", action="store_true", help="leave the column names out")
    group.add_argument(
        "-q", "--quiet", action="store_true", help="no [INFO] lines, row counts or progress"
    )
    group.add_argument(
        "--no-pager", action="store_true", help="show long results on a terminal without a pager"
    )


def _abbreviate(path: Path) -> str:
    home = str(Path.home())
    return "~" + str(path).removeprefix(home) if str(path).startswith(home) else str(path)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key.strip(), value


def _variable(text: str) -> tuple[str, str]:
    name, value = _setting(text)
    return f"hivevar:{name}", value


def _read_contexts(
    parser: argparse.ArgumentParser, given: argparse.Namespace
) -> tuple[SessionContext, ...]:
    shared = defaults_path()
    files = [str(shared)] if shared.exists() else []
    try:
        return tuple(read_context(name) for name in (*files, *given.context))
    except UnreadableFileError as error:
        parser.error(str(error))


def _password(parser: argparse.ArgumentParser, given: argparse.Namespace) -> str | None:
    if given.password_file is not None:
        try:
            return Path(given.password_file).read_text().rstrip("\r\n")
        except OSError as error:
            parser.error(f"cannot read the password file: {error}")
    return None if given.password is _ASK else given.password
