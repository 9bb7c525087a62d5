"""Output formats of results: table, vertical, csv, tsv, json, markdown."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TextIO

PAGE_ROWS = 1000
"""Rows fetched and laid out at a time; a table's column widths hold for one page."""

Row = Sequence[object]
Page = Sequence[Row]
Format = Callable[[Sequence[str], Iterable[Page], TextIO, bool], int]
"""Writes pages of rows under column names, with or without a header; returns the row count."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class MissingExtraError(Exception):
    """A feature needs an optional package; the message says what to install."""


class FormatError(Exception):
    """A result cannot be written in the chosen format; the message says why."""


def text_of(value: object, *, null: str) -> str:
    """Return a value as one would write it in a report."""
    match value:
        case None:
            return null
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return _text_of_float(value)
        case Decimal():
            return format(value, "f")
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex().upper()
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case list() | tuple() | dict():
            return json.dumps(_json_value(value), ensure_ascii=False)
        case _:
            return str(value)


def write_table(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
    """Write one ruled table per page, or an empty one when there are no rows.

    :raises MissingExtraError: when the package that lays tables out is not installed.
    """
    count = 0
    for page in pages:
        _write_page(columns, page, out, header)
        count += len(page)
    if not count and header:
        _write_page(columns, [], out, header)
    return count


def fitting(width: int) -> Format:
    """Return the table format, which writes a single row that is too wide vertically.

    :param width: that of the terminal, in characters.
    """

    def write(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
        rest = iter(pages)
        first = next(rest, None)
        if first is None:
            return write_table(columns, [], out, header)
        if len(first) == 1 and header:
            layout = io.StringIO()
            _write_page(columns, first, layout, header)
            if len(layout.getvalue().partition("\n")[0]) > width:
                return write_vertical(columns, [first], out, header)
        return write_table(columns, itertools.chain([first], rest), out, header)

    return write


def write_vertical(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
    """Write each row as a block of ``name: value`` lines; a header numbers the blocks."""
    width = max((len(name) for name in columns), default=0)
    count = 0
    for page in pages:
        for row in page:
            count += 1
            if header:
                out.write(f"-[ row {count} ]{'-' * width}\n")
            for name, value in zip(columns, row, strict=True):
                out.write(f"{name:<{width}}  {_printable(text_of(value, null='NULL'))}\n")
            if not header:
                out.write("\n")
    return count


def write_csv(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
    """Write comma-separated values, quoted where needed; NULL is empty."""
    return _write_separated(columns, pages, out, header, ",")


def write_tsv(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
    """Write tab-separated values, quoted where needed; NULL is empty."""
    return _write_separated(columns, pages, out, header, "\t")


def write_json(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
    """Write one JSON object per line; decimals are strings, which keeps every digit."""
    names = _distinct(columns)
    count = 0
    for page in pages:
        for row in page:
            record = {name: _json_value(value) for name, value in zip(names, row, strict=True)}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
        count += len(page)
    return count


def write_markdown(columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool) -> int:
    """Write a table of Markdown, for issues and pull requests."""
    if header:
        out.write(_markdown_row(columns))
        out.write(_markdown_row(["--"] * len(columns)))
    count = 0
    for page in pages:
        for row in page:
            out.write(_markdown_row([text_of(value, null="NULL") for value in row]))
        count += len(page)
    return count


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (
        _printable(cell).replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")
        for cell in cells
    )
    return f"| {' | '.join(escaped)} |\n"


FORMATS: dict[str, Format] = {
    "table": write_table,
    "vertical": write_vertical,
    "csv": write_csv,
    "tsv": write_tsv,
    "json": write_json,
    "markdown": write_markdown,
}


FILE_FORMATS = ("arrow", "parquet")
"""Formats of files, each with the rows of one query; ``arrow_files`` writes them."""


def writer_of(name: str) -> Format:
    """Return what writes rows as text.

    :raises FormatError: for a format of files.
    """
    if name in FILE_FORMATS:
        raise FormatError(f"The format {name} is for the rows of a query only.")
    return FORMATS[name]


def _write_page(columns: Sequence[str], page: Page, out: TextIO, header: bool) -> None:
    try:
        from tabulate import tabulate
    except ImportError as error:
        raise MissingExtraError(
            "The table format needs the tabulate package: pip install 'tidegate[shell]', "
            "or choose --format vertical, csv, tsv or json."
        ) from error
    cells = [[_printable(text_of(value, null="NULL")) for value in row] for row in page]
    text = tabulate(
        cells,
        headers=[_printable(name) for name in columns] if header else (),
        tablefmt="psql",
        disable_numparse=True,
        preserve_whitespace=True,
        colalign=[_alignment(page, index) for index in range(len(columns))] if page else None,
    )
    out.write(text + "\n")


def _alignment(page: Page, index: int) -> str:
    for row in page:
        if row[index] is not None:
            number = isinstance(row[index], int | float | Decimal)
            return "right" if number and not isinstance(row[index], bool) else "left"
    return "left"


def _write_separated(
    columns: Sequence[str], pages: Iterable[Page], out: TextIO, header: bool, delimiter: str
) -> int:
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    if header:
        writer.writerow(columns)
    count = 0
    for page in pages:
        writer.writerows([[text_of(value, null="") for value in row] for row in page])
        count += len(page)
    return count


def _printable(text: str) -> str:
    # A value must not be able to steer the terminal.
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text.replace("\r\n", "\n"))


def _text_of_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json_value(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _text_of_float(value)
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {text_of(key, null="null"): _json_value(item) for key, item in value.items()}
        case _:
            return text_of(value, null="null")


def _distinct(names: Sequence[str]) -> list[str]:
    """Make the keys of an object unique: a, a_2, a_3."""
    taken: set[str] = set(names)
    seen: set[str] = set()
    result: list[str] = []
    for name in names:
        key, number = name, 2
        while key in seen or (key != name and key in taken):
            key, number = f"{name}_{number}", number + 1
        seen.add(key)
        result.append(key)
    return result
