"""The exceptions of PEP 249.

::

    Exception
    ├── Warning
    └── Error
        ├── InterfaceError            the driver was used wrongly: a closed cursor, a bad DSN
        └── DatabaseError
            ├── DataError             SQLSTATE classes 21, 22
            ├── OperationalError      08, 28, 40, 53 to 58, HY: connection, permission, resources
            ├── IntegrityError        23, 44
            ├── InternalError         24, 25, XX
            ├── ProgrammingError      07, 26, 34, 3D, 3F, 42: wrong SQL or a missing table
            └── NotSupportedError     0A
"""

from __future__ import annotations

import re
from typing import Final


class Warning(Exception):  # noqa: N818 - PEP 249 names it so
    """A warning or a note of the server about a statement that went well.

    The driver raises none: they are in ``Cursor.messages``. ``severity`` is ``"warning"``, or
    ``"note"`` for plain information.
    """

    __module__ = "tidegate"

    def __init__(self, message: str = "", *, severity: str = "warning") -> None:
        super().__init__(message)
        self.severity = severity


class Error(Exception):
    """The base of every error of the driver; can be pickled.

    ``sqlstate`` is the five-character SQLSTATE, ``code`` the server's name of the error, such as
    ``MT_NOT_FOUND``, ``error_code`` the server's number, ``hint`` what to do, ``line`` and
    ``column`` the place in the statement, counted from 1, ``query_id`` the server's id of the
    statement, ``detail`` all that the server said. Each is None when unknown.
    """

    __module__ = "tidegate"

    def __init__(
        self,
        message: str = "",
        *,
        sqlstate: str | None = None,
        code: str | None = None,
        error_code: int | None = None,
        hint: str | None = None,
        line: int | None = None,
        column: int | None = None,
        query_id: str | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.code = code
        self.error_code = error_code
        self.hint = hint
        self.line = line
        self.column = column
        self.query_id = query_id
        self.detail = detail


class InterfaceError(Error):
    """The driver was used incorrectly."""

    __module__ = "tidegate"


class DatabaseError(Error):
    """The server reported an error."""

    __module__ = "tidegate"


class DataError(DatabaseError):
    """A value does not fit: a division by zero, a number out of range, a malformed date."""

    __module__ = "tidegate"


class OperationalError(DatabaseError):
    """Something beyond the statement failed: the connection, a resource, a cancellation."""

    __module__ = "tidegate"


class IntegrityError(DatabaseError):
    """A constraint was violated."""

    __module__ = "tidegate"


class InternalError(DatabaseError):
    """The server met a fault of its own."""

    __module__ = "tidegate"


class ProgrammingError(DatabaseError):
    """The statement is wrong, names something that does not exist, or lacks parameters."""

    __module__ = "tidegate"


class NotSupportedError(DatabaseError):
    """The server or the driver does not offer this."""

    __module__ = "tidegate"


_BY_CLASS: Final[dict[str, type[DatabaseError]]] = {
    "07": ProgrammingError,
    "08": OperationalError,
    "0A": NotSupportedError,
    "21": DataError,
    "22": DataError,
    "23": IntegrityError,
    "24": InternalError,
    "25": InternalError,
    "26": ProgrammingError,
    "28": OperationalError,
    "34": ProgrammingError,
    "3D": ProgrammingError,
    "3F": ProgrammingError,
    "40": OperationalError,
    "42": ProgrammingError,
    "44": IntegrityError,
    "53": OperationalError,
    "54": OperationalError,
    "55": OperationalError,
    "56": OperationalError,
    "57": OperationalError,
    "58": OperationalError,
    "HY": OperationalError,
    "XX": InternalError,
}
_CODE = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_SQLSTATE = re.compile(r"SQLSTATE: ?([0-9A-Z]{5})\b")
_JAVA_CLASS = re.compile(
    # Beginning only where a word does keeps the search linear in the length of a message.
    r"(?<![\w$.])(?:[\w$]+\.){2,}\w*(?:Exception|Error):\s?(?:Error running query:\s?)?"
)
_PLACE = re.compile(r"\bline (\d+), (?:column (\d+)|pos (\d+))")
_ONLY_CODES = re.compile(r"(?:\[[A-Z0-9_.]+\]\s*)*")
_HINT = re.compile(r"^hint: *", re.IGNORECASE)
# The message of a Tidegate server begins with its code and has no stack trace.
_TIDEGATES = re.compile(r"\[[A-Z][A-Z0-9_.]*\] (?!(?:[\w$]+\.){2,}\w*(?:Exception|Error):)")


def error_class(sqlstate: str | None) -> type[DatabaseError]:
    """Return the exception class of a SQLSTATE, DatabaseError where it is unspecific."""
    return _BY_CLASS.get((sqlstate or "")[:2].upper(), DatabaseError)


def server_error(
    message: str | None,
    *,
    sqlstate: str | None = None,
    error_code: int | None = None,
    info: list[str] | None = None,
    query_id: str | None = None,
) -> DatabaseError:
    """Build the error that a server's answer describes.

    The text of the exception is the server's message without its hint, or the first line where a
    stack may follow; the whole and ``info`` (often a Java stack) are in ``detail``. Spark's own
    Thrift server puts code and SQLSTATE into the text only, so both are looked for there.
    """
    whole = message or "\n".join(info or ()) or "the server reported an error without a message"
    first = _first_line(whole)
    # Inside the text it is more exact than the HY000 that Hive's servers send for everything.
    inside = _SQLSTATE.search(whole)
    state = inside[1] if inside and sqlstate in (None, "", "HY000") else sqlstate or None
    code = _CODE.search(first)
    lines = [*whole.splitlines()[1:], *(info or ())]
    line, column = _place(first) or _place(whole) or (None, None)
    return error_class(state)(
        _without_hint(whole) if _TIDEGATES.match(whole) else first,
        sqlstate=state,
        code=code[1] if code else None,
        error_code=error_code,
        hint=next((_HINT.sub("", text) for text in lines if _HINT.match(text)), None),
        line=line,
        column=column,
        query_id=query_id,
        detail="\n".join([whole, *(info or ())]),
    )


def _place(text: str) -> tuple[int, int] | None:
    """Return line and column from a message, both from 1; Spark counts positions from 0."""
    found = _PLACE.search(text)
    if found is None:
        return None
    column = int(found[2]) if found[2] is not None else int(found[3]) + 1
    return int(found[1]), column


def _without_hint(text: str) -> str:
    lines = text.splitlines()
    end = next((at for at, line in enumerate(lines) if at and _HINT.match(line)), len(lines))
    return "\n".join(lines[:end])


def _first_line(text: str) -> str:
    lines = (_JAVA_CLASS.sub("", line).strip() for line in text.splitlines())
    telling = next((line for line in lines if not _ONLY_CODES.fullmatch(line)), text)
    # Spark's own Thrift server says "[CODE] some.Exception: [CODE] message".
    return re.sub(r"(\[[A-Z0-9_.]+\]) (?=\1)", "", telling)


def server_message(text: str) -> Warning:
    """Return a server's messages about a successful statement; only Tidegate marks warnings."""
    for prefix, severity in (("Warning: ", "warning"), ("Note: ", "note")):
        if text.startswith(prefix):
            return Warning(text.removeprefix(prefix), severity=severity)
    return Warning(text, severity="note")
