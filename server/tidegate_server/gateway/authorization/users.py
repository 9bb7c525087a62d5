"""The rights of users, with their roles and groups as the store has them."""

from __future__ import annotations

from dataclasses import replace

from tidegate_server.core.model.privileges import (
    Grantee,
    GranteeKind,
    group,
    owner_grantee,
    user,
)
from tidegate_server.gateway.authorization.grants import roles_of
from tidegate_server.gateway.authorization.rights import Rights
from tidegate_server.gateway.context import Services


def rights_of(name: str, services: Services) -> Rights | None:
    """Return a user's rights; None if authorization is disabled."""
    if not services.config.authorization.enabled:
        return None
    return _rights(user(name), services)


def rights_of_owner(owner: str, services: Services) -> Rights | None:
    """Return the rights of an owner as it is recorded, which may be a role; None if disabled."""
    if not services.config.authorization.enabled:
        return None
    grantee = owner_grantee(owner)
    return Rights(user="") if grantee is None else _rights(grantee, services)


def is_administrator(name: str, services: Services) -> bool:
    """Return whether a user may do everything, even if authorization is disabled."""
    section = services.config.authorization
    if name in section.administrators:
        return True
    if not (section.administrator_roles or section.administrator_groups):
        return False
    groups = services.privileges.groups_of(name)
    if groups.intersection(section.administrator_groups):
        return True
    start = [user(name), *map(group, groups)]
    roles = roles_of(start, services.privileges.memberships())
    return bool(roles.intersection(section.administrator_roles))


def _rights(grantee: Grantee, services: Services) -> Rights:
    """Return the rights of a user or of a role."""
    store, section = services.privileges, services.config.authorization
    name = grantee.name if grantee.kind is GranteeKind.USER else ""
    groups = store.groups_of(name) if name else frozenset()
    roles = roles_of([grantee, *map(group, groups)], store.memberships())
    if grantee.kind is GranteeKind.ROLE:
        roles |= {grantee.name}
    rights = Rights(
        user=name,
        administrator=bool(
            name in section.administrators
            or roles.intersection(section.administrator_roles)
            or groups.intersection(section.administrator_groups)
        ),
        roles=roles,
        groups=groups,
        tables=services.catalog.tables,
    )
    if rights.administrator:
        return rights
    return replace(rights, grants=store.grants_to(rights.identities))
