"""read_files(...) and read_kafka(...) in a query, and STREAM before them or before rate(...)."""

from __future__ import annotations

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
)
from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.dialect import readable

VIEW = "__stream"
"""The name under which the engine lets a query read its stream; shorter than any call."""

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

    @property
    def path(self) -> str | None:
        """The directory whose files are read."""
        return self.parameters.get("path")

    @property
    def foreign(self) -> bool:
        """Whether it reaches beyond the server, to files or another system."""
        return bool(READERS[self.function].needs)

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
        given = {key.lower(): value for key, value in self.parameters.items()}
        which = [given[key] for key in READERS[self.function].identity if key in given]
        return TableName(DEFAULT_CATALOG, _SCHEMA, f"{self.function}({', '.join(which)})")

    def with_schema(self, schema: str) -> Stream:
        """Return the stream with explicit columns."""
        return replace(self, parameters={**self.parameters, "schema": schema})

    def sql(self) -> str:
        """Return the stream as SQL."""
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
    """Reject a statement that reads files or topics after STREAM and is no pipeline.

    :raises ServerError: NOT_SUPPORTED; INVALID_READER for invalid parameters of read_files and
        read_kafka, MT_STREAM_UNUSABLE for those after STREAM; placed in ``text``.
    """
    for each in _calls(text):
        if isinstance(each, Stream) and each.foreign:
            line, column = position(text, each.start)
            hint = (
                f"Leave out STREAM to read what is there now. CREATE MATERIALIZED TABLE and INSERT "
                f"INTO ... SELECT read STREAM {each.function}(...)."
            )
            what = f"STREAM {each.function} in this statement"
            raise error(Code.NOT_SUPPORTED, what=what, hint=hint, line=line, column=column)


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
    at, qualified = Cursor(text, readable(text)), False
    while not at.ended:
        start = at.offset
        if not qualified and at.sees("STREAM") and _begins(at, 1):
            at.advance()
            yield _call(at, start, stream=True, stored=stored)
        elif not qualified and at.spelling() in ("READ_FILES", "READ_KAFKA") and _begins(at, 0):
            yield _Batch(_call(at, start, stream=False).function, start)
        else:
            qualified = at.spelling() == "."
            at.advance()


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
