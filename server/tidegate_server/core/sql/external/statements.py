"""Statements on external locations and connections, as frozen records; names in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
class CreateConnection:
    """CREATE CONNECTION [IF NOT EXISTS] c TYPE t OPTIONS (...) [COMMENT '...'].

    The type is in lower case.
    """

    name: str
    type: str
    options: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Options whose values are secrets of the configuration, with the names of these."""
    comment: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConnectionOptions:
    """ALTER CONNECTION c SET OPTIONS (...)."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameExternal:
    """ALTER { EXTERNAL LOCATION | CONNECTION } l RENAME TO k."""

    kind: SecuredKind
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropExternal:
    """DROP { EXTERNAL LOCATION | CONNECTION } [IF EXISTS] l."""

    kind: SecuredKind
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowExternal:
    """SHOW { EXTERNAL LOCATIONS | CONNECTIONS }."""

    kind: SecuredKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeExternal:
    """DESCRIBE { EXTERNAL LOCATION | CONNECTION } l."""

    kind: SecuredKind
    name: str


ExternalStatement = (
    CreateExternalLocation
    | SetExternalLocationUrl
    | CreateConnection
    | SetConnectionOptions
    | RenameExternal
    | DropExternal
    | ShowExternal
    | DescribeExternal
)
