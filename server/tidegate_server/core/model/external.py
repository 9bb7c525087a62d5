"""What is outside of the warehouse and has a name here: locations, connections, catalogs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidegate_server.core.model.privileges import SecuredKind

URL: Final = "url"
"""The option with the path of an external location as it was written."""
PLACE: Final = "place"
"""The option with the directory that this path was when it was set, as the file system says."""
ALIAS_TYPE: Final = "tidegate"
"""The type of catalogs that are aliases of the session catalog."""
ICEBERG_TYPE: Final = "iceberg"
"""The type of catalogs whose tables can store materialized tables."""
SECRET_REFERENCE: Final = re.compile(r"\$\{secret:([^{}]+)\}")
"""A reference to a secret of the configuration, within the value of an option."""


def secret_name(value: str) -> str | None:
    """Return the name in the value ``${secret:name}`` of an option; None for other values."""
    found = SECRET_REFERENCE.fullmatch(value)
    return None if found is None else found[1]


def secret_reference(name: str) -> str:
    """Return the value of an option that is a secret of the configuration."""
    return f"${{secret:{name}}}"


def option(options: Mapping[str, str], name: str) -> str | None:
    """Return an option, whose name is written in any case."""
    return next((value for key, value in options.items() if key.lower() == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalObject:
    """An external location, a connection or a catalog."""

    kind: SecuredKind
    id: str
    name: str
    """In lower case; unique for its kind."""
    type: str = ""
    """The kind of system that a connection or catalog leads to, in lower case."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those of a connection as Spark has them for JDBC, those of a catalog as they were written."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The names of secrets of the configuration, by the options whose values they are."""
    owner: str
    comment: str | None = None
    created_at: datetime

    @property
    def place(self) -> str:
        """The directory of an external location, without links."""
        return self.options[PLACE]

    @property
    def is_alias(self) -> bool:
        """Whether it is an alias of the session catalog, which everybody may use."""
        return self.kind is SecuredKind.CATALOG and self.type == ALIAS_TYPE

    @property
    def stores_materialized_tables(self) -> bool:
        """Whether materialized tables can be in the catalog."""
        return self.kind is SecuredKind.CATALOG and self.type == ICEBERG_TYPE
