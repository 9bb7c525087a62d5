"""SASL as Thrift frames it: negotiation messages, then length-prefixed data."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

NEGOTIATION_HEADER: Final = 5
"""Bytes before a negotiation payload: one of status, four of length."""

DATA_HEADER: Final = 4
"""Bytes before a data payload: its length."""

MAX_NEGOTIATION_BYTES: Final = 1 << 20
"""The longest negotiation payload that either side takes; real ones have a few kilobytes."""

MAX_DATA_BYTES: Final = 1 << 30
"""The longest data frame the driver takes."""

_NEGOTIATION = struct.Struct(">Bi")
_DATA = struct.Struct(">i")


class SaslError(Exception):
    """The peer broke the framing or rejected the login; the message says how."""


class SaslStatus(IntEnum):
    """The first byte of a negotiation message."""

    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


def negotiation_frame(status: SaslStatus, payload: bytes) -> bytes:
    """Return one negotiation message; a START carries the name of the mechanism."""
    return _NEGOTIATION.pack(status, len(payload)) + payload


def parse_negotiation_header(
    header: bytes, *, limit: int = MAX_NEGOTIATION_BYTES
) -> tuple[SaslStatus, int]:
    """Return the status and the payload's length in bytes of a five-byte header.

    :raises SaslError: if the status is unknown, or the length negative or above ``limit``.
    """
    number, length = _NEGOTIATION.unpack(header)
    try:
        status = SaslStatus(number)
    except ValueError:
        raise SaslError(f"expected a SASL status from 1 to 5, but {number} came") from None
    return status, _check_length(length, limit, "negotiation message")


def data_frame(payload: bytes) -> bytes:
    """Return ``payload`` with its length before it."""
    return _DATA.pack(len(payload)) + payload


def parse_data_header(header: bytes, *, limit: int = MAX_DATA_BYTES) -> int:
    """Return the payload's length in bytes of a four-byte header.

    :raises SaslError: if it is negative or above ``limit``.
    """
    (length,) = _DATA.unpack(header)
    return _check_length(length, limit, "data frame")


def _check_length(length: int, limit: int, what: str) -> int:
    if not 0 <= length <= limit:
        raise SaslError(f"expected a {what} of at most {limit} bytes, but {length} were announced")
    return length
