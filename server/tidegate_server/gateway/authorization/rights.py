"""Who may do what with an object; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import (
    APPLICABLE,
    EXTERNAL_KINDS,
    PUBLIC,
    PUBLIC_ROLE,
    Grant,
    Grantee,
    GranteeKind,
    GrantObject,
    NamedObject,
    Privilege,
    SchemaObject,
    SecuredKind,
    ServerObject,
    TableObject,
    group,
    owner_grantee,
    role,
    user,
)
from tidegate_server.core.model.table import MaterializedTable


class Action(Enum):
    """What is done with an object; the value names the required privilege in error messages."""

    SEE = "a privilege"
    USE = "USAGE"
    SELECT = "SELECT"
    MODIFY = "MODIFY"
    CREATE = "CREATE"
    ALTER = "ALTER"
    REFRESH = "REFRESH"
    EXECUTE = "EXECUTE"
    READ_FILES = "READ FILES"
    WRITE_FILES = "WRITE FILES"
    CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
    USE_CONNECTION = "USE CONNECTION"
    USE_CATALOG = "USE CATALOG"
    OWN = "ownership"


_REQUIRED: Mapping[Action, Privilege] = {
    Action.SELECT: Privilege.SELECT,
    Action.MODIFY: Privilege.MODIFY,
    Action.CREATE: Privilege.CREATE,
    Action.ALTER: Privilege.ALTER,
    Action.REFRESH: Privilege.REFRESH,
    Action.EXECUTE: Privilege.EXECUTE,
    Action.READ_FILES: Privilege.READ_FILES,
    Action.WRITE_FILES: Privilege.WRITE_FILES,
    Action.CREATE_EXTERNAL_TABLE: Privilege.CREATE_EXTERNAL_TABLE,
    Action.USE_CONNECTION: Privilege.USE_CONNECTION,
    Action.USE_CATALOG: Privilege.USE_CATALOG,
}
USING: Mapping[SecuredKind, Action] = {
    SecuredKind.CONNECTION: Action.USE_CONNECTION,
    SecuredKind.CATALOG: Action.USE_CATALOG,
}
"""What using an object that is a catalog of Spark needs."""
_ORDER = tuple(GranteeKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredObject:
    """An object as rights are judged on it; a schema has no ``name``.

    Materialized tables, external locations, connections and catalogs have an id; all but the first
    are in no schema. Names are compared in lower case.
    """

    kind: SecuredKind
    catalog: str
    schema: str
    name: str = ""
    owner: str = ""
    """As recorded; empty if unknown."""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.full_name}"

    @property
    def full_name(self) -> str:
        """The name with those of its catalog and schema."""
        return ".".join(filter(None, (self.catalog, self.schema, self.name)))

    @property
    def grant_object(self) -> GrantObject:
        """What grants on the object itself refer to."""
        if self.kind is SecuredKind.SCHEMA:
            return self.schema_object
        if self.kind is SecuredKind.MATERIALIZED_TABLE:
            return TableObject(table_id=self.id)
        if self.kind in EXTERNAL_KINDS:
            return ServerObject(kind=self.kind, id=self.id)
        return NamedObject(
            kind=self.kind,
            catalog=self.catalog.lower(),
            schema=self.schema.lower(),
            name=self.name.lower(),
            owner=self.owner,
        )

    @property
    def schema_object(self) -> SchemaObject:
        """What grants on its schema refer to."""
        return SchemaObject(catalog=self.catalog.lower(), schema=self.schema.lower())


def secured_schema(catalog: str, schema: str, owner: str = "") -> SecuredObject:
    """Return a schema as rights are judged on it."""
    return SecuredObject(kind=SecuredKind.SCHEMA, catalog=catalog, schema=schema, owner=owner)


def secured(kind: SecuredKind, name: TableName, owner: str = "") -> SecuredObject:
    """Return a plain table, a view or a function as rights are judged on it."""
    return SecuredObject(
        kind=kind, catalog=name.catalog, schema=name.schema, name=name.table, owner=owner
    )


def secured_table(table: MaterializedTable) -> SecuredObject:
    """Return a materialized table as rights are judged on it."""
    name = table.name
    return SecuredObject(
        kind=SecuredKind.MATERIALIZED_TABLE,
        catalog=name.catalog,
        schema=name.schema,
        name=name.table,
        owner=table.owner,
        id=table.id,
    )


def secured_external(found: ExternalObject) -> SecuredObject:
    """Return an external location, a connection or a catalog as rights are judged on it."""
    return SecuredObject(
        kind=found.kind, catalog="", schema="", name=found.name, owner=found.owner, id=found.id
    )


@dataclass(frozen=True, kw_only=True)
class Rights:
    """One user with the roles and groups it belongs to, and the grants to all of them.

    ``roles`` are closed under membership. For a role that owns an object, ``user`` is empty.
    """

    user: str
    administrator: bool = False
    roles: frozenset[str] = frozenset({PUBLIC_ROLE})
    groups: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] = ()
    """May include grants to others, which have no effect."""
    tables: Callable[[], Iterable[MaterializedTable]] = field(default=tuple, compare=False)
    """The materialized tables; they decide which schemas are visible."""

    @cached_property
    def identities(self) -> frozenset[Grantee]:
        """The user and everything that it belongs to."""
        own = {user(self.user)} if self.user else set()
        return frozenset(
            {PUBLIC, *own, *map(role, self.roles), *(group(name) for name in self.groups)}
        )

    @cached_property
    def _held(self) -> Mapping[GrantObject, frozenset[Privilege]]:
        found: dict[GrantObject, set[Privilege]] = {}
        for grant in self.grants:
            if grant.grantee in self.identities:
                found.setdefault(grant.object, set()).add(grant.privilege)
        return {on: frozenset(privileges) for on, privileges in found.items()}

    def owns(self, on: SecuredObject) -> bool:
        """Return whether the user, or a role of the user, owns an object."""
        return owner_grantee(on.owner) in self.identities

    def may(self, action: Action, on: SecuredObject) -> bool:
        """Return whether the user may do that: as administrator, as owner, or by a grant."""
        if self.administrator or self.owns(on):
            return True
        if action is Action.OWN:
            return False
        if action in (Action.SEE, Action.USE):
            return bool(self.privileges(on)) or (
                on.kind is SecuredKind.SCHEMA and self._sees_within(on.schema_object)
            )
        return _REQUIRED[action] in self.privileges(on)

    def privileges(self, on: SecuredObject) -> frozenset[Privilege]:
        """Return the privileges that are granted on an object or on its schema."""
        none: frozenset[Privilege] = frozenset()
        held = self._held.get(on.schema_object, none)
        if on.kind is not SecuredKind.SCHEMA:
            held |= self._held.get(on.grant_object, none)
        return held & frozenset(APPLICABLE[on.kind])

    def option_holder(self, privilege: Privilege, on: SecuredObject) -> Grantee | None:
        """Return by whose grant option the user may grant a privilege; None if by none.

        The user's own is preferred, so that the grant does not depend on a role.
        """
        if privilege not in APPLICABLE[on.kind]:
            return None
        objects = (on.grant_object, on.schema_object)
        holders = {
            grant.grantee
            for grant in self.grants
            if grant.grantable
            and grant.privilege is privilege
            and grant.object in objects
            and grant.grantee in self.identities
        }
        ordered = sorted(holders, key=lambda each: (_ORDER.index(each.kind), each.name))
        return ordered[0] if ordered else None

    def may_grant(self, privilege: Privilege, on: SecuredObject) -> bool:
        """Return whether the user may grant a privilege on an object."""
        return self.may(Action.OWN, on) or self.option_holder(privilege, on) is not None

    def visible(self, tables: Iterable[MaterializedTable]) -> tuple[MaterializedTable, ...]:
        """Return the materialized tables that the user may see."""
        return tuple(table for table in tables if self.may(Action.SEE, secured_table(table)))

    def _sees_within(self, schema: SchemaObject) -> bool:
        """Return whether the user may see an object in a schema, as far as the gateway knows."""
        for on in self._held:
            if isinstance(on, NamedObject) and (on.catalog, on.schema) == (
                schema.catalog,
                schema.schema,
            ):
                return True
        objects = map(secured_table, self.tables())
        return any(on.schema_object == schema and self.may(Action.SEE, on) for on in objects)
