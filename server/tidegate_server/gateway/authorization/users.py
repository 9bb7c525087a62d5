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
    return _administers(user(name), services)


def owner_administers(owner: str, services: Services) -> bool:
    """Return the same for an owner as it is recorded, which may be a role."""
    grantee = owner_grantee(owner)
    return grantee is not None and _administers(grantee, services)


def _administers(grantee: Grantee, services: Services) -> bool:
    section = services.config.authorization
    if grantee.kind is GranteeKind.USER and grantee.name in section.administrators:
        return True
    if not (section.administrator_roles or section.administrator_groups):
        return False
    roles, groups = _belonging(grantee, services)
    return bool(
        roles.intersection(section.administrator_roles)
        or groups.intersection(section.administrator_groups)
    )


def _belonging(grantee: Grantee, services: Services) -> tuple[frozenset[str], frozenset[str]]:
    """Return the roles and groups of a user or role; a role belongs to itself."""
    store = services.privileges
    is_user = grantee.kind is GranteeKind.USER
    groups = store.groups_of(grantee.name) if is_user else frozenset()
    roles = roles_of([grantee, *map(group, groups)], store.memberships())
    return roles if is_user else roles | {grantee.name}, groups


def _rights(grantee: Grantee, services: Services) -> Rights:
    """Return the rights of a user or of a role."""
    roles, groups = _belonging(grantee, services)
    rights = Rights(
        user=grantee.name if grantee.kind is GranteeKind.USER else "",
        administrator=_administers(grantee, services),
        roles=roles,
        groups=groups,
        tables=services.catalog.tables,
    )
    if rights.administrator:
        return rights
    return replace(rights, grants=services.privileges.grants_to(rights.identities))
