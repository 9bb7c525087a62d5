"""Prepared statements, and the values of their parameters in their texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from tidegate.errors import Error
from tidegate.parameters import Template
from tidegate_server.core.errors import Code, error

_ROWS: Final = "A query with several rows of parameters"
_ONE_BY_ONE: Final = "Execute it once for each row."


class Prepared(msgspec.Struct, frozen=True, array_like=True):
    """A prepared statement; its handle contains it, so that the server keeps nothing."""

    text: str
    with_values: str | None = None
    """The text with values instead of markers, once there are some."""

    @classmethod
    def of(cls, handle: bytes) -> Prepared:
        """Return the statement of a handle.

        :raises ServerError: INVALID_REQUEST if the handle is not one of this server.
        """
        try:
            return msgspec.json.decode(handle, type=Prepared)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            reason = "its prepared statement is not known"
            raise error(Code.INVALID_REQUEST, reason=reason) from problem

    @property
    def handle(self) -> bytes:
        """The handle."""
        return msgspec.json.encode(self)

    @property
    def executed(self) -> str:
        """The text to execute."""
        return self.text if self.with_values is None else self.with_values

    def bind(self, parameters: pa.Table) -> Prepared:
        """Return the statement with other values.

        :raises ServerError: NOT_SUPPORTED for several rows of values, or as :func:`bound`.
        """
        if parameters.num_rows > 1:
            raise error(Code.NOT_SUPPORTED, what=_ROWS, hint=_ONE_BY_ONE)
        return Prepared(self.text, next(bound(self.text, parameters), None))


def bound(text: str, parameters: pa.Table) -> Iterator[str]:
    """Yield a statement for each row of parameters, the values of its markers ``?``.

    A statement without parameters is yielded as it is.

    :raises ServerError: INVALID_REQUEST if markers and values do not fit together, or a value has
        no literal.
    """
    if not parameters.num_columns:
        yield text
        return
    template = Template(text)
    for batch in parameters.to_batches():
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            try:
                yield template.bind(values)
            except Error as problem:
                raise error(Code.INVALID_REQUEST, reason=str(problem)) from problem
