"""Compilers of SQL, DDL, types, identifiers for Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import exc, schema, util
from sqlalchemy import types as sqltypes
from sqlalchemy.sql import compiler, elements

from tidegate_sqlalchemy.types import ARRAY, INTERVAL, MAP, STRUCT

# The reserved words of Spark's ANSI mode; quoting other words is harmless.
_WORDS = """
    all and anti any array as at authorization between both by case cast check collate column
    constraint create cross current_date current_time current_timestamp current_user delete
    describe distinct drop else end escape except exists false fetch filter for foreign from full
    grant group grouping having in inner insert intersect interval into is join lateral leading
    left like limit local map minus natural no not null offset on only or order out outer overlaps
    partition position primary range references revoke right row rows select semi session_user set
    some start struct table then time timestamp to trailing true truncate type union unique unknown
    update user using values when where window with within
"""
RESERVED_WORDS = set(_WORDS.split())


class TidegateIdentifierPreparer(compiler.IdentifierPreparer):
    """Quotes names with backticks; a schema may be written ``catalog.schema``."""

    reserved_words = RESERVED_WORDS

    def __init__(self, dialect: Any, **kwargs: Any) -> None:
        super().__init__(dialect, initial_quote="`", escape_quote="`", **kwargs)

    def quote_schema(self, schema: str, force: Any = None) -> str:
        """Quote each part of a schema name."""
        if isinstance(schema, elements.quoted_name) and schema.quote:
            return self.quote_identifier(schema)
        return ".".join(self.quote(part) for part in schema.split("."))


class TidegateCompiler(compiler.SQLCompiler):
    """Writes statements and expressions as Spark reads them."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """Write LIMIT and OFFSET, each only if requested."""
        text = ""
        if select._limit_clause is not None:
            text += f"\n LIMIT {self.process(select._limit_clause, **kw)}"
        if select._offset_clause is not None:
            text += f"\n OFFSET {self.process(select._offset_clause, **kw)}"
        return text

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Write nothing: Spark has no row locks."""
        return ""

    def visit_empty_set_expr(self, element_types: Any, **kw: Any) -> str:
        """Write a query without rows for an empty IN list; NULL fits columns of every type."""
        columns = ", ".join("NULL" for _ in element_types or [sqltypes.INTEGER()])
        return f"SELECT {columns} WHERE 1 != 1"

    def visit_empty_set_op_expr(self, type_: Any, expand_op: Any, **kw: Any) -> str:
        """Write an empty list of tuples as a query: Spark refuses tuples of NULL in a list."""
        if len(type_) > 1:
            return self.visit_empty_set_expr(type_)
        plain = super().visit_empty_set_op_expr(type_, expand_op, **kw)  # type: ignore[no-untyped-call]
        return str(plain)

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Write a match of a regular expression."""
        return self._regexp_match("RLIKE", binary, kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Write a mismatch of a regular expression."""
        return self._regexp_match("NOT RLIKE", binary, kw)

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Write a replacement by regular expression."""
        if binary.modifiers["flags"] is not None:
            raise exc.CompileError("regexp_replace takes no flags here: write (?i) in the pattern")
        left = self.process(binary.left, **kw)
        right = self.process(binary.right, **kw)
        return f"regexp_replace({left}, {right})"

    def visit_random_func(self, fn: Any, **kw: Any) -> str:
        """Write Spark's name of random()."""
        return "rand()"

    def visit_char_length_func(self, fn: Any, **kw: Any) -> str:
        """Write the length of a text in characters."""
        return f"char_length{self.function_argspec(fn, **kw)}"

    def visit_aggregate_strings_func(self, fn: Any, **kw: Any) -> str:
        """Write the concatenation of a group's texts."""
        return f"listagg{self.function_argspec(fn, **kw)}"

    def update_from_clause(self, *args: Any, **kw: Any) -> str:
        """Refuse UPDATE … FROM."""
        raise exc.CompileError("Spark has no UPDATE … FROM: use a subquery or MERGE INTO")

    def delete_extra_from_clause(self, *args: Any, **kw: Any) -> str:
        """Refuse DELETE … USING."""
        raise exc.CompileError("Spark has no DELETE … USING: use a subquery or MERGE INTO")

    def _regexp_match(self, operator: str, binary: Any, kw: dict[str, Any]) -> str:
        if binary.modifiers["flags"] is not None:
            raise exc.CompileError("regexp_match takes no flags here: write (?i) in the pattern")
        left = self.process(binary.left, **kw)
        right = self.process(binary.right, **kw)
        return f"{left} {operator} {right}"


