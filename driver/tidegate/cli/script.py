"""Runs statements and commands in sequence, reporting each error."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace

import tidegate
from tidegate.cli.arguments import Target
from tidegate.cli.contexts import Preparation
from tidegate.cli.formats import FormatError, MissingExtraError, writer_of
from tidegate.cli.live import run_live
from tidegate.cli.report import describe_error
from tidegate.cli.run import Display, run_statement, show_messages
from tidegate.cli.settings import (
    RESULT_MODE,
    ResetResultMode,
    ResultMode,
    SetResultMode,
    parse_result_mode,
    parse_setting,
)
from tidegate.cli.split import Part, split
from tidegate.connection import Connection
from tidegate.dsn import ConnectOptions, is_url, parse_url

Connect = Callable[[ConnectOptions], Connection]
Messages = Iterable[tuple[type[tidegate.Warning], tidegate.Warning]]

_QUOTE = "'"
_EXECUTE = re.compile(r"EXECUTE\s+'(?P<path>(?:[^']|'')+)'", re.IGNORECASE)
"""Flink's statement that runs a file of statements (FLIP-24)."""


class NotConnectedError(Exception):
    """There is no connection to run a statement on."""


class PreparationError(Exception):
    """A statement with which sessions begin failed; the message says which one and why."""


class CommandError(Exception):
    """A shell command was misspelled; the message shows its syntax."""


@dataclass(slots=True)
class Workbench:
    """The state of statements and commands: a connection that may change, and a display."""

    display: Display
    connect: Connect
    preparations: tuple[Preparation, ...] = ()
    """Statements with which each session begins."""
    options: ConnectOptions | None = None
    last_sql: str = ""
    """The statement that ran last, which ``!watch`` repeats."""
    connection: Connection | None = None
    default_result_mode: ResultMode = ResultMode.TABLEAU
    """That of the command line and its files, to which RESET returns."""
    result_mode: ResultMode = field(init=False)

    def __post_init__(self) -> None:
        self.result_mode = self.default_result_mode

    def open(self, options: ConnectOptions) -> None:
        """Begin a session and show its messages, closing the connection there was.

        :raises tidegate.Error: if the server cannot be reached or refuses.
        :raises PreparationError: if a statement with which sessions begin fails.
        """
        connection = self.begin_session(options, lambda found: show_messages(found, self.display))
        self.close()
        self.options, self.connection = options, connection

    def begin_session(
        self, options: ConnectOptions, report: Callable[[Messages], None] = lambda found: None
    ) -> Connection:
        """Return a new connection, beside that of the workbench.

        :param report: gets the server's messages.
        :raises tidegate.Error: if the server cannot be reached or refuses.
        :raises PreparationError: if a statement with which sessions begin fails.
        """
        connection = self.connect(options)
        report(connection.messages)
        for each in self.preparations:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(each.sql)
                    report(cursor.messages)
            except tidegate.Error as error:
                connection.close()
                raise PreparationError(f"{each.place}: {describe_error(error)}") from error
        return connection

    def close(self) -> None:
        """Close the connection if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def require(self) -> Connection:
        """Return the connection.

        :raises NotConnectedError: if there is none.
        """
        if self.connection is None:
            raise NotConnectedError("Not connected: use !connect URL or !reconnect.")
        return self.connection


RunCommand = Callable[[Workbench, str], None]


def connect(options: ConnectOptions) -> Connection:
    """Open a connection by the driver.

    :raises tidegate.Error: if the server cannot be reached or refuses.
    """
    return tidegate.connect(
        **{field.name: getattr(options, field.name) for field in fields(options)}
    )


def connect_options(target: Target) -> ConnectOptions:
    """Return the options of a URL or host, overlaid with the other arguments of the command line.

    :raises tidegate.Error: if the URL cannot be used.
    """
    host_is_url = target.host is not None and is_url(target.host)
    url = target.host if target.url is None and host_is_url else target.url
    base = parse_url(url) if url is not None else ConnectOptions()
    host = None if host_is_url else target.host
    options = replace(
        base,
        host=host or base.host,
        port=base.port if target.port is None else target.port,
        socket=target.socket or base.socket,
        user=base.user if target.user is None else target.user,
        password=base.password if target.password is None else target.password,
        auth=target.auth or base.auth,
        schema=target.schema or base.schema,
    )
    return replace(
        options, settings={**dict(target.defaults), **base.settings, **dict(target.settings)}
    )


def run_text(
    bench: Workbench,
    text: str,
    *,
    command: RunCommand,
    source: str | None = None,
    force: bool = False,
) -> bool:
    """Run a script, and return whether all of it succeeded.

    It stops at the first error unless ``force``. ``source`` is the name that errors show.

    :raises InterruptedStatementError: after Ctrl-C.
    """
    return run_parts(bench, split(text), command=command, source=source, force=force)


def run_parts(
    bench: Workbench,
    parts: Iterable[Part],
    *,
    command: RunCommand,
    source: str | None = None,
    force: bool = False,
) -> bool:
    """Run the parts of a script, as :func:`run_text` does."""
    succeeded = True
    for part in parts:
        if part.sql and not _run_part(bench, part, command, source):
            succeeded = False
            if not force:
                break
    return succeeded


def _run_part(bench: Workbench, part: Part, command: RunCommand, source: str | None) -> bool:
    def run() -> bool:
        if part.is_command:
            command(bench, part.sql)
        elif file := _EXECUTE.fullmatch(part.sql):
            command(bench, f"!run {shlex.quote(file['path'].replace(_QUOTE * 2, _QUOTE))}")
        elif setting := parse_setting(part.sql):
            _apply_setting(bench, part.sql, setting)
        else:
            bench.last_sql = part.sql
            run_live(bench.require(), part.sql, bench.display, bench.result_mode)
        return True

    return run_safely(bench, run, part, source)


def _apply_setting(bench: Workbench, sql: str, setting: SetResultMode | ResetResultMode) -> None:
    display = bench.display
    match setting:
        case SetResultMode(None):
            row = (RESULT_MODE, bench.result_mode.value)
            writer_of(display.format)(("key", "value"), [[row]], display.out, display.header)
        case SetResultMode(str(value)):
            try:
                bench.result_mode = parse_result_mode(value)
            except ValueError as error:
                raise CommandError(str(error)) from error
            display.notice(f"[INFO] Results are shown as {bench.result_mode.value}.")
        case ResetResultMode(every):
            bench.result_mode = bench.default_result_mode
            if every:
                run_statement(bench.require(), sql, display)
            else:
                display.notice(f"[INFO] Results are shown as {bench.result_mode.value}.")


def run_safely(
    bench: Workbench, run: Callable[[], bool], part: Part | None = None, source: str | None = None
) -> bool:
    """Return the result of ``run``; False, once its error is written, if it raises one.

    :param part: the part of a script that it runs, from ``source``, to show where the error is.
    """
    try:
        return run()
    except tidegate.Error as error:
        bench.display.write_error(describe_error(error, part, source))
    except PreparationError as error:
        bench.display.write_error(str(error))
    except (CommandError, FormatError, MissingExtraError, NotConnectedError) as error:
        where = f"{source}:{part.line}: " if part is not None and source is not None else ""
        bench.display.write_error(f"{where}ERROR {error}")
    return False
