"""What a session begins with, from files with sections: TOML, or YAML where PyYAML is installed.

The sections are those of the configuration of Flink's SQL client (FLIP-24).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.formats import FORMATS
from tidegate.cli.settings import Settings, read_settings
from tidegate.lexical import quote_name
from tidegate.literals import literal

_CLIENT = {"format": tuple(FORMATS), "header": (True, False), "quiet": (True, False)}


@dataclass(frozen=True, slots=True)
class Preparation:
    """A statement that a context file stands for."""

    place: str
    """File, line and name, such as ``sales.toml:3: tables.orders``."""
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """The content of a context file."""

    settings: Settings = ()
    """Settings of the session; variables have the prefix ``hivevar:``."""
    preparations: tuple[Preparation, ...] = ()
    client: Mapping[str, Any] = field(default_factory=dict)
    """The client's own settings: ``format``, ``header`` and ``quiet``."""


class _ContextError(Exception):
    """An entry is wrong: the keys that lead to it, and what is expected there."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(reason)
        self.path = path


def read_context(name: str) -> SessionContext:
    """Read a context file: ``.toml``, ``.yaml``, ``.yml``, or lines ``key = value``.

    :raises UnreadableFileError: if it cannot be read, with the line of what is wrong.
    """
    suffix = Path(name).suffix.lower()
    if suffix == ".toml":
        content, text = _parse_toml(name)
    elif suffix in (".yaml", ".yml"):
        content, text = parse_yaml(name)
    else:
        return SessionContext(settings=read_settings(name))
    try:
        return _context(content, lambda path: f"{name}:{line_of(text, path)}: {'.'.join(path)}")
    except _ContextError as error:
        where = f"{name}:{line_of(text, error.path)}"
        raise UnreadableFileError(f"{where}: {'.'.join(error.path)} {error}") from error


def _parse_toml(name: str) -> tuple[Any, str]:
    text = read_script(name)
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFileError(f"cannot read {name}: {error}") from error


def parse_yaml(name: str) -> tuple[Any, str]:
    """Return the content of a file of YAML, and its text.

    :raises UnreadableFileError: if it cannot be read.
    """
    try:
        import yaml
    except ImportError as error:
        raise UnreadableFileError(
            f"{name} needs the package PyYAML: pip install 'tidegate[shell]', or write it as TOML"
        ) from error
    text = read_script(name)
    try:
        return yaml.safe_load(text) or {}, text
    except yaml.YAMLError as error:
        raise UnreadableFileError(f"cannot read {name}: {' '.join(str(error).split())}") from error


def _context(content: Any, place: Callable[[tuple[str, ...]], str]) -> SessionContext:
    sections = _mapping(content, ())
    _check_names(sections, _SECTIONS, ())
    settings = [
        (key, _text(value, ("settings", key))) for key, value in _items(sections, "settings")
    ]
    settings += [
        (f"hivevar:{key}", _text(value, ("variables", key)))
        for key, value in _items(sections, "variables")
    ]
    preparations = [
        Preparation(place((section, key)), sql)
        for section, statements in _STATEMENTS.items()
        for key, value in _items(sections, section)
        for sql in statements(key, value, (section, key))
    ]
    client = dict(_items(sections, "client"))
    _check_names(client, _CLIENT, ("client",))
    for key, value in client.items():
        if value not in _CLIENT[key]:
            choices = ", ".join(str(each).lower() for each in _CLIENT[key])
            raise _ContextError(("client", key), f"has to be one of {choices}")
    return SessionContext(settings=tuple(settings), preparations=tuple(preparations), client=client)


# ---- sections --------------------------------------------------------------------------------


def _catalog(name: str, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    options = _options(value, path)
    yield f"CREATE CATALOG IF NOT EXISTS {_quoted(name)} WITH ({options})"


def _use(key: str, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    _check_names({key: value}, ("catalog", "schema"), path[:1])
    word = "USE CATALOG" if key == "catalog" else "USE"
    yield f"{word} {_quoted(_text(value, path))}"


def _function(name: str, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, str):
        value = {"class": value}
    entry = _mapping(value, path)
    _check_names(entry, ("class", "jars", "temporary"), path)
    if "class" not in entry:
        raise _ContextError(path, "needs class, the name of a Java class")
    jars = entry.get("jars", [])
    if not isinstance(jars, list):
        raise _ContextError((*path, "jars"), "has to be a list of files")
    temporary = entry.get("temporary", True)
    # Spark has no IF NOT EXISTS for temporary functions.
    create = (
        "CREATE OR REPLACE TEMPORARY FUNCTION" if temporary else "CREATE FUNCTION IF NOT EXISTS"
    )
    using = ", ".join(f"JAR {literal(_text(jar, (*path, 'jars')))}" for jar in jars)
    yield (
        f"{create} {_quoted(name)} AS {literal(_text(entry['class'], path))}"
        + (f" USING {using}" if using else "")
    )


def _table(name: str, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    entry = _mapping(value, path)
    _check_names(entry, ("columns", "options", "temporary"), path)
    columns = entry.get("columns")
    if isinstance(columns, dict):
        written = ", ".join(
            f"{_quoted(str(column))} {_text(kind, (*path, 'columns', str(column)))}"
            for column, kind in columns.items()
        )
    else:
        written = _text(columns, (*path, "columns"))
    word = "TEMPORARY TABLE" if entry.get("temporary", True) else "TABLE IF NOT EXISTS"
    options = _options(entry.get("options"), (*path, "options"))
    yield f"CREATE {word} {_quoted(name)} ({written}) WITH ({options})"


def _view(name: str, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    yield f"CREATE OR REPLACE TEMPORARY VIEW {_quoted(name)} AS {_text(value, path)}"


_STATEMENTS: Mapping[str, Callable[[str, Any, tuple[str, ...]], Iterator[str]]] = {
    "catalogs": _catalog,
    "use": _use,
    "functions": _function,
    "tables": _table,
    "views": _view,
}
"""Sections that stand for statements, in the order in which these run."""
_SECTIONS = ("settings", "variables", "client", *_STATEMENTS)


# ---- values ----------------------------------------------------------------------------------


def _items(sections: Mapping[str, Any], section: str) -> list[tuple[str, Any]]:
    return list(_mapping(sections.get(section) or {}, (section,)).items())


def _mapping(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _ContextError(path, "has to have entries with names")
    return {str(key): entry for key, entry in value.items()}


def _options(value: Any, path: tuple[str, ...]) -> str:
    options = _flat(_mapping(value, path))
    if not options:
        raise _ContextError(path, "needs options")
    return ", ".join(
        f"{literal(key)} = {literal(_text(entry, (*path, key)))}" for key, entry in options.items()
    )


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested entries by names with dots, as TOML nests them."""
    found: dict[str, Any] = {}
    for key, entry in value.items():
        if isinstance(entry, dict):
            found |= _flat(entry, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = entry
    return found


def _text(value: Any, path: tuple[str, ...]) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    raise _ContextError(path, "has to be a text, a number, true or false")


def _check_names(given: Mapping[str, Any], known: Any, path: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise _ContextError((*path, name), f"is unknown: {hint}")


def _quoted(name: str) -> str:
    return ".".join(map(quote_name, name.split(".")))


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line on which the last of some nested keys is, as far as that can be told."""
    position = 0
    for key in path:
        # A key of a mapping, or the last part of a header of TOML.
        word = rf"(?<![\w.-])[\"'`]?{re.escape(key)}[\"'`]?(?=\s*[=:\].])"
        found = re.compile(word, re.MULTILINE).search(text, position)
        if found is not None:
            position = found.start()
    return text.count("\n", 0, position) + 1
