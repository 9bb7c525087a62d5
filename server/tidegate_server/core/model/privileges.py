"""Privileges on objects, the users, roles and groups that hold them, and their grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA


class Privilege(Enum):
    """A privilege on an object.

    On a schema, SELECT, MODIFY, ALTER, REFRESH and EXECUTE apply to every object in it.
    """

    SELECT = "SELECT"
    """Read rows."""
    MODIFY = "MODIFY"
    """Change, add and remove rows."""
    CREATE = "CREATE"
    """Create objects in a schema."""
    ALTER = "ALTER"
    """Change the definition and properties of an object."""
    REFRESH = "REFRESH"
    """Refresh a materialized table and cancel its refreshes."""
    USAGE = "USAGE"
    """See a schema and make it the current one."""
    EXECUTE = "EXECUTE"
    """Call a function."""
    READ_FILES = "READ FILES"
    """Read files below an external location."""
    WRITE_FILES = "WRITE FILES"
    """Write files below an external location."""
    CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
    """Create tables whose directory is below an external location."""
    USE_CONNECTION = "USE CONNECTION"
    """Use the system behind a connection."""
    USE_CATALOG = "USE CATALOG"
    """Use the system behind a catalog."""
    ALL = "ALL"
    """Every privilege that applies to the object."""


class SecuredKind(Enum):
    """The kind of an object with an owner and privileges."""

    SCHEMA = "SCHEMA"
    TABLE = "TABLE"
    VIEW = "VIEW"
    FUNCTION = "FUNCTION"
    MATERIALIZED_TABLE = "MATERIALIZED TABLE"
    EXTERNAL_LOCATION = "EXTERNAL LOCATION"
    CONNECTION = "CONNECTION"
    CATALOG = "CATALOG"

    def __str__(self) -> str:
        return self.value.lower()


APPLICABLE: Final[Mapping[SecuredKind, tuple[Privilege, ...]]] = {
    SecuredKind.SCHEMA: (
        *(Privilege.SELECT, Privilege.MODIFY, Privilege.CREATE, Privilege.ALTER),
        *(Privilege.REFRESH, Privilege.USAGE, Privilege.EXECUTE),
    ),
    SecuredKind.TABLE: (Privilege.SELECT, Privilege.MODIFY, Privilege.ALTER),
    # Rows can be inserted into views that are tables of connectors.
    SecuredKind.VIEW: (Privilege.SELECT, Privilege.MODIFY, Privilege.ALTER),
    SecuredKind.FUNCTION: (Privilege.EXECUTE,),
    SecuredKind.MATERIALIZED_TABLE: (Privilege.SELECT, Privilege.ALTER, Privilege.REFRESH),
    SecuredKind.EXTERNAL_LOCATION: (
        *(Privilege.READ_FILES, Privilege.WRITE_FILES),
        Privilege.CREATE_EXTERNAL_TABLE,
    ),
    SecuredKind.CONNECTION: (Privilege.USE_CONNECTION, Privilege.MODIFY),
    SecuredKind.CATALOG: (Privilege.USE_CATALOG, Privilege.MODIFY),
}
"""The privileges that apply to each kind of object."""


EXTERNAL_KINDS: Final = (
    SecuredKind.EXTERNAL_LOCATION,
    SecuredKind.CONNECTION,
    SecuredKind.CATALOG,
)
"""The kinds of objects that are in no schema."""
CATALOG_KINDS: Final = (SecuredKind.CONNECTION, SecuredKind.CATALOG)
"""Those of them that are catalogs of Spark; their names are unique among both."""


def expand(privilege: Privilege, kind: SecuredKind) -> tuple[Privilege, ...]:
    """Return the privileges that one stands for; none if it does not apply to the kind."""
    applicable = APPLICABLE[kind]
    if privilege is Privilege.ALL:
        return applicable
    return (privilege,) if privilege in applicable else ()


# ---- grantees --------------------------------------------------------------------------------


class GranteeKind(Enum):
    """Who can hold privileges."""

    USER = "USER"
    ROLE = "ROLE"
    GROUP = "GROUP"


PUBLIC_ROLE: Final = "public"
"""The role of every user; it cannot be created, dropped or granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grantee:
    """A user, a role or a group; names of roles are in lower case."""

    kind: GranteeKind
    name: str

    def __str__(self) -> str:
        return "PUBLIC" if self == PUBLIC else f"{self.kind.value.lower()} {self.name}"


def user(name: str) -> Grantee:
    """Return a user as a grantee."""
    return Grantee(kind=GranteeKind.USER, name=name)


def role(name: str) -> Grantee:
    """Return a role as a grantee."""
    return Grantee(kind=GranteeKind.ROLE, name=name.lower())


def group(name: str) -> Grantee:
    """Return a group as a grantee."""
    return Grantee(kind=GranteeKind.GROUP, name=name)


PUBLIC: Final = role(PUBLIC_ROLE)
"""Everyone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role that an administrator created."""

    name: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A role that was granted to a user, a group or another role."""

    role: str
    member: Grantee
    granted_by: str
    granted_at: datetime


# ---- owners ----------------------------------------------------------------------------------

UNOWNED: Final = "unowned"
"""The owner of an object that existed before owners were recorded; no user has this name."""
_ROLE_OWNER: Final = "ROLE "


def owner_text(owner: Grantee) -> str:
    """Return how an owner is recorded: a user by its name, a role after the word ROLE."""
    return owner.name if owner.kind is GranteeKind.USER else f"{_ROLE_OWNER}{owner.name}"


def is_role_owner(owner: str) -> bool:
    """Return whether a recorded owner is a role."""
    return owner.startswith(_ROLE_OWNER)


def owner_grantee(owner: str) -> Grantee | None:
    """Return the recorded owner; None if there is none.

    A text that begins with ROLE is always a role, so that a user's name cannot pretend to be one.
    """
    if owner in ("", UNOWNED):
        return None
    if is_role_owner(owner):
        return role(owner.removeprefix(_ROLE_OWNER))
    return user(owner)


# ---- grants ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableObject:
    """One materialized table, by its id: a table created again has another id."""

    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SchemaObject:
    """A schema with every present and future object in it; names in lower case."""

    catalog: str
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedObject:
    """A plain table, a view or a function; names in lower case.

    The owner is part of the identity: grants do not apply to an object that another user creates
    under the same name.
    """

    kind: SecuredKind
    catalog: str
    schema: str
    name: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ServerObject:
    """An external location, a connection or a catalog, by its id: one created again has another
    id."""

    kind: SecuredKind
    id: str


GrantObject = TableObject | SchemaObject | NamedObject | ServerObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One privilege of one grantee on one object."""

    grantee: Grantee
    privilege: Privilege
    object: GrantObject
    granted_by: str
    """The user who granted it; empty for an initial grant."""
    granted_at: datetime
    grantable: bool = False
    """Whether the grantee may grant it to others."""
    holder: Grantee | None = None
    """Whose grant option it relies on; None if an owner or an administrator granted it."""


INITIAL_GRANTS: Final = tuple(
    Grant(
        grantee=PUBLIC,
        privilege=privilege,
        object=SchemaObject(catalog=DEFAULT_CATALOG, schema=DEFAULT_SCHEMA),
        granted_by="",
        granted_at=datetime(1970, 1, 1, tzinfo=UTC),
    )
    for privilege in (Privilege.CREATE, Privilege.USAGE)
)
"""The grants of a new store."""
