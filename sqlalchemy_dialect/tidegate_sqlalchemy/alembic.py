"""Alembic for Tidegate: migrations with materialized tables, and autogenerate of them.

To enable it, ``import tidegate_sqlalchemy.alembic`` at the head of ``env.py``. Alembic
comes with ``pip install 'tidegate[alembic]'``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.ddl import base
from alembic.ddl.impl import DefaultImpl
from alembic.operations import Operations, ops
from alembic.operations.ops import MigrateOperation, UpgradeOps
from alembic.runtime.plugins import Plugin
from alembic.util import DispatchPriority, PriorityDispatchResult, to_list
from sqlalchemy.ext.compiler import compiles

from tidegate_sqlalchemy.compat import ExecutableDDLElement
from tidegate_sqlalchemy.ddl import (
    AlterMaterializedTableQuery,
    CreateMaterializedTable,
    DefineMaterializedTable,
    DropMaterializedTable,
    Freshness,
    Query,
    RenameMaterializedTable,
    SetMaterializedTableFreshness,
    SetMaterializedTableImmutable,
    SetMaterializedTableRefreshMode,
    SetMaterializedTableRefreshTrigger,
    literal_dialect,
    query_text,
)

_DECLARED = "tidegate.materialized_tables"

Key = tuple[str | None, str]
"""Schema, None for the default one, and name."""


class TidegateImpl(DefaultImpl):
    """Alembic on Spark: DDL is not transactional, the version table is in Delta."""

    __dialect__ = "tidegate"
    transactional_ddl = False

    def version_table_impl(
        self,
        *,
        version_table: str,
        version_table_schema: str | None,
        version_table_pk: bool,
        **kw: Any,
    ) -> sa.Table:
        """Return the table of versions, in Delta, the only format with UPDATE and DELETE."""
        return sa.Table(
            version_table,
            sa.MetaData(),
            sa.Column("version_num", sa.String(32), nullable=False),
            schema=version_table_schema,
            tidegate_using="delta",
        )


@compiles(base.ColumnName, "tidegate")
def _rename_column(element: base.ColumnName, compiler: Any, **kw: Any) -> str:
    table = base.alter_table(compiler, element.table_name, element.schema)
    old = base.format_column_name(compiler, element.column_name)
    return f"{table} RENAME COLUMN {old} TO {base.format_column_name(compiler, element.newname)}"


@compiles(base.ColumnComment, "tidegate")
def _comment_column(element: base.ColumnComment, compiler: Any, **kw: Any) -> str:
    table = base.alter_table(compiler, element.table_name, element.schema)
    column = base.format_column_name(compiler, element.column_name)
    comment = compiler.sql_compiler.render_literal_value(element.comment or "", sa.String())
    return f"{table} ALTER COLUMN {column} COMMENT {comment}"


# ---- declaring ---------------------------------------------------------------------------------


def declare(metadata: sa.MetaData, table: CreateMaterializedTable) -> CreateMaterializedTable:
    """Declare that a materialized table belongs to a MetaData, for autogenerate to compare.

    :raises sqlalchemy.exc.ArgumentError: if one of that name is already declared.
    """
    declared = metadata.info.setdefault(_DECLARED, {})
    key = (table.schema, table.name)
    if key in declared:
        raise sa.exc.ArgumentError(f"materialized table {table.name} is already declared")
    declared[key] = table
    return table


# ---- operations --------------------------------------------------------------------------------


@Operations.register_operation("create_materialized_table")
class CreateMaterializedTableOp(MigrateOperation):
    """``op.create_materialized_table(name, query, …)``; undone by dropping it.

    ``previous`` is the statement that restores the altered table, ``new_columns`` says whether
    that needs the table to be dropped and created again.
    """

    def __init__(
        self,
        table: CreateMaterializedTable,
        previous: str | None = None,
        *,
        new_columns: bool = False,
    ) -> None:
        self.table = table
        self.previous = previous
        self.new_columns = new_columns

    @classmethod
    def create_materialized_table(
        cls, operations: Operations, name: str, query: Query, **clauses: Any
    ) -> None:
        """Create a materialized table; ``clauses`` are those of CreateMaterializedTable."""
        operations.invoke(cls(CreateMaterializedTable(name, query, **clauses)))

    def reverse(self) -> MigrateOperation:
        """Return the reverse operation."""
        drop = DropMaterializedTableOp(self.table.name, schema=self.table.schema)
        if self.previous is None:
            return drop
        return DefineMaterializedTableOp(self.previous, after=drop if self.new_columns else None)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return the operation as ``alembic check`` reports it."""
        verb = "add" if self.previous is None else "modify"
        return (f"{verb}_materialized_table", self.table.schema, self.table.name)


