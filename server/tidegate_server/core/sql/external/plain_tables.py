"""CREATE TABLE ... WITH (...) without a connector, which becomes a table of Spark.

https://nightlies.apache.org/flink/flink-docs-master/docs/sql/reference/ddl/create/#create-table
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.connectors.tables import PROPERTY
from tidegate_server.core.model.names import quote_identifier, quote_literal, quote_pairs
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.columns import ColumnList, column_list
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.external.connector_tables import Translated, unsupported
from tidegate_server.core.sql.statements import PhysicalColumn

KEY_PROPERTY = "primary-key"
"""The property of a table that records the columns of its primary key."""
_FORMAT = "format"
_BUCKETS = frozenset({"bucket", "bucket-key", "bucket-num"})


def plain_table(text: str, tokens: Sequence[Token]) -> Translated:
    """Return Spark's statement.

    :raises ServerError: PARSE_SYNTAX or NOT_SUPPORTED, with a position.
    """
    at = Cursor(text, tokens)
    at.expect("CREATE")
    if at.sees("TEMPORARY") or at.sees("TEMP"):
        hint = "Add 'connector' = '...', or create a view: CREATE TEMPORARY VIEW."
        raise unsupported(at, at.offset, "A temporary table without a connector", hint)
    at.expect("TABLE")
    words = ["CREATE TABLE"]
    if at.accept("IF", "NOT", "EXISTS"):
        words.append("IF NOT EXISTS")
    words.append(".".join(map(quote_identifier, clauses.table_name(at))))
    listed_at = at.offset
    listed = column_list(at) if at.sees("(") else ColumnList()
    if listed.columns:
        words.append(f"({', '.join(_columns(at, listed, listed_at))})")
    words.append("USING delta")
    if at.accept("COMMENT"):
        words.append(f"COMMENT {quote_literal(at.string('a comment in quotes'))}")
    if at.accept("PARTITIONED", "BY"):
        words.append(f"PARTITIONED BY ({', '.join(map(quote_identifier, clauses.names(at)))})")
    at.expect("WITH")
    options_at = at.offset
    properties = clauses.options(at)
    for key in properties:
        if key.lower() == PROPERTY:
            raise unsupported(at, options_at, f"The option '{key}'", f"Write '{PROPERTY}'.")
    remarks = list(_remarks(properties))
    if listed.primary_key is not None:
        key = ", ".join(listed.primary_key.columns)
        properties[KEY_PROPERTY] = key
        remarks.append(
            f"The primary key ({key}) is recorded, but an INSERT does not replace the rows that "
            "have the same key."
        )
    if properties:
        words.append(f"TBLPROPERTIES ({quote_pairs(properties)})")
    if at.sees("AS"):
        words.append(text[at.offset :])
    elif listed.columns:
        at.end()
    else:
        raise at.unexpected_token("AS", hint="A table has a list of columns, or a query.")
    return Translated(text=" ".join(words), remarks=tuple(remarks))


def _columns(at: Cursor, listed: ColumnList, offset: int) -> Iterator[str]:
    if listed.watermark is not None:
        hint = "Leave it out, or give it to a materialized table."
        raise unsupported(at, offset, "A WATERMARK of a plain table", hint)
    if listed.expectations or listed.assertions:
        hint = "Use ALTER TABLE ... ADD CONSTRAINT name CHECK (...), or a materialized table."
        raise unsupported(at, offset, "A constraint of a plain table", hint)
    for column in listed.columns:
        if not isinstance(column, PhysicalColumn):
            what = f"The column {column.name}, which is computed, metadata or without a type,"
            hint = "Write its type, and compute it in queries or in a view."
            raise unsupported(at, offset, what, hint)
        null = "" if column.nullable else " NOT NULL"
        comment = "" if column.comment is None else f" COMMENT {quote_literal(column.comment)}"
        yield f"{quote_identifier(column.name)} {column.type}{null}{comment}"


def _remarks(options: Mapping[str, str]) -> Iterator[str]:
    for key, value in options.items():
        if key.lower().startswith("delta."):
            continue
        if key.lower() in _BUCKETS:
            yield f"'{key}' has no effect: a Delta table has no buckets; it is only stored."
        elif (key, value) != (_FORMAT, "delta"):
            yield f"'{key}' has no effect: it is not an option of Delta tables; it is only stored."
