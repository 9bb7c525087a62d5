"""The definition of a connector's table, as it is recorded in the view that the table is.

It is what follows the name in ``CREATE TABLE name ...``, in the dialect of Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.model.names import quote_identifier, quote_literal, quote_pairs

DEFINITION_PROPERTY = "connector.definition"
"""The property of a view that has the definition."""

_COMMENT = re.compile(r'/\* definition ("(?:[^"\\]|\\.)*") \*/ ')
"""Has the definition in the query of a temporary view, which has no properties."""
_ESCAPED = "*$("
"""Characters that could end the comment, be a variable of Spark, or look like a call."""


def definition_sql(table: ConnectorTable, comment: str | None = None) -> str:
    """Return the definition of a table as SQL."""
    words = [f"({', '.join(_items(table))})"]
    if comment is not None:
        words.append(f"COMMENT {quote_literal(comment)}")
    if table.partition_keys:
        words.append(f"PARTITIONED BY ({_names(table.partition_keys)})")
    words.append(f"WITH ({quote_pairs(table.options)})")
    return " ".join(words)


def with_comment(query: str, definition: str) -> str:
    """Return the query of a temporary view with its definition after the comment it begins with."""
    text = json.dumps(definition)
    for letter in _ESCAPED:
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    start, end, rest = query.partition(" */ ")
    return f"{start}{end}/* definition {text} */ {rest}"


def definition_of(text: str, given: Mapping[str, str]) -> str | None:
    """Return the definition that a view records; None if there is none.

    :param text: the query of the view.
    :param given: the properties of the view; a temporary one has none.
    """
    if given:
        return given.get(DEFINITION_PROPERTY)
    found = _COMMENT.search(text)
    return None if found is None else str(json.loads(found[1]))


def _items(table: ConnectorTable) -> Iterator[str]:
    yield from map(_column, table.columns)
    if table.watermark is not None:
        column, expression = table.watermark.column, table.watermark.expression
        yield f"WATERMARK FOR {quote_identifier(column)} AS {expression}"
    if table.primary_key:
        yield f"PRIMARY KEY ({_names(table.primary_key)}) NOT ENFORCED"


def _column(column: ConnectorColumn) -> str:
    words = [quote_identifier(column.name)]
    if column.expression:
        words.append(f"AS {column.expression}")
    else:
        words += [column.type] if column.nullable else [column.type, "NOT NULL"]
    if column.metadata is not None:
        words.append(f"METADATA FROM {quote_literal(column.metadata)}")
    if column.virtual:
        words.append("VIRTUAL")
    if column.comment is not None:
        words.append(f"COMMENT {quote_literal(column.comment)}")
    return " ".join(words)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(quote_identifier, names))
