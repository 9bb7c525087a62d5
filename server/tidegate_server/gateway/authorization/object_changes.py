"""Makes grants, and the owners of objects, follow what Spark does to them.

Grants on plain objects refer to names. After a statement has created, dropped or renamed an object,
the store is updated; an object that was replaced gets its owner back. If the gateway or the engine
dies in between, :func:`reconcile` repairs that at the next start of an engine. Until then a grant
may refer to an object that is gone; it does not apply to a new object of the same name unless that
has the same owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import ObjectFound
from tidegate_server.core.messages.requests import FindObject, ListFunctions, SetObjectOwner
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName, qualify
from tidegate_server.core.model.privileges import (
    UNOWNED,
    GrantObject,
    NamedObject,
    SchemaObject,
    SecuredKind,
    ServerObject,
    TableObject,
)
from tidegate_server.core.sql.statements import Name, ObjectAct, ObjectChange, StatementFacts
from tidegate_server.gateway.authorization.objects import list_objects
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.definition import resolve

log = logging.getLogger(__name__)

_RELATIONS = frozenset({SecuredKind.TABLE, SecuredKind.VIEW})


@contextmanager
def following_changes(facts: StatementFacts, context: Context) -> Iterator[None]:
    """After the block, record what a statement has done to the objects that it names."""
    change, services = facts.change, context.services
    if change is None or not change.name:
        yield
        if change is not None or facts.runs_others:
            _log_failure(lambda: reconcile(services))
        return
    if _is_temporary(change, context):
        yield
        return
    name, user = _qualified(change.kind, change.name, context), context.session.user
    before = _find(change.kind, name, services) if change.may_exist else ObjectFound()
    yield
    if before.kind is None:
        _log_failure(lambda: record(change, name, user, services))
    elif change.kind in _RELATIONS:
        _log_failure(lambda: _keep_owner(before, name, services))


def record(change: ObjectChange, name: TableName, user: str, services: Services) -> None:
    """Record that an object was created, dropped or renamed by a user."""
    match change.act:
        case ObjectAct.CREATE:
            if change.kind is SecuredKind.FUNCTION:
                services.privileges.set_function_owner(name, user)
        case ObjectAct.DROP:
            forget(change.kind, name, services)
        case ObjectAct.RENAME:
            new = qualify(change.new_name, name.catalog, name.schema).folded()
            services.privileges.move(lambda on: _renamed(on, name, new))


def forget(kind: SecuredKind, name: TableName, services: Services) -> None:
    """Remove the grants on a dropped object; of a schema, also those on what it contained."""
    folded, store = name.folded(), services.privileges
    store.forget(lambda on: _is_gone(on, kind, folded))
    if kind is SecuredKind.FUNCTION:
        store.set_function_owner(folded, None)
    elif kind is SecuredKind.SCHEMA:
        for function in store.function_owners():
            if (function.catalog, function.schema) == (folded.catalog, folded.schema):
                store.set_function_owner(function, None)


def reconcile(services: Services) -> None:
    """Remove grants on objects that no longer exist, or now belong to another owner.

    :raises ServerError: ENGINE_UNAVAILABLE.
    """
    store = services.privileges
    named = {
        on
        for on in (each.object for each in store.all())
        if isinstance(on, NamedObject | SchemaObject) and on.catalog == DEFAULT_CATALOG
    }
    functions = {name for name in store.function_owners() if name.catalog == DEFAULT_CATALOG}
    if not named and not functions:
        return
    present = {on.grant_object for on in list_objects(services, wait=0)}
    granted = {on: _function_name(on) for on in named}
    if functions or any(granted.values()):
        found = _functions(services)
        for name in functions - found:
            store.set_function_owner(name, None)
        present |= {on for on, function in granted.items() if function in found}
    gone = named - present
    if gone:
        log.info("Removing the grants on %d objects that no longer exist", len(gone))
        store.forget(lambda on: on in gone)


def _log_failure(work: Callable[[], None]) -> None:
    try:
        work()
    except ServerError as problem:
        # Not an error of the statement, which has succeeded.
        log.warning("Grants will follow a change at the next start of an engine: %s", problem)


def _functions(services: Services) -> set[TableName]:
    answer = services.engine.call(ListFunctions(), wait=0)
    return {
        TableName(DEFAULT_CATALOG, f.schema, f.name).folded()
        for f in answer.functions
        if f.schema is not None
    }


def _function_name(on: GrantObject) -> TableName | None:
    if isinstance(on, NamedObject) and on.kind is SecuredKind.FUNCTION:
        return TableName(on.catalog, on.schema, on.name)
    return None


def _is_temporary(change: ObjectChange, context: Context) -> bool:
    """Return whether a name without a schema means a temporary object of the session."""
    if len(change.name) != 1 or change.act is ObjectAct.CREATE:
        return False
    kind = "function" if change.kind is SecuredKind.FUNCTION else "view"
    return f"{kind} {change.name[0].lower()}" in context.session.temporary


def _qualified(kind: SecuredKind, name: Name, context: Context) -> TableName:
    if kind is SecuredKind.SCHEMA:
        catalog, schema = resolve.schema_name(name, context)
        return TableName(catalog, schema, "").folded()
    return resolve.table_name(name, context)


def _find(kind: SecuredKind, name: TableName, services: Services) -> ObjectFound:
    return services.engine.call(FindObject(kind=kind, name=name))


def _keep_owner(before: ObjectFound, name: TableName, services: Services) -> None:
    """Restore the owner of a table or view that was replaced; Spark creates it again."""
    if before.kind is None:
        return
    after = _find(before.kind, name, services)
    if after.kind is before.kind and after.owner != before.owner:
        request = SetObjectOwner(kind=before.kind, name=name, owner=before.owner or UNOWNED)
        services.engine.call(request)


def _is_gone(on: GrantObject, kind: SecuredKind, name: TableName) -> bool:
    match on:
        case TableObject() | ServerObject():
            return False
        case SchemaObject(catalog=catalog, schema=schema):
            return kind is SecuredKind.SCHEMA and (catalog, schema) == (name.catalog, name.schema)
        case NamedObject():
            if (on.catalog, on.schema) != (name.catalog, name.schema):
                return False
            kinds = _RELATIONS if kind in _RELATIONS else {kind}
            return kind is SecuredKind.SCHEMA or (on.name == name.table and on.kind in kinds)


def _renamed(on: GrantObject, name: TableName, new: TableName) -> GrantObject:
    if not isinstance(on, NamedObject) or on.kind not in _RELATIONS:
        return on
    if (on.catalog, on.schema, on.name) != (name.catalog, name.schema, name.table):
        return on
    return replace(on, catalog=new.catalog, schema=new.schema, name=new.table)
