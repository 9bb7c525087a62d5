"""External locations and connections: what is outside of the warehouse and has a name here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidegate_server.core.model.privileges import SecuredKind

URL: Final = "url"
"""The option with the path of an external location as it was written."""
PLACE: Final = "place"
"""The option with the directory that this path was when it was set, as the file system says."""


def option(options: Mapping[str, str], name: str) -> str | None:
    """Return an option, whose name is written in any case."""
    return next((value for key, value in options.items() if key.lower() == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalObject:
    """An external location or a connection."""

    kind: SecuredKind
    id: str
    name: str
    """In lower case; unique for its kind."""
    type: str = ""
    """The kind of system that a connection leads to, in lower case."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those of a connection as Spark has them for JDBC."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The names of secrets of the configuration, by the options whose values they are."""
    owner: str
    comment: str | None = None
    created_at: datetime

    @property
    def place(self) -> str:
        """The directory of an external location, without links."""
        return self.options[PLACE]
