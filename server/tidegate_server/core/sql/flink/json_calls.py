"""Flink's JSON functions, as far as Spark's find the same values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidegate_server.core.sql.flink.output import Parts
from tidegate_server.core.sql.flink.rewriter import Call, Rule
from tidegate_server.core.sql.flink.tokens import Item, Kind, sees
from tidegate_server.core.sql.flink.types import read_type

_PATH = re.compile(r"\s*(?:(?:lax|strict)\s+)?(\$(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\]+'\])*)\s*")
_PATHS = "Write the path as a constant of names and positions: '$.a.b[0]'."
_CLAUSES = "Leave out all clauses but RETURNING, NULL ON EMPTY and NULL ON ERROR."
_COMPOSED = "'^(OBJECT|ARRAY)'"
_RETURNED = frozenset({"STRING", "BOOLEAN", "INT", "BIGINT", "DOUBLE"})


def _parse(call: Call) -> tuple[Parts, str, Sequence[Item]]:
    """Return the document, the path as a literal, and what follows."""
    items = call.group.inner
    comma = next((i for i, item in enumerate(items) if item.word == ","), None)
    if comma is None or comma + 1 >= len(items) or items[comma + 1].kind is not Kind.STRING:
        raise call.refuse(_PATHS, f"{call.name} with a computed path")
    path = _PATH.fullmatch(items[comma + 1].value)
    if path is None:
        raise call.refuse(_PATHS, f"The path {items[comma + 1].value} of {call.name}")
    document = call.rewriter.expression(items[:comma])
    literal = "'" + path[1].replace("'", "''") + "'"
    return document, literal, items[comma + 2 :]


def _composed(document: Parts, path: str) -> tuple[str | Parts, ...]:
    """Return the condition that there is an object or an array at a path."""
    value = ("try_variant_get(try_parse_json(", document, f"), {path}, 'variant')")
    return ("regexp_like(schema_of_variant(", *value, f"), {_COMPOSED})")


def _value(call: Call) -> Parts | None:
    document, path, rest = _parse(call)
    returned = "STRING"
    if sees(rest, 0, "RETURNING"):
        end = next(
            (i for i, item in enumerate(rest) if item.word in ("NULL", "ERROR", "DEFAULT")),
            len(rest),
        )
        returned, rest = read_type(call.rewriter.text, rest[1:end]).text, rest[end:]
    _only_null(call, rest)
    if returned not in _RETURNED:
        raise call.refuse(f"The types are {', '.join(sorted(_RETURNED))}.", f"RETURNING {returned}")
    found = ("if(", *_composed(document, path), ", NULL, get_json_object(", document, f", {path}))")
    if returned == "STRING":
        return call.made(*found)
    return call.made("TRY_CAST(", *found, f" AS {returned})")


def _query(call: Call) -> Parts | None:
    document, path, rest = _parse(call)
    if sees(rest, 0, "WITHOUT"):
        rest = rest[3:] if sees(rest, 1, "ARRAY") else rest[2:]
    _only_null(call, rest)
    return call.made(
        "if(", *_composed(document, path), ", get_json_object(", document, f", {path}), NULL)"
    )


def _exists(call: Call) -> Parts | None:
    document, path, rest = _parse(call)
    if rest and not (len(rest) == 3 and sees(rest, 0, "FALSE", "ON", "ERROR")):
        raise call.refuse("Leave out the clause ON ERROR.", f"A clause of {call.name}")
    return call.made("(get_json_object(", document, f", {path}) IS NOT NULL)")


def _only_null(call: Call, rest: Sequence[Item]) -> None:
    while rest:
        if (
            not sees(rest, 0, "NULL", "ON")
            or not rest[2:3]
            or rest[2].word not in ("EMPTY", "ERROR")
        ):
            raise call.refuse(_CLAUSES, f"A clause of {call.name}")
        rest = rest[3:]


def _made_json(call: Call) -> Parts | None:
    raise call.refuse("Use TO_JSON(NAMED_STRUCT('key', value, ...)) or TO_JSON(ARRAY(...)).")


JSON_CALLS: Mapping[str, Rule] = {
    "JSON_VALUE": _value,
    "JSON_QUERY": _query,
    "JSON_EXISTS": _exists,
    **dict.fromkeys(
        ("JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG", "JSON_STRING", "JSON"),
        _made_json,
    ),
}
