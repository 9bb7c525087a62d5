"""CREATE CONNECTION and its options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import CheckCatalog
from tidegate_server.core.model.external import URL, ExternalObject, option
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.sql.external.statements import CreateConnection, SetConnectionOptions
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.authorization.objects import find_external
from tidegate_server.gateway.catalog_types.jdbc import (
    SYSTEMS,
    VERSION_QUERY,
    check_version_query,
)
from tidegate_server.gateway.command.external.names import check_catalog_name
from tidegate_server.gateway.command.external.objects import (
    create_external,
    find,
    require_administrator,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.spark_catalogs import definition_of

log = logging.getLogger(__name__)

_OF_TABLES = frozenset(
    {"dbtable", "query", "partitioncolumn", "lowerbound", "upperbound", "numpartitions"}
)
_DRIVER = "driver"
_SECRETS = "Write it as secret('name'), and the secret into [secrets] of the configuration."


def create_connection(statement: CreateConnection, context: Context) -> Result:
    """Create a connection, which belongs to the administrator who creates it.

    :raises ServerError: ACCESS_DENIED unless the user is an administrator; EXTERNAL_EXISTS;
        INVALID_CONNECTION.
    """
    require_administrator("CREATE CONNECTION", context)
    kind, services = SecuredKind.CONNECTION, context.services
    if statement.if_not_exists and find_external(kind, statement.name, services) is not None:
        return nothing()
    check_catalog_name(statement.name, kind, services)
    added = ExternalObject(
        kind=kind,
        id=services.new_id(),
        name=statement.name,
        type=statement.type,
        options=statement.options,
        secrets=statement.secrets,
        owner=context.session.user,
        comment=statement.comment,
        created_at=services.clock.now(),
    )
    create_external(_checked(added, context), context)
    return nothing()


def set_connection_options(statement: SetConnectionOptions, context: Context) -> Result:
    """Replace the options that a statement names; the others stay.

    :raises ServerError: as :func:`create_connection`; OBJECT_NOT_FOUND.
    """
    require_administrator("ALTER CONNECTION SET OPTIONS", context)
    found = find(SecuredKind.CONNECTION, statement.name, context)
    named = {key.lower() for key in (*statement.options, *statement.secrets)}

    def merged(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
        return {**{k: v for k, v in before.items() if k.lower() not in named}, **after}

    changed = replace(
        found,
        options=merged(found.options, statement.options),
        secrets=merged(found.secrets, statement.secrets),
    )
    context.services.external.replace(_checked(changed, context))
    log.info("Changed the options of connection %s", found.name)
    return nothing()


def _checked(connection: ExternalObject, context: Context) -> ExternalObject:
    """Return a connection with its driver; raises INVALID_CONNECTION."""
    name, options, services = connection.name, dict(connection.options), context.services
    system = SYSTEMS.get(connection.type)
    if system is None:
        known = ", ".join(SYSTEMS)
        raise _invalid(name, f"there is no type {connection.type}", f"Types are {known}.")
    url = option(options, URL) or ""
    if not url.startswith(system.prefix):
        hint = f"Write OPTIONS (url '{system.prefix}...', ...)."
        raise _invalid(name, f"its url does not begin with {system.prefix}", hint)
    for key, value in options.items():
        if redact(value) != value:
            raise _invalid(name, f"the option {key} contains a secret", _SECRETS)
    wrong = [key for key in (*options, *connection.secrets) if key.lower() in _OF_TABLES]
    if wrong:
        hint = "A connection stands for all tables: leave the option out."
        raise _invalid(name, f"{wrong[0]} is an option of one table", hint)
    try:
        check_version_query(option(options, VERSION_QUERY.lower()))
    except ValueError as problem:
        hint = "See the documentation of connections, Version queries."
        raise _invalid(name, str(problem), hint) from problem
    if option(options, _DRIVER) is None:
        if not system.driver:
            hint = "Add driver 'com.example.Driver' to its options."
            raise _invalid(name, "it names no driver", hint)
        options[_DRIVER] = system.driver
    complete = replace(connection, options=options)
    services.engine.call(CheckCatalog(catalog=definition_of(complete, services.config.secrets)))
    return complete


def _invalid(name: str, reason: str, hint: str) -> ServerError:
    return error(Code.INVALID_CONNECTION, name=name, reason=reason, hint=hint)
