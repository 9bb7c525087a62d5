"""STREAM in a query, before read_files(...), read_kafka(...), rate(...) or the name of a table.

The first two can also be read without it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot.tokenizer_core import TokenType

from tidegate_server.core.connectors.readers import READERS, unknown_parameter
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    TableName,
    quote_identifier,
    quote_literal,
    quote_pairs,
)
from tidegate_server.core.sql.clauses import table_name
from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.dialect import readable

VIEW = "__stream"
"""The name under which the engine lets a query read its stream; shorter than any call."""

START = "startingVersion"
"""The option of the changes of a table: the first version whose changes are read. Without it, the
rows of the newest version come first."""
LATEST = "latest"
"""The value for the version after the newest one."""

_AFTER_NAMES = frozenset(
    {"ANTI", "AS", "CLUSTER", "CROSS", "DISTRIBUTE", "EXCEPT", "FULL", "GROUP", "HAVING", "INNER"}
    | {"INTERSECT", "JOIN", "LATERAL", "LEFT", "LIMIT", "MINUS", "NATURAL", "OFFSET", "ON"}
    | {"ORDER", "OUTER", "PIVOT", "RIGHT", "SEMI", "SORT", "TABLESAMPLE", "UNION", "UNPIVOT"}
    | {"USING", "WHERE", "WINDOW"}
)
"""Words after a table that is itself named ``stream``."""
_SCHEMA = "STREAM"
_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_MENTIONED = re.compile(r"\b(?:stream|read_files|read_kafka)\b", re.IGNORECASE)
_LIMITS = "one refresh ingests everything that has arrived, in one commit"
_ELSEWHERE = "the table itself stores its position in the stream"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("maxfilespertrigger", "maxbytespertrigger", "maxoffsetspertrigger"), _LIMITS),
    **dict.fromkeys(("minoffsetspertrigger", "maxtriggerdelay"), _LIMITS),
    **dict.fromkeys(("checkpointlocation", "schemalocation", "includeexistingfiles"), _ELSEWHERE),
    **dict.fromkeys(("cleansource", "sourcearchivedir"), "ingested files are left in place"),
    **dict.fromkeys(
        ("schemahints", "inferschema", "infercolumntypes", "schemaevolutionmode"),
        "the columns are fixed when the table is created: write schema => '...'",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream as written in a query."""

    function: str
    parameters: Mapping[str, str]
    """Values by their names as written; ``path`` and ``format`` in lower case."""
    start: int
    """Its offset in the query."""
    end: int
    table: tuple[str, ...] = ()
    """The name of the table whose changes it has; ``function`` is empty then."""

    @property
    def path(self) -> str | None:
        """The directory whose files are read."""
        return self.parameters.get("path")

    @property
    def foreign(self) -> bool:
        """Whether it reaches beyond the server, to files or another system."""
        return not self.table and bool(READERS[self.function].needs)

    @property
    def source(self) -> str:
        """Spark's name of the streaming source."""
        return READERS[self.function].source or self.parameters["format"]

    @property
    def options(self) -> dict[str, str]:
        """Spark's options for it."""
        renamed = READERS[self.function].renamed
        return {
            renamed.get(key.lower(), key): value
            for key, value in self.parameters.items()
            if key not in ("path", "format", "schema")
        }

    @property
    def name(self) -> TableName:
        """The name under which the stream is a source; the same stream has the same one."""
        if self.table:
            return TableName(DEFAULT_CATALOG, _SCHEMA, ".".join(self.table))
        given = {key.lower(): value for key, value in self.parameters.items()}
        which = [given[key] for key in READERS[self.function].identity if key in given]
        return TableName(DEFAULT_CATALOG, _SCHEMA, f"{self.function}({', '.join(which)})")

    def with_schema(self, schema: str) -> Stream:
        """Return the stream with explicit columns."""
        return replace(self, parameters={**self.parameters, "schema": schema})

    def sql(self) -> str:
        """Return the stream as SQL."""
        if self.table:
            options = f" WITH ({quote_pairs(self.parameters)})" if self.parameters else ""
            return f"STREAM {'.'.join(map(quote_identifier, self.table))}{options}"
        written = (
            f"{_spell_key(key)} => {quote_literal(value)}" for key, value in self.parameters.items()
        )
        return f"STREAM {self.function}({', '.join(written)})"

    def with_view(self, text: str) -> str:
        """Return the query with the stream replaced by a view's name; other offsets stay."""
        blanks = "".join(
            letter if letter == "\n" else " " for letter in text[self.start : self.end]
        )
        return text[: self.start] + VIEW + blanks[len(VIEW) :] + text[self.end :]


