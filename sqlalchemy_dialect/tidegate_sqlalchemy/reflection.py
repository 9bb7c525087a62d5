"""Inspector methods on the driver's metadata calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc
from sqlalchemy.engine import Connection

from tidegate.lexical import escape_pattern
from tidegate_sqlalchemy.compat import cache
from tidegate_sqlalchemy.types import parse_type

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import (
        ReflectedColumn,
        ReflectedForeignKeyConstraint,
        ReflectedIndex,
        ReflectedPrimaryKeyConstraint,
        ReflectedTableComment,
    )

_SIZED = {"DECIMAL": "{size},{digits}", "VARCHAR": "{size}", "CHAR": "{size}"}

MetadataRow = dict[str, Any]


class ReflectionMixin:
    """The Inspector's methods; none runs a query, so the Spark engine need not be running."""

    default_schema_name: str | None
    identifier_preparer: Any
    loaded_dbapi: Any

    @cache
    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """Return the names of all schemas, with ``catalog=`` those of another catalog."""
        catalog = kw.get("catalog")
        rows = _metadata(connection, lambda cursor: cursor.schemas(catalog=catalog))
        return [row["TABLE_SCHEM"] for row in rows]

    @cache
    def get_table_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """Return the names of tables; a materialized table is one of them."""
        return self._names_of(connection, schema, "TABLE")

    @cache
    def get_materialized_table_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """Return the names of materialized tables only; none on other servers."""
        return self._names_of(connection, schema, "MATERIALIZED_TABLE")

    @cache
    def get_materialized_view_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """Return the names of materialized tables, which ``get_table_names`` lists, too."""
        return self._names_of(connection, schema, "MATERIALIZED_TABLE")

    @cache
    def get_materialized_table_definition(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        """Return the statement that creates an equal materialized table."""
        if table_name not in self._names_of(connection, schema, "MATERIALIZED_TABLE", table_name):
            raise exc.NoSuchTableError(table_name)
        name = self._qualified(table_name, schema)
        statement = f"SHOW CREATE MATERIALIZED TABLE {name}"
        return str(connection.exec_driver_sql(statement).scalar())

    @cache
    def get_view_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """Return the names of views."""
        return self._names_of(connection, schema, "VIEW")

    @cache
    def get_temp_table_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """Return nothing: Spark has temporary views, no temporary tables."""
        return []

    @cache
    def get_temp_view_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """Return the names of the session's temporary views."""
        rows = connection.exec_driver_sql("SHOW VIEWS").mappings()
        return [row["viewName"] for row in rows if row["isTemporary"]]

    @cache
    def get_view_definition(
        self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        """Return the statement that creates a view."""
        if self._require(connection, view_name, schema)["TABLE_TYPE"] != "VIEW":
            raise exc.NoSuchTableError(view_name)
        name = self._qualified(view_name, schema)
        return str(connection.exec_driver_sql(f"SHOW CREATE TABLE {name}").scalar())

    @cache
    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Return whether a table, view or materialized table of that name exists."""
        return self._find(connection, table_name, schema) is not None

    def has_sequence(
        self, connection: Connection, sequence_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Return False: Spark has no sequences."""
        return False

    @cache
    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedColumn]:
        """Return the columns with types, nullability, comments."""
        pattern = (self._pattern_of(schema), escape_pattern(table_name))
        catalog = _catalog_of(schema)
        rows = _metadata(connection, lambda cursor: cursor.columns(*pattern, catalog=catalog))
        own = [row for row in rows if row["TABLE_NAME"].lower() == table_name.lower()]
        if not own and not self.has_table(connection, table_name, schema):
            raise exc.NoSuchTableError(table_name)
        own.sort(key=lambda row: int(row["ORDINAL_POSITION"] or 0))
        return [_column(row) for row in own]

    @cache
    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> ReflectedPrimaryKeyConstraint:
        """Return the declared primary key of a materialized table, or an empty one."""
        self._require(connection, table_name, schema)
        # In contrast to the other calls, this one takes names, not patterns.
        names = (self._schema_of(schema), table_name)
        try:
            rows = _metadata(connection, lambda cursor: cursor.primary_keys(*names))
        except self.loaded_dbapi.NotSupportedError:
            rows = []  # Spark's own server does not know the call
        rows.sort(key=lambda row: int(row["KEY_SEQ"] or 0))
        name = rows[0]["PK_NAME"] if rows else None
        return {"constrained_columns": [row["COLUMN_NAME"] for row in rows], "name": name}

    @cache
    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedForeignKeyConstraint]:
        """Return nothing: there are no foreign keys."""
        self._require(connection, table_name, schema)
        return []

    @cache
    def get_indexes(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedIndex]:
        """Return nothing: there are no indexes."""
        self._require(connection, table_name, schema)
        return []

    @cache
    def get_unique_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return nothing: there are no unique constraints."""
        self._require(connection, table_name, schema)
        return []

    @cache
    def get_check_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return nothing: check constraints are not shown by the metadata calls."""
        self._require(connection, table_name, schema)
        return []

    @cache
    def get_table_comment(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> ReflectedTableComment:
        """Return the comment of a table."""
        row = self._require(connection, table_name, schema)
        return {"text": row["REMARKS"] or None}

    def _qualified(self, name: str, schema: str | None) -> str:
        """Return a name as text that is sent unchanged."""
        quoted = self.identifier_preparer.quote(name)
        if schema is not None:
            quoted = f"{self.identifier_preparer.quote_schema(schema)}.{quoted}"
        # The preparer doubles percent signs.
        return str(quoted).replace("%%", "%")

    def _names_of(
        self, connection: Connection, schema: str | None, kind: str, name: str | None = None
    ) -> list[str]:
        pattern = self._pattern_of(schema)
        catalog = _catalog_of(schema)
        table = "%" if name is None else escape_pattern(name)
        rows = _metadata(
            connection, lambda cursor: cursor.tables(pattern, table, [kind], catalog=catalog)
        )
        return list(dict.fromkeys(row["TABLE_NAME"] for row in rows))

    def _require(self, connection: Connection, table: str, schema: str | None) -> MetadataRow:
        row = self._find(connection, table, schema)
        if row is None:
            raise exc.NoSuchTableError(table)
        return row

    def _find(self, connection: Connection, table: str, schema: str | None) -> MetadataRow | None:
        pattern = self._pattern_of(schema)
        catalog = _catalog_of(schema)
        rows = _metadata(
            connection,
            lambda cursor: cursor.tables(pattern, escape_pattern(table), catalog=catalog),
        )
        return next((row for row in rows if row["TABLE_NAME"].lower() == table.lower()), None)

    def _schema_of(self, schema: str | None) -> str | None:
        """Return the schema of ``catalog.schema``, or the default one."""
        given = self.default_schema_name if schema is None else schema
        return None if given is None else given.rpartition(".")[2]

    def _pattern_of(self, schema: str | None) -> str | None:
        name = self._schema_of(schema)
        return None if name is None else escape_pattern(name)


def _catalog_of(schema: str | None) -> str | None:
    """Return the catalog of ``catalog.schema`` as a pattern; None for a schema alone."""
    catalog = (schema or "").rpartition(".")[0]
    return escape_pattern(catalog) if catalog else None


def _metadata(connection: Connection, call: Callable[[Any], object]) -> list[MetadataRow]:
    """Return the rows of one metadata call, by column names in capitals."""
    cursor: Any = connection.connection.cursor()
    try:
        call(cursor)
        names = [str(column[0]).upper() for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    finally:
        cursor.close()


def _column(row: MetadataRow) -> ReflectedColumn:
    return {
        "name": row["COLUMN_NAME"],
        "type": parse_type(_type_text(row)),
        "nullable": row["IS_NULLABLE"] != "NO",
        "default": row["COLUMN_DEF"],
        "comment": row["REMARKS"] or None,
    }


def _type_text(row: MetadataRow) -> str:
    """Return the full type; Hive's servers put the sizes of a type into other columns."""
    name = str(row["TYPE_NAME"])
    sizes = _SIZED.get(name.upper())
    if sizes is None or row["COLUMN_SIZE"] is None:
        return name
    return f"{name}({sizes.format(size=row['COLUMN_SIZE'], digits=row['DECIMAL_DIGITS'] or 0)})"
