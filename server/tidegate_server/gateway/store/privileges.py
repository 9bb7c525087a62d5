"""Grants of privileges, in the store and in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Row, and_, delete, insert, select

from tidegate_server.core.model.privileges import (
    Grant,
    GrantObject,
    Privilege,
    SchemaObject,
    TableObject,
)
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import privileges as p

_TABLE, _SCHEMA = "TABLE", "SCHEMA"
_SEPARATOR = "\x1f"  # does not occur in names


class Privileges(Protocol):
    """The grants; granting the same privilege twice has no effect."""

    def grant(self, grant: Grant) -> None:
        """Add a grant; an existing one is not changed."""
        ...

    def revoke(self, user: str, privilege: Privilege, on: GrantObject) -> bool:
        """Remove a grant; False if there was none."""
        ...

    def grants_of(self, user: str) -> tuple[Grant, ...]:
        """Return the grants of a user."""
        ...

    def all(self) -> tuple[Grant, ...]:
        """Return every grant."""
        ...

    def forget(self, on: GrantObject) -> None:
        """Remove every grant on a dropped object."""
        ...


class MemoryPrivileges:
    """Grants in a dictionary: reference implementation and test double."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._lock = threading.Lock()
        self._grants = {(g.user, g.privilege, g.object): g for g in grants}

    def grant(self, grant: Grant) -> None:
        with self._lock:
            self._grants.setdefault((grant.user, grant.privilege, grant.object), grant)

    def revoke(self, user: str, privilege: Privilege, on: GrantObject) -> bool:
        with self._lock:
            return self._grants.pop((user, privilege, on), None) is not None

    def grants_of(self, user: str) -> tuple[Grant, ...]:
        return tuple(grant for grant in self.all() if grant.user == user)

    def all(self) -> tuple[Grant, ...]:
        with self._lock:
            return tuple(self._grants.values())

    def forget(self, on: GrantObject) -> None:
        with self._lock:
            self._grants = {key: g for key, g in self._grants.items() if g.object != on}


class SqlPrivileges:
    """Grants in the store; every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def grant(self, grant: Grant) -> None:
        kind, key = _key(grant.object)
        with self._database.begin() as connection:
            there = select(p.c.grantee).where(
                _is(grant.object), p.c.grantee == grant.user, _of_kind(grant.privilege)
            )
            if connection.execute(there).first() is None:
                connection.execute(
                    insert(p).values(
                        grantee=grant.user,
                        privilege=grant.privilege.value,
                        object_kind=kind,
                        object_key=key,
                        granted_by=grant.granted_by,
                        granted_at=grant.granted_at,
                    )
                )

    def revoke(self, user: str, privilege: Privilege, on: GrantObject) -> bool:
        gone = delete(p).where(_is(on), p.c.grantee == user, _of_kind(privilege))
        with self._database.begin() as connection:
            return connection.execute(gone).rowcount == 1

    def grants_of(self, user: str) -> tuple[Grant, ...]:
        return self._read(p.c.grantee == user)

    def all(self) -> tuple[Grant, ...]:
        return self._read()

    def forget(self, on: GrantObject) -> None:
        with self._database.begin() as connection:
            connection.execute(delete(p).where(_is(on)))

    def _read(self, *conditions: ColumnElement[bool]) -> tuple[Grant, ...]:
        wanted = select(p).where(*conditions).order_by(p.c.granted_at)
        with self._database.read() as connection:
            return tuple(_grant(row) for row in connection.execute(wanted))


def _key(on: GrantObject) -> tuple[str, str]:
    match on:
        case TableObject(table_id=table_id):
            return _TABLE, table_id
        case SchemaObject(catalog=catalog, schema=schema):
            return _SCHEMA, f"{catalog}{_SEPARATOR}{schema}"


def _is(on: GrantObject) -> ColumnElement[bool]:
    kind, key = _key(on)
    return and_(p.c.object_kind == kind, p.c.object_key == key)


def _of_kind(privilege: Privilege) -> ColumnElement[bool]:
    return p.c.privilege == privilege.value


def _grant(row: Row[Any]) -> Grant:
    on: GrantObject
    if row.object_kind == _TABLE:
        on = TableObject(table_id=row.object_key)
    else:
        catalog, _, schema = row.object_key.partition(_SEPARATOR)
        on = SchemaObject(catalog=catalog, schema=schema)
    return Grant(
        user=row.grantee,
        privilege=Privilege(row.privilege),
        object=on,
        granted_by=row.granted_by,
        granted_at=row.granted_at,
    )
