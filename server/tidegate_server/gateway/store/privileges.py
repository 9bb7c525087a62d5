"""Grants, roles, groups and the owners of functions, in the store and in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, or_, select
from sqlalchemy.exc import IntegrityError

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import (
    INITIAL_GRANTS,
    Grant,
    Grantee,
    GranteeKind,
    GrantObject,
    Membership,
    Privilege,
    Role,
    role,
)
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.grant_rows import grant_row, object_key, read_grant
from tidegate_server.gateway.store.tables import function_owners as f
from tidegate_server.gateway.store.tables import grants as g
from tidegate_server.gateway.store.tables import role_members as m
from tidegate_server.gateway.store.tables import roles as r
from tidegate_server.gateway.store.tables import user_groups as u

T = TypeVar("T")


class Privileges(Protocol):
    """The grants and what they refer to; adding what exists has no effect."""

    def all(self) -> tuple[Grant, ...]:
        """Return every grant, the oldest first."""
        ...

    def grants_to(self, grantees: Collection[Grantee]) -> tuple[Grant, ...]:
        """Return the grants to some grantees, the oldest first."""
        ...

    def grant(self, grant: Grant) -> None:
        """Add a grant; of an existing one, only the grant option can be added."""
        ...

    def change(self, removed: Collection[Grant], weakened: Collection[Grant] = ()) -> None:
        """Remove grants, and the grant option of others."""
        ...

    def forget(self, matches: Callable[[GrantObject], bool]) -> None:
        """Remove every grant on the objects that match, which no longer exist."""
        ...

    def move(self, moved: Callable[[GrantObject], GrantObject]) -> None:
        """Make grants refer to what a function returns for their object."""
        ...

    def roles(self) -> tuple[Role, ...]:
        """Return every role but PUBLIC."""
        ...

    def create_role(self, role: Role) -> bool:
        """Add a role; False if it exists."""
        ...

    def drop_role(self, name: str) -> bool:
        """Remove a role with its memberships and the grants to it; False if there is none."""
        ...

    def memberships(self) -> tuple[Membership, ...]:
        """Return who belongs to which role."""
        ...

    def add_member(self, membership: Membership) -> bool:
        """Grant a role; False if it was granted before."""
        ...

    def remove_member(self, name: str, member: Grantee) -> bool:
        """Revoke a role; False if it was not granted."""
        ...

    def groups_of(self, user: str) -> frozenset[str]:
        """Return a user's groups as of the last login that reported them."""
        ...

    def set_groups(self, user: str, groups: Collection[str]) -> None:
        """Record the groups that a login reported."""
        ...

    def function_owners(self) -> Mapping[TableName, str]:
        """Return the owners of functions by their names in lower case."""
        ...

    def set_function_owner(self, name: TableName, owner: str | None) -> None:
        """Record the owner of a function; None removes it."""
        ...


class MemoryPrivileges:
    """Everything in dictionaries: reference implementation and test double."""

    def __init__(self, grants: Iterable[Grant] = INITIAL_GRANTS) -> None:
        self._lock = threading.Lock()
        self._grants = {_identity(each): each for each in grants}
        self._roles: dict[str, Role] = {}
        self._members: dict[tuple[str, Grantee], Membership] = {}
        self._groups: dict[str, frozenset[str]] = {}
        self._functions: dict[TableName, str] = {}

    def all(self) -> tuple[Grant, ...]:
        with self._lock:
            return tuple(sorted(self._grants.values(), key=lambda each: each.granted_at))

    def grants_to(self, grantees: Collection[Grantee]) -> tuple[Grant, ...]:
        return tuple(each for each in self.all() if each.grantee in grantees)

    def grant(self, grant: Grant) -> None:
        with self._lock:
            self._add(grant)

    def change(self, removed: Collection[Grant], weakened: Collection[Grant] = ()) -> None:
        with self._lock:
            for each in removed:
                self._grants.pop(_identity(each), None)
            for each in weakened:
                if known := self._grants.get(_identity(each)):
                    self._grants[_identity(each)] = replace(known, grantable=False)

    def forget(self, matches: Callable[[GrantObject], bool]) -> None:
        with self._lock:
            self._grants = {key: g for key, g in self._grants.items() if not matches(g.object)}

    def move(self, moved: Callable[[GrantObject], GrantObject]) -> None:
        with self._lock:
            changed = [replace(g, object=moved(g.object)) for g in self._grants.values()]
            self._grants = {}
            for each in changed:
                self._add(each)

    def _add(self, grant: Grant) -> None:
        known = self._grants.setdefault(_identity(grant), grant)
        if grant.grantable:
            self._grants[_identity(grant)] = replace(known, grantable=True)

    def roles(self) -> tuple[Role, ...]:
        with self._lock:
            return tuple(self._roles[name] for name in sorted(self._roles))

    def create_role(self, role: Role) -> bool:
        with self._lock:
            return self._roles.setdefault(role.name, role) is role

    def drop_role(self, name: str) -> bool:
        gone = role(name)
        with self._lock:
            self._grants = {key: g for key, g in self._grants.items() if g.grantee != gone}
            self._members = {
                key: each
                for key, each in self._members.items()
                if each.role != name and each.member != gone
            }
            return self._roles.pop(name, None) is not None

    def memberships(self) -> tuple[Membership, ...]:
        with self._lock:
            return tuple(sorted(self._members.values(), key=lambda each: each.granted_at))

    def add_member(self, membership: Membership) -> bool:
        key = (membership.role, membership.member)
        with self._lock:
            return self._members.setdefault(key, membership) is membership

    def remove_member(self, name: str, member: Grantee) -> bool:
        with self._lock:
            return self._members.pop((name, member), None) is not None

    def groups_of(self, user: str) -> frozenset[str]:
        with self._lock:
            return self._groups.get(user, frozenset())

    def set_groups(self, user: str, groups: Collection[str]) -> None:
        with self._lock:
            self._groups[user] = frozenset(groups)

    def function_owners(self) -> Mapping[TableName, str]:
        with self._lock:
            return dict(self._functions)

    def set_function_owner(self, name: TableName, owner: str | None) -> None:
        with self._lock:
            if owner is None:
                self._functions.pop(name.folded(), None)
            else:
                self._functions[name.folded()] = owner