def find_stream(text: str, *, stored: bool = False) -> Stream | None:
    """Return the stream that a query reads; None for a query over tables.

    :param stored: whether the query is a definition, which may be older than the check of names of
        parameters.
    :raises ServerError: MT_STREAM_UNUSABLE or PARSE_SYNTAX, placed in ``text``.
    """
    found: Stream | None = None
    for each in _calls(text, stored=stored):
        if isinstance(each, Stream):
            if found is not None:
                raise _invalid("a query reads one stream", text, each.start)
            found = each
    return found


def count_streams(text: str) -> int:
    """Return how many streams a query reads; raises as :func:`find_stream`."""
    return sum(isinstance(each, Stream) for each in _calls(text))


def reject_streams(text: str) -> None:
    """Reject a statement that reads files, topics or changes after STREAM and is no pipeline.

    :raises ServerError: NOT_SUPPORTED; INVALID_READER for invalid parameters of read_files and
        read_kafka, MT_STREAM_UNUSABLE for those after STREAM; placed in ``text``.
    """
    for each in _calls(text):
        if isinstance(each, Stream) and (each.foreign or each.table):
            line, column = position(text, each.start)
            hint = (
                "Leave out STREAM to read what is there now. CREATE MATERIALIZED TABLE and INSERT "
                f"INTO ... SELECT read STREAM {each.function}(...)."
            )
            if each.table:
                hint = (
                    "Leave out STREAM to read the rows of the table. INSERT INTO ... SELECT reads "
                    "its changes."
                )
            what = f"STREAM {each.function or '.'.join(each.table)} in this statement"
            raise error(Code.NOT_SUPPORTED, what=what, hint=hint, line=line, column=column)


def reject_changes(stream: Stream, text: str) -> None:
    """Reject a definition query that reads the changes of a table.

    :raises ServerError: MT_STREAM_UNUSABLE, placed in ``text``.
    """
    if stream.table:
        name = ".".join(stream.table)
        reason = f"a materialized table follows the changes of {name} by itself: leave out STREAM"
        raise _invalid(reason, text, stream.start)


def reject_readers(text: str) -> None:
    """Reject a query that reads files or topics without STREAM, which have no versions.

    :raises ServerError: MT_STREAM_UNUSABLE, placed in ``text``.
    """
    for each in _calls(text):
        if isinstance(each, _Batch):
            name = each.function
            raise _invalid(f"{name} is read as a stream: STREAM {name}(...)", text, each.start)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A call without STREAM."""

    function: str
    start: int


def _calls(text: str, *, stored: bool = False) -> Iterator[Stream | _Batch]:
    if _MENTIONED.search(text) is None:
        return
    at, before = Cursor(text, readable(text)), ""
    while not at.ended:
        start, qualified = at.offset, before == "."
        if not qualified and at.sees("STREAM") and _begins(at, 1):
            at.advance()
            yield _call(at, start, stream=True, stored=stored)
            before = ""
        elif before in ("FROM", "JOIN") and at.sees("STREAM") and _names_table(at):
            yield _changes(at, start)
            before = ""
        elif not qualified and at.spelling() in ("READ_FILES", "READ_KAFKA") and _begins(at, 0):
            yield _Batch(_call(at, start, stream=False).function, start)
            before = ""
        else:
            before = at.spelling()
            at.advance()


def _names_table(at: Cursor) -> bool:
    """Return whether the name of a table comes after STREAM, as in Spark's grammar."""
    if at.spelling(1) == "(":
        return at.sees_name(2)
    return at.sees_name(1) and at.spelling(1) not in _AFTER_NAMES and at.spelling(2) != "("


