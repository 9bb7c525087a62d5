"""Statements on external locations and connections, as frozen records; names in lower case."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_server.core.model.privileges import SecuredKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateExternalLocation:
    """CREATE EXTERNAL LOCATION [IF NOT EXISTS] l URL '...' [COMMENT '...']."""

    name: str
    url: str
    comment: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetExternalLocationUrl:
    """ALTER EXTERNAL LOCATION l SET URL '...'."""

    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameExternal:
    """ALTER EXTERNAL LOCATION l RENAME TO k."""

    kind: SecuredKind
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropExternal:
    """DROP EXTERNAL LOCATION [IF EXISTS] l."""

    kind: SecuredKind
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowExternal:
    """SHOW EXTERNAL LOCATIONS."""

    kind: SecuredKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeExternal:
    """DESCRIBE EXTERNAL LOCATION l."""

    kind: SecuredKind
    name: str


ExternalStatement = (
    CreateExternalLocation
    | SetExternalLocationUrl
    | RenameExternal
    | DropExternal
    | ShowExternal
    | DescribeExternal
)
