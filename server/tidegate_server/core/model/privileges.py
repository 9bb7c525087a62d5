"""Privileges on materialized tables, and who was granted them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class Privilege(Enum):
    """What a user may be allowed to do with a materialized table.

    SELECT: read it. REFRESH: refresh it and cancel refreshes. ALTER: change its definition,
    suspend and resume it. ALL: the three together.
    """

    SELECT = "SELECT"
    REFRESH = "REFRESH"
    ALTER = "ALTER"
    ALL = "ALL"

    def parts(self) -> tuple[Privilege, ...]:
        """Return the privileges this one stands for."""
        if self is Privilege.ALL:
            return (Privilege.SELECT, Privilege.REFRESH, Privilege.ALTER)
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableObject:
    """One materialized table, by its id: a table that is made anew under its name is another."""

    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SchemaObject:
    """Every materialized table of a schema, those to come included; names in lower case."""

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
