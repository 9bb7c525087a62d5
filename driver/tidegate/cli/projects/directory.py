"""Reads a directory of CREATE OR ALTER MATERIALIZED TABLE statements, in the order of what they
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.projects.statements import HEAD, ProjectError, Statement
from tidegate.cli.split import Part, split
from tidegate.lexical import Token, name_of, significant_tokens

_READS = frozenset({"FROM", "JOIN"})

FullName = tuple[str, str, str]
"""Catalog, schema and table, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A statement of the directory, and the table that it defines."""

    file: str
    part: Part
    name: FullName
    upstream: tuple[FullName, ...] = ()
    """Tables of the same directory that its query may read."""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.part.line}"


def read_directory(directory: str, catalog: str, schema: str) -> tuple[Definition, ...]:
    """Return the definitions of a directory without a project file; raises ProjectError."""
    return define(directory_statements(directory), catalog, schema)


def directory_statements(directory: str) -> Iterator[Statement]:
    """Yield the statements in all files ``*.sql`` below a directory.

    :raises ProjectError: if it is no directory, or a file cannot be read.
    """
    root = Path(directory)
    if not root.is_dir():
        raise ProjectError(f"{directory} is not a directory")
    for file in sorted(path for path in root.rglob("*.sql") if path.is_file()):
        try:
            text = read_script(str(file))
        except UnreadableFileError as error:
            raise ProjectError(str(error)) from error
        for part in split(text):
            if part.sql:
                yield Statement(file=str(file.relative_to(root)), part=part)


def define(statements: Iterable[Statement], catalog: str, schema: str) -> tuple[Definition, ...]:
    """Return the definitions in statements, each after what it reads.

    :param catalog: of names without one, as the server's session has it.
    :param schema: likewise.
    :raises ProjectError: if there is another statement, or two statements define one table or
        read each other.
    """
    found: dict[FullName, Definition] = {}
    names: dict[FullName, list[_Chain]] = {}
    for statement in statements:
        definition, chains = _definition(statement, catalog, schema)
        names[definition.name] = chains
        other = found.setdefault(definition.name, definition)
        if other is not definition:
            raise ProjectError(
                f"{definition.place}: {'.'.join(definition.name)} is defined in {other.place}, too"
            )
    return _in_order(found, names, catalog, schema)


def _definition(statement: Statement, catalog: str, schema: str) -> tuple[Definition, list[_Chain]]:
    """Return the definition that a statement is, with the names in it."""
    part, place = statement.part, f"{statement.file}:{statement.part.line}"
    tokens = list(significant_tokens(part.sql))
    if tuple(token.text.upper() for token in tokens[: len(HEAD)]) != HEAD:
        raise ProjectError(
            f"{place}: expected CREATE OR ALTER MATERIALIZED TABLE, the only statement of such a "
            "directory"
        )
    rest = tokens[len(HEAD) :]
    chains = list(_chains(rest))
    named = bool(rest) and name_of(rest[0]) is not None
    name = _full_name(chains[0].parts, catalog, schema) if named else None
    if name is None:
        raise ProjectError(f"{place}: expected the name of a table")
    return Definition(file=statement.file, part=part, name=name), chains


@dataclass(frozen=True, slots=True)
class _Chain:
    """Names with dots between them, and the word before."""

    parts: tuple[str, ...]
    after: str


def _in_order(
    found: Mapping[FullName, Definition],
    names: Mapping[FullName, Sequence[_Chain]],
    catalog: str,
    schema: str,
) -> tuple[Definition, ...]:
    """Sort definitions by what they read.

    A single name may be a column instead of a table. Such readings are ignored if they would make
    tables read each other, unless FROM or JOIN is before the name.
    """
    every: dict[FullName, tuple[FullName, ...]] = {}
    certain: dict[FullName, tuple[FullName, ...]] = {}
    for name, chains in names.items():
        every[name] = _read(chains, name, found, catalog, schema)
        sure = [each for each in chains if len(each.parts) > 1 or each.after.upper() in _READS]
        certain[name] = _read(sure, name, found, catalog, schema)
    try:
        return _sorted(found, every)
    except CycleError:
        pass  # some of the names are columns
    try:
        return _sorted(found, certain)
    except CycleError as error:
        cycle = " -> ".join(".".join(name) for name in reversed(error.args[1]))
        raise ProjectError(f"these tables read each other: {cycle}") from error


def _sorted(
    found: Mapping[FullName, Definition], readings: Mapping[FullName, tuple[FullName, ...]]
) -> tuple[Definition, ...]:
    order = TopologicalSorter(readings).static_order()
    return tuple(replace(found[name], upstream=readings[name]) for name in order)


def _read(
    chains: Iterable[_Chain],
    own: FullName,
    known: Mapping[FullName, Definition],
    catalog: str,
    schema: str,
) -> tuple[FullName, ...]:
    names = dict.fromkeys(_full_name(chain.parts, catalog, schema) for chain in chains)
    return tuple(name for name in names if name is not None and name in known and name != own)


def _full_name(parts: Sequence[str], catalog: str, schema: str) -> FullName | None:
    match [part.lower() for part in parts]:
        case [table]:
            return catalog.lower(), schema.lower(), table
        case [of, table]:
            return catalog.lower(), of, table
        case [of, within, table]:
            return of, within, table
    return None


def _chains(tokens: Sequence[Token]) -> Iterator[_Chain]:
    """Yield the names in a statement, each with the word before it."""
    before, at = "", 0
    while at < len(tokens):
        parts: list[str] = []
        start = at
        while at < len(tokens) and (part := name_of(tokens[at])) is not None:
            parts.append(part)
            if at + 2 < len(tokens) and tokens[at + 1].text == ".":
                at += 2
            else:
                break
        if parts:
            yield _Chain(tuple(parts), before)
        at = max(at, start) + 1
        before = tokens[at - 1].text
