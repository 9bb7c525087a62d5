"""Flink's functions: what stays, what is called otherwise, and what has no equivalent.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/functions/systemfunctions/
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidegate_server.core.sql.flink.json_calls import JSON_CALLS
from tidegate_server.core.sql.flink.literals import spark_string
from tidegate_server.core.sql.flink.output import Parts, made, text_of
from tidegate_server.core.sql.flink.rewriter import Argument, Call, Rule
from tidegate_server.core.sql.flink.time_calls import TIME_CALLS
from tidegate_server.core.sql.flink.types import read_type

_PLACE = re.compile(r"\{(\d)\}")


def template(*patterns: str) -> Rule:
    """Return the rule that writes a call's arguments into a pattern, chosen by their number.

    ``{0}`` is the first argument. Another number of arguments is left for Spark to report.
    """
    by_count = {
        max((int(found) + 1 for found in _PLACE.findall(pattern)), default=0): pattern
        for pattern in patterns
    }

    def rule(call: Call) -> Parts | None:
        pattern = by_count.get(len(call.arguments))
        if pattern is None:
            return None
        pieces = _PLACE.split(pattern)
        written = [
            piece if i % 2 == 0 else call.arguments[int(piece)].parts
            for i, piece in enumerate(pieces)
        ]
        return call.made(*written)

    return rule


def refused(hint: str) -> Rule:
    """Return the rule for a function without an equivalent."""

    def rule(call: Call) -> Parts | None:
        raise call.refuse(hint)

    return rule


# ---- conversions -------------------------------------------------------------------------------


def _cast(call: Call) -> Parts | None:
    inner = call.group.inner
    at = next((i for i, item in enumerate(inner) if item.word == "AS"), None)
    if at is None or at == 0:
        raise call.rewriter.unexpected(inner, len(inner), "AS and a data type")
    value = call.rewriter.expression(inner[:at])
    found = read_type(call.rewriter.text, inner[at + 1 :], call.group.end - 1)
    cast = call.rewriter.source(call.head)
    if found.kind in ("STRING", "CHAR", "VARCHAR"):
        text: tuple[str | Parts, ...] = ("flink_string(", value, ")")
        if found.kind == "CHAR":
            text = ("rpad(", *text, f", {found.length}, ' ')")
        elif found.length is not None:
            text = ("left(", *text, f", {found.length})")
        return call.made(*text)
    whole: tuple[str | Parts, ...] = (f"{cast}(", value, f" AS {found.text})")
    if found.kind == "BINARY":
        return call.made("rpad(", *whole, f", {found.length}, X'00')")
    if found.kind == "VARBINARY" and found.length is not None:
        return call.made("left(", *whole, f", {found.length})")
    if found.precision is not None and found.precision < 6:
        return call.made("flink_precision(", *whole, f", {found.precision})")
    return call.made(*whole)


def _row(call: Call) -> Parts | None:
    before = call.rewriter.frames[-1]
    if before.clause == "VALUES":
        return call.made("(", *_listed(call.arguments), ")")
    pieces: list[str | Parts] = []
    for i, argument in enumerate(call.arguments):
        pieces += [", " if i else "", f"'EXPR${i}', ", argument.parts]
    return call.made("named_struct(", *pieces, ")")


def _listed(arguments: list[Argument]) -> list[str | Parts]:
    pieces: list[str | Parts] = []
    for i, argument in enumerate(arguments):
        pieces += [", " if i else "", argument.parts]
    return pieces


# ---- numbers and aggregates --------------------------------------------------------------------


def _average(call: Call) -> Parts | None:
    if len(call.arguments) != 1:
        return None
    value = call.arguments[0].parts
    total, number = call.made("sum(", value, ")"), call.made("count(", value, ")")
    return made(call.head.start, "flink_avg(", total, ", ", number, ")")


def _list_aggregate(call: Call) -> Parts | None:
    if len(call.arguments) != 1:
        return None
    return call.made("listagg(", call.arguments[0].parts, ", ',')")


def _first_or_last(call: Call) -> Parts | None:
    """Flink's leave out NULLs unless they are to be respected."""
    if len(call.arguments) != 1:
        return None
    if text_of(call.suffix).split()[1:2] == ["NULLS"]:
        return None
    name = call.rewriter.source(call.head)
    return call.made(f"{name}(", call.arguments[0].parts, ", true)")