@dataclass(frozen=True, slots=True)
class _Identity:
    """What distinguishes two grants."""

    grantee: Grantee
    privilege: Privilege
    object: GrantObject
    holder: Grantee | None


def _identity(grant: Grant) -> _Identity:
    return _Identity(grant.grantee, grant.privilege, grant.object, grant.holder)


class SqlPrivileges:
    """Everything in the store; every call is one transaction at most.

    What each statement asks for is cached until the next write, unless other gateways share the
    store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._cache: dict[object, Any] = {}
        self._writes = 0

    def all(self) -> tuple[Grant, ...]:
        with self._database.read() as connection:
            return _all(connection)

    def grants_to(self, grantees: Collection[Grantee]) -> tuple[Grant, ...]:
        wanted = select(g).where(or_(*map(_to, grantees))).order_by(g.c.granted_at)

        def read(connection: Connection) -> tuple[Grant, ...]:
            return tuple(read_grant(row) for row in connection.execute(wanted))

        return self._cached(frozenset(grantees), read)

    def grant(self, grant: Grant) -> None:
        self._write(lambda connection: _add(connection, grant))

    def change(self, removed: Collection[Grant], weakened: Collection[Grant] = ()) -> None:
        with self._begin() as connection:
            for each in removed:
                connection.execute(delete(g).where(_is(each)))
            for each in weakened:
                connection.execute(g.update().where(_is(each)).values(grantable=False))

    def forget(self, matches: Callable[[GrantObject], bool]) -> None:
        with self._begin() as connection:
            for on in {each.object for each in _all(connection)}:
                if matches(on):
                    connection.execute(delete(g).where(_on(on)))

    def move(self, moved: Callable[[GrantObject], GrantObject]) -> None:
        with self._begin() as connection:
            for each in _all(connection):
                changed = replace(each, object=moved(each.object))
                if changed != each:
                    connection.execute(delete(g).where(_is(each)))
                    _add(connection, changed)

    def roles(self) -> tuple[Role, ...]:
        with self._database.read() as connection:
            rows = connection.execute(select(r).order_by(r.c.name))
            return tuple(
                Role(name=row.name, created_by=row.created_by, created_at=row.created_at)
                for row in rows
            )

    def create_role(self, role: Role) -> bool:
        values = {
            "name": role.name,
            "created_by": role.created_by,
            "created_at": role.created_at,
        }
        same = r.c.name == role.name
        return self._write(lambda connection: _insert_missing(connection, r, same, values))

    def drop_role(self, name: str) -> bool:
        gone = role(name)
        with self._begin() as connection:
            connection.execute(delete(g).where(_to(gone)))
            connection.execute(delete(m).where(or_(m.c.role == name, _member(gone))))
            return connection.execute(delete(r).where(r.c.name == name)).rowcount == 1

    def memberships(self) -> tuple[Membership, ...]:
        return self._cached("memberships", _memberships)

    def add_member(self, membership: Membership) -> bool:
        values = {
            "role": membership.role,
            "member_kind": membership.member.kind.value,
            "member": membership.member.name,
            "granted_by": membership.granted_by,
            "granted_at": membership.granted_at,
        }
        same = and_(m.c.role == membership.role, _member(membership.member))
        return self._write(lambda connection: _insert_missing(connection, m, same, values))

    def remove_member(self, name: str, member: Grantee) -> bool:
        gone = delete(m).where(m.c.role == name, _member(member))
        with self._begin() as connection:
            return connection.execute(gone).rowcount == 1

    def groups_of(self, user: str) -> frozenset[str]:
        return self._cached(("groups", user), lambda connection: _groups_of(connection, user))

    def set_groups(self, user: str, groups: Collection[str]) -> None:
        wanted = frozenset(groups)
        if self.groups_of(user) == wanted:
            return  # most logins change nothing
        rows = [{"user_name": user, "group_name": name} for name in sorted(wanted)]

        def replace_rows(connection: Connection) -> None:
            connection.execute(delete(u).where(u.c.user_name == user))
            if rows:
                connection.execute(insert(u), rows)

        self._write(replace_rows)

    def function_owners(self) -> Mapping[TableName, str]:
        return self._cached("function owners", _function_owners)

    def set_function_owner(self, name: TableName, owner: str | None) -> None:
        key = name.folded()
        same = and_(
            f.c.catalog_name == key.catalog,
            f.c.schema_name == key.schema,
            f.c.function_name == key.table,
        )
        values = {
            "catalog_name": key.catalog,
            "schema_name": key.schema,
            "function_name": key.table,
            "owner": owner,
        }

        def replace_row(connection: Connection) -> None:
            connection.execute(delete(f).where(same))
            if owner is not None:
                connection.execute(insert(f).values(**values))

        self._write(replace_row)

    def _cached(self, key: object, read: Callable[[Connection], T]) -> T:
        """Return what a read transaction returns, or returned since the last write."""
        with self._lock:
            writes = self._writes
            if key in self._cache:
                known: T = self._cache[key]
                return known
        with self._database.read() as connection:
            found = read(connection)
        with self._lock:
            if writes == self._writes and not self._database.shared:
                if len(self._cache) >= _CACHED:
                    self._cache.clear()
                self._cache[key] = found
        return found

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        """Yield a connection in a write transaction, after which nothing is cached."""
        try:
            with self._database.begin() as connection:
                yield connection
        finally:
            with self._lock:
                self._writes += 1
                self._cache.clear()

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Run a transaction, again if another one has inserted the same row meanwhile."""
        try:
            with self._begin() as connection:
                return work(connection)
        except IntegrityError:
            with self._begin() as connection:
                return work(connection)


