"""Statements on privileges, roles and owners, as frozen records."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_server.core.model.privileges import Grantee, Privilege, SecuredKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OnObject:
    """ON kind name; ``[TABLE] t`` may also be a view or a materialized table."""

    kind: SecuredKind
    name: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRole:
    """ON ROLE r, in lower case."""

    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPrivileges:
    """GRANT ... ON ... TO ... [WITH GRANT OPTION]."""

    privileges: tuple[Privilege, ...]
    on: OnObject
    grantee: Grantee
    grantable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokePrivileges:
    """REVOKE [GRANT OPTION FOR] ... ON ... FROM ... [CASCADE]."""

    privileges: tuple[Privilege, ...]
    on: OnObject
    grantee: Grantee
    option_only: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowGrants:
    """SHOW GRANTS [ON ...] [FOR ...]."""

    on: OnObject | OnRole | None = None
    grantee: Grantee | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRole:
    """CREATE ROLE [IF NOT EXISTS] r, in lower case."""

    role: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRole:
    """DROP ROLE [IF EXISTS] r [CASCADE], in lower case."""

    role: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRole:
    """GRANT ROLE r TO ..."""

    role: str
    member: Grantee


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeRole:
    """REVOKE ROLE r FROM ..."""

    role: str
    member: Grantee


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRoles:
    """SHOW [CURRENT] ROLES."""

    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOwner:
    """ALTER ... SET OWNER [TO] { USER u | ROLE r }."""

    on: OnObject
    owner: Grantee


PrivilegeStatement = (
    GrantPrivileges
    | RevokePrivileges
    | ShowGrants
    | CreateRole
    | DropRole
    | GrantRole
    | RevokeRole
    | ShowRoles
    | SetOwner
)