class TidegateDDLCompiler(compiler.DDLCompiler):
    """Writes table definitions; the ``tidegate_…`` options of Table add Spark's clauses."""

    def get_column_specification(self, column: Any, **kwargs: Any) -> str:
        """Write one column: name, type, NOT NULL, default, comment."""
        words = [
            self.preparer.format_column(column),
            self.dialect.type_compiler_instance.process(column.type, type_expression=column),
        ]
        if not column.nullable:
            words.append("NOT NULL")
        if column.computed is not None:
            words.append(self.process(column.computed))
        elif column.identity is not None:
            words.append(self.process(column.identity))
        elif (default := self.get_column_default_string(column)) is not None:
            words.append(f"DEFAULT {default}")
        if column.comment is not None:
            words.append(f"COMMENT {self._literal(column.comment)}")
        return " ".join(words)

    def create_table_constraints(
        self, table: Any, _include_foreign_key_constraints: Any = None, **kw: Any
    ) -> str:
        """Write nothing: Spark's tables enforce no keys, and most formats refuse them."""
        return ""

    def post_create_table(self, table: Any) -> str:
        """Write USING, PARTITIONED BY, CLUSTER BY, LOCATION, COMMENT, TBLPROPERTIES."""
        options = table.dialect_options["tidegate"]
        clauses = []
        if options["using"]:
            clauses.append(f"USING {options['using']}")
        if options["partitioned_by"]:
            clauses.append(f"PARTITIONED BY ({self._names(options['partitioned_by'])})")
        if options["cluster_by"]:
            clauses.append(f"CLUSTER BY ({self._names(options['cluster_by'])})")
        if options["location"]:
            clauses.append(f"LOCATION {self._literal(options['location'])}")
        if table.comment is not None:
            clauses.append(f"COMMENT {self._literal(table.comment)}")
        if options["properties"]:
            clauses.append(f"TBLPROPERTIES ({self.options(options['properties'])})")
        return "".join(f"\n{clause}" for clause in clauses)

    def visit_set_table_comment(self, create: Any, **kw: Any) -> str:
        """Write COMMENT ON TABLE."""
        table = self.preparer.format_table(create.element)
        return f"COMMENT ON TABLE {table} IS {self._literal(create.element.comment)}"

    def visit_drop_table_comment(self, drop: Any, **kw: Any) -> str:
        """Write COMMENT ON TABLE … IS NULL."""
        return f"COMMENT ON TABLE {self.preparer.format_table(drop.element)} IS NULL"

    def visit_set_column_comment(self, create: Any, **kw: Any) -> str:
        """Write ALTER TABLE … ALTER COLUMN … COMMENT."""
        table = self.preparer.format_table(create.element.table)
        column = self.preparer.format_column(create.element)
        comment = self._literal(create.element.comment)
        return f"ALTER TABLE {table} ALTER COLUMN {column} COMMENT {comment}"

    def visit_drop_column_comment(self, drop: Any, **kw: Any) -> str:
        """Write an empty column comment."""
        table = self.preparer.format_table(drop.element.table)
        column = self.preparer.format_column(drop.element)
        return f"ALTER TABLE {table} ALTER COLUMN {column} COMMENT ''"

    def visit_create_index(
        self,
        create: Any,
        include_schema: bool = False,
        include_table_schema: bool = True,
        **kw: Any,
    ) -> str:
        """Write nothing, with a warning: an index changes no result, so the rest is carried out."""
        util.warn(f"Spark tables have no indexes: {create.element.name} was not created")
        return ""

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        """Write nothing: there is no index to drop."""
        return ""

    def visit_create_sequence(self, create: Any, prefix: Any = None, **kw: Any) -> str:
        """Refuse a sequence."""
        raise exc.CompileError("Spark has no sequences: use Identity() on a Delta table")

    def options(self, options: Any) -> str:
        """Write ``'key' = 'value'`` pairs in the order given."""
        return ", ".join(
            f"{self._literal(key)} = {self._literal(value)}" for key, value in options.items()
        )

    def _literal(self, value: object) -> str:
        return str(self.sql_compiler.render_literal_value(str(value), sqltypes.String()))

    def _names(self, names: str | tuple[str, ...] | list[str]) -> str:
        given = [names] if isinstance(names, str) else names
        return ", ".join(self.preparer.quote(name) for name in given)


