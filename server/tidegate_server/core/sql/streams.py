"""STREAM read_files(...), STREAM read_kafka(...), STREAM rate(...): streams that a query reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot.tokenizer_core import TokenType

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
class Kind:
    """A function that names a stream, in terms of Spark's streaming sources."""

    needs: tuple[tuple[str, ...], ...] = ()
    """From each of these groups one parameter is required."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Spark's option names by parameters, in lower case, that have a different name."""
    source: str = ""
    """Spark's name of the source; if empty, the parameter ``format`` is the name."""
    formats: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    """Parameters, in lower case, that identify the stream."""


KINDS: Mapping[str, Kind] = {
    "read_files": Kind(
        needs=(("path",), ("format",)),
        renamed={"filenamepattern": "pathGlobFilter"},
        formats=("json", "csv", "parquet", "orc", "text"),
        identity=("path",),
    ),
    "read_kafka": Kind(
        needs=(("bootstrapServers",), ("subscribe", "subscribePattern", "assign")),
        renamed={"bootstrapservers": "kafka.bootstrap.servers"},
        source="kafka",
        identity=("subscribe", "subscribepattern", "assign"),
    ),
    "rate": Kind(source="rate"),
}
"""The functions that can follow STREAM."""


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
        return bool(KINDS[self.function].needs)

    @property
    def source(self) -> str:
        """Spark's name of the streaming source."""
        return KINDS[self.function].source or self.parameters["format"]

    @property
    def options(self) -> dict[str, str]:
        """Spark's options for it."""
        renamed = KINDS[self.function].renamed
        return {
            renamed.get(key.lower(), key): value
            for key, value in self.parameters.items()
            if key not in ("path", "format", "schema")
        }

    @property
    def name(self) -> TableName:
        """The name under which the stream is a source; the same stream has the same one."""
        given = {key.lower(): value for key, value in self.parameters.items()}
        which = [given[key] for key in KINDS[self.function].identity if key in given]
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


def find_stream(text: str) -> Stream | None:
    """Return the stream that a query reads; None for a query over tables.

    :raises ServerError: MT_STREAM_UNUSABLE or PARSE_SYNTAX, placed in ``text``.
    """
    if _MENTIONED.search(text) is None:
        return None
    at = Cursor(text, readable(text))
    found: Stream | None = None
    while not at.ended:
        start = at.offset
        if _begins(at, 1) and at.accept("STREAM"):
            if found is not None:
                raise _invalid("a query reads one stream", text, start)
            found = _stream(at, start)
        elif at.spelling() in ("READ_FILES", "READ_KAFKA") and _begins(at, 0):
            name = at.spelling().lower()
            raise _invalid(f"{name} is read as a stream: STREAM {name}(...)", text, start)
        else:
            at.advance()
    return found


def _begins(at: Cursor, ahead: int) -> bool:
    """Return whether a call of a stream function comes at this distance ahead."""
    if ahead and not at.sees("STREAM"):
        return False
    return at.spelling(ahead).lower() in KINDS and at.spelling(ahead + 1) == "("


def _stream(at: Cursor, start: int) -> Stream:
    function = at.advance().text.lower()
    at.expect("(")
    parameters: dict[str, str] = {}
    seen: set[str] = set()
    while not at.accept(")"):
        if parameters:
            at.expect(",")
        here = at.offset
        key = "path" if at.sees_string() else _key(at)
        lower = key.lower()
        if reason := _REFUSED.get(lower):
            raise _invalid(f"{key} cannot be set: {reason}", at.text, here)
        if lower in seen:
            raise _invalid(f"{key} appears twice", at.text, here)
        seen.add(lower)
        parameters[lower if lower in ("path", "format", "schema") else key] = _value(at)
    kind = KINDS[function]
    for group in kind.needs:
        if seen.isdisjoint(name.lower() for name in group):
            raise _invalid(f"{function} needs {' or '.join(group)}", at.text, start)
    if kind.formats:
        parameters["format"] = parameters["format"].lower()
        if parameters["format"] not in kind.formats:
            formats = ", ".join(kind.formats)
            raise _invalid(f"{function} reads the formats {formats}", at.text, start)
    return Stream(function=function, parameters=parameters, start=start, end=at.passed)


def _key(at: Cursor) -> str:
    """Step over a parameter's name, which may have dots, and the arrow."""
    parts = [at.name("a parameter")]
    while at.accept("."):
        parts.append(at.name("a parameter"))
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


def _invalid(reason: str, text: str, offset: int) -> ServerError:
    line, column = position(text, offset)
    return error(Code.MT_STREAM_UNUSABLE, reason=reason, line=line, column=column)
