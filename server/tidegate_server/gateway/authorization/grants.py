"""Rules on sets of grants and roles: what depends on a grant option, who is in a role; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from tidegate_server.core.model.privileges import (
    PUBLIC_ROLE,
    Grant,
    Grantee,
    GranteeKind,
    GrantObject,
    Membership,
    NamedObject,
    SchemaObject,
    ServerObject,
    TableObject,
    role,
)

SchemaOf = Callable[[TableObject], SchemaObject | None]
"""Returns the schema of a materialized table; None if the table no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """What a REVOKE does to the stored grants."""

    removed: tuple[Grant, ...] = ()
    weakened: tuple[Grant, ...] = ()
    """Grants that lose only their grant option."""
    dependent: tuple[Grant, ...] = ()
    """Other grants that rely on what is removed."""

    @property
    def changes_nothing(self) -> bool:
        """Whether no grant is affected."""
        return not (self.removed or self.weakened)


def revoke(
    grants: Collection[Grant],
    revoked: Collection[Grant],
    schema_of: SchemaOf,
    *,
    option_only: bool = False,
) -> Revocation:
    """Return the effect of revoking some of all grants, or only their grant options."""
    weakened = tuple(g for g in revoked if g.grantable) if option_only else ()
    removed = () if option_only else tuple(revoked)
    kept = [
        replace(grant, grantable=False) if grant in weakened else grant
        for grant in grants
        if grant not in removed
    ]
    valid = set(supported(kept, schema_of))
    dependent = tuple(
        grant for grant in grants if grant in kept and grant not in valid and grant not in weakened
    )
    return Revocation(removed=removed, weakened=weakened, dependent=dependent)


def supported(grants: Collection[Grant], schema_of: SchemaOf) -> tuple[Grant, ...]:
    """Return the grants that an owner or an administrator made, or that rely on one of these.

    A grant relies on its holder's option on the object or on the object's schema. Grants that rely
    only on each other are not supported.
    """
    valid = [grant for grant in grants if grant.holder is None]
    pending = [grant for grant in grants if grant.holder is not None]
    while True:
        options = {(g.grantee, g.privilege, g.object) for g in valid if g.grantable}
        found = [
            grant
            for grant in pending
            if any(
                (grant.holder, grant.privilege, on) in options
                for on in _covering(grant.object, schema_of)
            )
        ]
        if not found:
            return tuple(valid)
        valid += found
        pending = [grant for grant in pending if grant not in found]


def roles_of(start: Iterable[Grantee], memberships: Iterable[Membership]) -> frozenset[str]:
    """Return the roles of a user with its groups, directly or by other roles; always PUBLIC."""
    known = tuple(memberships)
    found = {PUBLIC_ROLE}
    reached = set(start)
    while True:
        new = {each.role for each in known if each.member in reached} - found
        if not new:
            return frozenset(found)
        found |= new
        reached |= {role(name) for name in new}


def makes_cycle(name: str, member: Grantee, memberships: Iterable[Membership]) -> bool:
    """Return whether a role would contain itself if it were granted to a member."""
    if member.kind is not GranteeKind.ROLE:
        return False
    return member.name == name or member.name in roles_of([role(name)], memberships)


def _covering(on: GrantObject, schema_of: SchemaOf) -> tuple[GrantObject, ...]:
    match on:
        case SchemaObject():
            return (on,)
        case ServerObject():
            return (on,)
        case NamedObject(catalog=catalog, schema=schema):
            return on, SchemaObject(catalog=catalog, schema=schema)
        case TableObject():
            schema_object = schema_of(on)
            return (on,) if schema_object is None else (on, schema_object)
