"""Lists of Spark without the objects that a user may not see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    SYSTEM_SCHEMA,
    FunctionName,
    TableName,
)
from tidegate_server.core.model.privileges import CATALOG_KINDS, UNOWNED, SecuredKind
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.sql.statements import ListingKind
from tidegate_server.gateway.authorization.features import allowed_features, usable_catalogs
from tidegate_server.gateway.authorization.objects import list_objects
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    secured,
    secured_external,
    secured_schema,
)
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.context import Context, Services

_ALWAYS_VISIBLE = frozenset({SYSTEM_SCHEMA, "global_temp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleNames:
    """What a user may see in the metastore; names in lower case."""

    schemas: frozenset[str]
    relations: frozenset[tuple[str, str]]
    """Schema and name of plain and materialized tables and of views."""
    functions: Callable[[FunctionName], bool]


def visible_catalogs(context: Context) -> tuple[ExternalObject, ...]:
    """Return the catalogs and connections that a user may use or has a privilege on."""
    services, user = context.services, context.session.user
    found = [each for kind in CATALOG_KINDS for each in services.external.all(kind)]
    if allowed_features(user, services) is None:
        return tuple(found)
    rights = rights_of(user, services)
    if rights is None:
        usable = usable_catalogs(rights, services)
        return tuple(each for each in found if each.name in usable)
    return tuple(
        each for each in found if each.is_alias or rights.may(Action.SEE, secured_external(each))
    )


def visible_names(services: Services, rights: Rights) -> VisibleNames:
    """Return what a user may see; asks the engine."""
    listed = list_objects(services)
    relations = {
        (on.schema.lower(), on.name.lower())
        for on in listed.relations
        if rights.may(Action.SEE, on)
    }
    for table in rights.visible(services.catalog.tables()):
        names = (table.name, table.storage, table.quarantine)
        relations |= {(n.schema.lower(), n.table.lower()) for n in names if n is not None}
    schemas = visible_schemas(
        ((on.schema, on.owner) for on in listed.schemas), {s for s, _ in relations}, rights
    )
    return VisibleNames(
        schemas=_ALWAYS_VISIBLE.union(map(str.lower, schemas)),
        relations=frozenset(relations),
        functions=function_filter(services, rights),
    )


def visible_schemas(
    schemas: Iterable[tuple[str, str]], within: Collection[str], rights: Rights
) -> tuple[str, ...]:
    """Return the schemas that a user may see.

    :param schemas: names with owners.
    :param within: the schemas, in lower case, with an object that the user may see.
    """
    return tuple(
        schema
        for schema, owner in schemas
        if schema.lower() in _ALWAYS_VISIBLE
        or schema.lower() in within
        or rights.may(Action.SEE, secured_schema(DEFAULT_CATALOG, schema, owner))
    )


def function_filter(services: Services, rights: Rights) -> Callable[[FunctionName], bool]:
    """Return a test of whether a user may see a function; everyone sees built-in ones."""
    owners = services.privileges.function_owners()

    def is_visible(function: FunctionName) -> bool:
        if function.schema is None:
            return True
        name = TableName(DEFAULT_CATALOG, function.schema, function.name)
        owner = owners.get(name.folded(), UNOWNED)
        return rights.may(Action.SEE, secured(SecuredKind.FUNCTION, name, owner))

    return is_visible


def narrow_listing(result: Result, kind: ListingKind, context: Context) -> Result:
    """Return the result of a SHOW statement without what the user may not see."""
    rights = rights_of(context.session.user, context.services)
    if rights is None or rights.administrator:
        return result
    names = visible_names(context.services, rights)
    return _filter(result, lambda row: _is_visible(row, kind, names))


def without_storages(result: Result, catalog: CatalogReader) -> Result:
    """Return the result of SHOW TABLES without the storage tables that views hide."""
    storages = {t.storage.folded() for t in catalog.tables() if t.storage_table is not None}
    hidden = {(name.schema, name.table) for name in storages}
    return _filter(result, lambda row: _place(row) not in hidden) if hidden else result


def _filter(result: Result, keep: Callable[[tuple[Any, ...]], bool]) -> Result:
    """Return a result with some of its rows; closes the given one."""
    batches = list(result.batches(0))
    if not batches:
        return result
    with closing(result):
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    shown = [row for row in rows if keep(row)]
    return RowsResult(result.schema, shown, types=tuple(batches[0].schema.types))


def _place(row: tuple[Any, ...]) -> tuple[str, str]:
    return str(row[0]).lower(), str(row[1]).lower()


def _is_visible(row: tuple[Any, ...], kind: ListingKind, names: VisibleNames) -> bool:
    first = str(row[0]).lower()
    match kind:
        case ListingKind.SCHEMAS:
            return first.removeprefix(f"{DEFAULT_CATALOG}.") in names.schemas
        case ListingKind.FUNCTIONS:
            parts = first.split(".")
            schema = parts[-2] if len(parts) > 1 else None
            return names.functions(FunctionName(parts[-1], schema))
        case ListingKind.TABLES | ListingKind.TABLE_EXTENDED | ListingKind.VIEWS:
            shown = _place(row) in names.relations
            return shown or bool(row[2]) or first == SYSTEM_SCHEMA