_CACHED = 1_000
"""The largest number of results that are cached."""
_IDENTIFYING = tuple(column.name for column in g.primary_key)


def _all(connection: Connection) -> tuple[Grant, ...]:
    return tuple(read_grant(row) for row in connection.execute(select(g).order_by(g.c.granted_at)))


def _add(connection: Connection, grant: Grant) -> None:
    added = _insert_missing(connection, g, _is(grant), grant_row(grant))
    if grant.grantable and not added:
        connection.execute(g.update().where(_is(grant)).values(grantable=True))


def _insert_missing(
    connection: Connection, table: Table, same: ColumnElement[bool], values: Mapping[str, Any]
) -> bool:
    """Add a row unless there is one; False if there was."""
    if connection.execute(select(table).where(same)).first() is not None:
        return False
    connection.execute(insert(table).values(**values))
    return True


def _memberships(connection: Connection) -> tuple[Membership, ...]:
    return tuple(
        Membership(
            role=row.role,
            member=Grantee(kind=GranteeKind(row.member_kind), name=row.member),
            granted_by=row.granted_by,
            granted_at=row.granted_at,
        )
        for row in connection.execute(select(m).order_by(m.c.granted_at))
    )


def _function_owners(connection: Connection) -> Mapping[TableName, str]:
    return {
        TableName(row.catalog_name, row.schema_name, row.function_name): row.owner
        for row in connection.execute(select(f))
    }


def _groups_of(connection: Connection, user: str) -> frozenset[str]:
    rows = connection.execute(select(u.c.group_name).where(u.c.user_name == user))
    return frozenset(rows.scalars())


def _is(grant: Grant) -> ColumnElement[bool]:
    row = grant_row(grant)
    return and_(*(g.c[name] == row[name] for name in _IDENTIFYING))


def _on(on: GrantObject) -> ColumnElement[bool]:
    kind, key = object_key(on)
    return and_(g.c.object_kind == kind, g.c.object_key == key)


def _to(grantee: Grantee) -> ColumnElement[bool]:
    return and_(g.c.grantee_kind == grantee.kind.value, g.c.grantee == grantee.name)


def _member(member: Grantee) -> ColumnElement[bool]:
    return and_(m.c.member_kind == member.kind.value, m.c.member == member.name)
