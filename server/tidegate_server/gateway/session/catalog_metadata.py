"""Metadata of catalogs other than the session catalog, which is asked for by their names alone.

Such a catalog may have to wait for another system. It must not delay the calls on the session
catalog, so that few calls at a time may wait.
"""

from __future__ import annotations

import threading
from typing import Final

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import ListCatalog
from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.gateway.authorization.features import allowed_features, usable_catalogs
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.definition.resolve import canonical_catalog
from tidegate_server.gateway.session.metadata import (
    MATERIALIZED_TABLE,
    TABLE,
    ListedTable,
    Listing,
    TablePattern,
)
from tidegate_server.gateway.session.patterns import compile_pattern

_CALLS: Final = 2
_SECONDS: Final = 30.0
_waiting = threading.BoundedSemaphore(_CALLS)


def catalogs_of(user: str, services: Services) -> tuple[str, ...]:
    """Return the names of the catalogs and connections that a user may use."""
    if allowed_features(user, services) is None:
        return usable_catalogs(None, services, everything=True)
    return usable_catalogs(rights_of(user, services), services)


def named_catalog(pattern: str | None, user: str, services: Services) -> str | None:
    """Return the catalog that a call is about; None for the session catalog.

    The pattern must be the name of the catalog: one for several means the session catalog.
    """
    name = (pattern or "").replace("\\_", "_").lower()
    if name in ("", "%", DEFAULT_CATALOG):
        return None
    return name if name in catalogs_of(user, services) else None


def is_alias(name: str, services: Services) -> bool:
    """Return whether a catalog is an alias of the session catalog."""
    return canonical_catalog(name, services) == DEFAULT_CATALOG


def list_catalog(
    name: str, pattern: TablePattern, user: str, services: Services, *, columns: bool, tables: bool
) -> Listing:
    """Return the schemas of a catalog, with the tables and columns that match a pattern.

    :raises ServerError: TOO_MANY if other calls still wait for other systems; those of the engine.
    """
    if not _waiting.acquire(timeout=_SECONDS):
        hint = "They wait for another system: see DESCRIBE CATALOG EXTENDED."
        raise error(Code.TOO_MANY, what="metadata calls on catalogs", limit=_CALLS, hint=hint)
    try:
        services.ensure_catalogs(user)
        found = services.engine_of(user).call(
            ListCatalog(
                name=name,
                schemas=compile_pattern(pattern.schema).pattern,
                tables=compile_pattern(pattern.table).pattern if tables else None,
                with_columns=columns,
            )
        )
    finally:
        _waiting.release()
    ours = {table.name.folded() for table in services.catalog.tables(name)}
    listed = (
        ListedTable(
            name=each.name,
            type=MATERIALIZED_TABLE if each.name.folded() in ours else TABLE,
            comment=each.comment,
            columns=each.columns,
        )
        for each in found.tables
    )
    return Listing(
        schemas=tuple(sorted(found.schemas)),
        tables=tuple(sorted(listed, key=lambda each: each.name)),
        catalog=name,
    )