def _changes(at: Cursor, start: int) -> Stream:
    """Step over STREAM, the name of a table, and its options."""
    at.expect("STREAM")
    bracketed = at.accept("(")
    name = table_name(at)
    if bracketed:
        at.expect(")")
    options: dict[str, str] = {}
    if at.accept("WITH"):
        at.expect("(")
        while not options or at.accept(","):
            here = at.offset
            key = at.string("an option in quotes")
            at.expect("=")
            place = at.offset
            if options:
                raise _invalid(f"{key} appears twice", at.text, here)
            options[START] = _value(at).lower()
            if key.lower() != START.lower():
                near = difflib.get_close_matches(key, (START,), n=1, cutoff=0.4)
                meant = f"; did you mean {START}?" if near else f": there is {START}"
                raise _invalid(f"changes have no option {key}{meant}", at.text, here)
            if options[START] != LATEST and not options[START].isdecimal():
                reason = f"{START} is the number of a version or '{LATEST}'"
                raise _invalid(reason, at.text, place)
        at.expect(")")
    return Stream(function="", parameters=options, start=start, end=at.passed, table=name)


def _begins(at: Cursor, ahead: int) -> bool:
    """Return whether a call of a function comes at this distance ahead."""
    return at.spelling(ahead).lower() in READERS and at.spelling(ahead + 1) == "("


def _call(at: Cursor, start: int, *, stream: bool, stored: bool = False) -> Stream:
    function = at.advance().text.lower()
    at.expect("(")
    parameters: dict[str, str] = {}
    places: dict[str, int] = {}
    while not at.accept(")"):
        if parameters:
            at.expect(",")
        here = at.offset
        key = "path" if at.sees_string() else _key(at, stream=stream)
        lower = key.lower()
        if stream and (reason := _REFUSED.get(lower)):
            raise _invalid(f"{key} cannot be set: {reason}", at.text, here)
        if lower in places:
            raise _invalid(f"{key} appears twice", at.text, here, stream=stream)
        places[lower] = here
        parameters[lower if lower in ("path", "format", "schema") else key] = _value(at)
    reader = READERS[function]
    for group in reader.needs:
        if places.keys().isdisjoint(name.lower() for name in group):
            raise _invalid(f"{function} needs {' or '.join(group)}", at.text, start, stream=stream)
    if reader.formats:
        parameters["format"] = parameters["format"].lower()
        if parameters["format"] not in reader.formats:
            formats = ", ".join(reader.formats)
            what = f"{function} reads the formats {formats}"
            raise _invalid(what, at.text, places["format"], stream=stream)
    for key in () if stored else parameters:
        if unknown := unknown_parameter(function, parameters.get("format", ""), key, stream=stream):
            raise _invalid(unknown, at.text, places[key.lower()], stream=stream)
    return Stream(function=function, parameters=parameters, start=start, end=at.passed)


def _key(at: Cursor, *, stream: bool) -> str:
    """Step over a parameter's name, which may have dots, and the arrow."""
    start, parts = at.offset, [at.name("a parameter")]
    while at.accept("."):
        parts.append(at.name("a parameter"))
    if len(parts) > 1 and not stream:  # Spark parses it
        key = quote_identifier(".".join(parts))
        raise _invalid(f"a name with dots is quoted: {key}", at.text, start, stream=stream)
    at.expect("=>")
    return ".".join(parts)


def _spell_key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else quote_identifier(key)


def _value(at: Cursor) -> str:
    token = at.token()
    if token is not None and token.token_type is TokenType.NUMBER:
        return at.advance().text
    if (word := at.accept_any("TRUE", "FALSE")) is not None:
        return word.lower()
    return at.string("a literal")


def _invalid(reason: str, text: str, offset: int, *, stream: bool = True) -> ServerError:
    line, column = position(text, offset)
    code = Code.MT_STREAM_UNUSABLE if stream else Code.INVALID_READER
    return error(code, reason=reason, line=line, column=column)