def _array_aggregate(call: Call) -> Parts | None:
    items = call.group.inner
    if len(items) > 2 and items[-2].word == "IGNORE" and items[-1].word == "NULLS":
        return call.made("array_agg(", call.rewriter.expression(items[:-2]), ")")
    raise call.refuse("Spark's leaves out NULLs: write ARRAY_AGG(x IGNORE NULLS).")


def _with_null(name: str) -> Rule:
    """GREATEST and LEAST are NULL if one argument is."""

    def rule(call: Call) -> Parts | None:
        tests: list[str | Parts] = []
        for i, argument in enumerate(call.arguments):
            tests += [" OR " if i else "", "(", argument.parts, ") IS NULL"]
        values = _listed(call.arguments)
        return call.made("if(", *tests, f", NULL, {name}(", *values, "))")

    return rule


# ---- strings -----------------------------------------------------------------------------------


def _substring(call: Call) -> Parts | None:
    inner = call.group.inner
    places = {item.word: i for i, item in enumerate(inner) if item.word in ("FROM", "FOR")}
    if "FROM" in places:
        begin, end = places["FROM"], places.get("FOR", len(inner))
        parts = [inner[:begin], inner[begin + 1 : end]]
        if end < len(inner):
            parts.append(inner[end + 1 :])
        arguments = [Argument(p, call.rewriter.expression(p)) for p in parts]
    else:
        arguments = call.arguments
    if len(arguments) not in (2, 3):
        return None
    numbers = [argument.number for argument in arguments[1:]]
    if all(number is not None and number >= 0 for number in numbers):
        return (
            None
            if arguments is call.arguments
            else call.made("substring(", *_listed(arguments), ")")
        )
    return call.made("flink_substring(", *_listed(arguments), ")")


def _trim_side(side: str) -> Rule:
    def rule(call: Call) -> Parts | None:
        if len(call.arguments) != 2:
            return None
        text, letters = call.arguments
        return call.made(f"trim({side} ", letters.parts, " FROM ", text.parts, ")")

    return rule


def _pad(call: Call) -> Parts | None:
    if len(call.arguments) != 3 or call.arguments[2].literal == "":
        raise call.refuse("Give the length and the text to pad with.")
    text, length, letters = call.arguments
    name = call.rewriter.source(call.head)
    if length.number is not None and length.number >= 0 and letters.literal:
        return None
    return call.made(
        "if((", length.parts, ") < 0 OR (", letters.parts, ") = '', NULL, ",
        f"{name}(", *_listed(call.arguments), "))",
    )  # fmt: skip


