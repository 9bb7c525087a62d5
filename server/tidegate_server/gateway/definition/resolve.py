"""Completion and lookup of names."""

from __future__ import annotations

import re

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import TableList
from tidegate_server.core.messages.requests import InspectTable, ListCatalog, ListTables
from tidegate_server.core.model.external import ICEBERG_TYPE
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName, qualify
from tidegate_server.core.model.privileges import CATALOG_KINDS, SecuredKind
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.sql.statements import Name
from tidegate_server.gateway.context import Context, Services

_FULL = 3
"""The parts of a name with a catalog."""


def table_name(name: Name, context: Context) -> TableName:
    """Complete a name from the session and fold it like the metastore."""
    named = canonical_name(name, context.services)
    return qualify(named, context.session.catalog, context.session.schema).folded()


def canonical_name(name: Name, services: Services) -> Name:
    """Return a name with the session catalog instead of an alias of it."""
    return (canonical_catalog(name[0], services), *name[1:]) if len(name) == _FULL else name


def canonical_catalog(catalog: str, services: Services) -> str:
    """Return the session catalog for its aliases; any other name as it is."""
    if catalog.lower() == DEFAULT_CATALOG:
        return catalog
    known = services.external.all(SecuredKind.CATALOG)
    alias = any(each.is_alias and each.name == catalog.lower() for each in known)
    return DEFAULT_CATALOG if alias else catalog


def schema_name(name: Name, context: Context) -> tuple[str, str]:
    """Complete a schema name of up to two parts; returns catalog and schema."""
    match name:
        case ():
            return context.session.catalog, context.session.schema
        case (schema,):
            return context.session.catalog, schema
        case (catalog, schema):
            return canonical_catalog(catalog, context.services), schema
        case _:
            raise error(
                Code.INVALID_REQUEST, reason=f"{'.'.join(name)} is not the name of a schema"
            )


def check_catalog(catalog: str, context: Context) -> None:
    """Reject a catalog that does not support materialized tables.

    :raises ServerError: NOT_SUPPORTED.
    """
    name = catalog.lower()
    known = [
        each
        for kind in CATALOG_KINDS
        for each in context.services.external.all(kind)
        if each.name == name
    ]
    if name == DEFAULT_CATALOG or any(each.stores_materialized_tables for each in known):
        return
    hint = f"They are in {DEFAULT_CATALOG} and in catalogs of the type {ICEBERG_TYPE}."
    if known:
        hint = (
            "A refresh commits rows together with the versions of its sources, which only the "
            f"tables of {DEFAULT_CATALOG} and of catalogs of the type {ICEBERG_TYPE} can. Write "
            f"{DEFAULT_CATALOG}.schema.table; its query can read tables of {catalog}."
        )
    what = f"A materialized table in the catalog {catalog}"
    raise error(Code.NOT_SUPPORTED, what=what, hint=hint)


def check_schema(catalog: str, schema: str, context: Context) -> None:
    """Reject a missing schema; without a running engine every name is accepted.

    :raises ServerError: SCHEMA_NOT_FOUND.
    """
    if not context.services.engine.ready:
        return
    found = list_schema(TableName(catalog, schema, ""), context, names=(), wait=0)
    if schema.lower() not in {name.lower() for name in found.schemas}:
        raise error(Code.SCHEMA_NOT_FOUND, schema=f"{catalog}.{schema}")


def list_schema(
    name: TableName, context: Context, *, names: tuple[str, ...], wait: float | None
) -> TableList:
    """Return a schema with those of its tables that are named."""
    engine = context.services.engine
    if not name.is_foreign:
        return engine.call(ListTables(schema=name.schema, names=names), wait=wait)
    context.services.ensure_catalogs(context.session.user)
    request = ListCatalog(
        name=name.catalog.lower(),
        schemas=re.escape(name.schema),
        tables="|".join(map(re.escape, names)) if names else None,
    )
    return engine.call(request, wait=wait)


def find(name: Name, context: Context) -> MaterializedTable | None:
    """Return the materialized table with this name, or None."""
    return context.services.catalog.find(table_name(name, context))


def materialized_table(name: Name, context: Context) -> MaterializedTable:
    """Return the materialized table with this name.

    :raises ServerError: MT_NOT_FOUND, or MT_WRONG_KIND if it is a plain table or a view.
    """
    table = find(name, context)
    if table is None:
        raise missing(table_name(name, context), context, wait=0)
    return table


def missing(name: TableName, context: Context, *, wait: float | None) -> ServerError:
    """Return the error for a missing materialized table.

    ``wait`` is the time in seconds to wait for the engine, which knows plain tables.
    """
    kind = plain_kind(name, context, wait=wait)
    if kind is None:
        return error(Code.MT_NOT_FOUND, table=name, name=name.table)
    hint = f"Use the statements for {kind.split()[-1].upper()}."
    if is_stray(name, context, wait=wait):
        hint = (
            "It has the properties of a materialized table that this server does not know. An "
            f"administrator can remove them: ALTER MATERIALIZED TABLE {name} CONVERT TO TABLE."
        )
    return error(
        Code.MT_WRONG_KIND,
        table=name,
        found=kind,
        expected="a materialized table",
        hint=hint,
        name=name.table,
    )


def is_stray(name: TableName, context: Context, *, wait: float | None) -> bool:
    """Return whether a table or view only has the mark of a materialized table.

    With ``wait=0`` and no running engine the result is False.
    """
    engine = context.services.engine
    if wait == 0 and not engine.ready:
        return False
    found = engine.call(InspectTable(name=name), wait=wait)
    locations = (found.location,) if found.location else ()
    return found.materialized_id is not None and not context.services.catalog.tables_at(
        (name,), locations
    )


def plain_kind(name: TableName, context: Context, *, wait: float | None) -> str | None:
    """Return ``a table`` or ``a view`` if it exists in Spark, else None.

    With ``wait=0`` and no running engine the result is None.
    """
    engine = context.services.engine
    if wait == 0 and not engine.ready:
        return None
    found = list_schema(name, context, names=(name.table,), wait=wait)
    for table in found.tables:
        if table.name.folded() == name.folded():
            return "a view" if table.type == "VIEW" else "a table"
    return None
