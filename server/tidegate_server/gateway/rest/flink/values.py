"""The values of a result as Flink's clients read them: as JSON, or as text for people.

JSON follows Flink's JSON format with ISO-8601 timestamps; text follows what Flink's SQL client
prints. Nested values, intervals and VARIANT arrive as text (see ``core/model/result.py``).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate_server.core.model.types import Schema, TypeKind, parse_type, parts_of
from tidegate_server.core.model.zones import parse_zone
from tidegate_server.gateway.session.local_time import fill_nulls, local_microseconds

Convert = Callable[[Any], Any]

ARROW: Final = "application/vnd.apache.arrow.stream"
"""The media type of pages as Arrow IPC streams."""

_DAY_TIME: Final = re.compile(r"(-?)(\d+) (\d+):(\d\d):(\d\d)\.(\d{6})\d*")
_YEAR_MONTH: Final = re.compile(r"(-?)(\d+)-(\d+)")
_WORDS: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_EXACT_DIGITS: Final = 15
"""Flink's clients read JSON numbers as doubles, so longer decimals are texts."""
_NULL: Final = "NULL"
"""How Flink's SQL client prints a NULL within a nested value."""


class RowFormat(StrEnum):
    """How the values of rows are written."""

    JSON = "JSON"
    PLAIN_TEXT = "PLAIN_TEXT"


def rows_of(
    schema: Schema, batch: pa.RecordBatch | None, form: RowFormat, zone: str
) -> list[dict[str, Any]]:
    """Return the rows of a page, ready to be written as JSON.

    :param zone: the time zone of the session, in which nested timestamps are written.
    """
    if batch is None:
        return []
    columns = [
        _cells(array, column.type, form, zone)
        for column, array in zip(schema, batch.columns, strict=True)
    ]
    return [{"kind": "INSERT", "fields": fields} for fields in zip(*columns, strict=True)]


