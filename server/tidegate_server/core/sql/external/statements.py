"""Statements on what is outside of the warehouse, as frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_server.core.connectors.columns import ConnectorTable
from tidegate_server.core.connectors.merging import Feature, Merging
from tidegate_server.core.model.privileges import SecuredKind

# Names of external locations and connections are in lower case.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableLike:
    """CREATE [TEMPORARY] TABLE [IF NOT EXISTS] t [(...)] ... LIKE other [(...)]."""

    name: tuple[str, ...]
    other: tuple[str, ...]
    own: ConnectorTable
    """What the statement itself defines."""
    how: Mapping[Feature, Merging]
    """Has all features."""
    temporary: bool = False
    if_not_exists: bool = False
    comment: str | None = None
    bare: bool = False
    """Whether there is nothing but the two names."""
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)
    """Where the name of the other table is, from 1."""


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
    CreateTableLike
    | CreateExternalLocation
    | SetExternalLocationUrl
    | CreateConnection
    | SetConnectionOptions
    | RenameExternal
    | DropExternal
    | ShowExternal
    | DescribeExternal
)
