"""Reads a project of Spark's declarative pipelines as definitions of materialized tables.

https://spark.apache.org/docs/latest/declarative-pipelines-programming-guide.html
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tidegate.cli.contexts import line_of, parse_yaml
from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.projects.statements import HEAD, ProjectError, Statement
from tidegate.cli.split import Part, split
from tidegate.lexical import Token, name_of, quote_name, significant_tokens

SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_FIELDS: Final = frozenset(
    {"name", "storage", "catalog", "database", "schema", "configuration", "libraries"}
)
_STREAMS: Final = frozenset({"READ_FILES", "READ_KAFKA"})
"""Sources whose new rows a materialized table ingests."""
_CLAUSES: Final[Mapping[str, str]] = {
    "USING": "leave it out: the server's configuration says in which format tables are stored",
    "OPTIONS": "write WITH ('key' = 'value') with Tidegate's options",
    "TBLPROPERTIES": "write WITH ('key' = 'value') with Tidegate's options",
    "LOCATION": "leave it out: each table has a directory of its own",
    "CLUSTERED": "write DISTRIBUTED BY (column) INTO n BUCKETS",
    "CLUSTER": "write DISTRIBUTED BY (column) INTO n BUCKETS",
    "ROW": "leave it out",
    "STORED": "leave it out",
    "DEFAULT": "leave it out",
}
_TABLE: Final = " ".join(HEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The file of a pipeline."""

    name: str
    catalog: str | None
    schema: str | None
    settings: tuple[tuple[str, str], ...]
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """A temporary view, which the queries that read it get as a common table expression."""

    name: str
    columns: str
    """Its list of columns, with the brackets; empty without one."""
    query: str

    def expression(self) -> str:
        return f"{quote_name(self.name)}{self.columns} AS ({self.query}\n)"


def read_pipeline(file: Path) -> Pipeline:
    """Read the file of a pipeline.

    :raises ProjectError: if it cannot be read, or has what no pipeline has.
    """
    try:
        content, text = parse_yaml(str(file))
    except UnreadableFileError as error:
        raise ProjectError(str(error)) from error

    def problem(what: str, *path: str) -> ProjectError:
        return ProjectError(f"{file.name}:{line_of(text, path)}: {what}")

    if not isinstance(content, dict):
        raise problem("expected the fields name, libraries and storage")
    for key in content:
        if key not in _FIELDS:
            raise problem(f"a pipeline has no field {key}", str(key))
    for key in ("name", "catalog", "database", "schema"):
        if not isinstance(content.get(key, ""), str):
            raise problem(f"{key} has to be a text", key)
    if not content.get("name"):
        raise problem("name is missing")
    settings = content.get("configuration", {})
    if not isinstance(settings, dict) or not all(
        isinstance(each, str) for each in settings.values()
    ):
        raise problem("configuration has to be settings, each a text in quotes", "configuration")
    return Pipeline(
        name=content["name"],
        catalog=content.get("catalog"),
        schema=content.get("database", content.get("schema")),
        settings=tuple((str(key), value) for key, value in settings.items()),
        patterns=tuple(_pattern(each, problem) for each in _libraries(content, problem)),
    )


def _libraries(content: Mapping[str, Any], problem: Any) -> Sequence[Any]:
    found = content.get("libraries")
    if not isinstance(found, list) or not found:
        raise problem("libraries has to be a list of - glob: {include: PATTERN}", "libraries")
    return found


def _pattern(entry: Any, problem: Any) -> str:
    match entry:
        case {"glob": {"include": str(pattern), **rest}, **others} if not rest and not others:
            folder = pattern.removesuffix("/**")
            if not glob.has_magic(folder):
                return f"{folder}/**/*" if folder != pattern else pattern
            hint = "name a file, or a folder with /** after it"
            raise problem(f"{pattern} is no pattern of a pipeline: {hint}", "libraries")
    raise problem("an entry of libraries has to be glob: {include: PATTERN}", "libraries")


def read_statements(root: Path, pipeline: Pipeline) -> Iterator[Statement]:
    """Yield the definitions in the files of a pipeline, as Tidegate writes them.

    :raises ProjectError: for what has no counterpart, with what to write instead.
    """
    files = sorted(
        {path for each in pipeline.patterns for path in root.glob(each) if path.is_file()}
    )
    if not files:
        raise ProjectError(f"libraries of the pipeline {pipeline.name} match no file")
    views: dict[str, _View] = {}
    tables: list[tuple[str, Part, str, str]] = []
    for file in files:
        shown = str(file.relative_to(root))
        if file.suffix == ".py":
            raise ProjectError(
                f"{shown}:1: definitions in Python cannot be read: write {_TABLE} name AS query "
                "into a file .sql"
            )
        if file.suffix != ".sql":
            continue  # as Spark does
        for part in _parts(file):
            found = _read(part, shown)
            if isinstance(found, _View):
                if found.name.lower() in views:
                    raise ProjectError(f"{shown}:{part.line}: the view {found.name} exists already")
                views[found.name.lower()] = found
            else:
                tables.append((shown, part, *found))
    for shown, part, head, query in tables:
        text = f"{head}{_with_views(query, views)}"
        yield Statement(file=shown, part=replace(part, sql=text))


def _parts(file: Path) -> Iterator[Part]:
    try:
        text = read_script(str(file))
    except UnreadableFileError as error:
        raise ProjectError(str(error)) from error
    return (part for part in split(text) if part.sql)


