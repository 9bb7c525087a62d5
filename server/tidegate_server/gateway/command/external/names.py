"""Which names connections can have: they are catalogs of Spark."""

from __future__ import annotations

import re
from typing import Final

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import FindObject
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.context import Services

_NAME = re.compile(r"[a-z_]\w*", re.ASCII)
_RESERVED: Final = frozenset({DEFAULT_CATALOG, "system", "session", "builtin", "global_temp"})


def check_catalog_name(name: str, services: Services) -> None:
    """Check that a name can be that of a catalog, and hides no schema. Waits for an engine.

    :raises ServerError: INVALID_CONNECTION.
    """
    if _NAME.fullmatch(name) is None or name in _RESERVED:
        hint = "Use letters, digits and underscores; the name is that of a catalog."
        reason = "its name cannot be that of a catalog"
        raise error(Code.INVALID_CONNECTION, name=name, reason=reason, hint=hint)
    schema = TableName(DEFAULT_CATALOG, name, "")
    if services.engine.call(FindObject(kind=SecuredKind.SCHEMA, name=schema)).kind is not None:
        hint = "Choose another name: it would hide the schema."
        reason = "a schema has this name"
        raise error(Code.INVALID_CONNECTION, name=name, reason=reason, hint=hint)
