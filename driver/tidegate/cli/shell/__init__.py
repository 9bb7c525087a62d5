"""The interactive shell."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from tidegate._version import __version__
from tidegate.cli.commands import QuitShellError, run_command
from tidegate.cli.formats import MissingExtraError
from tidegate.cli.live import LiveQueryEndedError
from tidegate.cli.run import InterruptedStatementError
from tidegate.cli.script import Workbench, run_text
from tidegate.cli.shell.names import SessionNames
from tidegate.cli.split import is_complete

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import ThreadedCompleter
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.lexers import PygmentsLexer

    from tidegate.cli.shell.complete import ShellCompleter
    from tidegate.cli.shell.highlight import StatementLexer
except ImportError as error:
    raise MissingExtraError(
        "The interactive shell needs the prompt-toolkit package: pip install 'tidegate[shell]'. "
        "-e and -f work without it."
    ) from error

logger = logging.getLogger(__name__)

_PROMPT = "tidegate> "
_CONTINUATION = "       -> "
_CHANGES_NAMES = re.compile(r"\b(create|drop|alter|use|rename)\b|!(re)?connect", re.IGNORECASE)


class StatementHistory(FileHistory):
    """Stores entered lines, except those that may hold a password."""

    def store_string(self, string: str) -> None:
        """Store one entry."""
        if not string.lstrip().startswith("!connect"):
            super().store_string(string)


def history_path() -> Path:
    """Return the history file, under the state directory of the XDG base directories."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tidegate" / "history"


def run_shell(bench: Workbench) -> None:
    """Read statements and run them until the user leaves."""
    names = SessionNames(bench)
    session = _session(ShellCompleter(names))
    where = bench.options.address if bench.options else "nothing"
    bench.display.notice(f"tidegate {__version__}, connected to {where}. !help or \\? helps.")

    def command(bench: Workbench, line: str) -> None:
        if line[1:].strip() == "history":
            _show_history(bench, session.history.get_strings())
        else:
            run_command(bench, line)

    while True:
        try:
            text = session.prompt(_PROMPT)
            run_text(bench, text, command=command)
        except LiveQueryEndedError:
            continue
        except InterruptedStatementError:
            bench.display.write_error("The statement was canceled.")
        except KeyboardInterrupt:
            continue
        except (EOFError, QuitShellError):
            return
        else:
            if _CHANGES_NAMES.search(text):
                names.forget()


def _session(completer: ShellCompleter) -> PromptSession[str]:
    path = history_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return PromptSession(
        history=StatementHistory(path),
        completer=ThreadedCompleter(completer),
        lexer=None if "NO_COLOR" in os.environ else PygmentsLexer(StatementLexer),
        complete_while_typing=False,
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        prompt_continuation=_CONTINUATION,
        enable_open_in_editor=True,
    )


def _show_history(bench: Workbench, entries: Iterable[str]) -> None:
    for number, entry in enumerate(entries, start=1):
        bench.display.out.write(f"{number:5d}  {entry}\n")
