"""The exception that the server raises for every error it reports to clients.

Codes are stable and reach clients in TStatus.errorMessage as ``[CODE] message``.
"""

from __future__ import annotations

from tidegate_server.core.error_codes import Code

__all__ = ["Code", "ServerError", "error"]


class ServerError(Exception):
    """An error with its stable code, SQLSTATE, message, hint and position in the SQL.

    ``code`` is a name of :class:`Code` or, passed through, the name of a Spark error condition.
    ``message`` is complete, Spark's of several lines; ``detail`` is what a client may see besides,
    so neither has stack traces. ``line`` and ``column`` count from 1.
    """

    def __init__(
        self,
        *,
        code: str,
        sqlstate: str,
        message: str,
        hint: str = "",
        line: int | None = None,
        column: int | None = None,
        detail: str = "",
        name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.sqlstate = sqlstate
        self.message = message
        self.hint = hint
        self.line = line
        self.column = column
        self.detail = detail
        self.name = name

    @property
    def headline(self) -> str:
        """The error without the hint; its position is appended to the first line."""
        where = f" (line {self.line}, column {self.column})" if self.line is not None else ""
        first, newline, rest = self.message.partition("\n")
        return f"[{self.code}] {first}{where}{newline}{rest}"

    def __str__(self) -> str:
        return f"{self.headline} {self.hint}" if self.hint else self.headline


def error(
    code: Code,
    *,
    line: int | None = None,
    column: int | None = None,
    detail: str = "",
    **facts: object,
) -> ServerError:
    """Build the error of one code from the facts its templates name.

    ``line`` and ``column`` are the position in the SQL; a column of a table is the fact ``name``.

    :raises KeyError: if a fact of the message is missing; the hint may leave ``{hint}`` empty.
    """
    spec = code.value
    given = {"hint": "", **facts}
    return ServerError(
        code=code.name,
        sqlstate=spec.sqlstate,
        message=spec.message.format(**given),
        hint=spec.hint.format(**given),
        line=line,
        column=column,
        detail=detail,
        name=None if "name" not in given else str(given["name"]),
    )