def arrow_stream(schema: Schema, batch: pa.RecordBatch) -> bytes:
    """Return a page as an Arrow IPC stream; nested values and intervals are texts."""
    named = pa.RecordBatch.from_arrays(batch.columns, names=list(schema.names()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, named.schema) as writer:
        writer.write_batch(named)
    return bytes(sink.getvalue())


def _cells(array: Any, type_text: str, form: RowFormat, zone: str) -> list[Any]:
    """Return the values of a column; NULL is None."""
    kind = parse_type(type_text).kind
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        texts = _timestamps(array, form)
    elif pa.types.is_date(array.type):
        days = fill_nulls(array.cast(pa.date32()).view(pa.int32()))
        texts = [_signed_year(text) for text in days.astype("datetime64[D]").astype(str).tolist()]
    else:
        # Through text, since 0.1 as FLOAT would otherwise be 0.10000000149011612.
        single = pa.types.is_float32(array.type)
        values = array.cast(pa.string()).cast(pa.float64()) if single else array
        make = _json_of if form is RowFormat.JSON else _text_of
        if kind in (TypeKind.ARRAY, TypeKind.MAP, TypeKind.STRUCT):
            return _each(_decode_then(make(type_text, zone)), values)
        return _each(make(type_text, zone), values)
    # Neither dates nor timestamps may be beyond what Python has, so no Python object is made.
    valid = array.is_valid().to_pylist()
    return [text if known else None for text, known in zip(texts, valid, strict=True)]


def _each(convert: Convert, array: Any) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _decode_then(convert: Convert) -> Convert:
    return lambda text: convert(json.loads(text, parse_float=Decimal))


def _timestamps(array: Any, form: RowFormat) -> list[str]:
    zoned = array.type.tz is not None
    if form is RowFormat.PLAIN_TEXT:
        texts = local_microseconds(array).astype("datetime64[us]").astype(str).tolist()
        return [_signed_year(text.replace("T", " ", 1)) for text in texts]
    instants = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    texts = fill_nulls(instants).astype("datetime64[us]").astype(str).tolist()
    end = "Z" if zoned else ""
    return [_signed_year(_trimmed(text)) + end for text in texts]


def _trimmed(text: str) -> str:
    """Remove the trailing zeros of a fraction of a second."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed_year(text: str) -> str:
    """Put the sign before a year of more than four digits, as ISO 8601 and Java want it."""
    return f"+{text}" if text[4] != "-" and text[0] != "-" else text


# ---- JSON --------------------------------------------------------------------------------------


def _json_of(type_text: str, zone: str) -> Convert:
    """Return how a value other than NULL becomes one that JSON has."""
    found, parts = parse_type(type_text), parts_of(type_text)
    match found.kind:
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return _json_number
        case TypeKind.DECIMAL:
            digits = found.precision or 0
            return _plain_digits if digits > _EXACT_DIGITS else lambda value: value
        case TypeKind.BINARY:
            return _base64
        case TypeKind.TIMESTAMP:
            return _json_instant(parse_zone(zone) or UTC)
        case TypeKind.TIMESTAMP_NTZ:
            return lambda text: text.replace(" ", "T", 1)
        case TypeKind.INTERVAL_DAY_TIME:
            return lambda text: _microseconds(text) // 1000
        case TypeKind.INTERVAL_YEAR_MONTH:
            return _months
        case TypeKind.VARIANT | TypeKind.INTERVAL | TypeKind.OTHER:
            return _as_text
        case TypeKind.ARRAY if parts:
            element = _or_null(_json_of(parts[0].type, zone))
            return lambda values: [element(value) for value in values]
        case TypeKind.MAP if parts:
            inner = _or_null(_json_of(parts[1].type, zone))
            return lambda entries: {key: inner(value) for key, value in entries.items()}
        case TypeKind.STRUCT:
            fields = {part.name: _or_null(_json_of(part.type, zone)) for part in parts}
            return lambda row: {name: make(row.get(name)) for name, make in fields.items()}
    return lambda value: value


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _json_number(value: Any) -> Any:
    """Return a number, or the word for one that JSON does not have."""
    if isinstance(value, str):
        return value  # Spark's own word, in a nested value
    number = float(value)
    return number if math.isfinite(number) else _WORDS.get(number, "NaN")


def _plain_digits(value: Any) -> str:
    """Return a decimal without an exponent."""
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _base64(value: Any) -> str:
    # Within nested values it already is base64.
    return value if isinstance(value, str) else base64.b64encode(value).decode("ascii")


def _json_instant(zone: tzinfo) -> Convert:
    def convert(text: str) -> str:
        try:
            moment = datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
        except (ValueError, OverflowError):
            return text  # a year that Python does not have
        return _trimmed(f"{moment:%Y-%m-%dT%H:%M:%S.%f}") + "Z"

    return convert


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


# ---- text --------------------------------------------------------------------------------------


def _text_of(type_text: str, zone: str) -> Convert:
    """Return how a value other than NULL is shown to people."""
    kind, parts = parse_type(type_text).kind, parts_of(type_text)
    match kind:
        case TypeKind.BOOLEAN:
            return lambda value: "TRUE" if value else "FALSE"
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return _java_number
        case TypeKind.DECIMAL:
            return _plain_digits
        case TypeKind.BINARY:
            return _hexadecimal
        case TypeKind.INTERVAL_DAY_TIME:
            return _day_time_text
        case TypeKind.INTERVAL_YEAR_MONTH:
            return _year_month_text
        case TypeKind.ARRAY if parts:
            element = _shown(_text_of(parts[0].type, zone))
            return lambda values: f"[{', '.join(map(element, values))}]"
        case TypeKind.MAP if parts:
            inner = _shown(_text_of(parts[1].type, zone))
            return lambda entries: (
                "{" + ", ".join(f"{key}={inner(value)}" for key, value in entries.items()) + "}"
            )
        case TypeKind.STRUCT:
            fields = {part.name: _shown(_text_of(part.type, zone)) for part in parts}
            return lambda row: (
                f"({', '.join(show(row.get(name)) for name, show in fields.items())})"
            )
    return _as_text if kind in (TypeKind.VARIANT, TypeKind.OTHER) else str


def _shown(convert: Convert) -> Callable[[Any], str]:
    return lambda value: _NULL if value is None else str(convert(value))


def _java_number(value: Any) -> str:
    """Return a number as Java writes a double: with a point, and from 10 million on an exponent."""
    if isinstance(value, str):
        return value
    number = float(value)
    if not math.isfinite(number):
        return _WORDS.get(number, "NaN")
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        shown = np.format_float_positional(number, unique=True, trim="0")
        return str(shown)
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    return f"{mantissa}E{int(exponent)}"


def _hexadecimal(value: Any) -> str:
    content = base64.b64decode(value) if isinstance(value, str) else value
    return f"x'{content.hex()}'"


def _microseconds(text: str) -> int:
    """Return an interval such as ``-1 02:03:04.000000000`` in microseconds."""
    found = _DAY_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"not an interval of days to seconds: {text}")
    days, hours, minutes, seconds, micros = (int(part) for part in found.groups()[1:])
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    whole = total * 1_000_000 + micros
    return -whole if found[1] else whole


def _months(text: str) -> int:
    found = _YEAR_MONTH.fullmatch(text)
    if found is None:
        raise ValueError(f"not an interval of years to months: {text}")
    whole = int(found[2]) * 12 + int(found[3])
    return -whole if found[1] else whole


def _day_time_text(text: str) -> str:
    micros = _microseconds(text)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    digits = f"{fraction:06d}" if fraction % 1000 else f"{fraction // 1000:03d}"
    days, rest = divmod(seconds, 86_400)
    sign = "-" if micros < 0 else "+"
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{sign}{days} {clock}.{digits}"


def _year_month_text(text: str) -> str:
    months = _months(text)
    sign = "-" if months < 0 else "+"
    return f"{sign}{abs(months) // 12}-{abs(months) % 12:02d}"