class TidegateTypeCompiler(compiler.GenericTypeCompiler):
    """Writes types by Spark's names."""

    def visit_INTEGER(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - SQLAlchemy's names
        return "INT"

    def visit_TINYINT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "TINYINT"

    def visit_float(self, type_: Any, **kw: Any) -> str:
        # A Python float has 53 bits; Spark's FLOAT keeps 24 of them.
        short = type_.precision is not None and type_.precision <= 24
        return "FLOAT" if short else "DOUBLE"

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "FLOAT"

    def visit_REAL(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "FLOAT"

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return self.visit_DECIMAL(type_, **kw)

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        # Spark's bare DECIMAL is DECIMAL(10, 0), which would truncate every fraction.
        if type_.precision is None:
            return "DECIMAL(38, 18)"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return f"VARCHAR({type_.length})" if type_.length else "STRING"

    def visit_CHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return f"CHAR({type_.length})" if type_.length else "STRING"

    def visit_NVARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return self.visit_VARCHAR(type_, **kw)

    def visit_NCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return self.visit_CHAR(type_, **kw)

    def visit_TEXT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "STRING"

    def visit_CLOB(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "STRING"

    def visit_JSON(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "STRING"

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "STRING"

    def visit_UUID(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "STRING"

    def visit_enum(self, type_: Any, **kw: Any) -> str:
        return "STRING"

    def visit_large_binary(self, type_: Any, **kw: Any) -> str:
        return "BINARY"

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "BINARY"

    def visit_BINARY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "BINARY"

    def visit_VARBINARY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "BINARY"

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "TIMESTAMP"

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "TIMESTAMP"

    def visit_TIMESTAMP_NTZ(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "TIMESTAMP_NTZ"

    def visit_interval(self, type_: Any, **kw: Any) -> str:
        return "INTERVAL DAY TO SECOND"

    def visit_INTERVAL(self, type_: INTERVAL, **kw: Any) -> str:  # noqa: N802
        return f"INTERVAL {type_.fields}"

    def visit_VARIANT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "VARIANT"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        text = str(self.process(type_.item_type, **kw))
        for _ in range(type_.dimensions or 1):
            text = f"ARRAY<{text}>"
        return text

    def visit_SPARK_ARRAY(self, type_: ARRAY, **kw: Any) -> str:  # noqa: N802
        return f"ARRAY<{self.process(type_.item_type, **kw)}>"

    def visit_SPARK_MAP(self, type_: MAP, **kw: Any) -> str:  # noqa: N802
        key, value = self.process(type_.key_type, **kw), self.process(type_.value_type, **kw)
        return f"MAP<{key}, {value}>"

    def visit_SPARK_STRUCT(self, type_: STRUCT, **kw: Any) -> str:  # noqa: N802
        quote = self.dialect.identifier_preparer.quote
        fields = ", ".join(
            f"{quote(name)}: {self.process(field, **kw)}" for name, field in type_.fields
        )
        return f"STRUCT<{fields}>"


CONSTRUCT_ARGUMENTS: list[
    tuple[type[schema.SchemaItem] | type[elements.ClauseElement], Mapping[str, Any]]
] = [
    (
        schema.Table,
        {
            "using": None,
            "partitioned_by": None,
            "cluster_by": None,
            "location": None,
            "properties": None,
        },
    )
]
"""The ``tidegate_…`` arguments of Table."""
