"""Session settings from files (``sql-defaults.conf``, contexts), and the client's own setting."""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tidegate.cli.files import UnreadableFileError, read_script

Settings = tuple[tuple[str, str], ...]

RESULT_MODE = "sql-client.execution.result-mode"
"""Flink's setting of how the client shows results."""

_SECTION = "settings"
_STATEMENT = re.compile(
    r"""
      SET \s+ (?P<set> '[^']*' | `[^`]*` | [^\s=]+ ) \s* (?: = \s* (?P<value> .*) )?
    | RESET (?: \s+ (?P<reset> .+) )?
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


class ResultMode(StrEnum):
    """How the result of a query is shown; values of RESULT_MODE."""

    TABLEAU = "tableau"
    CHANGELOG = "changelog"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class SetResultMode:
    """``SET 'sql-client.execution.result-mode' = value``; without a value, it is shown."""

    value: str | None


@dataclass(frozen=True, slots=True)
class ResetResultMode:
    """``RESET 'sql-client.execution.result-mode'``, or RESET of all settings."""

    every: bool


def parse_result_mode(value: str) -> ResultMode:
    """Return the mode that a value of RESULT_MODE names.

    :raises ValueError: if there is none, with what to write.
    """
    try:
        return ResultMode(value.lower())
    except ValueError as error:
        names = ", ".join(mode.value for mode in ResultMode)
        raise ValueError(f"'{RESULT_MODE}' cannot be '{value}': write one of {names}.") from error


def split_result_mode(settings: Settings) -> tuple[str | None, Settings]:
    """Return the last value of RESULT_MODE, and the settings that are the server's."""
    values = [value for key, value in settings if _is_result_mode(key)]
    others = tuple((key, value) for key, value in settings if not _is_result_mode(key))
    return (values[-1] if values else None), others


def defaults_path() -> Path:
    """Return the user's ``sql-defaults.conf``, under the XDG base directories; it may not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "tidegate" / "sql-defaults.conf"


def read_settings(name: str) -> Settings:
    """Return the settings in a file of lines ``key = value`` or ``key: value``.

    ``#``, ``--`` and ``//`` begin a comment; quotes around a key or a value are left out.

    :raises UnreadableFileError: if there is no such file, or it holds something else.
    """
    parser = _Parser(
        delimiters=("=", ":"), comment_prefixes=("#", "--", "//"), empty_lines_in_values=False
    )
    try:
        # The parser needs a section; errors must not count its line.
        parser.read_string(f"[{_SECTION}]\n{read_script(name)}", name)
    except configparser.Error as error:
        raise UnreadableFileError(f"cannot read {name}: {_describe(error)}") from error
    for section in parser.sections():
        if section != _SECTION:
            raise UnreadableFileError(f"cannot read {name}: [{section}] is not a setting")
    return tuple((_bare(key), _bare(value)) for key, value in parser.items(_SECTION))


def parse_setting(sql: str) -> SetResultMode | ResetResultMode | None:
    """Return what a statement does with the client's own setting; None if nothing."""
    found = _STATEMENT.fullmatch(sql.strip())
    if found is None:
        return None
    if found["set"] is None:
        reset = found["reset"]
        every = reset is None
        return ResetResultMode(every) if every or _is_result_mode(reset) else None
    if not _is_result_mode(found["set"]):
        return None
    return SetResultMode(None if found["value"] is None else _bare(found["value"].strip()))


def _is_result_mode(key: str) -> bool:
    return _bare(key.strip()).lower() == RESULT_MODE


class _Parser(configparser.RawConfigParser):
    """Keeps keys as they are written, since those of Spark have capitals."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _describe(error: configparser.Error) -> str:
    match error:
        case configparser.DuplicateOptionError():
            return f"line {(error.lineno or 1) - 1} sets {error.option} again"
        case configparser.ParsingError(errors=[(line, _), *_]):
            return f"line {line - 1} is not of the form key = value"
        case configparser.DuplicateSectionError():
            return f"[{error.section}] is not a setting"
    return error.message


def _bare(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`"
    return text[1:-1] if quoted else text