def _literally(argument: Argument) -> tuple[str | Parts, ...]:
    """Return a pattern that matches an argument's text."""
    if argument.literal is not None:
        return (spark_string(re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", argument.literal)),)
    return ("concat('\\\\Q', ", argument.parts, ", '\\\\E')")


def _split_index(call: Call) -> Parts | None:
    if len(call.arguments) != 3:
        return None
    text, separator, index = call.arguments
    if separator.number is not None:
        hint = "Write the character itself in quotes, not its number."
        raise call.refuse(hint, "SPLIT_INDEX with a number for the separator")
    if separator.literal == "":
        raise call.refuse("Give the separator.", "SPLIT_INDEX with an empty separator")
    pattern = _literally(separator)
    return call.made("get(split(nullif(", text.parts, ", ''), ", *pattern, "), ", index.parts, ")")


def _split(call: Call) -> Parts | None:
    if len(call.arguments) != 2:
        return None
    text, separator = call.arguments
    return call.made("split(", text.parts, ", ", *_literally(separator), ")")


def _extract_by_pattern(call: Call) -> Parts | None:
    if len(call.arguments) not in (2, 3):
        return None
    text, pattern = call.arguments[:2]
    group = call.arguments[2].parts if len(call.arguments) == 3 else "0"
    return call.made(
        "if(regexp_like(", text.parts, ", ", pattern.parts, "), regexp_extract(",
        text.parts, ", ", pattern.parts, ", ", group, "), NULL)",
    )  # fmt: skip


def _replace_by_pattern(call: Call) -> Parts | None:
    """Flink writes the replacement as it is; in Spark's, $ and backslashes have a meaning."""
    if len(call.arguments) != 3:
        return None
    text, pattern, new = call.arguments
    if new.literal is None:
        written: tuple[str | Parts, ...] = (
            "replace(replace(", new.parts, r", '\\', '\\\\'), '$', '\\$')",
        )  # fmt: skip
    elif re.search(r"[\\$]", new.literal):
        written = (spark_string(re.sub(r"([\\$])", r"\\\1", new.literal)),)
    else:
        return None
    return call.made("regexp_replace(", text.parts, ", ", pattern.parts, ", ", *written, ")")


def _instr(call: Call) -> Parts | None:
    if len(call.arguments) > 2:
        raise call.refuse("Use LOCATE(text, in, start).", "INSTR with a start")
    return None


_CONVERSIONS: Mapping[str, Rule] = {"CAST": _cast, "TRY_CAST": _cast, "ROW": _row}
_NUMBERS: Mapping[str, Rule] = {
    "AVG": _average,
    "TRUNCATE": template("flink_truncate({0}, 0)", "flink_truncate({0}, {1})"),
    "RAND_INTEGER": template("CAST(floor(rand() * ({0})) AS INT)"),
    "GREATEST": _with_null("greatest"),
    "LEAST": _with_null("least"),
    "FIRST_VALUE": _first_or_last,
    "LAST_VALUE": _first_or_last,
    "LISTAGG": _list_aggregate,
    "ARRAY_AGG": _array_aggregate,
    "COLLECT": refused("Use ARRAY_AGG(x IGNORE NULLS)."),
    "GROUP_ID": refused("Use GROUPING_ID with the columns."),
    "TYPEOF": refused("Look at the types with DESCRIBE QUERY."),
}
_STRINGS: Mapping[str, Rule] = {
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "LTRIM": _trim_side("LEADING"),
    "RTRIM": _trim_side("TRAILING"),
    "LPAD": _pad,
    "RPAD": _pad,
    "SPLIT_INDEX": _split_index,
    "SPLIT": _split,
    "REGEXP_EXTRACT": _extract_by_pattern,
    "REGEXP_REPLACE": _replace_by_pattern,
    "INSTR": _instr,
    "FROM_BASE64": template("CAST(unbase64({0}) AS STRING)"),
    "TO_BASE64": template("base64({0})"),
    "SHA224": template("sha2({0}, 224)"),
    "SHA256": template("sha2({0}, 256)"),
    "SHA384": template("sha2({0}, 384)"),
    "SHA512": template("sha2({0}, 512)"),
    "STR_TO_MAP": template("str_to_map({0}, ',', '=')"),
}
_COLLECTIONS: Mapping[str, Rule] = {
    "ARRAY_CONCAT": template("concat({0}, {1})", "concat({0}, {1}, {2})"),
    "ARRAY_REVERSE": template("reverse({0})"),
    "ARRAY_SORT": template("sort_array({0})", "sort_array({0}, {1})"),
    "ARRAY_SLICE": refused("Use SLICE(array, start, length)."),
    "ELEMENT": refused("Use a[1]."),
    "MAP_UNION": refused("Use MAP_CONCAT, whose keys must differ."),
}
_WATERMARKS: Mapping[str, Rule] = {
    "CURRENT_WATERMARK": refused(
        "Leave it out: a refresh reads whole versions of its sources, so no row is late."
    ),
}

CALLS: Mapping[str, Rule] = {
    **_CONVERSIONS,
    **_NUMBERS,
    **_STRINGS,
    **_COLLECTIONS,
    **_WATERMARKS,
    **TIME_CALLS,
    **JSON_CALLS,
}
"""The rules by the function's name in upper case; functions not listed mean the same."""
