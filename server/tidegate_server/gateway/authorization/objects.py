"""Looks up objects with their kinds and owners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import FindObject, ListNames
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    STORAGE_PREFIX,
    SYSTEM_SCHEMA,
    TableName,
)
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.core.sql.privilege_statements import (
    OnObject,
)
from tidegate_server.gateway.authorization.rights import (
    SecuredObject,
    secured,
    secured_external,
    secured_schema,
    secured_table,
)
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.definition import resolve


def find_object(on: OnObject, context: Context) -> SecuredObject:
    """Return the object that a statement names; waits for an engine unless it is materialized.

    :raises ServerError: OBJECT_NOT_FOUND, OBJECT_WRONG_KIND, SCHEMA_NOT_FOUND, MT_NOT_FOUND or
        MT_WRONG_KIND; NOT_SUPPORTED for what belongs to the system or to a materialized table.
    """
    match on.kind:
        case SecuredKind.SCHEMA:
            return _schema(on, context)
        case SecuredKind.MATERIALIZED_TABLE:
            return secured_table(resolve.materialized_table(on.name, context))
        case SecuredKind.FUNCTION:
            return _function(on, context)
        case SecuredKind.TABLE | SecuredKind.VIEW:
            return _relation(on, context)
        case SecuredKind.CATALOG if on.name == (DEFAULT_CATALOG,):
            hint = "Grant the privilege on each schema."
            raise error(
                Code.NOT_SUPPORTED, what=f"An owner or a grant of {DEFAULT_CATALOG}", hint=hint
            )
        case SecuredKind.EXTERNAL_LOCATION | SecuredKind.CONNECTION | SecuredKind.CATALOG:
            (name,) = on.name
            found = find_external(on.kind, name, context.services)
            if found is None:
                raise error(Code.OBJECT_NOT_FOUND, kind=on.kind, name=name)
            return secured_external(found)


def find_external(kind: SecuredKind, name: str, services: Services) -> ExternalObject | None:
    """Return the external location, connection or catalog of a name in lower case."""
    return next((each for each in services.external.all(kind) if each.name == name), None)


def find_schema(catalog: str, schema: str, services: Services) -> SecuredObject | None:
    """Return a schema with its owner; None if there is none. Waits for an engine."""
    name = TableName(catalog, schema, "")
    found = services.engine.call(FindObject(kind=SecuredKind.SCHEMA, name=name))
    return None if found.kind is None else secured_schema(catalog, schema, found.owner)


def owner_of_function(name: TableName, services: Services) -> str:
    """Return the owner of an existing function."""
    return services.privileges.function_owners().get(name.folded(), UNOWNED)


def _schema(on: OnObject, context: Context) -> SecuredObject:
    catalog, schema = (part.lower() for part in resolve.schema_name(on.name, context))
    if schema == SYSTEM_SCHEMA:
        hint = "Every user sees the rows of the tables that the user may see."
        raise error(Code.NOT_SUPPORTED, what=f"An owner or a grant of {schema}", hint=hint)
    found = find_schema(catalog, schema, context.services)
    if found is None:
        raise error(Code.SCHEMA_NOT_FOUND, schema=f"{catalog}.{schema}")
    return found


def _function(on: OnObject, context: Context) -> SecuredObject:
    name = resolve.table_name(on.name, context)
    found = context.services.engine.call(FindObject(kind=on.kind, name=name))
    if found.kind is None:
        raise error(Code.OBJECT_NOT_FOUND, kind=on.kind, name=name)
    return secured(on.kind, name, owner_of_function(name, context.services))


def _relation(on: OnObject, context: Context) -> SecuredObject:
    name = resolve.table_name(on.name, context)
    table = context.services.catalog.find(name)
    if table is not None:
        found = secured_table(table)
    else:
        _refuse_part(name, context.services)
        answer = context.services.engine.call(FindObject(kind=on.kind, name=name))
        if answer.kind is None:
            raise error(Code.OBJECT_NOT_FOUND, kind=on.kind, name=name)
        found = secured(answer.kind, name, answer.owner)
    if on.kind is SecuredKind.VIEW and found.kind is not SecuredKind.VIEW:
        raise error(
            Code.OBJECT_WRONG_KIND,
            name=name,
            found=found.kind,
            expected=on.kind,
            wanted=found.kind.value,
        )
    return found


def _refuse_part(name: TableName, services: Services) -> None:
    """Reject the storage and the quarantine of a materialized table."""
    folded = name.folded()
    for table in services.catalog.tables():
        parts = (table.storage, *([] if table.quarantine is None else [table.quarantine]))
        if folded in {part.folded() for part in parts}:
            hint = f"Name the materialized table {table.name}: its privileges apply."
            raise error(Code.NOT_SUPPORTED, what=f"An owner or a grant of {name}", hint=hint)


# ---- every object ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObjects:
    """The schemas, plain tables and views of the metastore, with their owners."""

    schemas: tuple[SecuredObject, ...]
    relations: tuple[SecuredObject, ...]

    def __iter__(self) -> Iterator[SecuredObject]:
        yield from self.schemas
        yield from self.relations


def list_objects(services: Services, *, wait: float | None = None) -> ListedObjects:
    """Return what is in the metastore, without the storage of materialized tables.

    :raises ServerError: ENGINE_UNAVAILABLE.
    """
    answer = services.engine.call(ListNames(with_owners=True), wait=wait)
    ours = {name.folded() for t in services.catalog.tables() for name in (t.name, t.storage)}
    relations = []
    for each in answer.schemas:
        for names, kind in ((each.tables, SecuredKind.TABLE), (each.views, SecuredKind.VIEW)):
            for table in names:
                name = TableName(DEFAULT_CATALOG, each.schema, table)
                if name.folded() not in ours and not table.startswith(STORAGE_PREFIX):
                    relations.append(secured(kind, name, each.owners.get(table, "")))
    schemas = (secured_schema(DEFAULT_CATALOG, each.schema, each.owner) for each in answer.schemas)
    return ListedObjects(schemas=tuple(schemas), relations=tuple(relations))