@Operations.register_operation("drop_materialized_table")
class DropMaterializedTableOp(MigrateOperation):
    """``op.drop_materialized_table(name)``; undone by creating it with its last definition."""

    def __init__(
        self,
        name: str,
        *,
        schema: str | None = None,
        if_exists: bool = False,
        definition: str | None = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.if_exists = if_exists
        self.definition = definition

    @classmethod
    def drop_materialized_table(
        cls,
        operations: Operations,
        name: str,
        *,
        schema: str | None = None,
        if_exists: bool = False,
    ) -> None:
        """Drop a materialized table and its data."""
        operations.invoke(cls(name, schema=schema, if_exists=if_exists))

    def reverse(self) -> MigrateOperation:
        """Return the reverse operation.

        :raises ValueError: if the definition is unknown.
        """
        if self.definition is None:
            raise ValueError(f"the definition of {self.name} is not known: it cannot be restored")
        return DefineMaterializedTableOp(self.definition)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return the operation as ``alembic check`` reports it."""
        return ("remove_materialized_table", self.schema, self.name)


@Operations.register_operation("define_materialized_table")
class DefineMaterializedTableOp(MigrateOperation):
    """``op.define_materialized_table(statement)``: a definition as the server shows it.

    ``after`` is the operation written before it.
    """

    def __init__(self, statement: str, after: DropMaterializedTableOp | None = None) -> None:
        self.statement = statement
        self.after = after

    @classmethod
    def define_materialized_table(cls, operations: Operations, statement: str) -> None:
        """Run a CREATE [OR ALTER] MATERIALIZED TABLE as SHOW CREATE prints it."""
        operations.invoke(cls(statement))


@Operations.register_operation("alter_materialized_table")
class AlterMaterializedTableOp(MigrateOperation):
    """``op.alter_materialized_table(name, …)``: one ALTER for each part that is given."""

    def __init__(self, changes: tuple[ExecutableDDLElement, ...]) -> None:
        self.changes = changes

    @classmethod
    def alter_materialized_table(
        cls,
        operations: Operations,
        name: str,
        *,
        schema: str | None = None,
        query: Query | None = None,
        freshness: Freshness | None = None,
        refresh_mode: str | None = None,
        refresh_trigger: str | None = None,
        immutable_where: str | None = None,
        drop_immutable: bool = False,
    ) -> None:
        """Change parts of a definition; parts left out are kept."""
        changes: list[ExecutableDDLElement] = []
        if query is not None:
            changes.append(AlterMaterializedTableQuery(name, query, schema=schema))
        if freshness is not None:
            changes.append(SetMaterializedTableFreshness(name, freshness, schema=schema))
        if refresh_mode is not None:
            changes.append(SetMaterializedTableRefreshMode(name, refresh_mode, schema=schema))
        if refresh_trigger is not None:
            changes.append(SetMaterializedTableRefreshTrigger(name, refresh_trigger, schema=schema))
        if immutable_where is not None or drop_immutable:
            changes.append(SetMaterializedTableImmutable(name, immutable_where, schema=schema))
        operations.invoke(cls(tuple(changes)))


@Operations.register_operation("rename_materialized_table")
class RenameMaterializedTableOp(MigrateOperation):
    """``op.rename_materialized_table(name, new_name)``."""

    def __init__(self, name: str, new_name: str, schema: str | None = None) -> None:
        self.name = name
        self.new_name = new_name
        self.schema = schema

    @classmethod
    def rename_materialized_table(
        cls, operations: Operations, name: str, new_name: str, *, schema: str | None = None
    ) -> None:
        """Rename a materialized table within its schema."""
        operations.invoke(cls(name, new_name, schema))

    def reverse(self) -> RenameMaterializedTableOp:
        """Return the reverse operation."""
        return RenameMaterializedTableOp(self.new_name, self.name, self.schema)


@Operations.implementation_for(CreateMaterializedTableOp)
def _create(operations: Operations, operation: CreateMaterializedTableOp) -> None:
    operations.execute(operation.table)


@Operations.implementation_for(DropMaterializedTableOp)
def _drop(operations: Operations, operation: DropMaterializedTableOp) -> None:
    operations.execute(
        DropMaterializedTable(
            operation.name, schema=operation.schema, if_exists=operation.if_exists
        )
    )


@Operations.implementation_for(DefineMaterializedTableOp)
def _define(operations: Operations, operation: DefineMaterializedTableOp) -> None:
    operations.execute(DefineMaterializedTable(operation.statement))


@Operations.implementation_for(AlterMaterializedTableOp)
def _alter(operations: Operations, operation: AlterMaterializedTableOp) -> None:
    for change in operation.changes:
        operations.execute(change)


@Operations.implementation_for(RenameMaterializedTableOp)
def _rename(operations: Operations, operation: RenameMaterializedTableOp) -> None:
    operations.execute(
        RenameMaterializedTable(operation.name, operation.new_name, schema=operation.schema)
    )


# ---- autogenerate: what is written into a migration --------------------------------------------


@renderers.dispatch_for(CreateMaterializedTableOp)
def _render_create(context: AutogenContext, operation: CreateMaterializedTableOp) -> str:
    table = operation.table
    query = query_text(table.query, context.dialect)
    lines = [repr(table.name), _block(query)]
    lines += [f"{name}={value!r}" for name, value in table.clauses().items()]
    return f"op.create_materialized_table({', '.join(lines)})"


@renderers.dispatch_for(DropMaterializedTableOp)
def _render_drop(context: AutogenContext, operation: DropMaterializedTableOp) -> str:
    schema = f", schema={operation.schema!r}" if operation.schema is not None else ""
    return f"op.drop_materialized_table({operation.name!r}{schema})"


@renderers.dispatch_for(DefineMaterializedTableOp)
def _render_define(context: AutogenContext, operation: DefineMaterializedTableOp) -> list[str]:
    before = [] if operation.after is None else [_render_drop(context, operation.after)]
    return [*before, f"op.define_materialized_table({_block(operation.statement)})"]


def _block(text: str) -> str:
    """Return a text as Python's literal, one line per line."""
    lines = text.splitlines(keepends=True)
    return repr(text) if len(lines) < 2 else "(" + "\n".join(map(repr, lines)) + ")"


# ---- autogenerate: what differs ----------------------------------------------------------------


def compare(
    context: AutogenContext, upgrade: UpgradeOps, schemas: set[str | None]
) -> PriorityDispatchResult:
    """Add the operations that turn the server's materialized tables into the declared ones.

    The server itself finds the differences, by EXPLAIN CREATE OR ALTER. Materialized tables
    without a declaration are ignored; Alembic never mistakes them for tables.
    """
    connection = context.connection
    assert connection is not None  # Alembic compares online only
    declared: Mapping[Key, CreateMaterializedTable] = {
        (_schema(schema, context), name): table
        for metadata in to_list(context.metadata, [])
        for (schema, name), table in metadata.info.get(_DECLARED, {}).items()
    }
    found = {key for schema in schemas for key in _existing(connection, schema)}
    _forget(upgrade, found | declared.keys())
    if not declared:
        return PriorityDispatchResult.CONTINUE
    gone = sorted(found - declared.keys(), key=str)
    drops = [_dropping(connection, key) for key in gone if _concerns(key, context)]
    upgrade.ops[:0] = drops
    for key, table in declared.items():
        if key[0] in schemas:
            upgrade.ops += _bringing(connection, key, table, exists=key in found)
    return PriorityDispatchResult.CONTINUE


def _schema(schema: str | None, context: AutogenContext) -> str | None:
    """Return None for the default schema, as Alembic does."""
    dialect: Any = context.dialect
    return None if schema == dialect.default_schema_name else schema


def _existing(connection: sa.Connection, schema: str | None) -> Iterator[Key]:
    dialect: Any = connection.dialect
    for name in dialect.get_materialized_table_names(connection, schema):
        yield schema, name


def _concerns(key: Key, context: AutogenContext) -> bool:
    schema, name = key
    return context.run_name_filters(name, "table", {"schema_name": schema})


def _bringing(
    connection: sa.Connection, key: Key, table: CreateMaterializedTable, *, exists: bool
) -> list[MigrateOperation]:
    """Return the operations that turn one table into its declaration."""
    if not exists:
        return [CreateMaterializedTableOp(table)]
    wanted = table.altering()
    statement = str(wanted.compile(dialect=literal_dialect(connection.dialect)))
    changes = connection.exec_driver_sql(f"EXPLAIN {statement}").all()
    if any(change.effect == "REJECTED" for change in changes):
        return [_dropping(connection, key), CreateMaterializedTableOp(table)]
    if not changes:
        return []
    previous = _show_create(connection, key, "CREATE OR ALTER")
    columns = any(change.object.startswith("COLUMN ") for change in changes)
    return [CreateMaterializedTableOp(wanted, previous, new_columns=columns)]


def _dropping(connection: sa.Connection, key: Key) -> MigrateOperation:
    definition = _show_create(connection, key, "CREATE")
    return DropMaterializedTableOp(key[1], schema=key[0], definition=definition)


def _show_create(connection: sa.Connection, key: Key, create: str) -> str:
    prepare = connection.dialect.identifier_preparer
    schema = f"{prepare.quote_schema(key[0])}." if key[0] is not None else ""
    name = f"{schema}{prepare.quote(key[1])}"
    return str(connection.exec_driver_sql(f"SHOW {create} MATERIALIZED TABLE {name}").scalar())


def _forget(upgrade: UpgradeOps, keys: set[Key]) -> None:
    """Remove Alembic's proposals for materialized tables, which it mistook for tables."""
    tables = (ops.CreateTableOp, ops.DropTableOp, ops.ModifyTableOps)
    upgrade.ops[:] = [
        operation
        for operation in upgrade.ops
        if not isinstance(operation, tables) or (operation.schema, operation.table_name) not in keys
    ]


def setup(plugin: Plugin) -> None:
    """Register :func:`compare`; called once, by this module."""
    plugin.add_autogenerate_comparator(
        compare, "schema", qualifier="tidegate", priority=DispatchPriority.LAST
    )


setup(Plugin("alembic.autogenerate.tidegate"))
