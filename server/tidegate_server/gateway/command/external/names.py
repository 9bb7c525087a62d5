"""Which names connections and catalogs can have: they are catalogs of Spark."""

from __future__ import annotations

import re
from typing import Final

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import FindObject
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.privileges import CATALOG_KINDS, SecuredKind
from tidegate_server.gateway.context import Services

_NAME = re.compile(r"[a-z_]\w*", re.ASCII)
_RESERVED: Final = frozenset({DEFAULT_CATALOG, "system", "session", "builtin", "global_temp"})
_CODES: Final = {
    SecuredKind.CONNECTION: Code.INVALID_CONNECTION,
    SecuredKind.CATALOG: Code.INVALID_CATALOG,
}


def check_catalog_name(name: str, kind: SecuredKind, services: Services) -> None:
    """Check that a name can be that of a catalog, and hides nothing. Waits for an engine.

    :param kind: what is to have the name.
    :raises ServerError: INVALID_CONNECTION or INVALID_CATALOG.
    """

    def invalid(reason: str, hint: str) -> ServerError:
        return error(_CODES[kind], name=name, reason=reason, hint=hint)

    if _NAME.fullmatch(name) is None or name in _RESERVED:
        raise invalid(
            "its name cannot be that of a catalog",
            "Use letters, digits and underscores; the name is that of a catalog.",
        )
    for other in CATALOG_KINDS:
        if other is not kind and any(each.name == name for each in services.external.all(other)):
            raise invalid(f"a {other} has this name", "Choose another name.")
    if f"spark.sql.catalog.{name}" in services.config.engine.settings:
        raise invalid("engine.settings names a catalog so", "Choose another name.")
    schema = TableName(DEFAULT_CATALOG, name, "")
    if services.engine.call(FindObject(kind=SecuredKind.SCHEMA, name=schema)).kind is not None:
        raise invalid("a schema has this name", "Choose another name: it would hide the schema.")
