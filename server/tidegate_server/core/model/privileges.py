"""Privileges on materialized tables and their grants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class Privilege(Enum):
    """A privilege on a materialized table.

    SELECT: read it. REFRESH: refresh it and cancel refreshes. ALTER: change its definition,
    suspend and resume it. ALL: all three.
    """

    SELECT = "SELECT"
    REFRESH = "REFRESH"
    ALTER = "ALTER"
    ALL = "ALL"

    def parts(self) -> tuple[Privilege, ...]:
        """Return the privileges this one includes."""
        if self is Privilege.ALL:
            return (Privilege.SELECT, Privilege.REFRESH, Privilege.ALTER)
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableObject:
    """One materialized table, by its id: a table created again has another id."""

    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SchemaObject:
    """Every present and future materialized table of a schema; names in lower case."""

    catalog: str
    schema: str


GrantObject = TableObject | SchemaObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One privilege of one user on one object."""

    user: str
    privilege: Privilege
    object: GrantObject
    granted_by: str
    granted_at: datetime