def _read(part: Part, shown: str) -> _View | tuple[str, str]:
    """Return a temporary view, or the statement of a table before its query, and that."""
    sql, tokens = part.sql, list(significant_tokens(part.sql))
    words = [token.text.upper() for token in tokens]

    def problem(what: str, at: int = 0) -> ProjectError:
        line = part.line + sql.count("\n", 0, tokens[at].start)
        return ProjectError(f"{shown}:{line}: {what}")

    if tuple(words[: len(HEAD)]) == HEAD:  # it is one already
        start = _query(tokens, len(HEAD))
        if start is None:
            raise problem("expected AS and a query")
        return sql[: tokens[start].start], sql[tokens[start].start :]
    match words:
        case ["CREATE", "MATERIALIZED", "VIEW", *_]:
            at = 3
        case ["CREATE", "STREAMING", "TABLE", *_]:
            at = 3
        case ["CREATE", "TEMPORARY" | "TEMP", "VIEW", *_]:
            at = 3
        case ["CREATE", "OR", "REPLACE", "TEMPORARY" | "TEMP", "VIEW", *_]:
            at = 5
        case ["CREATE", "FLOW", *_]:
            raise problem(
                "a flow cannot be taken over: create its table with CREATE TABLE and run its "
                "INSERT INTO … SELECT … FROM STREAM …, which becomes a job"
            )
        case ["SET", *_]:
            raise problem("write the setting under configuration of the pipeline")
        case _:
            raise problem(f"expected a definition of a pipeline, or {_TABLE}")
    kind = words[1]
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    start = _query(tokens, at)
    if start is None:
        raise problem(
            f"a streaming table without a query cannot be taken over: write {_TABLE} name AS "
            "SELECT …, or CREATE TABLE and an INSERT from a STREAM, which becomes a job"
            if kind == "STREAMING"
            else "expected AS and a query"
        )
    _check_clauses(tokens, words, at, start, problem)
    head, query = sql[tokens[at].start : tokens[start].start], sql[tokens[start].start :]
    if kind == "STREAMING":
        _check_streams(words, start, problem)
    elif "STREAM" in words[start:]:
        raise problem("only a streaming table reads a STREAM", start)
    if at == 5 or kind in ("TEMPORARY", "TEMP"):
        return _view(tokens, at, start, sql, query, problem)
    # Its lines remain those of the file.
    lines = "\n" * sql.count("\n", 0, tokens[at].start)
    return f"{_TABLE} {lines}{head}", query


def _query(tokens: Sequence[Token], at: int) -> int | None:
    """Return the place of the first token after AS; None without it."""
    depth = 0
    for place in range(at, len(tokens) - 1):
        text = tokens[place].text
        depth += (text == "(") - (text == ")")
        if not depth and place > at and text.upper() == "AS":
            return place + 1
    return None


def _check_clauses(
    tokens: Sequence[Token], words: Sequence[str], at: int, start: int, problem: Any
) -> None:
    depth = 0
    for place in range(at, start):
        depth += (words[place] == "(") - (words[place] == ")")
        if not depth and place > at and tokens[place - 1].text != ".":
            hint = _CLAUSES.get(words[place])
            if hint is not None:
                raise problem(f"{words[place]} cannot be taken over: {hint}", place)


def _check_streams(words: Sequence[str], start: int, problem: Any) -> None:
    found = False
    for place in range(start, len(words) - 1):
        if words[place] != "STREAM":
            continue
        found = True
        of = words[place + 2] if words[place + 1] == "(" else words[place + 1]
        if of not in _STREAMS:
            raise problem(
                f"the stream of a table cannot be taken over: write {_TABLE} name AS SELECT … FROM "
                "the table, whose changes it follows, or CREATE TABLE and an INSERT from its "
                "STREAM, which becomes a job",
                place,
            )
    if not found:
        raise problem("a streaming table has to read a STREAM", start)


def _view(
    tokens: Sequence[Token], at: int, start: int, sql: str, query: str, problem: Any
) -> _View:
    name = name_of(tokens[at])
    if name is None or tokens[at + 1].text == ".":
        raise problem("expected the name of a temporary view, without a schema", at)
    columns = ""
    place = at + 1
    if tokens[place].text == "(":
        end = next(n for n in range(place, start) if tokens[n].text == ")")
        if any(name_of(each) is None and each.text != "," for each in tokens[place + 1 : end]):
            raise problem("the columns of a temporary view can only have names", place)
        columns = f" {sql[tokens[place].start : tokens[end].end]}"
        place = end + 1
    if tokens[place].text.upper() != "AS":
        raise problem(f"{tokens[place].text} of a temporary view cannot be taken over", place)
    return _View(name, columns, query)


def _with_views(query: str, views: Mapping[str, _View]) -> str:
    """Return a query with the temporary views that it reads, each after those that it reads."""
    used: dict[str, _View] = {}

    def add(text: str, within: tuple[str, ...]) -> None:
        for name in _single_names(text):
            view = views.get(name)
            if view is None or name in used or name in within:
                continue
            add(view.query, (*within, name))
            used[name] = view

    add(query, ())
    if not used:
        return query
    expressions = ", ".join(view.expression() for view in used.values())
    first = next(significant_tokens(query))
    if first.text.upper() == "WITH":
        return f"WITH {expressions}, {query[first.end :].lstrip()}"
    return f"WITH {expressions} {query}"


def _single_names(sql: str) -> Iterator[str]:
    """Yield the names in a query that have no dot beside them, in lower case."""
    tokens = [None, *significant_tokens(sql), None]
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        dotted = any(each is not None and each.text == "." for each in (before, after))
        name = None if token is None else name_of(token)
        if name is not None and not dotted:
            yield name.lower()
