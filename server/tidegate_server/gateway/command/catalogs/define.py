"""CREATE, ALTER and DROP of catalogs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import CheckCatalog
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.sql.catalogs.statements import (
    CreateCatalog,
    DropCatalog,
    Places,
    ResetCatalogOptions,
    SetCatalogComment,
    SetCatalogOptions,
)
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.authorization.rights import secured_external
from tidegate_server.gateway.catalog_types.options import TYPE, find_problem
from tidegate_server.gateway.catalog_types.registry import known_types, require_type
from tidegate_server.gateway.command.external.names import check_catalog_name
from tidegate_server.gateway.command.external.objects import (
    create_external,
    find,
    find_owned,
    require_administrator,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.spark_catalogs import definition_of, invalid_catalog

log = logging.getLogger(__name__)

_KIND = SecuredKind.CATALOG
_SHOWN = 3


def create(statement: CreateCatalog, context: Context) -> Result:
    """Create a catalog, which belongs to the administrator who creates it.

    :raises ServerError: ACCESS_DENIED unless the user is an administrator; EXTERNAL_EXISTS;
        CATALOG_TYPE; INVALID_CATALOG.
    """
    require_administrator("CREATE CATALOG", context)
    services = context.services
    if statement.if_not_exists and _exists(statement.name, context):
        return nothing()
    options = {key: value for key, value in statement.options.items() if key.lower() != TYPE}
    added = ExternalObject(
        kind=_KIND,
        id=services.new_id(),
        name=statement.name,
        type=_type_of(statement).lower(),
        options=options,
        owner=context.session.user,
        comment=statement.comment,
        created_at=services.clock.now(),
    )
    if _exists(statement.name, context):
        raise error(Code.EXTERNAL_EXISTS, kind=_KIND, name=statement.name)
    check_catalog_name(statement.name, _KIND, services)
    _check(added, statement.places, context)
    create_external(added, context)
    return nothing()


def set_options(statement: SetCatalogOptions, context: Context) -> Result:
    """Replace the options that a statement names; the others stay.

    :raises ServerError: as :func:`create`; OBJECT_NOT_FOUND.
    """
    require_administrator("ALTER CATALOG SET", context)
    _refuse_type(statement.name, statement.options, statement.places)
    found = find(_KIND, statement.name, context)
    named = {key.lower() for key in statement.options}
    kept = {key: value for key, value in found.options.items() if key.lower() not in named}
    _change(found, {**kept, **statement.options}, statement.places, context)
    return nothing()


def reset_options(statement: ResetCatalogOptions, context: Context) -> Result:
    """Remove options, so that their defaults apply; those that are not set are ignored.

    :raises ServerError: as :func:`create`; OBJECT_NOT_FOUND.
    """
    require_administrator("ALTER CATALOG RESET", context)
    _refuse_type(statement.name, dict.fromkeys(statement.keys, ""), statement.places)
    found = find(_KIND, statement.name, context)
    named = {key.lower() for key in statement.keys}
    kept = {key: value for key, value in found.options.items() if key.lower() not in named}
    _change(found, kept, statement.places, context)
    return nothing()


def set_comment(statement: SetCatalogComment, context: Context) -> Result:
    """Change the comment of a catalog that the user owns.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND.
    """
    found = find_owned(_KIND, statement.name, context)
    context.services.external.replace(replace(found, comment=statement.comment or None))
    return nothing()


def drop(statement: DropCatalog, context: Context) -> Result:
    """Drop a catalog that the user owns, with the grants on it; what is in it stays.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND; CATALOG_IN_USE.
    """
    services, name = context.services, statement.name
    if name == DEFAULT_CATALOG:
        hint = "It contains the tables of the server's warehouse."
        raise error(Code.NOT_SUPPORTED, what=f"DROP CATALOG {name}", hint=hint)
    if statement.if_exists and find_external(_KIND, name, services) is None:
        return nothing()
    found = find_owned(_KIND, name, context)
    if context.session.catalog.lower() == name:
        hint = f"Write USE CATALOG {DEFAULT_CATALOG} before."
        reason = "it is the current catalog of the session"
        raise error(Code.CATALOG_IN_USE, name=name, reason=reason, hint=hint)
    inside = sorted(
        str(table.name) for table in services.catalog.tables() if table.name.catalog.lower() == name
    )
    if inside:
        reason = f"these materialized tables are in it: {_some(inside)}"
        hint = "Drop them before with DROP MATERIALIZED TABLE."
        raise error(Code.CATALOG_IN_USE, name=name, reason=reason, hint=hint)
    readers = sorted(
        str(table.name)
        for table in services.catalog.tables()
        if any(source.name.catalog.lower() == name for source in table.definition.sources)
    )
    if readers:
        reason = f"these materialized tables read it: {_some(readers)}"
        hint = "Drop them, or change their queries with ALTER MATERIALIZED TABLE name AS."
        raise error(Code.CATALOG_IN_USE, name=name, reason=reason, hint=hint)
    gone = secured_external(found).grant_object
    services.external.drop(found.id)
    services.privileges.forget(lambda on: on == gone)
    log.info("Dropped catalog %s", name)
    return nothing()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _exists(name: str, context: Context) -> bool:
    return find_external(_KIND, name, context.services) is not None


def _type_of(statement: CreateCatalog) -> str:
    for key, value in statement.options.items():
        if key.lower() == TYPE:
            require_type(value, statement.places.get(key))
            return value
    hint = f"Add 'type' = '...': types are {', '.join(known_types())}."
    reason = f"the option {TYPE} is missing"
    raise error(Code.INVALID_CATALOG, name=statement.name, reason=reason, hint=hint)


def _refuse_type(name: str, options: Mapping[str, str], places: Places) -> None:
    for key in options:
        if key.lower() == TYPE:
            line, column = places.get(key) or (None, None)
            reason, hint = "its type cannot change", "Create another catalog."
            raise error(
                Code.INVALID_CATALOG, name=name, reason=reason, hint=hint, line=line, column=column
            )


def _change(
    found: ExternalObject, options: Mapping[str, str], places: Places, context: Context
) -> None:
    changed = replace(found, options=options)
    _check(changed, places, context)
    context.services.external.replace(changed)
    log.info("Changed the options of catalog %s", found.name)


def _check(catalog: ExternalObject, places: Places, context: Context) -> None:
    """Check the options of a catalog, and that the engine can load it.

    :raises ServerError: INVALID_CATALOG, CATALOG_TYPE.
    """
    kind = require_type(catalog.type)
    options = {key: value for key, value in catalog.options.items() if key.lower() != TYPE}
    problem = find_problem(kind, options)
    if problem is not None:
        raise invalid_catalog(catalog, problem.reason, problem.hint, places.get(problem.key))
    definition = definition_of(catalog, context.services.config.secrets)
    context.engine.call(CheckCatalog(catalog=definition))
