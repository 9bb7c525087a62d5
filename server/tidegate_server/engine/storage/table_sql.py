"""Parts of the SQL that creates tables: types, columns, properties."""

from __future__ import annotations

import re

from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.types import Column

_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def type_sql(data_type: T.DataType) -> str:
    """Return a type in SQL, with names of fields quoted where necessary."""
    match data_type:
        case T.StructType():
            fields = (f"{_field_name(f.name)}:{type_sql(f.dataType)}" for f in data_type.fields)
            return f"struct<{','.join(fields)}>"
        case T.ArrayType():
            return f"array<{type_sql(data_type.elementType)}>"
        case T.MapType():
            return f"map<{type_sql(data_type.keyType)},{type_sql(data_type.valueType)}>"
        case _:
            return str(data_type.simpleString())


def _field_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote_identifier(name)


def column_of(field: T.StructField) -> Column:
    """Return a column of Spark's, with the type as it was declared."""
    declared = field.metadata.get(_DECLARED)
    return Column(
        name=field.name,
        type=str(declared) if declared else type_sql(field.dataType),
        nullable=field.nullable,
        comment=field.metadata.get("comment"),
    )


def column_sql(column: Column) -> str:
    """Return a column definition, with NOT NULL, which keys need and downstream tables inherit."""
    required = "" if column.nullable else " NOT NULL"
    comment = f" COMMENT {quote_literal(column.comment)}" if column.comment else ""
    return f"{quote_identifier(column.name)} {column.type}{required}{comment}"
