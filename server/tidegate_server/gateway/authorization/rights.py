"""Who may do what with a materialized table; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from tidegate_server.core.model.privileges import (
    Grant,
    GrantObject,
    Privilege,
    SchemaObject,
    TableObject,
)
from tidegate_server.core.model.table import MaterializedTable


class Action(Enum):
    """What is done with a table; the value names the required privilege in error messages."""

    SEE = "a privilege"
    SELECT = "SELECT"
    REFRESH = "REFRESH"
    ALTER = "ALTER"
    OWN = "ownership"


_ENOUGH: Mapping[Action, frozenset[Privilege]] = {
    Action.SEE: frozenset({Privilege.SELECT, Privilege.REFRESH, Privilege.ALTER}),
    Action.SELECT: frozenset({Privilege.SELECT}),
    Action.REFRESH: frozenset({Privilege.REFRESH}),
    Action.ALTER: frozenset({Privilege.ALTER}),
    Action.OWN: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """One user with the user's grants."""

    user: str
    administrator: bool = False
    grants: tuple[Grant, ...] = ()

    def may(self, action: Action, table: MaterializedTable) -> bool:
        """Return whether the user may do that: as administrator, as owner, or by a grant."""
        if self.administrator or self.user == table.owner:
            return True
        objects = objects_of(table)
        return any(
            grant.user == self.user and grant.privilege in _ENOUGH[action]
            for grant in self.grants
            if grant.object in objects
        )

    def visible(self, tables: Iterable[MaterializedTable]) -> tuple[MaterializedTable, ...]:
        """Return the tables that the user may see."""
        return tuple(table for table in tables if self.may(Action.SEE, table))


def objects_of(table: MaterializedTable) -> tuple[GrantObject, ...]:
    """Return the objects whose grants apply to a table."""
    name = table.name.folded()
    return TableObject(table_id=table.id), SchemaObject(catalog=name.catalog, schema=name.schema)


def overlap(location: str, other: str) -> bool:
    """Return whether two locations are equal, or one contains the other."""
    one, two = _path(location), _path(other)
    return bool(other) and (_within(one, two) or _within(two, one))


def _within(place: PurePosixPath, folder: PurePosixPath) -> bool:
    return place.is_relative_to(folder)


def _path(location: str) -> PurePosixPath:
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return PurePosixPath(unquote(parts.path) if parts.scheme else location)
    return PurePosixPath(f"/{parts.scheme}:/{parts.netloc}{parts.path}")
